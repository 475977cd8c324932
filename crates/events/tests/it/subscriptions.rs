//! Catch-up and live subscriptions: everything once, in order, and a signal at the end of the catch-up.

use core::time::Duration;

use ropewalk_base::Position;
use ropewalk_events::{Delivery, Event, Query};

use crate::{Db, event};

const LONG: Duration = Duration::from_secs(20);

#[test]
fn subscription_signals_catch_up_and_continues_live() {
    let db = Db::memory();
    let store = db.store("s");
    for i in 0..1200_u32 {
        store.append(&[event(if i % 3 == 0 { "A" } else { "B" }, &[])], None).unwrap();
    }
    let mut subscription = store.subscribe(&Query::from_types(["A"]), None).unwrap();
    let mut seen = Vec::new();
    loop {
        match subscription.next(LONG).unwrap().unwrap() {
            Delivery::Event(event) => seen.push(event.position.0),
            Delivery::CaughtUp { head } => break assert_eq!(head, Position(1200)),
            Delivery::FellBehind { .. } => panic!("never caught up yet"),
        }
    }
    assert_eq!(seen, (0..400).map(|i| 3 * i + 1).collect::<Vec<_>>());
    assert_eq!(subscription.position(), Position(1200));
    assert_eq!(subscription.next(Duration::ZERO).unwrap(), None);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            store.append(&[event("B", &[])], None).unwrap();
            store.append(&[event("A", &[])], None).unwrap();
        });
        let live = subscription.next(LONG).unwrap().unwrap();
        assert!(matches!(live, Delivery::Event(event) if event.position == Position(1202)));
    });
}

#[test]
fn never_skips_under_concurrent_writers_and_resumes() {
    let db = Db::memory();
    let store = db.store("s");
    let total = 4 * 400;
    let seen = std::thread::scope(|scope| {
        for writer in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for _ in 0..400 {
                    store.append(&[Event::new("E").tag(format!("w:{writer}"))], None).unwrap();
                }
            });
        }
        let mut seen = Vec::new();
        let mut subscription = store.subscribe(&Query::all(), None).unwrap();
        while seen.len() < total {
            if let Some(Delivery::Event(event)) = subscription.next(LONG).unwrap() {
                seen.push(event.position.0);
                if seen.len() % 300 == 0 {
                    // A new subscriber resumes where this one stopped.
                    subscription = store.subscribe(&Query::all(), Some(event.position)).unwrap();
                }
            }
        }
        seen
    });
    assert_eq!(seen, (1..=total as u64).collect::<Vec<_>>());
}

#[test]
fn slow_subscriber_receives_lag_signal() {
    let db = Db::memory();
    let store = db.store("s");
    let mut subscription = store.subscribe(&Query::all(), None).unwrap();
    assert_eq!(subscription.next(LONG).unwrap(), Some(Delivery::CaughtUp { head: Position(0) }));
    let events = vec![Event::new("E"); 2000];
    store.append(&events, None).unwrap();
    assert_eq!(subscription.next(LONG).unwrap(), Some(Delivery::FellBehind { head: Position(2000) }));
    let mut events = 0;
    while let Some(delivery) = subscription.next(LONG).unwrap() {
        match delivery {
            Delivery::Event(_) => events += 1,
            Delivery::CaughtUp { .. } => break,
            Delivery::FellBehind { .. } => panic!("said already"),
        }
    }
    assert_eq!(events, 2000);
}

#[test]
fn a_stopped_engine_ends_the_wait() {
    let db = Db::memory();
    let mut subscription = db.store("s").subscribe(&Query::all(), None).unwrap();
    subscription.next(LONG).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || subscription.next(LONG));
        db.engine.close().unwrap();
        assert!(waiting.join().unwrap().is_err());
    });
}
