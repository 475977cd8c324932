//! One server: the promises of the log, refused settings and refused access.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use ropewalk_cluster_nats::{NatsError, NatsLog, NatsSettings, NatsUser};
use ropewalk_log::shared::{AppendError, EntryIndex, SharedBounds, SharedEntry, SharedError, SharedLog};
use serde_json::{Value, json};

use crate::servers::{PATIENCE, Patient, STREAM, Servers};

/// Enough for any answer, and shorter than a test is patient.
pub(crate) const WAIT: Duration = Duration::from_secs(20);

/// Appends entries with these numbers, which are their contents, too.
fn append_numbers(log: &Patient, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        log.append_surely(EntryIndex(number - 1), &number.to_le_bytes());
    }
}

/// Reads until `newest`; checks that no number is missing.
pub(crate) fn read_until(log: &Patient, after: u64, newest: u64, bytes_max: usize) -> Vec<SharedEntry> {
    let mut entries: Vec<SharedEntry> = Vec::new();
    let mut last = EntryIndex(after);
    while last.0 < newest {
        let some = log.read(last, bytes_max, WAIT).unwrap();
        assert!(!some.is_empty(), "no entry after {last}");
        for entry in some {
            assert_eq!(entry.index, last.next());
            last = entry.index;
            entries.push(entry);
        }
    }
    entries
}

fn assert_numbers(entries: &[SharedEntry]) {
    for entry in entries {
        assert_eq!(entry.bytes, entry.index.0.to_le_bytes());
    }
}

fn bounds(oldest: u64, newest: u64) -> SharedBounds {
    SharedBounds { oldest: EntryIndex(oldest), newest: EntryIndex(newest) }
}

#[test]
fn entries_are_numbered_without_gaps_and_read_in_order() {
    let Some(servers) = Servers::start(1, "") else { return };
    let log = servers.create();
    assert_eq!(log.bounds(), Ok(bounds(1, 0)));
    assert_eq!(log.read(EntryIndex::ZERO, 1000, Duration::ZERO), Ok(vec![]));
    append_numbers(&log, 1..=500);
    assert_eq!(log.bounds(), Ok(bounds(1, 500)));
    let other = servers.open();
    assert_eq!(other.identity(), log.identity());
    // At least one entry, also when it has more bytes than wanted; an entry of this process without any wait.
    assert_eq!(log.read(EntryIndex(499), 0, Duration::ZERO).unwrap().len(), 1);
    assert_eq!(other.read(EntryIndex(9), 1, WAIT).unwrap().len(), 1);
    for log in [&log, &other] {
        assert_numbers(&read_until(log, 0, 500, 100));
        assert_numbers(&read_until(log, 250, 500, usize::MAX));
    }
    assert_eq!(other.read(EntryIndex(500), 1000, Duration::from_millis(50)), Ok(vec![]));
    log.append_surely(EntryIndex(500), b"");
    assert_eq!(read_until(&other, 500, 501, 1000)[0].bytes, b"");
}

#[test]
fn reader_waits_for_the_next_entry() {
    let Some(servers) = Servers::start(1, "") else { return };
    let (log, other) = (servers.create(), servers.open());
    thread::scope(|scope| {
        scope.spawn(|| {
            // Longer than silence without heartbeats is tolerated.
            thread::sleep(Duration::from_secs(5));
            append_numbers(&log, 1..=3);
        });
        assert_numbers(&read_until(&other, 0, 3, 1000));
    });
    // The consumer is idle meanwhile.
    thread::sleep(Duration::from_secs(5));
    append_numbers(&log, 4..=5);
    assert_numbers(&read_until(&other, 3, 5, 1000));
}

#[test]
fn append_after_another_entry_is_fenced_and_stores_nothing() {
    let Some(servers) = Servers::start(1, "") else { return };
    let (log, other) = (servers.create(), servers.open());
    append_numbers(&log, 1..=5);
    for expected in [0, 3, 4] {
        assert_eq!(other.append_clearly(EntryIndex(expected), b"late"), Err(EntryIndex(5)));
    }
    assert_eq!(log.bounds(), Ok(bounds(1, 5)));
    // An entry that the service does not have cannot be the newest.
    let error = other.append(EntryIndex(9), b"early").unwrap_err();
    assert!(matches!(error, AppendError::Unknown { .. }), "{error}");
    append_numbers(&other, 6..=6);
    assert_numbers(&read_until(&log, 0, 6, 1000));
}

