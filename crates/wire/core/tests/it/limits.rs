//! At a limit a call fails at once; below it everything succeeds.

use ropewalk::events::ReadOptions;
use ropewalk::{AppendOptions, Database, Event, Options, Query};
use ropewalk_wire::{Code, Limits, Service, ServiceSettings};

use crate::{append, event, everybody};

fn limited(limits: Limits) -> Service {
    let settings = ServiceSettings { limits, ..ServiceSettings::default() };
    Service::new(Database::in_memory().unwrap(), settings).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_large_append_is_rejected() {
    let service = limited(Limits { append_events: 3, request_bytes: 1000, ..Limits::default() });
    let everybody = everybody();
    let refuse = async |events: &[Event]| {
        service.append(&everybody, "default", events, AppendOptions::default()).await.unwrap_err()
    };
    let error = refuse(&vec![event("A", &[]); 4]).await;
    assert_eq!(
        (error.code, error.message.as_str()),
        (Code::TooLarge, "4 events in one append; at most 3 are allowed")
    );
    assert_eq!(refuse(&[Event::new("A").data(vec![0; 1000])]).await.code, Code::TooLarge);
    append(&service, &vec![event("A", &[]); 3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_concurrent_appends_get_retry_after() {
    for limits in [
        Limits { appends_in_flight: 8, ..Limits::default() },
        Limits { append_bytes_in_flight: 8 * 1100, ..Limits::default() },
    ] {
        let service = limited(limits);
        let appends = (0..200).map(|_| {
            let service = service.clone();
            tokio::spawn(async move {
                let events = [Event::new("A").data(vec![0; 1000])];
                service.append(&everybody(), "default", &events, AppendOptions::default()).await
            })
        });
        let mut taken = 0;
        for append in appends.collect::<Vec<_>>() {
            match append.await.unwrap() {
                Ok(_) => taken += 1,
                Err(error) => {
                    assert_eq!(error.code, Code::ResourceExhausted);
                    assert!(error.retry_after.is_some());
                }
            }
        }
        assert_eq!(service.head(&everybody(), "default").await.unwrap().map(|head| head.0), Some(taken));
        // No permit is held for ever: the next append succeeds.
        append(&service, &[Event::new("A").data(vec![0; 1000])]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_reads_are_counted_until_they_are_dropped() {
    let service = limited(Limits { reads: 2, ..Limits::default() });
    append(&service, &[event("A", &[])]).await;
    let open = || service.read(&everybody(), "default", Query::all(), ReadOptions::default());
    let (first, second) = (open().unwrap(), open().unwrap());
    assert_eq!(open().err().unwrap().code, Code::ResourceExhausted);
    assert!(service.metrics().render(service.database()).contains("ropewalk_reads 2\n"));
    drop(first);
    assert!(open().is_ok());
    drop(second);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_memory_budget_slows_writers_without_errors() {
    let env = Database::in_memory().unwrap().engine().env().clone();
    let db = Options::new().env(env).memory_budget(1 << 20).open("/small").unwrap();
    let service = Service::new(db, ServiceSettings::default()).unwrap();
    let writers = (0..8).map(|_| {
        let service = service.clone();
        tokio::spawn(async move {
            for _ in 0..25 {
                append(&service, &[Event::new("A").data(vec![0; 64 << 10])]).await;
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_eq!(service.head(&everybody(), "default").await.unwrap().map(|head| head.0), Some(200));
}
