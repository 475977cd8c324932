//! A new shared log for a cluster whose shared log is lost.
//!
//! ```text
//! local copies:  A ……100   B ……120   C ……117      the longest is B, and all agree where they overlap
//! new log:       Lead (continues commit 60)  Commits 61…  …120      60: the oldest that B still has, less one
//! then:          each node compares what it has, forgets its place in the old log, and follows the new one
//! ```
//! Commits keep their numbers, so that positions, tokens and checkpoints of consumers stay valid.
//!
//! Invariants
//! 1. The new log is written only if it has no entry, and no copy or node with more commits is known.
//! 2. A copy is a prefix of the history: a node's local copy has only what the old log had confirmed. Two copies that differ
//!    in a commit are never joined.

use core::time::Duration;
use std::path::{Path, PathBuf};

use ropewalk_base::{Seq, hex};
use ropewalk_engine::{EngineError, LocalCopy};
use ropewalk_log::shared::{
    AppendError, ChainHash, ENTRY_OVERHEAD, Entry, EntryIndex, EntryKind, FEATURE_LEVEL, SavedPlace,
    SharedError, SharedLog, commits, put_commit,
};
use ropewalk_log::{LogError, LogId, LogReader};
use ropewalk_vfs::Env;

use crate::checkpoint::{CheckpointError, Checkpoints};

/// Bytes of commits that are put into one entry, if they fit.
const GROUP_BYTES: usize = 256 << 10;
/// Bytes of entries that are read at once.
const READ_BYTES: usize = 4 << 20;
/// How often an append without an answer is repeated, and the pause before each.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_secs(1);

/// Why there is no new shared log, or a copy does not follow it. The copies are as they were.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ReseedError {
    /// A database could not be read. A damaged log: `ropewalk recover` ends it before the damage.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The shared log.
    #[error(transparent)]
    Shared(#[from] SharedError),
    /// The checkpoint store.
    #[error(transparent)]
    Checkpoints(#[from] CheckpointError),
    /// There is no database in a directory.
    #[error("there is no database in {}", dir.display())]
    NoDatabase {
        /// The directory.
        dir: PathBuf,
    },
    /// No directory was named.
    #[error("no local copy was named")]
    NoCopy,
    /// The new shared log has entries.
    #[error("the new shared log has entries up to {newest}; choose the name of one that does not exist")]
    NotEmpty {
        /// The newest entry.
        newest: EntryIndex,
    },
    /// The copies come from different shared logs.
    #[error("{} is of shared log {other}, and not of {log}", dir.display())]
    OtherLog {
        /// A directory.
        dir: PathBuf,
        /// Its shared log.
        other: LogId,
        /// The shared log of another one.
        log: LogId,
    },
    /// Two copies differ in a commit. They have no common history, or one is damaged.
    #[error("{} and {} differ in commit {seq}", one.display(), other.display())]
    Differ {
        /// The copy with more commits.
        one: PathBuf,
        /// Another one.
        other: PathBuf,
        /// The commit.
        seq: Seq,
    },
    /// More commits are known than the longest copy has.
    #[error(
        "the longest copy ends at commit {seq}, and {known}; add the directory of that node, or accept the loss"
    )]
    Longer {
        /// The newest commit of the longest copy.
        seq: Seq,
        /// The source that has more commits.
        known: String,
    },
    /// The service refused an entry, or another program has appended to the new log.
    #[error("entry {index} of the new shared log: {what}; remove that log, and try again with another one")]
    Append {
        /// The entry.
        index: EntryIndex,
        /// Cause of the failure.
        what: String,
    },
    /// A copy does not continue in the new log.
    #[error("{} does not follow the new shared log: {what}", dir.display())]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// The difference from the new log.
        what: String,
    },
}

impl From<LogError> for ReseedError {
    fn from(error: LogError) -> Self {
        Self::Engine(error.into())
    }
}

/// How to make a new shared log.
#[derive(Debug, Clone, Copy)]
pub struct Reseed<'a> {
    /// Directories of nodes, or copies of those, which no process has open. More of them make it more likely that one has
    /// every commit.
    pub copies: &'a [PathBuf],
    /// Tells what other nodes had, if there is a store.
    pub checkpoints: Option<&'a Checkpoints>,
    /// Continue although commits are known that no copy has. These commits are lost.
    pub accepts_loss: bool,
    /// Name of the node that does it.
    pub node: [u8; 16],
    /// Address that it advertises; empty when it does not lead afterwards.
    pub address: &'a str,
}

