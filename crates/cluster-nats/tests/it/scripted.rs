//! Answers that a sound server does not give: the log must notice each.

use std::time::Duration;

use ropewalk_cluster_nats::{NatsError, NatsLog, NatsSettings};
use ropewalk_log::shared::{AppendError, EntryIndex, SharedError, SharedLog, SharedResult};
use serde_json::{Value, json};

use crate::script::{Request, SUBJECT, Sent, info, serve};
use crate::servers::patiently;
use crate::single::WAIT;

const VERSION: &str = "2.15.1";

fn settings(address: &str) -> NatsSettings {
    let settings: NatsSettings = format!("nats://{address}/LOG").parse().unwrap();
    NatsSettings { allow_one_server: true, open_time: Duration::from_secs(5), ..settings }
}

/// A log with the entries 1 to `last`, whose server answers other requests by the script.
fn log(last: u64, mut script: impl FnMut(&Request) -> Vec<Sent> + Send + 'static) -> NatsLog {
    let address = serve(VERSION, move |request| {
        if request.is_info() { vec![request.answer(&info(1, last))] } else { script(request) }
    });
    NatsLog::open(&settings(&address)).unwrap()
}

fn numbers(log: &NatsLog, after: u64) -> SharedResult<Vec<u64>> {
    let entries = log.read(EntryIndex(after), usize::MAX, WAIT)?;
    for entry in &entries {
        assert_eq!(entry.bytes, entry.index.0.to_string().into_bytes());
    }
    Ok(entries.iter().map(|entry| entry.index.0).collect())
}

fn no_message(request: &Request) -> Vec<Sent> {
    vec![
        request
            .answer(&json!({"error": {"code": 404, "err_code": 10037, "description": "no message found"}})),
    ]
}

#[test]
fn old_server_is_rejected() {
    for version in ["2.9.10", "2.15.0"] {
        let error = NatsLog::open(&settings(&serve(version, |_| vec![]))).unwrap_err();
        assert!(matches!(&error, NatsError::Version { found, .. } if found == version), "{error}");
    }
}

#[test]
fn server_without_jetstream_is_unreachable() {
    let error = NatsLog::open(&settings(&serve(VERSION, |_| vec![]))).unwrap_err();
    assert!(matches!(error, NatsError::Unreachable { .. }), "{error}");
}

#[test]
fn hole_in_the_stream_is_a_lost_entry() {
    let log = log(5, |request| match request.consumer() {
        Some((to, 1)) => {
            let created = request.answer(&json!({"num_pending": 5}));
            vec![
                created,
                Sent::delivery(&to, 1, 1, 3),
                Sent::delivery(&to, 2, 2, 2),
                Sent::delivery(&to, 4, 3, 1),
            ]
        }
        Some((to, 3)) => vec![request.answer(&json!({"num_pending": 2})), Sent::delivery(&to, 4, 1, 1)],
        _ => no_message(request),
    });
    let mut read = numbers(&log, 0).unwrap();
    if read == [1] {
        read.extend(numbers(&log, 1).unwrap());
    }
    assert_eq!(read, [1, 2]);
    let error = numbers(&log, 2).unwrap_err();
    assert!(matches!(&error, SharedError::Lost { what } if what.contains("no entry 3")), "{error}");
}

#[test]
fn entry_that_only_a_replica_lacks_is_read_from_the_leader() {
    let log = log(5, |request| match request.consumer() {
        Some((to, 3)) => vec![request.answer(&json!({"num_pending": 2})), Sent::delivery(&to, 4, 1, 1)],
        Some((to, 4)) => vec![request.answer(&json!({"num_pending": 2})), Sent::delivery(&to, 4, 1, 0)],
        _ => vec![request.answer(&json!({"message": {"subject": SUBJECT, "seq": 3, "data": "Mw=="}}))],
    });
    assert_eq!(numbers(&log, 2), Ok(vec![3]));
    assert_eq!(numbers(&log, 3), Ok(vec![4]));
}

#[test]
fn hole_before_an_entry_that_the_leader_lacks_proves_nothing() {
    let log = log(2, |request| match request.consumer() {
        Some((to, 3)) => vec![request.answer(&json!({"num_pending": 2})), Sent::delivery(&to, 4, 1, 1)],
        _ => no_message(request),
    });
    assert!(matches!(numbers(&log, 2), Err(SharedError::Unavailable { .. })));
}

