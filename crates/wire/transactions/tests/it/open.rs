//! Transactions over several requests.

use core::time::Duration;
use std::time::Instant;

use ropewalk::Query;
use ropewalk_auth::Caller;
use ropewalk_transactions::{Cause, Failure, Modes, OpenTransactions, Statement};
use ropewalk_wire::{Bounds, Limits, TransactionLimits};

use super::*;

fn is_unknown<T>(outcome: Result<T, Failure>) -> bool {
    outcome.is_err_and(|failure| matches!(failure.cause, Cause::UnknownTransaction))
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_transactions_are_rolled_back_without_a_request() {
    let transactions =
        TransactionLimits { idle_time: Duration::from_millis(10), ..TransactionLimits::default() };
    let service = service(Limits { transactions, ..Limits::default() });
    let open = OpenTransactions::new(service);
    for _ in 0..3 {
        open.begin(&Caller::everybody(), Modes::default()).await.unwrap();
    }
    assert_eq!(open.count(), 3);
    let until = Instant::now() + Duration::from_secs(30);
    while open.count() > 0 {
        assert!(Instant::now() < until);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_does_not_wait_for_the_running_request() {
    let service = service(Limits::default());
    let store = service.database().events("s").unwrap();
    let open = OpenTransactions::new(service.clone());
    let caller = Caller::everybody();
    let (id, _) = open.begin(&caller, Modes::default()).await.unwrap();
    let running = tokio::spawn({
        let (open, caller, bounds) = (open.clone(), caller.clone(), Bounds::new(&service));
        async move {
            let text = "SELECT pg_sleep(25)".to_owned();
            let sleep = Statement { text, parameters: Vec::new(), expected: None, is_check: false };
            let operations = [append("A"), Operation::Sql(sleep)];
            open.run(&caller, id, &operations, &bounds, &Encoder::new(|_| {})).await
        }
    });
    let waiting = tokio::spawn({
        let (open, caller) = (open.clone(), caller.clone());
        async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            open.commit(&caller, id).await
        }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let begun = Instant::now();
    open.roll_back(&caller, id).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert!(is_unknown(running.await.unwrap()) && is_unknown(waiting.await.unwrap()));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(is_unknown(open.roll_back(&caller, id)));
    assert_eq!((open.count(), store.read(&Query::all(), Default::default()).unwrap().count()), (0, 0));
}