/// A new shared log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reseeded {
    /// The directory with the longest copy.
    pub from: PathBuf,
    /// The newest commit.
    pub seq: Seq,
    /// The commit that the first entry continues: nodes with fewer commits need a copy of another one.
    pub base: Seq,
    /// Number of entries.
    pub entries: u64,
    /// Commits that were known and are lost, in words, if the loss was accepted.
    pub lost: Option<String>,
}

impl Reseed<'_> {
    /// Writes the longest of the copies into `log`, which must have no entry, and makes the copies follow it. Every node has to
    /// be stopped; each of the others is then passed to [`adopt`].
    ///
    /// Cost: reads the logs of all copies, and appends what the longest one has, usually some dozens of megabytes.
    ///
    /// # Errors
    /// [`ReseedError`]. After [`ReseedError::Append`] the log is of no use.
    pub fn run(&self, env: &Env, log: &dyn SharedLog) -> Result<Reseeded, ReseedError> {
        let newest = log.bounds()?.newest;
        if newest > EntryIndex::ZERO {
            return Err(ReseedError::NotEmpty { newest });
        }
        let mut copies = Vec::new();
        for dir in self.copies {
            copies.push(open(env, dir)?);
        }
        copies.sort_by_key(|copy| core::cmp::Reverse(copy.last()));
        let (longest, others) = copies.split_first().ok_or(ReseedError::NoCopy)?;
        let old = check_logs(&copies)?;
        for other in others {
            compare(longest, other)?;
        }
        let lost = self.known_longer(longest.last(), old)?;
        if let Some(known) = lost.clone().filter(|_| !self.accepts_loss) {
            return Err(ReseedError::Longer { seq: longest.last(), known });
        }
        let places = copies.iter().filter_map(|copy| copy.place());
        let term = places.map(|saved| saved.place.term).max().unwrap_or(0).saturating_add(1);
        let (base, entries) = self.write(env, longest, log, term)?;
        let (from, seq) = (longest.dir().to_owned(), longest.last());
        // The others are compared with the new log as any other node is.
        for copy in &mut copies {
            if copy.last() > base || copy.dir() == from {
                copy.forget_place()?;
            }
        }
        Ok(Reseeded { from, seq, base, entries, lost })
    }

    /// A source that is known to have more commits than `seq`.
    fn known_longer(&self, seq: Seq, old: Option<LogId>) -> Result<Option<String>, ReseedError> {
        let Some(checkpoints) = self.checkpoints else { return Ok(None) };
        for report in checkpoints.node_reports()? {
            let place = report.place;
            if Some(place.log) == old && place.place.seq > seq {
                let known = place.place.seq;
                let what = format!("node {} at {} has commit {known}", hex(&report.node), report.address);
                return Ok(Some(what));
            }
        }
        for found in checkpoints.list()? {
            if let Ok(manifest) = found.manifest
                && Some(manifest.place.log) == old
                && manifest.seq > seq
            {
                return Ok(Some(format!("checkpoint {} has commit {}", found.number, manifest.seq)));
            }
        }
        Ok(None)
    }

    /// Writes the entries. Returns the commit that they continue, and how many there are.
    fn write(
        &self,
        env: &Env,
        copy: &LocalCopy,
        log: &dyn SharedLog,
        term: u64,
    ) -> Result<(Seq, u64), ReseedError> {
        let (before, mut reader) = copy.read(Seq(1));
        let base = before.min(copy.last());
        let mut writer =
            Writer { env, log, node: self.node, term, index: EntryIndex::ZERO, chain: ChainHash::NONE };
        writer.entry(EntryKind::Lead, (base.next(), 0), self.address.as_bytes())?;
        let (mut first, mut count, mut body) = (base.next(), 0, Vec::new());
        let mut next = base.next();
        while next <= copy.last() {
            let Some(found) = next_record(&mut *reader, copy, next)? else {
                let what = format!("commit {next} is missing in {}", copy.dir().display());
                return Err(ReseedError::Append { index: writer.index.next(), what });
            };
            put_commit(&mut body, &found);
            (count, next) = (count + 1, next.next());
            if body.len() >= writer.group_bytes() {
                writer.group((first, count), &body)?;
                (first, count) = (next, 0);
                body.clear();
            }
        }
        if count > 0 {
            writer.group((first, count), &body)?;
        }
        Ok((base, writer.index.0))
    }
}