#[test]
fn messages_that_are_lost_on_the_way_are_delivered_by_another_consumer() {
    let mut opened = 0;
    let log = log(3, move |request| {
        let Some((to, first)) = request.consumer() else { return vec![] };
        opened += 1;
        let created = request.answer(&json!({"num_pending": 3}));
        match (opened, first) {
            // The first delivery is missing; a heartbeat shows that deliveries are missing; there is no heartbeat.
            (1, 1) => vec![created, Sent::delivery(&to, 2, 2, 1)],
            (2, 1) => vec![created, Sent::heartbeat(&to, 3)],
            (3, 1) => vec![created],
            (4, 1) => vec![created, Sent::heartbeat(&to, 0), Sent::delivery(&to, 1, 1, 2)],
            _ => vec![created],
        }
    });
    assert_eq!(numbers(&log, 0), Ok(vec![1]));
}

#[test]
fn message_of_another_incarnation_is_not_an_entry() {
    let log = log(5, |request| match request.consumer() {
        Some((to, _)) => {
            let other = SUBJECT.replace("00", "ff");
            vec![request.answer(&json!({"num_pending": 1})), Sent::delivery(&to, 1, 1, 0).subject(&other)]
        }
        None => vec![],
    });
    let error = numbers(&log, 0).unwrap_err();
    assert!(matches!(&error, SharedError::Lost { what } if what.contains("created again")), "{error}");
}

#[test]
fn confirmed_entry_that_does_not_arrive_is_not_reported_as_missing() {
    let log = log(5, |request| match request.consumer() {
        Some(_) => vec![request.answer(&json!({"num_pending": 0}))],
        None => vec![request.answer(&json!({"stream": "LOG", "seq": 6}))],
    });
    assert_eq!(log.append(EntryIndex(5), b"6"), Ok(EntryIndex(6)));
    let read = log.read(EntryIndex(5), 1000, Duration::ZERO);
    assert!(matches!(read, Err(SharedError::Unavailable { .. })), "{read:?}");
    assert_eq!(patiently(|| log.read(EntryIndex(6), 1000, Duration::ZERO)), Ok(vec![]));
}

#[test]
fn log_that_ends_before_a_confirmed_entry_is_lost_when_that_lasts() {
    let log = log(5, |request| vec![request.answer(&json!({"stream": "LOG", "seq": 6}))]);
    assert_eq!(log.append(EntryIndex(5), b"6"), Ok(EntryIndex(6)));
    let error = patiently(|| log.bounds()).unwrap_err();
    assert!(
        matches!(&error, SharedError::Lost { what } if what.contains("entry 6 was confirmed")),
        "{error}"
    );
}

#[test]
fn leader_without_a_majority_proves_no_loss() {
    let address = serve(VERSION, |request| {
        let mut isolated = info(1, 5);
        isolated["cluster"] =
            json!({"leader": "n1", "replicas": [{"name": "n2", "offline": true}, {"name": "n3"}]});
        let stored = json!({"stream": "LOG", "seq": 6});
        vec![request.answer(if request.is_info() { &isolated } else { &stored })]
    });
    let log = NatsLog::open(&settings(&address)).unwrap();
    assert_eq!(log.append(EntryIndex(5), b"6"), Ok(EntryIndex(6)));
    assert!(matches!(log.bounds(), Err(SharedError::Unavailable { .. })));
}

#[test]
fn append_without_an_answer_is_unknown() {
    let log = log(5, |_| vec![]);
    let error = log.append(EntryIndex(5), b"6").unwrap_err();
    assert!(matches!(&error, AppendError::Unknown { cause } if cause.contains("no answer")), "{error}");
}

#[test]
fn append_of_which_the_leader_lags_is_repeated() {
    let mut answers = 0;
    let log = log(5, move |request| {
        answers += 1;
        let answer: Value = match answers {
            1..=3 => {
                json!({"error": {"err_code": 10071, "description": format!("wrong last sequence: {answers}")}})
            }
            _ => json!({"stream": "LOG", "seq": 6}),
        };
        vec![request.answer(&answer)]
    });
    assert_eq!(log.append(EntryIndex(5), b"6"), Ok(EntryIndex(6)));
}