#[test]
fn rival_writers_never_both_succeed() {
    let Some(servers) = Servers::start(1, "") else { return };
    servers.create();
    let write = |name: &'static str| {
        let log = servers.open();
        let (mut expected, mut confirmed) = (EntryIndex::ZERO, BTreeMap::new());
        for number in 0..300 {
            let entry = format!("{name} {number}");
            match log.append_clearly(expected, entry.as_bytes()) {
                Ok(()) => {
                    expected = expected.next();
                    confirmed.insert(expected, entry);
                }
                Err(newest) => {
                    assert!(newest > expected);
                    expected = newest;
                }
            }
        }
        confirmed
    };
    let (ann, bob) = thread::scope(|scope| {
        let (ann, bob) = (scope.spawn(|| write("ann")), scope.spawn(|| write("bob")));
        (ann.join().unwrap(), bob.join().unwrap())
    });
    let log = servers.open();
    let newest = log.bounds().unwrap().newest.0;
    assert_eq!(ann.len() + bob.len(), usize::try_from(newest).unwrap());
    for entry in read_until(&log, 0, newest, 10_000) {
        let owner = ann.get(&entry.index).or_else(|| bob.get(&entry.index)).unwrap();
        assert_eq!(entry.bytes, owner.as_bytes());
    }
}

#[test]
fn killed_server_keeps_confirmed_entries_and_the_log_reconnects() {
    let Some(mut servers) = Servers::start(1, "") else { return };
    let (log, other) = (servers.create(), servers.open());
    let identity = log.identity().unwrap();
    append_numbers(&log, 1..=50);
    assert_numbers(&read_until(&other, 0, 50, 1000));
    servers.kill(0);
    // May be sent when the server is back.
    let late = 51_u64.to_le_bytes();
    let error = log.append(EntryIndex(50), &late).unwrap_err();
    assert!(matches!(error, AppendError::Unknown { .. }), "{error}");
    assert!(matches!(log.0.bounds(), Err(SharedError::Unavailable { .. })));
    let read = other.0.read(EntryIndex(50), 1000, Duration::from_millis(50));
    assert!(matches!(read, Err(SharedError::Unavailable { .. })), "{read:?}");
    servers.restart(0);
    if log.append_clearly(EntryIndex(50), &late).is_err() {
        assert_eq!(read_until(&log, 50, 51, 1)[0].bytes, late);
    }
    append_numbers(&log, 52..=60);
    assert_eq!(log.identity(), Ok(identity));
    assert_numbers(&read_until(&other, 50, 60, 1000));
    assert_numbers(&read_until(&other, 0, 60, 1000));
}

#[test]
fn trimmed_entries_are_reported_and_the_others_stay() {
    let Some(servers) = Servers::start(1, "") else { return };
    let (log, other) = (servers.create(), servers.open());
    append_numbers(&log, 1..=20);
    assert_numbers(&read_until(&other, 0, 3, 1));
    log.trim(EntryIndex(11)).unwrap();
    assert_eq!(log.bounds(), Ok(bounds(11, 20)));
    let trimmed = Err(SharedError::Trimmed { oldest: EntryIndex(11) });
    assert_eq!(log.read(EntryIndex::ZERO, 1000, WAIT), trimmed);
    assert_eq!(log.read(EntryIndex(9), 1000, WAIT), trimmed);
    assert_numbers(&read_until(&log, 10, 20, 1000));
    // Trimming further back changes nothing; trimming everything, and beyond, keeps the numbers.
    log.trim(EntryIndex(5)).unwrap();
    assert_eq!(log.bounds(), Ok(bounds(11, 20)));
    log.trim(EntryIndex(1000)).unwrap();
    assert_eq!(log.bounds(), Ok(bounds(21, 20)));
    append_numbers(&log, 21..=22);
    assert_numbers(&read_until(&log, 20, 22, 1000));
}

