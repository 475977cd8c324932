//! The shared log: one entry, and a follower that reads several.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ropewalk_base::{Seq, crc32c};
use ropewalk_log::shared::{
    ChainHash, Entry, EntryIndex, EntryKind, FEATURE_LEVEL, MemorySharedLog, NodeSettings, ReplicatedLog,
    SavedPlace, SharedEntry, commits,
};
use ropewalk_log::{CommitLog, LogError, LogId, Record};

use crate::log;
use crate::script::Script;

/// An entry from unmodified bytes, and from the same bytes with their checksum. A decoded entry encodes to the same bytes.
pub(crate) fn entry(data: &[u8]) {
    decode(data);
    decode(&[data, &crc32c(data).to_le_bytes()].concat());
    let _ = commits(data, data.first().copied().unwrap_or_default().into());
    if let Ok(saved) = SavedPlace::decode(data) {
        assert_eq!(SavedPlace::decode(&saved.encode()), Ok(saved), "a place has one meaning");
    }
}

fn decode(bytes: &[u8]) {
    let Ok(entry) = Entry::decode(bytes) else { return };
    let mut again = Vec::new();
    entry.encode(&mut again);
    assert_eq!(again, bytes, "an entry has one form");
    let _ = (entry.address(), commits(entry.body, entry.count));
}

pub(crate) fn entry_seeds() -> Vec<Vec<u8>> {
    let body = [&[2, 0, 0, 0][..], b"ab", &[0, 0, 0, 0]].concat();
    let seed = |kind, count, body: &[u8]| {
        let mut bytes = Vec::new();
        new_entry(kind, (1, count), ChainHash::NONE, body).encode(&mut bytes);
        bytes
    };
    let without_sum = |mut bytes: Vec<u8>| {
        bytes.truncate(bytes.len() - 4);
        bytes
    };
    let commits = seed(EntryKind::Commits, 2, &body);
    let part = seed(EntryKind::Part { first: true, last: false }, 2, &body);
    let place = SavedPlace { log: ID, place: Default::default(), leader: Some("a".into()) }.encode();
    vec![without_sum(commits.clone()), commits, part, seed(EntryKind::Lead, 0, b"a"), place]
}

const ID: LogId = LogId(*b"fuzz shared log!");

fn new_entry(kind: EntryKind, (first, count): (u64, u32), previous: ChainHash, body: &[u8]) -> Entry<'_> {
    let (level, first) = (FEATURE_LEVEL, Seq(first));
    Entry { level, kind, term: 1, node: [1; 16], first, count, time_micros: 0, previous, body }
}

/// A follower of entries that a script has written: right ones, and some with wrong fields. It applies each commit once and
/// in order, or stops for good.
pub(crate) fn follower(data: &[u8]) {
    follow(data);
}

/// The commits that were applied.
fn follow(data: &[u8]) -> u64 {
    let env = log::memory();
    let (local, _) = log::open(&env, Path::new("/log")).expect("an empty directory is a new log");
    let shared = Arc::new(MemorySharedLog::new(ID));
    let settings = NodeSettings { node: [2; 16], address: "b".into(), patience: Duration::ZERO };
    let node = ReplicatedLog::new(local, shared, env.clock.clone(), settings, None);
    let mut script = Script(data);
    let (mut index, mut previous, mut stopped) = (0, ChainHash::NONE, false);
    for _ in 0..32 {
        if script.is_empty() {
            break;
        }
        let bytes = entry_of(&mut script, &node, index, previous);
        index += 1;
        previous = ChainHash::of_entry(&bytes);
        let before = node.confirmed();
        let entry = SharedEntry { index: EntryIndex(index), bytes };
        let followed = node.follow(&entry, |commits| -> Result<(), LogError> {
            let records: Vec<_> = commits.iter().map(|&(seq, payload)| Record { seq, payload }).collect();
            node.append_followed(&records, node.tail()).map(|_| ())
        });
        assert!(!stopped || followed.is_err(), "it never skips an entry");
        stopped |= followed.is_err();
        let applied = followed.map_or(0, |followed| followed.commits);
        assert_eq!(node.confirmed().0, before.0 + applied);
    }
    node.confirmed().0
}

/// The next entry, with one field wrong now and then.
fn entry_of(script: &mut Script<'_>, node: &ReplicatedLog, index: u64, previous: ChainHash) -> Vec<u8> {
    let kind = match script.u8() % 8 {
        _ if index == 0 => EntryKind::Lead,
        0 => EntryKind::Lead,
        1 => EntryKind::Renew,
        2 | 3 => EntryKind::Commits,
        4 => EntryKind::Part { first: true, last: false },
        5 => EntryKind::Part { first: false, last: false },
        6 => EntryKind::Part { first: false, last: true },
        _ => EntryKind::Close,
    };
    let place = node.place();
    let has_commits = matches!(kind, EntryKind::Commits | EntryKind::Part { .. });
    let count = if has_commits { u32::from(script.u8() % 4) + 1 } else { 0 };
    let length = usize::from(script.u8());
    let body = if kind == EntryKind::Renew { &[] } else { script.bytes(length) };
    let mut entry = new_entry(kind, (place.seq.0 + 1, count), previous, body);
    entry.term = if kind == EntryKind::Lead { place.term + 1 } else { place.term };
    match script.u8() {
        1 => entry.first = Seq(script.u64()),
        2 => entry.term = script.u64(),
        3 => entry.count = script.u32(),
        4 => entry.level = script.u16(),
        5 => entry.previous = ChainHash::NONE,
        6 => entry.node = [script.u8(); 16],
        _ => {}
    }
    let mut bytes = Vec::new();
    entry.encode(&mut bytes);
    bytes
}

pub(crate) fn follower_seeds() -> Vec<Vec<u8>> {
    let lead = [0, 1, b'a', 0];
    let commit = [2, 0, 5, 1, 0, 0, 0, b'x', 0];
    let parts = [4, 0, 3, 1, 0, 0, 0, 6, 0, 2, 0, b'y', 0];
    let whole = [&lead[..], &commit, &[1, 0, 0], &parts, &commit].concat();
    let discarded = [&lead[..], &parts[..7], &lead, &commit].concat();
    let wrong = [&lead[..], &commit, &[2, 0, 5, 1, 0, 0, 0, b'x', 1, 9, 9, 9, 9, 9, 9, 9, 9]].concat();
    vec![whole, discarded, wrong, [&lead[..], &[7, 0, 0], &commit].concat()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_reach_commits() {
        let applied: Vec<_> = follower_seeds().iter().map(|seed| follow(seed)).collect();
        assert_eq!(applied, [3, 1, 1, 0], "whole groups, a discarded one, a wrong number, a closed log");
        let decoded = |data: &[u8]| Entry::decode(data).is_ok();
        let [_, commits, part, lead, place] = &entry_seeds()[..] else { panic!("other seeds") };
        assert!(decoded(commits) && decoded(part) && decoded(lead));
        assert!(SavedPlace::decode(place).is_ok());
    }
}
