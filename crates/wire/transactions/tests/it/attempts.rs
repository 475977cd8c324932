//! Attempts of a transaction in one request.

use ropewalk::documents::Find;
use ropewalk::{Durability, Query, Seq};
use ropewalk_auth::Caller;
use ropewalk_transactions::{Cause, DocumentsWork, IdempotencyKey, Modes, Operation, Request};
use ropewalk_wire::{Bounds, Limits, TransactionLimits};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn conflicting_transaction_runs_again_and_forgets_earlier_results() {
    let service = service(Limits::default());
    let collection = service.database().collection("c").unwrap();
    collection.insert_one(document(0).bytes(), Durability::Sync).unwrap();
    let attempts = AtomicUsize::new(0);
    // The first attempts conflict: another commit changes what they have read.
    let encoder = Encoder::new(|place| {
        if place == 0 && attempts.fetch_add(1, Ordering::SeqCst) < 3 {
            let id = i32::try_from(attempts.load(Ordering::SeqCst)).unwrap();
            collection.insert_one(document(id).bytes(), Durability::Sync).unwrap();
        }
    });
    let operations = vec![
        on_documents(DocumentsWork::Find(Find::all())),
        on_documents(DocumentsWork::Insert(document(9))),
    ];
    let request = Request { operations, ..Request::default() };
    let bounds = Bounds::new(&service);
    let answer = transact(&service, &Caller::everybody(), &request, &bounds, &encoder).await.unwrap();
    assert_eq!(answer.results.len(), 2);
    assert_eq!((encoder.restarts(), attempts.load(Ordering::SeqCst)), (4, 4));
    assert_eq!(*encoder.places.lock().unwrap(), [0, 1], "only results of the last attempt");
}

#[tokio::test(flavor = "multi_thread")]
async fn key_of_a_conflicting_transaction_counts_once() {
    let transactions = TransactionLimits { keys_per_caller: 2, ..TransactionLimits::default() };
    let service = service(Limits { transactions, ..Limits::default() });
    let caller = Caller::everybody();
    let collection = service.database().collection("c").unwrap();
    collection.insert_one(document(0).bytes(), Durability::Sync).unwrap();
    for (number, conflicts) in [("a", 5_usize), ("b", 0)] {
        let attempts = AtomicUsize::new(0);
        let encoder = Encoder::new(|place| {
            if place == 0 && attempts.fetch_add(1, Ordering::SeqCst) < conflicts {
                let id = i32::try_from(attempts.load(Ordering::SeqCst)).unwrap();
                collection.insert_one(document(id).bytes(), Durability::Sync).unwrap();
            }
        });
        let operations = vec![on_documents(DocumentsWork::Find(Find::all())), append(number)];
        let key = Some(IdempotencyKey::new(&caller, number, b"request").unwrap());
        let request = Request { operations, key, ..Request::default() };
        transact(&service, &caller, &request, &Bounds::new(&service), &encoder).await.unwrap();
        assert_eq!(encoder.restarts(), conflicts + 1);
    }
    let key = Some(IdempotencyKey::new(&caller, "c", b"request").unwrap());
    let request = Request { operations: vec![append("c")], key, ..Request::default() };
    let refused = transact(&service, &caller, &request, &Bounds::new(&service), &Encoder::new(|_| {})).await;
    let Err(failure) = refused else { panic!("a third key was stored") };
    assert!(failure.operation.is_none());
    assert!(
        matches!(failure.cause, Cause::Wire(error) if error.code == ropewalk_wire::Code::ResourceExhausted)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn commit_between_snapshot_and_commit_fails_the_precondition_without_another_attempt() {
    let service = service(Limits::default());
    // Its keyspace is created by a commit, in a server before the first request.
    service.database().idempotency_records().unwrap();
    let store = service.database().events("s").unwrap();
    store.append(&[ropewalk::Event::new("A")], None).unwrap();
    let seen = service.database().seq();
    let encoder = Encoder::new(|_| {
        store.append(&[ropewalk::Event::new("B")], None).unwrap();
    });
    let operations = vec![Operation::Newest(seen), append("C")];
    let request = Request { operations, ..Request::default() };
    let failed = transact(&service, &Caller::everybody(), &request, &Bounds::new(&service), &encoder).await;
    let Err(failure) = failed else { panic!("it was committed") };
    let newest = Seq(seen.0 + 1);
    assert!(
        matches!(failure.cause, Cause::NotNewest { expected, newest: found } if expected == seen && found == newest),
        "{failure:?}"
    );
    assert_eq!(encoder.restarts(), 1);
    assert_eq!(store.read(&Query::all(), Default::default()).unwrap().count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_at_a_commit_are_those_of_that_commit() {
    let service = service(Limits::default());
    let store = service.database().events("s").unwrap();
    store.append(&[ropewalk::Event::new("A")], None).unwrap();
    let at = service.database().seq();
    store.append(&[ropewalk::Event::new("B")], None).unwrap();
    let read = || Operation::ReadEvents {
        store: "s".to_owned(),
        query: Query::all(),
        options: ropewalk::events::ReadOptions::default(),
    };
    let modes = Modes { at: Some(at), ..Modes::default() };
    let request = Request { operations: vec![read()], modes, ..Request::default() };
    let encoder = Encoder::new(|_| {});
    let caller = Caller::everybody();
    let answer = transact(&service, &caller, &request, &Bounds::new(&service), &encoder).await.unwrap();
    assert_eq!((answer.seq, answer.results.len()), (at, 1));
    let request = Request { operations: vec![read(), append("C")], modes, ..Request::default() };
    let refused = transact(&service, &caller, &request, &Bounds::new(&service), &encoder).await;
    assert_eq!(refused.err().and_then(|failure| failure.operation), Some(1));
}
