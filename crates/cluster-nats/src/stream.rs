//! The stream that stores the log: its settings, what they must be, and its state.
//!
//! Its one subject is `NAME.log.NONCE`. The nonce is drawn when the stream is created, so that a writer of a stream
//! that was deleted and created again appends to a subject that no stream has, and a reader sees another subject.

use std::time::Duration;

use ropewalk_base::{from_hex, hash64, hex};
use ropewalk_log::LogId;
use serde_json::{Value, json};

use crate::error::NatsError;

/// Replicas of which one may be lost.
pub(crate) const REPLICAS: u64 = 3;

/// A replica that the leader heard of within this time would have elected no other leader: followers wait for at least
/// four seconds.
const CONTACT_AGE_MAX: Duration = Duration::from_secs(2);

/// The state of a stream, as JetStream reports it.
#[derive(Debug, Clone)]
pub(crate) struct StreamInfo {
    pub(crate) id: LogId,
    pub(crate) subject: String,
    /// The oldest entry; one more than `last` when the stream is empty.
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// The largest message, if the stream has a limit.
    pub(crate) message_bytes_max: Option<u64>,
    whole: Value,
}

impl StreamInfo {
    /// Reads the answer to `STREAM.INFO` or `STREAM.CREATE`.
    pub(crate) fn parse(name: &str, whole: Value) -> Result<Self, NatsError> {
        let text = |path: &str| whole.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let number = |path: &str| whole.pointer(path).and_then(Value::as_u64).unwrap_or(0);
        let subjects =
            whole.pointer("/config/subjects").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let nonce = match subjects {
            [Value::String(subject)] => nonce_of(name, subject).map(|nonce| (subject.clone(), nonce)),
            _ => None,
        };
        let Some((subject, nonce)) = nonce else {
            return Err(setting(
                name,
                "subjects",
                Value::from(subjects.to_vec()).to_string(),
                "only a stream that Ropewalk created can be its log".to_owned(),
            ));
        };
        let last = number("/state/last_seq");
        Ok(Self {
            id: identity(name, text("/created"), nonce),
            subject,
            first: number("/state/first_seq").clamp(1, last.saturating_add(1)),
            last,
            message_bytes_max: whole
                .pointer("/config/max_msg_size")
                .and_then(Value::as_u64)
                .filter(|max| *max > 0),
            whole,
        })
    }

    /// Rejects settings that can lose entries.
    pub(crate) fn check(&self, name: &str, allow_one_server: bool) -> Result<(), NatsError> {
        let found = |key: &str| self.config(key);
        for rule in RULES {
            let value = found(rule.setting);
            if !(rule.holds)(value) {
                return Err(setting(name, rule.setting, value.to_string(), rule.remedy.to_owned()));
            }
        }
        let replicas = found("num_replicas").as_u64().unwrap_or(1);
        if replicas < REPLICAS && !allow_one_server {
            let remedy = "set it to 3, or accept the loss of entries with the only disk (allow_one_server)";
            return Err(setting(name, "num_replicas", replicas.to_string(), remedy.to_owned()));
        }
        Ok(())
    }

    /// Risks that do not prevent the use.
    pub(crate) fn warnings(&self, name: &str) -> Vec<String> {
        let mut lines = Vec::new();
        let replicas = self.config("num_replicas").as_u64().unwrap_or(1);
        if replicas < REPLICAS {
            lines.push(format!(
                "stream {name} has {replicas} replica(s): entries are lost with that disk; three are safe"
            ));
        }
        if self.config("deny_purge") == &Value::Bool(true) {
            lines.push(format!(
                "stream {name} has deny_purge: the log is never trimmed and grows without limit"
            ));
        }
        for peer in self.peers() {
            let peer_name = peer.get("name").and_then(Value::as_str).unwrap_or("?");
            if peer.get("offline") == Some(&Value::Bool(true)) {
                lines.push(format!("stream {name}: the replica on server {peer_name} is offline"));
            } else if peer.get("current") == Some(&Value::Bool(false)) {
                let lag = peer.get("lag").and_then(Value::as_u64).unwrap_or(0);
                lines.push(format!(
                    "stream {name}: the replica on server {peer_name} lags by {lag} operations"
                ));
            }
        }
        lines
    }

    /// True when the leader that answered had contact with a majority so recently that there is no newer leader.
    pub(crate) fn has_majority(&self) -> bool {
        let peers = self.peers();
        let in_contact = |peer: &&Value| {
            let age = peer.get("active").and_then(Value::as_u64).map(Duration::from_nanos);
            peer.get("offline") != Some(&Value::Bool(true)) && age.is_some_and(|age| age < CONTACT_AGE_MAX)
        };
        let reached = peers.iter().filter(in_contact).count() + 1;
        reached * 2 > peers.len() + 1
    }