/// Makes the database in `dir` follow `log`, a new shared log that [`Reseed::run`] has written: compares its newest commit
/// with that log, and forgets its place in the old one. Its node compares all others while it follows.
///
/// # Errors
/// [`ReseedError::Foreign`], for example when it has fewer commits than the log continues: such a node begins with an empty
/// directory and a checkpoint that was made on the new log, or with a copy of another node.
pub fn adopt(env: &Env, dir: &Path, log: &dyn SharedLog) -> Result<Seq, ReseedError> {
    let mut copy = open(env, dir)?;
    let last = copy.last();
    let foreign = |what: String| ReseedError::Foreign { dir: dir.to_owned(), what };
    let bounds = log.bounds()?;
    if bounds.oldest != EntryIndex(1) || bounds.newest == EntryIndex::ZERO {
        return Err(foreign(format!(
            "that has the entries {} to {}, and the first is needed",
            bounds.oldest, bounds.newest
        )));
    }
    let (_, mut reader) = copy.read(last);
    let own = next_record(&mut *reader, &copy, last)?;
    let Some(own) = own.filter(|_| last > Seq::ZERO) else {
        return Err(foreign("it has no commit to compare".to_owned()));
    };
    let stored = find_commit(log, last).map_err(|error| match error {
        Search::Shared(error) => error.into(),
        Search::Absent(what) => foreign(what),
    })?;
    if stored != own {
        return Err(foreign(format!("commit {last} differs")));
    }
    copy.forget_place()?;
    Ok(last)
}

/// A database that was a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// Its newest commit.
    pub seq: Seq,
    /// The place in its shared log that it had noted, if it had.
    pub place: Option<SavedPlace>,
}

/// Makes the database in `dir`, of a node that does not run, a database that is alone: it forgets its place in the shared log.
/// Once it has committed alone, it cannot follow that log again.
///
/// # Errors
/// [`ReseedError::NoDatabase`]; [`ReseedError::Engine`], among others while a process has the database open.
pub fn leave(env: &Env, dir: &Path) -> Result<Left, ReseedError> {
    let mut copy = open(env, dir)?;
    let (seq, place) = (copy.last(), copy.place().cloned());
    copy.forget_place()?;
    Ok(Left { seq, place })
}

fn open(env: &Env, dir: &Path) -> Result<LocalCopy, ReseedError> {
    LocalCopy::open(env, dir)?.ok_or_else(|| ReseedError::NoDatabase { dir: dir.to_owned() })
}

/// The shared log of the copies, if one has noted it.
fn check_logs(copies: &[LocalCopy]) -> Result<Option<LogId>, ReseedError> {
    let mut log = None;
    for copy in copies {
        let Some(other) = copy.place().map(|saved| saved.log) else { continue };
        let log = *log.get_or_insert(other);
        if other != log {
            return Err(ReseedError::OtherLog { dir: copy.dir().to_owned(), other, log });
        }
    }
    Ok(log)
}

/// Compares the commits that two copies have both. `one` has not fewer.
fn compare(one: &LocalCopy, other: &LocalCopy) -> Result<(), ReseedError> {
    let (from_one, mut of_one) = one.read(Seq(1));
    let (from_other, mut of_other) = other.read(Seq(1));
    let mut seq = from_one.max(from_other).next();
    while seq <= other.last() {
        let pair = (next_record(&mut *of_one, one, seq)?, next_record(&mut *of_other, other, seq)?);
        match pair {
            (Some(a), Some(b)) if a == b => seq = seq.next(),
            _ => {
                let (one, other) = (one.dir().to_owned(), other.dir().to_owned());
                return Err(ReseedError::Differ { one, other, seq });
            }
        }
    }
    Ok(())
}

/// The payload of commit `seq`; records before it are skipped.
fn next_record(
    reader: &mut dyn LogReader,
    copy: &LocalCopy,
    seq: Seq,
) -> Result<Option<Vec<u8>>, ReseedError> {
    if seq > copy.last() {
        return Ok(None);
    }
    while let Some(found) = reader.next()? {
        if found.seq >= seq {
            return Ok((found.seq == seq).then(|| found.payload.to_vec()));
        }
    }
    Ok(None)
}

