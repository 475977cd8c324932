//! Comparing contents with the other nodes of a shared log.
//!
//! ```text
//! leader:    hashes of most nodes ─▶ write_hash ─▶ entry ─┐
//! every node: ◀──────────── follow, or its own entry ─────┴▶ compare ─┬ equal ─▶ continue
//!                                                                     └ differs ─▶ file `differs`, stopped for good
//! ```
//! Two hashes: that of the effects of all commits, which each node computes while it applies them, and that of slices of the
//! contents, which the leader requests one after another.
//!
//! Not here: which hash most nodes have (`ropewalk-cluster`).

use std::path::Path;
use std::sync::Arc;

use ropewalk_base::{ContentHash, Seq};
use ropewalk_log::LogError;
use ropewalk_log::shared::{EntryIndex, HashBody, Place, SLICE_PARTS_MAX, SlicePart};
use ropewalk_store::Keyspace;
use ropewalk_vfs::{Env, OpenMode};

use crate::commit::Core;
use crate::commit::comparisons::{Comparisons, ContentsSlice};
use crate::engine::{Engine, io};
use crate::error::{Difference, EngineError, Result};
use crate::model::effects::Compared;
use crate::model::slice::SliceHasher;
use crate::model::version::{ReadView, Snapshot};

/// Name of the file that a node writes when its contents differ: the database is not opened any more.
const DIFFERS: &str = "differs";
/// Longest text of that file that is read.
const DIFFERS_BYTES_MAX: u64 = 4 << 10;
/// Number of the first part that is not a keyspace.
const MODEL_PARTS: u32 = 1 << 16;
/// Most parts that an error names.
const NAMED_MAX: usize = 8;

/// The hashes of effects that a node can compare with others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HashMarks {
    /// Identifies the commit from which on they are summed up; only hashes of one origin compare. Zero: not known yet.
    pub origin: u64,
    /// Commits with the hash of all effects up to each, ascending, since the last comparison.
    pub marks: Vec<(Seq, ContentHash)>,
}

/// Commits whose effects this node has hashed since it was opened, and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HashCounts {
    /// Commits.
    pub commits: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Engine {
    /// The hashes of effects up to the newest visible commit. Waits for the sequencer.
    pub fn hash_marks(&self) -> HashMarks {
        let newest = self.seq();
        let found = self.core.with_effects(|effects| effects.marks(newest));
        found.map_or_else(HashMarks::default, |(origin, marks)| HashMarks { origin, marks })
    }

    /// Cost of hashing the effects. Zero without a shared log. Waits for the sequencer.
    pub fn hash_counts(&self) -> HashCounts {
        let found = self.core.with_effects(|effects| effects.counts());
        found.map_or_else(HashCounts::default, |(commits, bytes)| HashCounts { commits, bytes })
    }

    /// Comparisons of this node with others.
    pub fn comparisons(&self) -> Comparisons {
        self.core.comparisons.lock().clone()
    }

    /// Appends a statement about contents to the shared log, as the leader, and does what it says; returns its entry.
    ///
    /// # Errors
    /// [`EngineError::Differs`]: this node has another hash, and has stopped. [`EngineError::NotLeader`] when it does not
    /// lead, or no longer. [`LogError::TooLarge`]: nothing was written. [`LogError::Unknown`]: the engine has stopped.
    pub fn write_hash(&self, body: &HashBody) -> Result<EntryIndex> {
        let core = &*self.core;
        if let Some(error) = core.refusal() {
            return Err(error);
        }
        let needs_snapshot = matches!(body, HashBody::Slice { .. });
        let written = core.shared_log()?.write_hash(body, |place| {
            (place, needs_snapshot.then(|| core.versions.snapshot_confirmed(place.seq)))
        });
        let (place, snapshot) = written.map_err(|error| {
            if !matches!(error, LogError::NotLeader | LogError::TooLarge { .. }) {
                core.fail_by_log(&error);
            }
            EngineError::from(error)
        })?;
        core.take_hash(body, place, snapshot)?;
        Ok(place.index)
    }

    /// Hashes the contents that a reader of `snapshot` sees, from position `start` on (empty: from the first one), until about
    /// `bytes` were hashed.
    ///
    /// # Errors
    /// The contents cannot be read; `start` is no position.
    pub fn hash_slice(&self, snapshot: &Snapshot, start: &[u8], bytes: u64) -> Result<ContentsSlice> {
        self.core.hash_slice(snapshot.read(), start, bytes)
    }
}