#[test]
fn open_reader_notices_that_the_log_was_trimmed_past_it() {
    let Some(servers) = Servers::start(1, "") else { return };
    let (log, other) = (servers.create(), servers.open());
    append_numbers(&log, 1..=2);
    assert_numbers(&read_until(&other, 0, 2, 1000));
    // More than the consumer sends before its flow control stops it.
    let large = vec![7; 4 << 20];
    for number in 2..20 {
        log.append_surely(EntryIndex(number), &large);
    }
    log.trim(EntryIndex(20)).unwrap();
    let mut last = EntryIndex(2);
    let oldest = loop {
        match other.read(last, 1, WAIT) {
            Ok(entries) => last = entries.last().unwrap().index,
            Err(SharedError::Trimmed { oldest }) => break oldest,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(oldest, EntryIndex(20));
    assert_eq!(read_until(&other, 19, 20, 1).len(), 1);
}

#[test]
fn entry_of_the_largest_size_is_stored_and_a_larger_one_refused() {
    let Some(servers) = Servers::start(1, "") else { return };
    let log = servers.create();
    let max = log.entry_bytes_max();
    assert!(max > (8 << 20) - 1024, "{max}");
    let entry: Vec<u8> = (0..max).map(|at| u8::try_from(at % 251).unwrap()).collect();
    log.append_surely(EntryIndex::ZERO, &entry);
    let error = log.append(EntryIndex(1), &vec![0; max + 1]).unwrap_err();
    assert!(matches!(error, AppendError::Refused { .. }), "{error}");
    assert_eq!(servers.open().read(EntryIndex::ZERO, 1, WAIT).unwrap()[0].bytes, entry);
    // The limit of the stream holds, too.
    let mut config = servers.api("STREAM.INFO", &json!({}))["config"].clone();
    config["max_msg_size"] = json!(1000);
    assert!(servers.api("STREAM.UPDATE", &config).get("error").is_none());
    let limited = servers.open();
    assert!(limited.entry_bytes_max() < 1000);
    limited.append_surely(EntryIndex(1), &vec![0; limited.entry_bytes_max()]);
    let error = log.append(EntryIndex(2), &vec![0; 2000]).unwrap_err();
    assert!(matches!(error, AppendError::Refused { .. }), "{error}");
}

#[test]
fn stream_that_was_created_again_is_another_log() {
    let Some(servers) = Servers::start(1, "") else { return };
    let (log, reader) = (servers.create(), servers.open());
    let identity = log.identity().unwrap();
    append_numbers(&log, 1..=3);
    assert_numbers(&read_until(&reader, 0, 3, 1000));
    let config = servers.api("STREAM.INFO", &json!({}))["config"].clone();
    servers.api("STREAM.DELETE", &json!({}));
    let lost = |result: &dyn std::fmt::Debug| format!("{result:?}").starts_with("Err(Lost");
    assert!(lost(&log.bounds()));
    let again = servers.create();
    for number in 0..5 {
        again.append_surely(EntryIndex(number), b"other");
    }
    assert_ne!(again.identity().unwrap(), identity);
    assert_ne!(log.identity().unwrap(), identity);
    assert!(lost(&log.bounds()) && lost(&log.trim(EntryIndex(2))));
    let error = loop {
        match log.append(EntryIndex(5), b"x").unwrap_err() {
            AppendError::Unknown { .. } => {}
            error => break error,
        }
    };
    assert!(matches!(&error, AppendError::Refused { cause } if cause.contains("created again")), "{error}");
    assert!(lost(&reader.read(EntryIndex(3), 1000, WAIT)));
    assert_eq!(again.bounds(), Ok(bounds(1, 5)));
    // From a copy of its settings: the time of its creation differs.
    servers.api("STREAM.DELETE", &json!({}));
    servers.api("STREAM.CREATE", &config);
    assert_ne!(log.identity().unwrap(), identity);
    assert!(lost(&log.bounds()));
}

#[test]
fn stream_that_could_lose_entries_is_not_opened() {
    let Some(servers) = Servers::start(1, "") else { return };
    let settings = servers.settings();
    // Any call waits until the server is up.
    servers.api("STREAM.INFO", &json!({}));
    assert!(matches!(NatsLog::open(&settings), Err(NatsError::Missing { .. })));
    for (change, refused) in [
        (json!({"storage": "memory"}), "storage"),
        (json!({"discard": "old"}), "discard"),
        (json!({"retention": "workqueue"}), "retention"),
        (json!({"max_age": 3_600_000_000_000_u64}), "max_age"),
        (json!({"max_msgs": 1000}), "max_msgs"),
        (json!({"max_bytes": 1000}), "max_bytes"),
        (json!({"max_msgs_per_subject": 1000}), "max_msgs_per_subject"),
        (json!({"deny_delete": false}), "deny_delete"),
        (json!({"allow_rollup_hdrs": true}), "allow_rollup_hdrs"),
        (json!({"allow_msg_ttl": true}), "allow_msg_ttl"),
        (json!({"persist_mode": "async"}), "persist_mode"),
        (json!({"subjects": ["LOG.log"]}), "subjects"),
        (json!({"subjects": [], "mirror": {"name": "OTHER"}}), "subjects"),
        (json!({"sources": [{"name": "OTHER"}]}), "sources"),
        (json!({"first_seq": 100}), "first_seq"),
    ] {
        let subject = format!("{STREAM}.log.000102030405060708090a0b0c0d0e0f");
        let mut config =
            json!({"name": STREAM, "subjects": [subject], "discard": "new", "deny_delete": true});
        let changes: &serde_json::Map<String, Value> = change.as_object().unwrap();
        changes.iter().for_each(|(key, value)| config[key] = value.clone());
        let created = servers.api("STREAM.CREATE", &config);
        assert_eq!(created.get("error"), None, "{change}");
        let error = NatsLog::open(&settings).unwrap_err();
        assert!(
            matches!(&error, NatsError::Setting { setting, .. } if *setting == refused),
            "{change}: {error}"
        );
        servers.api("STREAM.DELETE", &json!({}));
    }
    drop(servers.create());
    assert!(matches!(NatsLog::create(&settings), Err(NatsError::Exists { .. })));
    let three = NatsSettings { allow_one_server: false, ..settings.clone() };
    let error = NatsLog::open(&three).unwrap_err();
    assert!(matches!(&error, NatsError::Setting { setting: "num_replicas", .. }), "{error}");
    servers.api("STREAM.DELETE", &json!({}));
    let error = NatsLog::create(&three).unwrap_err();
    assert!(matches!(error, NatsError::Refused { .. }), "{error}");
}

#[test]
fn warnings_name_the_sync_interval_and_the_only_replica() {
    let Some(servers) = Servers::start(1, "") else { return };
    let warnings = servers.create().warnings().unwrap();
    assert!(warnings[0].contains("sync_interval: always"), "{warnings:?}");
    assert!(warnings[1].contains("1 replica"), "{warnings:?}");
    assert_eq!(warnings.len(), 2);
}

#[test]
fn log_is_used_and_dropped_inside_of_a_task() {
    let Some(servers) = Servers::start(1, "") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let log = servers.create();
        append_numbers(&log, 1..=2);
        assert_numbers(&read_until(&log, 0, 2, 1000));
        drop(log);
    });
}

