//! A node whose contents are not those of the others, without a checksum that tells: it stops, and the others continue.
//!
//! ```text
//! record of the local log: a bit of a value, and its checksum ─▶ replay applies another value ─▶ hash of effects
//! run that no commit wrote                                     ─▶ a key that others do not have ─▶ hash of a slice
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropewalk::cluster::Role;
use ropewalk::engine::Env;
use ropewalk_base::{Decoder, Seq, crc32c, crc32c_append};
use ropewalk_cluster::End;
use ropewalk_engine::{Engine, EngineOptions, KV, KvWrite, RecordBody, decode_section};

use crate::cluster::damage::{TURNS_MAX, state};
use crate::cluster::history::{KEYSPACES, LAST};
use crate::cluster::member::Member;
use crate::cluster::world::{LEASE, World};
use crate::events::scenario::{Bug, Check, DIR, ensure};

/// Sizes of the log's format.
const SEGMENT_HEADER: usize = 64;
const RECORD_HEADER: usize = 32;
const LOG_ID: core::ops::Range<usize> = 16..32;
/// Turns in which commits come that the node has not flushed.
const TURNS: u64 = 12;
/// Turns with many commits after the change.
const MANY_WRITES: u64 = 100;

impl World {
    /// Changes the contents of one node. It stops; with an empty disk it comes back.
    pub(super) fn distort(&self) -> Check {
        self.compare_first()?;
        let member = self.any_member();
        let is_effect = self.dice.one_in(2);
        if !(if is_effect { self.distort_log(member)? } else { self.distort_store(member)? }) {
            return self.agree("without a distortion");
        }
        self.note(format!("node {} has other contents, of effects: {is_effect}", member.number));
        self.count(|counts| counts.distortions += 1);
        member.trouble.lock().differs = true;
        if self.dice.one_in(2) {
            self.let_lead(member)?;
        }
        for turn in 0..TURNS_MAX {
            self.turn()?;
            // Few later: a pass is to reach the end of the contents.
            if self.dice.one_in(if turn < MANY_WRITES { 2 } else { 16 }) {
                self.write()?;
            }
            if member.trouble.lock().ended.is_some() {
                break;
            }
        }
        let end = member.trouble.lock().ended.take();
        let is_found = matches!(end, Some(End::Differs { .. }));
        let states: Vec<String> = self.members().iter().map(state).collect();
        ensure!(is_found, "node {} has other contents, and continues: {end:?}; {states:?}", member.number);
        ensure!(!member.is_up(), "node {} runs after its end", member.number);
        self.withdraw(member)?;
        self.lose_disk(member);
        member.trouble.lock().differs = false;
        self.agree("after a node had other contents")
    }

    /// Runs until the sums of all nodes can be compared.
    fn compare_first(&self) -> Check {
        for _ in 0..TURNS_MAX {
            let is_ready = |member: &Member| {
                member.process().is_some_and(|process| process.db.engine().hash_marks().origin != 0)
            };
            if self.members().iter().all(is_ready) {
                return Ok(());
            }
            self.write()?;
            self.turn()?;
        }
        Err(Bug("no leader states hashes of effects".to_owned()))
    }

    /// Lets the other nodes pause until this one leads.
    fn let_lead(&self, member: &Member) -> Check {
        for _ in 0..TURNS_MAX {
            let leads = |process: Arc<crate::cluster::member::Process>| {
                matches!(process.db.role(), Role::Leader { .. })
            };
            if member.process().is_some_and(leads) || member.trouble.lock().ended.is_some() {
                break;
            }
            for other in self.members().iter().filter(|other| other.number != member.number) {
                other.trouble.lock().paused_until = self.now() + LEASE.as_nanos() as u64;
            }
            self.turn()?;
        }
        for other in self.members() {
            other.trouble.lock().paused_until = 0;
        }
        Ok(())
    }