impl Core {
    /// Compares with a statement of the leader, or hashes the slice that it requests. `place` is that after its entry.
    pub(crate) fn take_hash(&self, body: &HashBody, place: Place, snapshot: Option<Snapshot>) -> Result<()> {
        match body {
            HashBody::Effects { origin, seq, hash } => {
                let compared = self.with_effects(|effects| effects.compare(*origin, *seq, *hash));
                match compared {
                    Some(Compared::Differs(own)) => {
                        return Err(self.differ(
                            *seq,
                            "effects of the commits up to it".into(),
                            (own, *hash),
                        ));
                    }
                    Some(Compared::Equal) => {
                        let equal = &mut self.comparisons.lock().equal;
                        *equal = (*equal).max(*seq);
                    }
                    Some(Compared::Adopted | Compared::Unknown) | None => {}
                }
            }
            HashBody::Slice { start, bytes } => {
                // After a restart newer commits may be there already; then this node has no hash of this slice.
                let snapshot = snapshot.unwrap_or_else(|| self.versions.snapshot());
                let hashed = (snapshot.seq() == place.seq)
                    .then(|| self.hash_slice(snapshot.read(), start, *bytes))
                    .transpose();
                let mut comparisons = self.comparisons.lock();
                comparisons.failed = hashed.as_ref().err().map(ToString::to_string);
                comparisons.slice = hashed.ok().flatten().map(|slice| (place.index, slice));
            }
            HashBody::SliceHash { request, seq, hash, parts } => {
                let mut comparisons = self.comparisons.lock();
                let own = comparisons.slice.as_ref().filter(|(of, _)| of == request);
                let Some((_, own)) = own.cloned() else { return Ok(()) };
                if own.hash == *hash {
                    comparisons.slices += 1;
                    comparisons.slice_bytes += own.bytes;
                    return Ok(());
                }
                drop(comparisons);
                let what = self.name_parts(&own.parts, parts);
                return Err(self.differ(*seq, what, (own.hash, *hash)));
            }
        }
        Ok(())
    }

    /// Stops this node for good: its contents are not those of most nodes.
    fn differ(&self, seq: Seq, what: String, (own, other): (ContentHash, ContentHash)) -> EngineError {
        let error = EngineError::Differs(Arc::new(Difference { seq, what, own, other }));
        self.fail_with(error.clone());
        // Without the file the next comparison would find it again.
        let _ = write_differs(&self.env, &self.dir, &error.to_string());
        if let Some(log) = &self.replicated
            && log.term().is_some()
        {
            log.abandon();
        }
        error
    }

    fn hash_slice(&self, read: ReadView<'_>, start: &[u8], bytes: u64) -> Result<ContentsSlice> {
        let (mut part, mut from) = split_position(start)?;
        let unordered: Vec<Keyspace> =
            self.models.iter().flat_map(|model| model.unordered_keyspaces()).collect();
        let mut models: Vec<u32> =
            self.models.iter().map(|model| MODEL_PARTS + u32::from(model.id().0)).collect();
        models.sort_unstable();
        let mut slice = ContentsSlice {
            seq: read.at(),
            hash: ContentHash::default(),
            parts: Vec::new(),
            bytes: 0,
            next: None,
        };
        let mut left = bytes.max(1);
        loop {
            let keyspace =
                u16::try_from(part).map(Keyspace).ok().filter(|found| read.runs().contains(*found));
            let mut hasher = SliceHasher::new(part, left);
            let next = match keyspace {
                Some(keyspace) if unordered.contains(&keyspace) => None,
                Some(keyspace) => hash_keyspace(read, keyspace, &from, &mut hasher)?,
                None => {
                    // The next model that there is.
                    let Some(number) = models.iter().find(|number| **number >= part) else {
                        return Ok(slice);
                    };
                    if *number != part {
                        (part, from) = (*number, Vec::new());
                        continue;
                    }
                    let model =
                        self.models.iter().find(|model| MODEL_PARTS + u32::from(model.id().0) == part);
                    let model = model.expect("the number is in the list of models");
                    model.hash_contents(read, &from, &mut hasher)?
                }
            };
            left = hasher.left();
            let (hash, hashed) = hasher.end();
            if hashed > 0 {
                slice.hash = slice.hash.plus(hash);
                slice.bytes += hashed;
                slice.parts.push(SlicePart { number: part, hash });
            }
            let is_long = left == 0 || slice.parts.len() >= SLICE_PARTS_MAX;
            (part, from) = match next {
                Some(next) => (part, next),
                None => (part + 1, Vec::new()),
            };
            if is_long {
                slice.next = Some([&part.to_be_bytes(), from.as_slice()].concat());
                return Ok(slice);
            }
        }
    }