    fn config(&self, key: &str) -> &Value {
        self.whole.get("config").and_then(|config| config.get(key)).unwrap_or(&Value::Null)
    }

    /// The replicas other than the leader.
    fn peers(&self) -> &[Value] {
        self.whole.pointer("/cluster/replicas").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }
}

/// A setting that could lose entries.
struct Rule {
    setting: &'static str,
    holds: fn(&Value) -> bool,
    remedy: &'static str,
}

const fn rule(setting: &'static str, holds: fn(&Value) -> bool, remedy: &'static str) -> Rule {
    Rule { setting, holds, remedy }
}

/// Absent, off or zero.
fn is_off(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// JetStream writes -1 or 0 for no limit.
fn is_unlimited(value: &Value) -> bool {
    value.is_null() || value.as_i64().is_some_and(|limit| limit <= 0)
}

const NEW_STREAM: &str = "it cannot be changed: create another stream";

/// The settings of a stream, in NATS's words, and what each must be.
const RULES: &[Rule] = &[
    rule("storage", |value| value == "file", NEW_STREAM),
    rule("retention", |value| value == "limits", "set it to limits"),
    rule("discard", |value| value == "new", "set it to new"),
    rule("max_age", is_off, "set it to 0"),
    rule("max_msgs", is_unlimited, "set it to -1"),
    rule("max_bytes", is_unlimited, "set it to -1"),
    rule("max_msgs_per_subject", is_unlimited, "set it to -1"),
    rule("deny_delete", |value| value == &Value::Bool(true), "set it to true"),
    rule("allow_rollup_hdrs", is_off, "set it to false"),
    rule("allow_msg_ttl", is_off, NEW_STREAM),
    rule("subject_delete_marker_ttl", is_off, "set it to 0"),
    rule("allow_msg_counter", is_off, NEW_STREAM),
    rule("allow_msg_schedules", is_off, NEW_STREAM),
    rule("mirror", is_off, NEW_STREAM),
    rule("sources", is_off, "remove them"),
    rule("subject_transform", is_off, "remove it"),
    rule("no_ack", is_off, "set it to false"),
    rule("sealed", is_off, NEW_STREAM),
    rule("persist_mode", |value| value.is_null() || value == "default", NEW_STREAM),
    rule("first_seq", |value| value.is_null() || value.as_u64().is_some_and(|first| first <= 1), NEW_STREAM),
];

/// Settings of a new stream.
pub(crate) fn new_stream(name: &str, nonce: [u8; 16], replicas: u64) -> Value {
    json!({
        "name": name,
        "description": "the shared log of a Ropewalk cluster; only Ropewalk writes it",
        "subjects": [format!("{name}.log.{}", hex(&nonce))],
        "storage": "file",
        "num_replicas": replicas,
        "retention": "limits",
        "discard": "new",
        "max_age": 0,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_msgs_per_subject": -1,
        "max_msg_size": -1,
        "max_consumers": -1,
        "deny_delete": true,
        "deny_purge": false,
        "allow_rollup_hdrs": false,
        // Any replica would answer direct reads.
        "allow_direct": false,
        "compression": "none",
    })
}

/// The nonce in the subject of a stream.
fn nonce_of(name: &str, subject: &str) -> Option<[u8; 16]> {
    let digits = subject.strip_prefix(name)?.strip_prefix(".log.")?;
    from_hex(digits)?.try_into().ok()
}

/// Differs when the stream was created again, also from a copy of its settings.
fn identity(name: &str, created: &str, nonce: [u8; 16]) -> LogId {
    let mut id = nonce;
    let mixed = hash64(format!("{name} {created}").as_bytes()).to_le_bytes();
    id.iter_mut().zip(mixed).for_each(|(byte, mix)| *byte ^= mix);
    LogId(id)
}

fn setting(stream: &str, setting: &'static str, found: String, remedy: String) -> NatsError {
    NatsError::Setting { stream: stream.to_owned(), setting, found, remedy }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer of a server, with one change.
    fn answer(pointer: &str, value: Value) -> Value {
        let mut config = new_stream("S", [7; 16], 3);
        // As a server answers: it leaves out what is off.
        config.as_object_mut().unwrap().remove("allow_rollup_hdrs");
        let mut whole = json!({
            "config": config,
            "created": "2026-11-27T12:00:00.123456789Z",
            "state": {"first_seq": 4, "last_seq": 9},
            "cluster": {"leader": "n1", "replicas": [
                {"name": "n2", "current": true, "active": 1_000_000},
                {"name": "n3", "current": true, "active": 2_000_000},
            ]},
        });
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        whole.pointer_mut(parent).unwrap().as_object_mut().unwrap().insert(key.to_owned(), value);
        whole
    }

    fn info(pointer: &str, value: Value) -> StreamInfo {
        StreamInfo::parse("S", answer(pointer, value)).unwrap()
    }

    #[test]
    fn new_stream_passes_its_own_rules() {
        let info = info("/x", Value::Null);
        assert_eq!(info.check("S", false), Ok(()));
        assert_eq!((info.first, info.last), (4, 9));
        assert_eq!(info.subject, "S.log.07070707070707070707070707070707");
        assert!(info.warnings("S").is_empty());
    }

    #[test]
    fn setting_that_loses_entries_is_rejected_by_name() {
        for (key, value) in [
            ("storage", json!("memory")),
            ("retention", json!("workqueue")),
            ("discard", json!("old")),
            ("max_age", json!(1_000_000_000)),
            ("max_msgs", json!(10)),
            ("max_bytes", json!(10)),
            ("max_msgs_per_subject", json!(1)),
            ("deny_delete", json!(false)),
            ("allow_rollup_hdrs", json!(true)),
            ("allow_msg_ttl", json!(true)),
            ("subject_delete_marker_ttl", json!(1)),
            ("allow_msg_counter", json!(true)),
            ("allow_msg_schedules", json!(true)),
            ("mirror", json!({"name": "X"})),
            ("sources", json!([{"name": "X"}])),
            ("subject_transform", json!({"src": ">", "dest": "x"})),
            ("no_ack", json!(true)),
            ("sealed", json!(true)),
            ("persist_mode", json!("async")),
            ("first_seq", json!(5)),
            ("num_replicas", json!(1)),
        ] {
            let (info, text) = (info(&format!("/config/{key}"), value.clone()), value.to_string());
            let error = info.check("S", false).unwrap_err();
            assert!(
                matches!(&error, NatsError::Setting { setting, found, .. } if *setting == key && *found == text),
                "{key}: {error}"
            );
        }
        assert_eq!(info("/config/num_replicas", json!(1)).check("S", true), Ok(()));
    }

    #[test]
    fn stream_of_another_program_is_rejected() {
        for subjects in [
            json!([]),
            json!(["S.>"]),
            json!(["S.log.07"]),
            json!(["T.log.07070707070707070707070707070707"]),
            json!(["S.log.07070707070707070707070707070707", "more"]),
        ] {
            let error = StreamInfo::parse("S", answer("/config/subjects", subjects)).unwrap_err();
            assert!(matches!(error, NatsError::Setting { setting: "subjects", .. }), "{error}");
        }
    }

    #[test]
    fn identity_depends_on_name_nonce_and_time_of_creation() {
        let id = identity("S", "2026-11-27T12:00:00Z", [7; 16]);
        assert_eq!(id, identity("S", "2026-11-27T12:00:00Z", [7; 16]));
        assert_ne!(id, identity("T", "2026-11-27T12:00:00Z", [7; 16]));
        assert_ne!(id, identity("S", "2026-11-27T12:00:01Z", [7; 16]));
        assert_ne!(id, identity("S", "2026-11-27T12:00:00Z", [8; 16]));
    }

    #[test]
    fn empty_stream_begins_after_its_newest_entry() {
        let new = info("/state", json!({"first_seq": 0, "last_seq": 0}));
        assert_eq!((new.first, new.last), (1, 0));
        let trimmed = info("/state", json!({"first_seq": 10, "last_seq": 9}));
        assert_eq!((trimmed.first, trimmed.last), (10, 9));
    }

    #[test]
    fn majority_counts_replicas_in_recent_contact() {
        let replicas = |ages: &[u64]| {
            let peers: Vec<Value> =
                ages.iter().map(|age| json!({"name": "n", "active": age * 1_000_000})).collect();
            info("/cluster/replicas", json!(peers)).has_majority()
        };
        assert!(replicas(&[]));
        assert!(replicas(&[5, 5]) && replicas(&[5, 60_000]));
        assert!(!replicas(&[60_000, 3_000]));
        let offline = json!([{"name": "n", "active": 0, "offline": true}, {"name": "m"}]);
        assert!(!info("/cluster/replicas", offline).has_majority());
    }

    #[test]
    fn warnings_name_replicas_that_are_not_current() {
        let peers = json!([
            {"name": "n2", "offline": true, "current": false},
            {"name": "n3", "current": false, "lag": 12},
        ]);
        let lines = info("/cluster/replicas", peers).warnings("S");
        assert!(lines[0].contains("n2 is offline") && lines[1].contains("n3 lags by 12"), "{lines:?}");
        let lines = info("/config/num_replicas", json!(1)).warnings("S");
        assert!(lines[0].contains("1 replica"), "{lines:?}");
        let lines = info("/config/deny_purge", json!(true)).warnings("S");
        assert!(lines[0].contains("never trimmed"), "{lines:?}");
    }
}