/// Why a commit was not found.
enum Search {
    Shared(SharedError),
    Absent(String),
}

/// The payload of a commit in a shared log.
fn find_commit(log: &dyn SharedLog, seq: Seq) -> Result<Vec<u8>, Search> {
    let absent = |what: &str| Search::Absent(format!("{what} commit {seq}"));
    let (mut after, mut parts) = (EntryIndex::ZERO, Vec::new());
    loop {
        let entries = log.read(after, READ_BYTES, Duration::ZERO).map_err(Search::Shared)?;
        let Some(last) = entries.last() else { return Err(absent("it ends before")) };
        after = last.index;
        for stored in &entries {
            let entry = Entry::decode(&stored.bytes)
                .map_err(|error| Search::Absent(format!("entry {}: {error}", stored.index)))?;
            if entry.first > seq {
                return Err(absent("it begins after"));
            }
            let body = match entry.kind {
                EntryKind::Commits => entry.body,
                EntryKind::Part { first, last } => {
                    if first {
                        parts.clear();
                    }
                    parts.extend_from_slice(entry.body);
                    if !last {
                        continue;
                    }
                    parts.as_slice()
                }
                _ => continue,
            };
            let offset = usize::try_from(seq.0 - entry.first.0).unwrap_or(usize::MAX);
            let payloads = commits(body, entry.count)
                .map_err(|error| Search::Absent(format!("entry {}: {error}", stored.index)))?;
            if let Some(payload) = payloads.get(offset) {
                return Ok(payload.to_vec());
            }
        }
    }
}

/// Appends the entries of a new log.
struct Writer<'a> {
    env: &'a Env,
    log: &'a dyn SharedLog,
    node: [u8; 16],
    term: u64,
    index: EntryIndex,
    chain: ChainHash,
}

impl Writer<'_> {
    /// Room for the body of an entry.
    fn room(&self) -> usize {
        self.log.entry_bytes_max().saturating_sub(ENTRY_OVERHEAD).max(1)
    }

    fn group_bytes(&self) -> usize {
        self.room().min(GROUP_BYTES)
    }

    /// Appends commits, in parts if they do not fit into one entry.
    fn group(&mut self, commits: (Seq, u32), body: &[u8]) -> Result<(), ReseedError> {
        let room = self.room();
        if body.len() <= room {
            return self.entry(EntryKind::Commits, commits, body);
        }
        let count = body.len().div_ceil(room);
        for (part, body) in (1..).zip(body.chunks(room)) {
            let kind = EntryKind::Part { first: part == 1, last: part == count };
            self.entry(kind, commits, body)?;
        }
        Ok(())
    }

    fn entry(&mut self, kind: EntryKind, (first, count): (Seq, u32), body: &[u8]) -> Result<(), ReseedError> {
        let entry = Entry {
            level: FEATURE_LEVEL,
            kind,
            term: self.term,
            node: self.node,
            first,
            count,
            time_micros: self.env.clock.wall_micros(),
            previous: self.chain,
            body,
        };
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        self.append(&bytes)?;
        (self.index, self.chain) = (self.index.next(), ChainHash::of_entry(&bytes));
        Ok(())
    }

    /// Appends an entry; no other program appends to this log.
    fn append(&self, bytes: &[u8]) -> Result<(), ReseedError> {
        let index = self.index.next();
        let failed = |what: String| ReseedError::Append { index, what };
        for _ in 0..ATTEMPTS {
            match self.log.append(self.index, bytes) {
                Ok(_) => return Ok(()),
                Err(AppendError::Refused { cause }) => return Err(failed(cause)),
                Err(AppendError::Fenced { newest }) => {
                    let read = self.log.read(self.index, 1, Duration::ZERO).unwrap_or_default();
                    return match read.first() {
                        Some(found) if found.bytes == bytes => Ok(()),
                        _ => Err(failed(format!("entry {newest} is the newest"))),
                    };
                }
                Err(AppendError::Unknown { .. }) => self.env.clock.sleep(PAUSE),
            }
        }
        Err(failed(format!("the service has not answered {ATTEMPTS} times")))
    }
}