    /// Closes the database of a node with some commits after its checkpoint; the newest commit of the checkpoint.
    fn close_with_log(&self, member: &Member, turns: u64) -> Check<Option<Seq>> {
        let Some(process) = member.process() else { return Ok(None) };
        process.db.checkpoint()?;
        for _ in 0..turns {
            self.write()?;
            self.turn()?;
        }
        let Some(process) = member.process() else { return Ok(None) };
        self.close(member, &process)?;
        Ok(Some(process.db.engine().stats().checkpoint))
    }

    /// Changes a value in the local log, with its checksum.
    fn distort_log(&self, member: &Member) -> Check<bool> {
        let Some(checkpoint) = self.close_with_log(member, TURNS)? else { return Ok(false) };
        let is_segment = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "seg");
        let files: Vec<PathBuf> = member.disk.files().into_iter().map(|(path, _)| path).collect();
        for path in files.iter().filter(|path| is_segment(path)) {
            let mut bytes = member.disk.bytes(path).unwrap_or_default();
            if change_value(&mut bytes, checkpoint).is_some() {
                member.disk.overwrite(path, 0, &bytes).map_err(|error| Bug(error.to_string()))?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds a run that no commit wrote.
    fn distort_store(&self, member: &Member) -> Check<bool> {
        if self.close_with_log(member, 0)?.is_none() {
            return Ok(false);
        }
        let env = Env { vfs: Arc::new(member.disk.process()), ..Env::memory() };
        // It has no models: a commit after the checkpoint would need them.
        let Ok(engine) = Engine::open(&env, Path::new(DIR), EngineOptions::default(), Vec::new()) else {
            return Ok(false);
        };
        let Some(keyspace) = KEYSPACES.iter().find_map(|name| engine.find_keyspace(name)) else {
            return Ok(false);
        };
        let added = engine.run_writer(keyspace, false).and_then(|mut run| {
            run.add(b"foreign", Seq::ZERO, Some(b"value".as_slice()))?;
            engine.ingest(run.finish()?)
        });
        added.map_err(|error| Bug(error.to_string()))?;
        engine.close().map_err(|error| Bug(error.to_string()))?;
        Ok(true)
    }
}

/// Flips a bit of a value that a commit after `checkpoint` puts, in a segment of the log, and corrects the checksum.
fn change_value(segment: &mut [u8], checkpoint: Seq) -> Option<()> {
    let id: [u8; 16] = segment.get(LOG_ID)?.try_into().ok()?;
    let mut at = SEGMENT_HEADER;
    loop {
        let mut fields = Decoder::new(segment.get(at..)?);
        let (crc, length) = (fields.u32("crc").ok()?, fields.u32("length").ok()? as usize);
        let (_, seq) = (fields.u64("lsn").ok()?, Seq(fields.u64("seq").ok()?));
        let end = at + RECORD_HEADER + length.next_multiple_of(8);
        let sum = |bytes: &[u8]| crc32c_append(crc32c(&id), bytes);
        if sum(segment.get(at + 4..end)?) != crc {
            return None;
        }
        let payload = at + RECORD_HEADER..at + RECORD_HEADER + length;
        if seq > checkpoint
            && let Some(offset) = last_value(segment.get(payload.clone())?)
        {
            *segment.get_mut(payload.start + offset)? ^= 1;
            let sum = sum(segment.get(at + 4..end)?);
            segment.get_mut(at..at + 4)?.copy_from_slice(&sum.to_le_bytes());
            return Some(());
        }
        at = end;
    }
}

/// Offset in the payload of a commit of the value that a transfer has put into its keyspace.
fn last_value(payload: &[u8]) -> Option<usize> {
    let body = RecordBody::decode(payload).ok()?;
    let mut found = None;
    for (_, section) in body.sections().flatten().filter(|(model, _)| *model == KV) {
        let decoded = decode_section(section, |_, write| {
            if let KvWrite::Put(LAST, value) = write {
                found = Some(value.as_ptr() as usize - payload.as_ptr() as usize);
            }
        });
        decoded.ok()?;
    }
    found
}