    /// Names the parts of two slices that differ.
    fn name_parts(&self, own: &[SlicePart], other: &[SlicePart]) -> String {
        if other.is_empty() {
            return "a slice of the contents".to_owned();
        }
        let is_there = |part: &SlicePart, all: &[SlicePart]| all.contains(part);
        let mut numbers: Vec<u32> =
            own.iter().filter(|part| !is_there(part, other)).map(|p| p.number).collect();
        numbers.extend(other.iter().filter(|part| !is_there(part, own)).map(|part| part.number));
        numbers.sort_unstable();
        numbers.dedup();
        let keyspaces = self.store.stats().keyspaces;
        let name = |number: &u32| {
            let model = self.models.iter().find(|model| MODEL_PARTS + u32::from(model.id().0) == *number);
            let keyspace = keyspaces.get(*number as usize).map(|keyspace| keyspace.name.clone());
            keyspace
                .or_else(|| model.map(|model| model.name().to_owned()))
                .unwrap_or_else(|| number.to_string())
        };
        let names: Vec<String> = numbers.iter().take(NAMED_MAX).map(name).collect();
        format!("a slice of the contents, in {}", names.join(", "))
    }
}

/// Hashes the entries of a keyspace from key `from` on; returns where the next slice begins.
fn hash_keyspace(
    read: ReadView<'_>,
    keyspace: Keyspace,
    from: &[u8],
    into: &mut SliceHasher,
) -> Result<Option<Vec<u8>>> {
    let mut cursor = read.cursor(keyspace);
    cursor.seek(from)?;
    while cursor.valid() {
        into.add(&[cursor.key(), cursor.value()]);
        if into.is_full() {
            // The first key after this one.
            return Ok(Some([cursor.key(), &[0]].concat()));
        }
        cursor.next()?;
    }
    Ok(None)
}

/// Part, and position in it.
fn split_position(start: &[u8]) -> Result<(u32, Vec<u8>)> {
    if start.is_empty() {
        return Ok((0, Vec::new()));
    }
    let Some((part, from)) = start.split_first_chunk::<4>() else {
        return Err(EngineError::Damaged { model: "contents", what: "position of a slice".into() });
    };
    Ok((u32::from_be_bytes(*part), from.to_vec()))
}

/// Rejects a directory whose contents were found to differ.
///
/// # Errors
/// [`EngineError::Distrusted`]; I/O.
pub(crate) fn check_trusted(env: &Env, dir: &Path) -> Result<()> {
    let path = dir.join(DIFFERS);
    if !env.vfs.exists(&path).map_err(io("look for", &path))? {
        return Ok(());
    }
    let file = env.vfs.open(&path, OpenMode::Read).map_err(io("open", &path))?;
    let length = file.len().map_err(io("measure", &path))?.min(DIFFERS_BYTES_MAX);
    let mut text = vec![0; usize::try_from(length).unwrap_or_default()];
    file.read_exact_at(&mut text, 0).map_err(io("read", &path))?;
    Err(EngineError::Distrusted { path, what: String::from_utf8_lossy(&text).trim().into() })
}

fn write_differs(env: &Env, dir: &Path, what: &str) -> Result<()> {
    let path = dir.join(DIFFERS);
    if env.vfs.exists(&path).map_err(io("look for", &path))? {
        return Ok(());
    }
    let file = env.vfs.open(&path, OpenMode::CreateNew).map_err(io("create", &path))?;
    file.write_all_at(format!("{what}\n").as_bytes(), 0).map_err(io("write", &path))?;
    file.sync_data().map_err(io("sync", &path))?;
    env.vfs.sync_dir(dir).map_err(io("sync directory", dir))
}
