//! Awaited transactions: many concurrent commits from one thread, and conflicts reported to the second.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};

use bson::doc;
use ropewalk_base::threads::unparking_waker;
use ropewalk_documents::{DocumentsError, Find};

use super::{Db, SYNC, b};

fn wait<F: Future>(future: F) -> F::Output {
    let waker = unparking_waker();
    let (mut future, mut context) = (pin!(future), Context::from_waker(&waker));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn one_thread_submits_many_commits_concurrently() {
    let db = Db::new();
    let things = db.coll("things");
    things.create(Default::default()).unwrap();
    let insert = |n: i32| {
        db.documents.submit(SYNC, |tx| tx.insert_one(&things, &b(doc! { "_id": n })).map(|_| n)).unwrap()
    };
    let pending: Vec<_> = (0..100).map(insert).collect();
    for (n, submitted) in pending.into_iter().enumerate() {
        assert_eq!(wait(submitted).unwrap(), n as i32);
    }
    assert_eq!(things.estimated_count().unwrap().documents, 100);
    // A read-only transaction has nothing to wait for.
    let read = db.documents.submit(SYNC, |tx| tx.count(&things, &Find::all())).unwrap();
    assert_eq!(wait(read).unwrap(), 100);
}

#[test]
fn concurrent_submits_of_same_id_conflict_once() {
    let db = Db::new();
    let things = db.coll("things");
    things.create(Default::default()).unwrap();
    let both: Vec<_> = (0..2)
        .map(|n| {
            let insert = b(doc! { "_id": 1, "n": n });
            db.documents.submit(SYNC, |tx| tx.insert_one(&things, &insert).map(drop))
        })
        .collect();
    let mut outcomes = Vec::new();
    for submitted in both {
        outcomes.push(match submitted {
            Ok(submitted) => wait(submitted),
            Err(error) => Err(error),
        });
    }
    assert!(outcomes.first().unwrap().is_ok());
    let second = outcomes.last().unwrap().as_ref().unwrap_err();
    assert!(second.is_conflict() || matches!(second, DocumentsError::Duplicate { .. }), "{second}");
}
