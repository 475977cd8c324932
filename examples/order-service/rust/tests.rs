//! Tests of the order service, on a simulated machine.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ropewalk::Database;
use ropewalk::events::PersonalData;
use ropewalk::testing::{Machine, Scenario, power_cut_at_each_operation};

use crate::readers::{Board, mailer, send_mails};
use crate::service::{self, Outcome, STORE, Shop, ShopError, add_stock, pay, revenue, ship};

fn stock(n: u32) -> Shop {
    Shop::StockAdded { sku: "rope".into(), n }
}

fn placed(order: &str, n: u32) -> Shop {
    let (order, sku, email) = (order.into(), "rope".into(), "ann@example.org".into());
    Shop::OrderPlaced { order, sku, n, cents: 100 * n, email }
}

fn place(db: &Database, order: &str, n: u32) -> Outcome {
    service::place(db, order, "rope", n, 100 * n, "ann@example.org")
}

fn is_refused(reason: &str) -> impl Fn(&ShopError) -> bool {
    let reason = reason.to_owned();
    move |error| matches!(error, ShopError::Refused(text) if *text == reason)
}

fn board(db: &Database) -> BTreeMap<String, String> {
    service::board(db).unwrap()
}

fn rows(rows: &[(&str, &str)]) -> BTreeMap<String, String> {
    rows.iter().map(|(order, state)| ((*order).to_owned(), (*state).to_owned())).collect()
}

#[test]
fn order_is_placed_paid_and_shipped_in_this_order() {
    let scenario = Scenario::new(STORE)
        .given(&[stock(10)])
        .when(|db| place(db, "o1", 3))
        .then(&[placed("o1", 3)])
        .when(|db| ship(db, "o1"))
        .then_refused(is_refused("order o1 is placed"))
        .when(|db| pay(db, "o1"))
        .then(&[Shop::OrderPaid { order: "o1".into() }])
        .when(|db| pay(db, "o1"))
        .then_refused(is_refused("order o1 is paid"))
        .when(|db| ship(db, "o1"))
        .then(&[Shop::OrderShipped { order: "o1".into() }])
        .when(|db| place(db, "o1", 1))
        .then_refused(is_refused("order o1 exists"))
        .when(|db| pay(db, "o2"))
        .then_refused(is_refused("order o2 is unknown"))
        .when(|db| place(db, "o2", 8))
        .then_refused(is_refused("7 of rope left, 8 ordered"));
    assert_eq!(revenue(scenario.database()).unwrap(), BTreeMap::from([("rope".to_owned(), 300.0)]));
}

#[test]
fn order_that_takes_the_last_rope_first_is_the_only_one() {
    let machine = Machine::new(1);
    let db = machine.open().unwrap();
    add_stock(&db, "rope", 1).unwrap();
    let rival = db.clone();
    machine.before_next_commit(move || place(&rival, "o2", 1).unwrap());
    let refused = place(&db, "o1", 1).unwrap_err();
    assert!(is_refused("0 of rope left, 1 ordered")(&refused), "{refused}");
}

#[test]
fn concurrent_orders_never_exceed_the_stock() {
    let db = Database::in_memory().unwrap();
    add_stock(&db, "rope", 10).unwrap();
    let buy = |worker: usize| (0..5).filter(|n| place(&db, &format!("{worker}-{n}"), 1).is_ok()).count();
    let sold: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..5).map(|worker| scope.spawn(move || buy(worker))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    assert_eq!((sold, revenue(&db).unwrap()["rope"]), (10, 1_000.0));
}

#[test]
fn board_shows_the_state_of_each_order() {
    let events = [
        stock(10),
        placed("o1", 1),
        placed("o2", 1),
        placed("o3", 1),
        Shop::OrderPaid { order: "o1".into() },
        Shop::OrderPaid { order: "o2".into() },
        Shop::OrderShipped { order: "o2".into() },
    ];
    let expected = rows(&[("o1", "paid"), ("o2", "shipped"), ("o3", "placed")]);
    Scenario::new(STORE).given(&events).then_projection("board", Board, board, &expected);
}

#[test]
fn board_and_orders_agree_after_a_power_cut_at_each_operation() {
    let follow = |db: &Database| {
        let projections = db.projections(STORE)?;
        projections.register("board", Arc::new(Board))?;
        projections.catch_up("board")
    };
    power_cut_at_each_operation(
        |db, paid: &mut usize| {
            add_stock(db, "rope", 2)?;
            for order in ["o1", "o2"] {
                place(db, order, 1)?;
                follow(db)?;
                pay(db, order)?;
                *paid += 1;
            }
            Ok::<_, ShopError>(())
        },
        |db, paid| {
            follow(db).unwrap();
            let board = service::board(db).unwrap_or_default();
            let sold = revenue(db).unwrap().get("rope").map_or(0.0, |cents| cents / 100.0);
            assert_eq!(board.len() as f64, sold, "{board:?}");
            assert!(board.values().filter(|state| *state == "paid").count() >= *paid, "{board:?}");
        },
    );
}

#[test]
fn mailer_sends_retries_and_parks() {
    let machine = Machine::new(1);
    let db = machine.open().unwrap();
    add_stock(&db, "rope", 3).unwrap();
    for (order, email) in [("o1", "ann@example.org"), ("o2", "nonsense"), ("o3", "bob@example.org")] {
        service::place(&db, order, "rope", 1, 100, email).unwrap();
    }
    let (sent, failures) = (RefCell::new(Vec::new()), RefCell::new(vec!["the mail server is down"]));
    let send = |to: &str, text: &str| match failures.borrow_mut().pop() {
        Some(reason) => Err(reason.to_owned()),
        None => {
            sent.borrow_mut().push(format!("{to}: {text}"));
            Ok(())
        }
    };
    let mailer = mailer(&db).unwrap();
    assert_eq!(send_mails(&mailer, Duration::ZERO, send).unwrap(), 3);
    assert_eq!(send_mails(&mailer, Duration::ZERO, send).unwrap(), 0, "the pause has not ended");
    machine.clock().advance(Duration::from_millis(100));
    assert_eq!(send_mails(&mailer, Duration::ZERO, send).unwrap(), 1);
    assert_eq!(
        *sent.borrow(),
        ["bob@example.org: order o3: 1 of rope", "ann@example.org: order o1: 1 of rope"]
    );
    let parked = mailer.parked(None, 10).unwrap();
    assert_eq!(parked.iter().map(|one| one.reason.as_str()).collect::<Vec<_>>(), ["no address: nonsense"]);
}

#[test]
fn address_of_a_customer_is_not_logged() {
    assert!(!placed("o1", 1).redacted().to_string().contains("ann@example.org"));
    assert_eq!(Shop::PERSONAL, [("OrderPlaced", &["email"][..])]);
}
