//! Append, read, count and the other operations: results and errors.

use ropewalk::events::{QueryItem, ReadOptions};
use ropewalk::{AppendCondition, AppendOptions, Event, Position, Query};
use ropewalk_wire::{Code, Conflict, Page};

use crate::{append, event, everybody, service};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appended_events_are_read_in_batches() {
    let service = service();
    let events: Vec<Event> = (0..1000).map(|i| event(if i % 2 == 0 { "A" } else { "B" }, &[])).collect();
    assert_eq!(append(&service, &events).await, 1000);
    for (max_events, max_bytes, expected) in [(300, usize::MAX, 300), (usize::MAX, 1000, 0), (1, 0, 1)] {
        let query = Query::from_types(["A"]);
        let mut reading = service.read(&everybody(), "default", query, ReadOptions::default()).unwrap();
        assert_eq!(reading.head(), Some(Position(1000)));
        let (mut seen, mut more) = (Vec::new(), true);
        while more {
            let before = seen.len();
            more = reading.next(max_events, max_bytes, |event| seen.push(event.position.0)).await.unwrap();
            if more && expected > 0 {
                assert_eq!(seen.len() - before, expected);
            }
        }
        assert_eq!(seen, (0..500).map(|i| 2 * i + 1).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conflict_reports_its_position() {
    let service = service();
    append(&service, &[event("A", &["t:1"]), event("B", &["t:2"])]).await;
    let query = Query::from_types(["C"]).or(QueryItem::new(["B"], ["t:2"]));
    let options = AppendOptions::condition(AppendCondition::none_match(query));
    let error = service.append(&everybody(), "default", &[event("B", &["t:2"])], options).await.unwrap_err();
    assert_eq!(error.code, Code::ConditionFailed);
    let place = Conflict { condition: 0, position: Position(2), item: Some(1) };
    assert_eq!(error.conflict, Some(place));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn count_head_and_last_match_the_appends() {
    let service = service();
    let everybody = everybody();
    assert_eq!(service.head(&everybody, "default").await.unwrap(), None);
    let events: Vec<Event> = (0..2000).map(|i| event("A", &[if i % 4 == 0 { "x" } else { "y" }])).collect();
    append(&service, &events).await;
    let tagged = Query::from_tags(["x"]);
    assert_eq!(service.count(&everybody, "default", &tagged).await.unwrap(), 500);
    assert_eq!(service.count(&everybody, "default", &Query::all()).await.unwrap(), 2000);
    assert_eq!(service.head(&everybody, "default").await.unwrap(), Some(Position(2000)));
    let last = service.last(&everybody, "default", &tagged).await.unwrap().unwrap();
    assert_eq!(last.position, Position(1997));
    let exists = |after| service.exists(&everybody, "default", &tagged, Some(Position(after)));
    assert!(exists(1996).await.unwrap() && !exists(1997).await.unwrap());
    assert_eq!(service.tracking(&everybody, "default", "up").await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_are_created_listed_and_reported_missing() {
    let service = service();
    let everybody = everybody();
    let missing = service.head(&everybody, "orders").await.unwrap_err();
    assert_eq!(
        (missing.code, missing.message.as_str()),
        (Code::NotFound, "there is no event store \"orders\"")
    );
    assert!(service.create_store(&everybody, "orders").await.unwrap());
    assert!(!service.create_store(&everybody, "orders").await.unwrap());
    assert_eq!(service.head(&everybody, "orders").await.unwrap(), None);
    append(&service, &[event("A", &[])]).await;
    let page = |after: Option<&str>, limit| Page::new(after.map(str::to_owned), limit).unwrap();
    let (listed, next) = service.stores(&everybody, &page(None, None)).unwrap();
    let listed: Vec<_> = listed.iter().map(|s| (s.name.as_str(), s.head)).collect();
    assert_eq!((listed, next), (vec![("default", Some(Position(1))), ("orders", None)], None));
    let (first, next) = service.stores(&everybody, &page(None, Some(1))).unwrap();
    assert_eq!((first[0].name.as_str(), next.as_deref()), ("default", Some("default")));
    let (second, next) = service.stores(&everybody, &page(next.as_deref(), Some(1))).unwrap();
    assert_eq!((second[0].name.as_str(), next), ("orders", None));
    service.delete_store(&everybody, "orders").await.unwrap();
    let missing = service.delete_store(&everybody, "orders").await.unwrap_err();
    assert_eq!(missing.code, Code::NotFound);
    assert_eq!(service.stores(&everybody, &page(None, None)).unwrap().0.len(), 1);
    let refused = service.create_store(&everybody, "a\nb").await.unwrap_err();
    assert_eq!(refused.code, Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_service_rejects_new_operations() {
    let service = service();
    append(&service, &[event("A", &[])]).await;
    let mut open = service.read(&everybody(), "default", Query::all(), ReadOptions::default()).unwrap();
    service.stop().begin();
    let refused = service.append(&everybody(), "default", &[event("A", &[])], AppendOptions::default()).await;
    assert_eq!(refused.unwrap_err().code, Code::Stopping);
    // An operation that has begun continues.
    let mut seen = 0;
    assert!(!open.next(10, 1 << 20, |_| seen += 1).await.unwrap());
    assert_eq!(seen, 1);
}

/// Enough that a batch takes longer than it may occupy an async thread.
async fn long_reads_give_the_same_answers() {
    let service = service();
    let events: Vec<Event> = (0..10_000).map(|i| event("A", &[if i % 2 == 0 { "x" } else { "y" }])).collect();
    for _ in 0..4 {
        append(&service, &events).await;
    }
    let everybody = everybody();
    let both = Query::from_items([QueryItem::new(["A"], ["x"]), QueryItem::new(["A"], ["y"])]);
    assert_eq!(service.count(&everybody, "default", &both).await.unwrap(), 40_000);
    let read = async |query: Query, options: ReadOptions, max_events| {
        let mut reading = service.read(&everybody, "default", query, options).unwrap();
        let (mut seen, mut more) = (Vec::new(), true);
        while more {
            more = reading.next(max_events, usize::MAX, |event| seen.push(event.position.0)).await.unwrap();
        }
        seen
    };
    let all: Vec<u64> = (1..=40_000).collect();
    assert_eq!(read(Query::all(), ReadOptions::default(), usize::MAX).await, all);
    let many = (0..20).map(|_| read(both.clone(), ReadOptions::backwards().limit(39_999), 15_000));
    let mut backwards: Vec<u64> = all[1..].to_vec();
    backwards.reverse();
    for seen in futures(many).await {
        assert_eq!(seen, backwards);
    }
}

/// Runs all of them concurrently.
async fn futures<T>(all: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut all: Vec<_> = all.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        for (future, done) in all.iter_mut().filter(|(_, done)| done.is_none()) {
            if let std::task::Poll::Ready(value) = future.as_mut().poll(context) {
                *done = Some(value);
            }
        }
        let ready = all.iter().all(|(_, done)| done.is_some());
        if ready { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    all.into_iter().filter_map(|(_, done)| done).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_reads_leave_the_async_threads() {
    long_reads_give_the_same_answers().await;
}

#[tokio::test(flavor = "current_thread")]
async fn long_reads_work_with_one_thread() {
    long_reads_give_the_same_answers().await;
}