#[test]
fn wrong_password_and_missing_right_are_refused_access() {
    let users = r#"authorization { users: [
        { user: ann, password: "pass:word" },
        { user: bob, password: bob, permissions: { publish: ["LOG.>"], subscribe: ["_INBOX.>"] } },
    ] }"#;
    let Some(servers) = Servers::start(1, users) else { return };
    let user = |name: &str, password: &str| NatsUser { name: name.to_owned(), password: password.to_owned() };
    let settings = |user: Option<NatsUser>| NatsSettings { user, ..servers.settings() };
    let ann = settings(Some(user("ann", "pass:word")));
    drop(NatsLog::create(&ann).unwrap());
    for wrong in [None, Some(user("ann", "word")), Some(user("eve", "pass:word"))] {
        let error = NatsLog::open(&settings(wrong.clone())).unwrap_err();
        assert!(matches!(error, NatsError::Denied { .. }), "{wrong:?}: {error}");
        assert!(!error.to_string().contains("word:"), "{error}");
    }
    append_numbers(&Patient(NatsLog::open(&ann).unwrap()), 1..=1);
    let limited = NatsSettings { open_time: Duration::from_secs(3), ..settings(Some(user("bob", "bob"))) };
    let error = NatsLog::open(&limited).unwrap_err();
    assert!(matches!(&error, NatsError::Denied { cause, .. } if cause.contains("$JS.API")), "{error}");
}

