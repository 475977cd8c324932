//! Keys of the keyspaces for everything but chunks.
//!
//! ```text
//! `series.labels`      store u32 │ series u32, big-endian       → labels in their stored form
//! `series.meta`        's' name                                 → store u32 │ settings, see `section`, kind 2
//!                      'l' store u32 big-endian                 → the largest series number ever used, u32: written
//!                                                                 when series are deleted
//!                      'm' store u32 big-endian, metric         → u8 type │ unit str │ help str
//!                      'd' store u32 big-endian                 → see `sample::duplicate_rules`
//!                      'r', 'p' store u32 big-endian            → rules and their progress, see `retention::rules`
//! `series.exemplars`   store u32 │ series u32 │ time i64, sign flipped; all big-endian → bits of the value u64 │ labels
//! ```

use ropewalk_base::keys;

pub(crate) fn name_key(name: &str) -> Vec<u8> {
    [b"s", name.as_bytes()].concat()
}

pub(crate) fn last_key(store: u32) -> Vec<u8> {
    [b"l", &store.to_be_bytes()[..]].concat()
}

pub(crate) fn label_key(store: u32, id: u32) -> [u8; 8] {
    (u64::from(store) << 32 | u64::from(id)).to_be_bytes()
}

pub(crate) fn metadata_key(store: u32, metric: &str) -> Vec<u8> {
    [b"m", &store.to_be_bytes()[..], metric.as_bytes()].concat()
}

pub(crate) fn exemplar_key(store: u32, id: u32, time: i64) -> Vec<u8> {
    let mut key = Vec::with_capacity(16);
    key.extend_from_slice(&store.to_be_bytes());
    key.extend_from_slice(&id.to_be_bytes());
    keys::put_i64(&mut key, time);
    key
}

/// The key of a store's rules about duplicates, once they have changed.
pub(crate) fn duplicates_key(store: u32) -> Vec<u8> {
    [b"d", &store.to_be_bytes()[..]].concat()
}

/// The key of a store's rules.
pub(crate) fn rules_key(store: u32) -> Vec<u8> {
    [b"r", &store.to_be_bytes()[..]].concat()
}

/// The key of their progress.
pub(crate) fn progress_key(store: u32) -> Vec<u8> {
    [b"p", &store.to_be_bytes()[..]].concat()
}
