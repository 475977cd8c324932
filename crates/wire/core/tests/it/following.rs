//! Live subscriptions: each event once, in order, for any number of followers, fast or slow.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ropewalk::events::QueryItem;
use ropewalk::{Database, Event, Position, Query};
use ropewalk_wire::{Code, Followed, Following, Frame, Limits, Service, ServiceSettings};

use crate::{append, event, everybody, service};

/// Long enough that only a hang exceeds it.
const LONG: Duration = Duration::from_secs(60);

fn follow(service: &Service, query: Query, after: Option<u64>) -> Following {
    service.follow(&everybody(), "default", query, after.map(Position)).unwrap()
}

async fn next(following: &mut Following) -> Followed {
    tokio::time::timeout(LONG, following.next()).await.expect("something comes").unwrap()
}

/// Positions of the next events, up to and including the next signal that the follower has caught up.
async fn until_caught_up(following: &mut Following) -> (Vec<u64>, u64) {
    let mut seen = Vec::new();
    loop {
        match next(following).await {
            Followed::Events(batch) => seen.extend(batch.events().map(|event| event.position.0)),
            Followed::CaughtUp { head } => return (seen, head.0),
            Followed::FellBehind { .. } => panic!("it was not live yet"),
        }
    }
}

async fn live(following: &mut Following) -> Vec<u64> {
    match next(following).await {
        Followed::Events(batch) => batch.events().map(|event| event.position.0).collect(),
        _ => panic!("events are expected"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn catches_up_then_goes_live() {
    let service = service();
    let events: Vec<Event> = (0..1500).map(|i| event(if i % 3 == 0 { "A" } else { "B" }, &[])).collect();
    append(&service, &events).await;
    let mut following = follow(&service, Query::from_types(["A"]), None);
    let (seen, head) = until_caught_up(&mut following).await;
    assert_eq!((seen, head), ((0..500).map(|i| 3 * i + 1).collect(), 1500));
    append(&service, &[event("B", &[])]).await;
    append(&service, &[event("A", &[]), event("B", &[]), event("A", &[])]).await;
    assert_eq!(live(&mut following).await, [1502, 1504]);
    // A subscription waits for a position in the future.
    let mut later = follow(&service, Query::all(), Some(1505));
    assert_eq!(until_caught_up(&mut later).await, (vec![], 1504));
    append(&service, &vec![event("A", &[]); 3]).await;
    assert_eq!(live(&mut later).await, [1506, 1507]);
    assert_eq!(live(&mut following).await, [1505, 1506, 1507]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_of_one_filter_share_a_batch_and_its_frame() {
    let service = service();
    let query = || Query::from_tags(["t:1"]).or(QueryItem::new(["A", "B"], [] as [&str; 0]));
    let (mut one, mut two) = (follow(&service, query(), None), follow(&service, query(), None));
    let mut everything = follow(&service, Query::all(), None);
    for following in [&mut one, &mut two, &mut everything] {
        assert_eq!(until_caught_up(following).await, (vec![], 0));
    }
    // Joins happen with the first wait; let both wait before the append.
    let encoded = AtomicUsize::new(0);
    let take = async |following: &mut Following| match next(following).await {
        Followed::Events(batch) => {
            let encode = |_: &_| {
                encoded.fetch_add(1, Ordering::SeqCst);
                Bytes::from_static(b"frame")
            };
            assert_eq!(batch.frame(Frame::Sse, encode), "frame");
            batch
        }
        _ => panic!("events are expected"),
    };
    let add = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        append(&service, &[event("A", &["t:1"]), event("C", &["t:2"]), event("C", &["t:1"])]).await;
    };
    let (one, two, everything, ()) = tokio::join!(take(&mut one), take(&mut two), take(&mut everything), add);
    assert!(Arc::ptr_eq(&one, &two));
    assert_eq!(encoded.load(Ordering::SeqCst), 2);
    assert_eq!(one.events().map(|event| event.position.0).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(everything.events().len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_follower_catches_up_without_losing_events() {
    let service = service();
    let mut slow = follow(&service, Query::all(), None);
    until_caught_up(&mut slow).await;
    // It joins its group with its first wait.
    assert!(tokio::time::timeout(Duration::from_millis(1), slow.next()).await.is_err());
    let big = vec![7_u8; 64 << 10];
    for _ in 0..40 {
        append(&service, &vec![Event::new("E").data(big.clone()); 10]).await;
    }
    let (mut seen, mut fell, mut caught) = (Vec::new(), 0, 0);
    while seen.len() < 400 || caught < fell {
        match next(&mut slow).await {
            Followed::Events(batch) => seen.extend(batch.events().map(|event| event.position.0)),
            Followed::FellBehind { .. } => fell += 1,
            Followed::CaughtUp { head } => {
                caught += 1;
                assert_eq!(head, Position(400));
            }
        }
    }
    assert_eq!(seen, (1..=400).collect::<Vec<_>>());
    assert_eq!(fell, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_followers_of_ten_filters_each_get_exactly_theirs() {
    const WRITERS: u64 = 4;
    const APPENDS: u64 = 100;
    let service = service();
    let query = |filter: u64| match filter {
        0 => Query::all(),
        1 => Query::from_types(["T0", "T1"]),
        2 => Query::from_types(["T0"]).or(QueryItem::new([] as [&str; 0], ["t:1"])),
        3 => Query::from_items([QueryItem::new(["T1"], ["t:0"])]),
        4 => Query::from_tags(["t:2", "u:0"]),
        5 => Query::from_tags(["nobody has this"]),
        other => Query::from_tags([format!("t:{}", other - 6)]),
    };
    let last = Arc::new(tokio::sync::watch::Sender::new(None::<u64>));
    let followers: Vec<_> = (0..1000_u64)
        .map(|i| {
            let (service, mut last) = (service.clone(), last.subscribe());
            tokio::spawn(async move {
                // Some join during the appends, some begin in the middle, some leave and come back.
                if i % 7 == 0 {
                    tokio::time::sleep(Duration::from_millis(i % 50)).await;
                }
                let after = if i % 3 == 0 { 37 } else { 0 };
                let mut following = follow(&service, query(i % 10), Some(after));
                let mut seen = Vec::new();
                loop {
                    tokio::select! {
                        followed = following.next() => match followed.unwrap() {
                            Followed::Events(batch) => {
                                seen.extend(batch.events().map(|event| event.position.0));
                                if i % 5 == 0 && seen.len() % 11 == 0 {
                                    let resume = seen.last().copied();
                                    following = follow(&service, query(i % 10), resume);
                                }
                            }
                            Followed::CaughtUp { .. } | Followed::FellBehind { .. } => {}
                        },
                        // Everything is written: the batches until caught up are the last ones.
                        _ = last.wait_for(Option::is_some) => break,
                    }
                }
                let resume = seen.last().copied().unwrap_or(after);
                let mut rest = follow(&service, query(i % 10), Some(resume));
                // The rest is read by resuming, which must fit without a gap or a repetition.
                seen.extend(until_caught_up(&mut rest).await.0);
                (i % 10, after, seen)
            })
        })
        .collect();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let service = service.clone();
            tokio::spawn(async move {
                for n in 0..APPENDS {
                    let events: Vec<Event> = (0..1 + n % 4)
                        .map(|k| {
                            let tags = [format!("t:{}", (n + k) % 4), format!("u:{}", writer % 2)];
                            Event::new(format!("T{}", (n * 7 + k) % 3)).tag(&tags[0]).tag(&tags[1])
                        })
                        .collect();
                    append(&service, &events).await;
                    if n % 8 == 0 {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let store = service.database().events("default").unwrap();
    let head = store.head().unwrap().unwrap().0;
    last.send_replace(Some(head));
    let mut expected: HashMap<u64, Vec<u64>> = HashMap::new();
    for filter in 0..10 {
        let mut all = Vec::new();
        let mut reader = store.read(&query(filter), Default::default()).unwrap();
        while reader.visit(1000, |event| all.push(event.position.0)).unwrap() > 0 {}
        expected.insert(filter, all);
    }
    for follower in followers {
        let (filter, after, seen) = tokio::time::timeout(LONG, follower).await.unwrap().unwrap();
        let wanted: Vec<u64> = expected[&filter].iter().copied().filter(|p| *p > after).collect();
        assert_eq!(seen, wanted, "filter {filter}");
    }
    assert_eq!(expected[&5], [0_u64; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_and_deleting_end_subscriptions() {
    let service = service();
    service.create_store(&everybody(), "orders").await.unwrap();
    let orders = |after| service.follow(&everybody(), "orders", Query::all(), after).unwrap();
    let (mut waiting, mut fresh) = (orders(None), orders(None));
    until_caught_up(&mut waiting).await;
    let mut other = follow(&service, Query::all(), None);
    until_caught_up(&mut other).await;
    let (ended, _) = tokio::join!(tokio::time::timeout(LONG, waiting.next()), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        service.delete_store(&everybody(), "orders").await.unwrap();
        service.create_store(&everybody(), "orders").await.unwrap();
    });
    assert_eq!(ended.unwrap().err().unwrap().code, Code::NotFound);
    assert_eq!(fresh.next().await.err().unwrap().code, Code::NotFound);
    assert_eq!(until_caught_up(&mut orders(None)).await, (vec![], 0));
    let (ended, ()) = tokio::join!(tokio::time::timeout(LONG, other.next()), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        service.stop().begin();
    });
    assert_eq!(ended.unwrap().err().unwrap().code, Code::Stopping);
    assert_eq!(other.next().await.err().unwrap().code, Code::Stopping);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_engine_ends_subscriptions_and_last_follower_releases_database() {
    let db = Database::in_memory().unwrap();
    let limits = Limits { subscriptions: 1, ..Limits::default() };
    let service = Service::new(db.clone(), ServiceSettings { limits, ..Default::default() }).unwrap();
    let mut following = follow(&service, Query::all(), None);
    let full = service.follow(&everybody(), "default", Query::all(), None).err().unwrap();
    assert!(full.code == Code::ResourceExhausted && full.retry_after.is_some());
    until_caught_up(&mut following).await;
    assert!(tokio::time::timeout(Duration::from_millis(1), following.next()).await.is_err());
    drop(following);
    let engine = Arc::downgrade(db.engine());
    drop((service, db));
    tokio::time::timeout(LONG, async {
        while engine.upgrade().is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .expect("the feed's task ends when nobody follows");
    let service = crate::service();
    let mut following = follow(&service, Query::all(), None);
    until_caught_up(&mut following).await;
    let (ended, ()) = tokio::join!(tokio::time::timeout(LONG, following.next()), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let db = service.database().clone();
        tokio::task::spawn_blocking(move || db.close().unwrap()).await.unwrap();
    });
    assert_eq!(ended.unwrap().err().unwrap().code, Code::Internal);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_stores_are_followed_at_once() {
    let service = service();
    let mut followers = Vec::new();
    for i in 0..100_u64 {
        let (service, name) = (service.clone(), format!("store{i}"));
        service.create_store(&everybody(), &name).await.unwrap();
        followers.push(tokio::spawn(async move {
            let mut following = service.follow(&everybody(), &name, Query::all(), None).unwrap();
            let mut seen = Vec::new();
            while seen.len() < i as usize {
                if let Followed::Events(batch) = next(&mut following).await {
                    seen.extend(batch.events().map(|event| event.position.0));
                }
            }
            assert_eq!(seen, (1..=i).collect::<Vec<_>>());
        }));
    }
    for round in 0..100_u64 {
        let stores: Vec<_> = (round + 1..100)
            .map(|i| {
                let service = service.clone();
                tokio::spawn(async move {
                    let (name, events) = (format!("store{i}"), [event("A", &[])]);
                    service.append(&everybody(), &name, &events, Default::default()).await.unwrap();
                })
            })
            .collect();
        for store in stores {
            store.await.unwrap();
        }
    }
    for follower in followers {
        follower.await.unwrap();
    }
}