#[test]
fn documented_rights_suffice() {
    let page = include_str!("../../../../docs/cluster-nats.md");
    let (_, accounts) = page.split_once("accounts {\n").unwrap();
    let accounts = accounts.split_once("```").unwrap().0.replace("shop", STREAM);
    let Some(servers) = Servers::start(1, &format!("accounts {{\n{accounts}")) else { return };
    let user = NatsUser { name: "ropewalk".to_owned(), password: "PASSWORD".to_owned() };
    let settings = NatsSettings { user: Some(user), ..servers.settings() };
    let log = Patient(NatsLog::create(&settings).unwrap());
    // Enough to need flow control.
    let large = vec![7; 1 << 20];
    for number in 0..20 {
        log.append_surely(EntryIndex(number), &large);
    }
    let reader = Patient(NatsLog::open(&settings).unwrap());
    assert_eq!(read_until(&reader, 0, 20, 1 << 20).len(), 20);
    log.trim(EntryIndex(11)).unwrap();
    assert_eq!(log.bounds(), Ok(bounds(11, 20)));
    assert_eq!(log.warnings().unwrap().len(), 2);
}

/// A certificate for an address, which is its own authority, and its key.
fn certificate(dir: &Path, name: &str, address: &str) {
    let params = rcgen::CertificateParams::new([address.to_owned()]).unwrap();
    let pair = rcgen::KeyPair::generate().unwrap();
    fs::write(dir.join(format!("{name}-key.pem")), pair.serialize_pem()).unwrap();
    fs::write(dir.join(format!("{name}.pem")), params.self_signed(&pair).unwrap().pem()).unwrap();
}

#[test]
fn server_with_an_untrusted_certificate_or_without_tls_is_refused() {
    let Some(mut servers) = Servers::start(1, "") else { return };
    drop(servers.create());
    let tls = NatsSettings { tls: true, ..servers.settings() };
    certificate(servers.dir(), "server", &servers.address(0));
    certificate(servers.dir(), "other", &servers.address(0));
    let trusting = |name: &str, settings: &NatsSettings| NatsSettings {
        ca_file: Some(servers.dir().join(name)),
        open_time: Duration::from_secs(5),
        ..settings.clone()
    };
    let is_tls = |result: Result<NatsLog, NatsError>| match result {
        Err(NatsError::Tls { .. }) => true,
        other => panic!("{other:?}"),
    };
    assert!(is_tls(NatsLog::open(&trusting("server.pem", &tls))), "a server without TLS");
    let missing = NatsLog::open(&trusting("missing.pem", &tls));
    assert!(matches!(missing, Err(NatsError::File { .. })));
    let (right, wrong) = (trusting("server.pem", &tls), trusting("other.pem", &tls));
    let plain = trusting("server.pem", &servers.settings());
    let unknown = NatsSettings { open_time: Duration::from_secs(5), ..servers.settings() };
    servers.kill(0);
    let files = format!(
        "tls {{ cert_file: \"{0}/server.pem\", key_file: \"{0}/server-key.pem\" }}",
        servers.dir().display()
    );
    servers.write_configuration(0, &files);
    servers.restart(0);
    append_numbers(&servers.open_with(&right), 1..=2);
    // The server requires TLS, whatever the URL says.
    assert_numbers(&read_until(&Patient(NatsLog::open(&plain).unwrap()), 0, 2, 1000));
    assert!(is_tls(NatsLog::open(&wrong)) && is_tls(NatsLog::open(&unknown)));
}

#[test]
fn server_that_is_not_there_is_unreachable() {
    let settings: NatsSettings = format!("nats://{}.1/LOG", crate::servers::loopback()).parse().unwrap();
    let settings = NatsSettings { open_time: Duration::from_millis(500), ..settings };
    assert!(matches!(NatsLog::open(&settings), Err(NatsError::Unreachable { .. })));
    assert!(PATIENCE > settings.open_time);
}
