//! Definitions of keyspaces: commits in the log that assign numbers to names.
//!
//!   Engine::keyspace ─▶ Definition: validate (is the name there?) ─▶ encode (next number) ─▶ apply ─▶ Store::define_keyspace
//!
//! Section of a commit record:
//! ```text
//! keyspace u16 | name bytes | compression u8 | filter policy u8 | filter_ignores_last u8 | block_bytes u32
//! ```
//! (`bytes` is a varint length and that many bytes. The options are those of `docs/format/manifest.md`.)
//!
//! Invariants
//! 1. [`crate::Engine::keyspace`] returns a number after the commit that defines it is durable, so no record with a
//!    write to a keyspace is before its definition.
//! 2. The sequencer assigns numbers in order, without gaps. The first ones belong to the keyspaces that the models
//!    create at the first opening ([`crate::Model::open`]). So replay, and every reader of the log, gets the same numbers.
//! 3. The manifest lists the keyspaces that commits up to its checkpoint define; the log has the others.

use std::sync::Arc;

use ropewalk_base::{DecodeError, Decoder, Seq, put_bytes};
use ropewalk_store::{Keyspace, KeyspaceOptions, Store};

use crate::commit::Core;
use crate::error::{EngineError, Rejection, Result};
use crate::model::version::ReadView;
use crate::model::watched::LastWrite;
use crate::model::{Apply, KEYSPACES, Model, ModelId, Operation, Outcome, Verdict};

/// Bytes of a section in addition to the name: number, length of the name, options.
const SECTION_BYTES: usize = 2 + 10 + 7;

/// Defines a keyspace, or gives it other options. Its outcome is the number.
pub(crate) struct Definition {
    core: Arc<Core>,
    name: String,
    options: KeyspaceOptions,
    /// Chosen by validation.
    keyspace: Keyspace,
}

impl Definition {
    pub(crate) fn new(core: &Arc<Core>, name: &str, options: KeyspaceOptions) -> Self {
        Self { core: core.clone(), name: name.to_owned(), options, keyspace: Keyspace(0) }
    }
}

impl Operation for Definition {
    fn model(&self) -> ModelId {
        KEYSPACES
    }

    fn bytes_max(&self) -> usize {
        SECTION_BYTES + self.name.len()
    }

    fn validate(&mut self, _latest: ReadView<'_>) -> Result<Verdict, Rejection> {
        // The store has the definitions of all sequenced commits, also of those in this group.
        let store = &self.core.store;
        self.keyspace = match store.find_keyspace(&self.name) {
            Some(found) if found.options == self.options => {
                return Ok(Verdict::Done((found.keyspace.0.into(), 0)));
            }
            Some(found) => found.keyspace,
            None => store.next_keyspace().map_err(EngineError::from)?,
        };
        Ok(Verdict::Write)
    }

    fn encode(&mut self, _seq: Seq, _time_micros: i64, out: &mut Vec<u8>) -> Outcome {
        out.extend_from_slice(&self.keyspace.0.to_le_bytes());
        put_bytes(out, self.name.as_bytes());
        self.options.encode(out);
        (self.keyspace.0.into(), 0)
    }
}

/// Decodes the section of a definition: number, name and options.
///
/// # Errors
/// The bytes end early or late, or a value is unknown.
pub fn decode_definition(section: &[u8]) -> Result<(Keyspace, &str, KeyspaceOptions), DecodeError> {
    let mut decoder = Decoder::new(section);
    let keyspace = Keyspace(u16::from_le_bytes(decoder.array("number of a keyspace")?));
    let name = decoder.str("name of a keyspace")?;
    let options = KeyspaceOptions::decode(&mut decoder)?;
    if !decoder.is_empty() {
        return Err(DecodeError { what: "end of the definition of a keyspace", offset: decoder.offset() });
    }
    Ok((keyspace, name, options))
}

/// Notices commits that write to a keyspace, wherever they come from. See [`crate::Engine::watch_keyspace`].
///
/// A cache takes a [`KeyspaceWatch::mark`], then reads, and reads again once the mark is no longer current.
pub struct KeyspaceWatch {
    core: Arc<Core>,
    last: Arc<LastWrite>,
}

/// The state that a [`KeyspaceWatch`] had noticed before a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchMark {
    /// The newest commit that wrote to the keyspace.
    written: Seq,
    /// The newest visible commit.
    visible: Seq,
}

impl KeyspaceWatch {
    pub(crate) fn new(core: &Arc<Core>, last: Arc<LastWrite>) -> Self {
        Self { core: core.clone(), last }
    }

    /// To be taken before the contents are read.
    pub fn mark(&self) -> WatchMark {
        let written = self.last.seq();
        WatchMark { written, visible: self.core.versions.visible() }
    }

    /// True when contents read after `mark` are those that readers see now. Two atomic loads.
    pub fn is_current(&self, mark: WatchMark) -> bool {
        // A write that was pending at the mark may have been missed; it shows once anything becomes visible.
        let is_complete = || mark.written <= mark.visible || self.core.versions.visible() <= mark.visible;
        self.last.seq() == mark.written && is_complete()
    }
}

pub(crate) struct KeyspacesModel;

impl Model for KeyspacesModel {
    fn id(&self) -> ModelId {
        KEYSPACES
    }

    fn name(&self) -> &'static str {
        "definitions of keyspaces"
    }

    fn open(&self, _store: &Store) -> Result<()> {
        Ok(())
    }

    fn apply(&self, apply: &Apply<'_>, section: &[u8]) -> Result<(), DecodeError> {
        let (keyspace, name, options) = decode_definition(section)?;
        apply.note_effect(&[section]);
        let defined = apply.store.define_keyspace(apply.seq, keyspace, name, options);
        defined.map_err(|what| DecodeError { what, offset: 0 })
    }

    fn verify(&self, _read: ReadView<'_>) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Engine;
    use crate::options::EngineOptions;
    use ropewalk_vfs::Env;

    #[test]
    fn golden_bytes() {
        let engine =
            Engine::open(&Env::memory(), "/db".as_ref(), EngineOptions::default(), Vec::new()).unwrap();
        engine.keyspace("docs", KeyspaceOptions::default()).unwrap();
        let mut feed = engine.changes(Seq(1)).unwrap();
        let change = feed.next().unwrap().unwrap();
        let sections: Vec<_> = change.body.sections().map(Result::unwrap).collect();
        let [(KEYSPACES, section)] = sections.as_slice() else { panic!("one section") };
        assert_eq!(ropewalk_base::hex(section), "000004646f637300010000100000");
        let decoded = (Keyspace(0), "docs", KeyspaceOptions::default());
        assert_eq!(decode_definition(section).unwrap(), decoded);
        for length in 0..section.len() {
            assert!(decode_definition(&section[..length]).is_err(), "{length} bytes");
        }
        assert!(decode_definition(&[*section, b"x".as_slice()].concat()).is_err());
    }
}
