//! The log of a node: a shared log, and a local copy of what it has confirmed.
//!
//! ```text
//! leader:    append ─▶ memory, held back ─┐ acknowledge                ┌─▶ release ─▶ local copy
//!                                         └─▶ entry ─▶ shared log ─ok──┘
//! follower:  shared log ─▶ entry ─▶ checks ─▶ apply ─▶ local copy
//! ```
//!
//! Invariants
//! 1. The local copy has no record on disk that the shared log has not confirmed.
//! 2. Entries are appended under the condition that the newest entry is the newest one that this node has applied. So an
//!    append that succeeds proves that no other node has led meanwhile.
//! 3. After an append whose result stays unknown, and after another node has led, nothing is appended any more until the
//!    log is opened again: memory may have records that the shared log does not have.
//! 4. One thread at a time appends entries, or follows them: the one that holds `turn`.
//!
//! Locks: `turn` before the caller's lock on its own state (in `apply`), before `group`; `view` is the last.

use core::time::Duration;
use std::sync::{Arc, OnceLock};

use ropewalk_base::sync::{AtomicU64, Mutex, Ordering};
use ropewalk_base::{Lsn, Seq};
use ropewalk_vfs::Clock;

use crate::error::Result;
use crate::shared::follower::Follower;
use crate::shared::{
    AppendError, ENTRY_OVERHEAD, Entry, EntryIndex, EntryKind, FEATURE_LEVEL, HashBody, Place, SavedPlace,
    SharedEntry, SharedError, SharedLog, commits, put_commit,
};
use crate::{CommitLog, LocalLog, LogError, LogId, LogLimits, LogReader, LogStats, Record, TrimGuard};

/// Pauses between two attempts of an append, the first and the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A node's part in a shared log.
#[derive(Debug, Clone)]
pub struct NodeSettings {
    /// Name of the node, which no other node has.
    pub node: [u8; 16],
    /// Address that it advertises while it leads.
    pub address: String,
    /// How long an append is repeated whose result is unknown.
    pub patience: Duration,
}

/// Fate of a commit that was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitFate {
    /// The shared log has it.
    Confirmed,
    /// The shared log does not have it, and never will.
    Absent,
    /// Not known, or not yet.
    Unknown,
}

/// An entry that was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryFollowed {
    /// Kind.
    pub kind: EntryKind,
    /// The leader that wrote it.
    pub node: [u8; 16],
    /// That leader's clock, microseconds since 1970.
    pub time_micros: i64,
    /// Commits that were applied. Others of the entry were in the local copy already.
    pub commits: u64,
    /// Its statement about contents, if it has one that this version knows.
    pub hash: Option<HashBody>,
    /// Its leader has stepped down after it, and asks this node to lead.
    pub is_successor: bool,
    /// The place after it.
    pub place: Place,
}

/// A log that nodes share, with its local copy. See the module.
pub struct ReplicatedLog {
    local: LocalLog,
    shared: Arc<dyn SharedLog>,
    clock: Arc<dyn Clock>,
    settings: NodeSettings,
    turn: Mutex<Turn>,
    group: Mutex<Group>,
    view: Mutex<View>,
    /// The term in which this node leads; zero while it does not.
    term: AtomicU64,
    /// Calls of [`ReplicatedLog::renew`] so far.
    asked: AtomicU64,
    /// The newest commit that the shared log has confirmed.
    confirmed: AtomicU64,
    ended: OnceLock<Ending>,
}

/// State of the thread that appends or follows entries.
struct Turn {
    follower: Follower,
    /// Incarnation of the shared log, once known.
    identity: Option<LogId>,
    /// The shared log has this identity since this log was opened.
    identified: bool,
    /// Reads the local copy, to compare entries with it.
    copy: Option<Box<dyn LogReader>>,
    /// So many calls of `renew` had begun before an append that has succeeded since.
    proved: u64,
}

/// Records that are in memory, and in no entry yet.
struct Group {
    first: Seq,
    count: u32,
    body: Vec<u8>,
    tail: Lsn,
}

impl Group {
    const EMPTY: Self = Self { first: Seq::ZERO, count: 0, body: Vec::new(), tail: Lsn::ZERO };

    fn last(&self) -> Seq {
        Seq(self.first.0 + u64::from(self.count) - 1)
    }
}

/// Copy of what other threads ask for, so that they do not wait for a turn.
struct View {
    place: Place,
    whole: Place,
    identity: Option<LogId>,
    leader: Option<String>,
}

/// Why nothing is appended any more.
enum Ending {
    Deposed { leader: Option<String> },
    Refused { cause: String },
    Diverged { index: EntryIndex, what: String },
    Unknown { cause: String },
}

impl Ending {
    /// The end that an error means, if it is one.
    fn of(error: &LogError) -> Option<Self> {
        Some(match error {
            LogError::Deposed { leader } => Self::Deposed { leader: leader.clone() },
            LogError::Refused { cause } => Self::Refused { cause: cause.clone() },
            LogError::Diverged { index, what } => Self::Diverged { index: *index, what: what.clone() },
            LogError::Unknown { cause } => Self::Unknown { cause: cause.clone() },
            _ => return None,
        })
    }

    fn error(&self) -> LogError {
        match self {
            Self::Deposed { leader } => LogError::Deposed { leader: leader.clone() },
            Self::Refused { cause } => LogError::Refused { cause: cause.clone() },
            Self::Diverged { index, what } => LogError::Diverged { index: *index, what: what.clone() },
            Self::Unknown { cause } => LogError::Unknown { cause: cause.clone() },
        }
    }
}

/// Result of an append that is certain.
enum Appended {
    Stored(EntryIndex),
    /// Another entry has the place; its bytes, if they could be read.
    Other(Option<Vec<u8>>),
}

impl ReplicatedLog {
    /// A follower whose local copy is `local`, to which nothing was appended since it was opened. `saved` is the place that it
    /// noted last; if the local copy does not reach it, only the name of the shared log in it is used.
    pub fn new(
        local: LocalLog,
        shared: Arc<dyn SharedLog>,
        clock: Arc<dyn Clock>,
        settings: NodeSettings,
        saved: Option<&SavedPlace>,
    ) -> Self {
        local.hold_back();
        let last = local.last_seq();
        let identity = saved.map(|saved| saved.log);
        let follower = match saved {
            // The commits of a database that was alone come before the first entry.
            None => Follower::new(Place { seq: last, ..Place::default() }, None),
            Some(saved) if saved.place.seq <= last => Follower::new(saved.place, saved.leader.clone()),
            Some(_) => Follower::new(Place::default(), None),
        };
        let view = View {
            place: follower.place(),
            whole: follower.whole(),
            identity,
            leader: follower.leader().map(str::to_owned),
        };
        Self {
            local,
            shared,
            clock,
            settings,
            turn: Mutex::new(Turn { follower, identity, identified: false, copy: None, proved: 0 }),
            group: Mutex::new(Group::EMPTY),
            view: Mutex::new(view),
            term: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            confirmed: AtomicU64::new(last.0),
            ended: OnceLock::new(),
        }
    }

    /// The term in which this node leads; `None` while it does not. One atomic load.
    pub fn term(&self) -> Option<u64> {
        Some(self.term.load(Ordering::Acquire)).filter(|term| *term > 0)
    }

    /// Address of the leader, if this node follows and knows it.
    pub fn leader(&self) -> Option<String> {
        self.view.lock().leader.clone()
    }

    /// The newest entry that this node has applied or written.
    pub fn place(&self) -> Place {
        self.view.lock().place
    }

    /// The place to note; the local copy has its commits once [`ReplicatedLog::sync_copy`] has returned. `None` before an entry
    /// was applied.
    pub fn saved_place(&self) -> Option<SavedPlace> {
        let view = self.view.lock();
        let log = view.identity.filter(|_| view.whole.index > EntryIndex::ZERO)?;
        Some(SavedPlace { log, place: view.whole, leader: view.leader.clone() })
    }

    /// True when a place was noted or an entry was applied: then it is known which shared log is the node's.
    pub fn knows_log(&self) -> bool {
        self.view.lock().identity.is_some()
    }

    /// The place to note before any entry is applied. A node that has noted it never takes another shared log for its own, and
    /// knows which of its commits the shared log does not have.
    ///
    /// # Errors
    /// [`LogError::Shared`] when the shared log does not identify itself; [`LogError::Diverged`] when it is another one.
    pub fn first_place(&self) -> Result<SavedPlace> {
        let turn = &mut *self.turn.lock();
        self.check_running()?;
        let log = self.identify(turn).map_err(|error| self.end(error))?;
        Ok(SavedPlace { log, place: turn.follower.whole(), leader: None })
    }

    /// Makes durable what the local copy may have, without a word to the shared log.
    ///
    /// # Errors
    /// As [`CommitLog::barrier`] of the local log.
    pub fn sync_copy(&self) -> Result<Lsn> {
        self.local.barrier()
    }

    /// The newest commit that the shared log has confirmed.
    pub fn confirmed(&self) -> Seq {
        Seq(self.confirmed.load(Ordering::Acquire))
    }

    /// The fate of commit `seq`, which was appended.
    pub fn fate(&self, seq: Seq) -> CommitFate {
        // In this order: a commit that was confirmed before the end is not absent.
        let ended = self.ended.get();
        if seq <= self.confirmed() {
            return CommitFate::Confirmed;
        }
        match ended {
            Some(Ending::Unknown { .. }) | None => CommitFate::Unknown,
            Some(Ending::Deposed { .. } | Ending::Refused { .. } | Ending::Diverged { .. }) => {
                CommitFate::Absent
            }
        }
    }

    /// True when another node leads, or the last commits are unknown: the log has to be opened again.
    pub fn is_deposed(&self) -> bool {
        matches!(self.ended.get(), Some(Ending::Deposed { .. } | Ending::Unknown { .. }))
    }

    /// Applies the next entry: `apply` gets those of its commits that the local copy does not have. It appends them by
    /// [`ReplicatedLog::append_followed`].
    ///
    /// # Errors
    /// [`LogError::Diverged`], after which nothing can be followed; the errors of `apply`, too. [`LogError::Leads`];
    /// [`LogError::Shared`] when the shared log did not identify itself: nothing was done.
    pub fn follow<E: From<LogError>>(
        &self,
        shared: &SharedEntry,
        apply: impl FnOnce(&[(Seq, &[u8])]) -> Result<(), E>,
    ) -> Result<EntryFollowed, E> {
        let turn = &mut *self.turn.lock();
        self.check_running()?;
        if self.term().is_some() {
            return Err(LogError::Leads.into());
        }
        self.identify(turn).map_err(|error| self.end(error))?;
        let copied = self.local.last_seq();
        let checked = turn.follower.next(shared, copied).map_err(|error| self.end(error))?;
        let entry = checked.entry;
        let hash = match entry.kind {
            EntryKind::Hash => decoded(shared.index, entry.body).map_err(|error| self.end(error))?,
            _ => None,
        };
        // They were decoded by the check.
        let payloads = checked.group.as_deref().map(|body| commits(body, entry.count).unwrap_or_default());
        let numbered = (entry.first.0..).map(Seq).zip(payloads.unwrap_or_default());
        let mut new = Vec::new();
        for (seq, payload) in numbered {
            if seq > copied {
                new.push((seq, payload));
                continue;
            }
            let same = is_copied(&self.local, &mut turn.copy, seq, payload)?;
            if !same {
                let what = format!("its commit {seq} differs from that of the local copy");
                return Err(self.end(LogError::Diverged { index: shared.index, what }).into());
            }
        }
        let place = turn.follower.place();
        if place.seq >= copied {
            turn.copy = None;
        }
        if !new.is_empty() {
            apply(&new)?;
        }
        self.show(turn);
        let (kind, node, time_micros) = (entry.kind, entry.node, entry.time_micros);
        let is_successor = kind == EntryKind::Renew && entry.body == self.settings.node.as_slice();
        Ok(EntryFollowed { kind, node, time_micros, commits: new.len() as u64, hash, is_successor, place })
    }

    /// Appends commits of an entry to the local copy, and hands them to the operating system. For the callback of
    /// [`ReplicatedLog::follow`].
    ///
    /// # Errors
    /// As [`CommitLog::append`] and [`CommitLog::flush`] of the local log.
    pub fn append_followed(&self, records: &[Record<'_>], expected_tail: Lsn) -> Result<Lsn> {
        let tail = self.local.append(records, expected_tail)?;
        self.local.release(tail);
        if let Some(last) = records.last() {
            self.confirmed.store(last.seq.0, Ordering::Release);
        }
        self.local.flush()?;
        Ok(tail)
    }

    /// Tries to lead in the next term: true when this node leads now. False when another entry is newer than its place.
    ///
    /// # Errors
    /// [`LogError::Shared`] and [`LogError::Unknown`] when the shared log does not answer: this node does not lead, and may
    /// try again. [`LogError::Diverged`] when the shared log lacks what this node has; [`LogError::Sealed`] when it was closed.
    pub fn campaign(&self) -> Result<bool> {
        let turn = &mut *self.turn.lock();
        self.check_running()?;
        if self.term().is_some() {
            return Ok(true);
        }
        self.identify(turn).map_err(|error| self.end(error))?;
        if turn.follower.is_closed() {
            return Err(LogError::Sealed);
        }
        if !self.is_complete(turn)? {
            return Ok(false);
        }
        let place = turn.follower.place();
        let Some(term) = place.term.checked_add(1) else { return Err(LogError::Sealed) };
        let bytes = self.entry(place, (term, EntryKind::Lead), (0, self.settings.address.as_bytes()));
        match self.append_entry(place.index, &bytes) {
            Ok(Appended::Stored(index)) => {
                turn.follower.wrote(index, &bytes, (term, place.seq), true);
                self.show(turn);
                self.term.store(term, Ordering::Release);
                Ok(true)
            }
            Ok(Appended::Other(_)) => Ok(false),
            // Nothing in memory depends on it: if it is stored after all, this node will follow it.
            Err(error @ LogError::Unknown { .. }) => Err(error),
            Err(error) => Err(self.end(error)),
        }
    }

    /// Appends an entry that proves that this node leads. Callers at the same time share it.
    ///
    /// # Errors
    /// [`LogError::NotLeader`]; as [`CommitLog::acknowledge`].
    pub fn renew(&self) -> Result<()> {
        let ticket = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let turn = &mut *self.turn.lock();
        self.check_running()?;
        if self.term().is_none() {
            return Err(LogError::NotLeader);
        }
        if turn.proved >= ticket || self.send_group(turn)? {
            return Ok(());
        }
        let covered = self.asked.load(Ordering::SeqCst);
        let seq = turn.follower.place().seq;
        self.write(turn, EntryKind::Renew, (seq.next(), 0), &[], seq).map_err(|error| self.end(error))?;
        turn.proved = covered;
        self.show(turn);
        Ok(())
    }

    /// Appends a statement about contents, without its parts if these are too long; `at` gets the place after it, before any
    /// later commit is confirmed.
    ///
    /// # Errors
    /// [`LogError::NotLeader`]; [`LogError::TooLarge`], after which nothing has changed; as [`CommitLog::acknowledge`].
    pub fn write_hash<R>(&self, body: &HashBody, at: impl FnOnce(Place) -> R) -> Result<R> {
        let room = self.shared.entry_bytes_max().saturating_sub(ENTRY_OVERHEAD);
        let mut bytes = body.encode();
        if let HashBody::SliceHash { request, seq, hash, .. } = body
            && bytes.len() > room
        {
            let (request, seq, hash) = (*request, *seq, *hash);
            bytes = HashBody::SliceHash { request, seq, hash, parts: Vec::new() }.encode();
        }
        if bytes.len() > room {
            return Err(LogError::TooLarge { bytes: bytes.len() as u64, max: room as u64 });
        }
        let covered = self.asked.load(Ordering::SeqCst);
        let turn = &mut *self.turn.lock();
        self.check_running()?;
        if self.term().is_none() {
            return Err(LogError::NotLeader);
        }
        self.send_group(turn)?;
        let seq = turn.follower.place().seq;
        let written = self.write(turn, EntryKind::Hash, (seq.next(), 0), &bytes, seq);
        written.map_err(|error| self.end(error))?;
        turn.proved = turn.proved.max(covered);
        self.show(turn);
        Ok(at(turn.follower.place()))
    }

    /// Gives up leading without a word to the shared log: records in memory are absent from it, for ever.
    pub fn abandon(&self) {
        let _turn = self.turn.lock();
        self.end(LogError::Deposed { leader: None });
    }

    /// Gives up leading: sends the records in memory, then an entry that names the `successor` if there is one, and appends
    /// nothing after them. Records that come later are absent from the shared log.
    ///
    /// # Errors
    /// [`LogError::NotLeader`]; as [`CommitLog::acknowledge`].
    pub fn step_down(&self, successor: Option<[u8; 16]>) -> Result<()> {
        let turn = &mut *self.turn.lock();
        self.check_running()?;
        if self.term().is_none() {
            return Err(LogError::NotLeader);
        }
        self.send_group(turn)?;
        if let Some(successor) = successor {
            let seq = turn.follower.place().seq;
            let written = self.write(turn, EntryKind::Renew, (seq.next(), 0), &successor, seq);
            written.map_err(|error| self.end(error))?;
            self.show(turn);
        }
        self.end(LogError::Deposed { leader: None });
        Ok(())
    }

    /// Copies what other threads may read.
    fn show(&self, turn: &Turn) {
        let leader = turn.follower.leader().map(str::to_owned);
        let (place, whole) = (turn.follower.place(), turn.follower.whole());
        *self.view.lock() = View { place, whole, identity: turn.identity, leader };
    }

    fn check_running(&self) -> Result<()> {
        self.ended.get().map_or(Ok(()), |ending| Err(ending.error()))
    }

    /// Notes an error after which nothing may be appended, for all later callers.
    fn end(&self, error: LogError) -> LogError {
        if let Some(ending) = Ending::of(&error) {
            if let Ending::Deposed { leader } = &ending {
                self.view.lock().leader.clone_from(leader);
            }
            let _ = self.ended.set(ending);
            self.term.store(0, Ordering::Release);
        }
        error
    }

    /// Makes sure, once, that the shared log is the one that this node knows.
    fn identify(&self, turn: &mut Turn) -> Result<LogId> {
        if let Some(known) = turn.identity.filter(|_| turn.identified) {
            return Ok(known);
        }
        let found = self.shared.identity()?;
        if let Some(known) = turn.identity.filter(|known| *known != found) {
            let index = turn.follower.place().index;
            let what = format!("the shared log was created again: it was {known}, and is {found}");
            return Err(LogError::Diverged { index, what });
        }
        (turn.identity, turn.identified) = (Some(found), true);
        Ok(found)
    }

    /// True when this node has applied all commits that its local copy has. Otherwise the shared log has entries to follow, or
    /// it has lost some.
    fn is_complete(&self, turn: &Turn) -> Result<bool> {
        let (last, place) = (self.local.last_seq(), turn.follower.place());
        if place.seq == last && !turn.follower.begins() {
            return Ok(true);
        }
        let next = match self.shared.read(place.index, 1, Duration::ZERO) {
            Err(SharedError::Trimmed { .. }) => return Ok(false),
            read => read?,
        };
        if !next.is_empty() {
            return Ok(false);
        }
        if place.seq != last {
            let what = format!(
                "it is missing, and this database has commits up to {last} and not only {}",
                place.seq
            );
            return Err(self.end(LogError::Diverged { index: place.index.next(), what }));
        }
        Ok(true)
    }

    /// Encodes an entry after `place`, with `count` commits.
    fn entry(&self, place: Place, (term, kind): (u64, EntryKind), (count, body): (u32, &[u8])) -> Vec<u8> {
        let entry = Entry {
            level: FEATURE_LEVEL,
            kind,
            term,
            node: self.settings.node,
            first: place.seq.next(),
            count,
            time_micros: self.clock.wall_micros(),
            previous: place.chain,
            body,
        };
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        bytes
    }

    /// Appends an entry of this leader. `seq` is the newest commit after it.
    fn write(
        &self,
        turn: &mut Turn,
        kind: EntryKind,
        (first, count): (Seq, u32),
        body: &[u8],
        seq: Seq,
    ) -> Result<()> {
        let place = turn.follower.place();
        assert_eq!(first, place.seq.next(), "a leader's entry continues the one before");
        let term = self.term().ok_or(LogError::NotLeader)?;
        let bytes = self.entry(place, (term, kind), (count, body));
        match self.append_entry(place.index, &bytes)? {
            Appended::Stored(index) => {
                let is_whole = !matches!(kind, EntryKind::Part { last: false, .. });
                turn.follower.wrote(index, &bytes, (term, seq), is_whole);
                Ok(())
            }
            Appended::Other(other) => {
                let other = other.as_deref().and_then(|bytes| Entry::decode(bytes).ok());
                let lead = other.filter(|entry| entry.kind == EntryKind::Lead);
                let leader = lead.and_then(|entry| entry.address().ok()).map(str::to_owned);
                Err(LogError::Deposed { leader })
            }
        }
    }

    /// Sends the records in memory, if there are any: true then.
    fn send_group(&self, turn: &mut Turn) -> Result<bool> {
        let covered = self.asked.load(Ordering::SeqCst);
        let group = std::mem::replace(&mut *self.group.lock(), Group::EMPTY);
        if group.count == 0 {
            return Ok(false);
        }
        let last = group.last();
        self.send(turn, &group).map_err(|error| self.end(error))?;
        self.confirmed.store(last.0, Ordering::Release);
        turn.proved = covered;
        self.local.release(group.tail);
        self.show(turn);
        self.local.flush()?;
        Ok(true)
    }

    /// Appends the entries of a group.
    fn send(&self, turn: &mut Turn, group: &Group) -> Result<()> {
        let (commits, last) = ((group.first, group.count), group.last());
        let room = self.shared.entry_bytes_max().saturating_sub(ENTRY_OVERHEAD);
        if group.body.len() <= room {
            return self.write(turn, EntryKind::Commits, commits, &group.body, last);
        }
        if room == 0 {
            let cause = "its entries are smaller than a header".to_owned();
            return Err(LogError::Refused { cause });
        }
        let count = group.body.len().div_ceil(room);
        for (part, body) in (1..).zip(group.body.chunks(room)) {
            let kind = EntryKind::Part { first: part == 1, last: part == count };
            let seq = if part == count { last } else { turn.follower.place().seq };
            match self.write(turn, kind, commits, body, seq) {
                // The last part is never sent, so the group is never whole.
                Err(LogError::Unknown { .. }) if part < count => {
                    return Err(LogError::Deposed { leader: None });
                }
                written => written?,
            }
        }
        Ok(())
    }

    /// Appends `bytes` after `expected`, and finds out what became of them.
    ///
    /// # Errors
    /// [`LogError::Unknown`] after the node's patience; [`LogError::Refused`] and [`LogError::Diverged`]: nothing was stored.
    fn append_entry(&self, expected: EntryIndex, bytes: &[u8]) -> Result<Appended> {
        let deadline = self.clock.deadline(self.settings.patience);
        let mut pause = PAUSE_FIRST;
        // An earlier attempt may be stored, or may be yet.
        let mut is_sent = false;
        loop {
            let cause = match self.shared.append(expected, bytes) {
                Ok(index) => return Ok(Appended::Stored(index)),
                Err(AppendError::Fenced { newest }) if newest < expected && !is_sent => {
                    let what = format!(
                        "the shared log ends at entry {newest}, and this node has applied {expected}"
                    );
                    return Err(LogError::Diverged { index: expected, what });
                }
                Err(AppendError::Fenced { newest }) => match self.stored(expected.next()) {
                    Ok(stored) if stored == bytes => return Ok(Appended::Stored(expected.next())),
                    Ok(stored) => return Ok(Appended::Other(Some(stored))),
                    Err(_) if !is_sent => return Ok(Appended::Other(None)),
                    Err(cause) => format!("entry {newest} is newer, and {cause}"),
                },
                Err(AppendError::Refused { cause }) if !is_sent => return Err(LogError::Refused { cause }),
                Err(AppendError::Refused { cause }) => cause,
                Err(AppendError::Unknown { cause }) => {
                    is_sent = true;
                    cause
                }
            };
            if self.clock.monotonic_nanos() >= deadline {
                return Err(LogError::Unknown { cause });
            }
            self.clock.sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// The bytes of an entry that is said to be stored.
    fn stored(&self, index: EntryIndex) -> Result<Vec<u8>, String> {
        let before = EntryIndex(index.0 - 1);
        let read = self.shared.read(before, 1, Duration::ZERO).map_err(|error| error.to_string())?;
        let found = read.into_iter().next().filter(|entry| entry.index == index);
        found.map(|entry| entry.bytes).ok_or_else(|| format!("entry {index} cannot be read"))
    }
}

/// The statement about contents in an entry; `None` when it is of a later version.
fn decoded(index: EntryIndex, body: &[u8]) -> Result<Option<HashBody>> {
    HashBody::decode(body).map_err(|error| LogError::Diverged { index, what: error.to_string() })
}

/// True when the local copy has `payload` as commit `seq`, or no longer has that commit.
fn is_copied(
    local: &LocalLog,
    copy: &mut Option<Box<dyn LogReader>>,
    seq: Seq,
    payload: &[u8],
) -> Result<bool> {
    loop {
        let reader = match &mut *copy {
            Some(reader) => reader,
            none => {
                let (before, reader) = local.read_near(seq);
                if before >= seq {
                    return Ok(true);
                }
                none.insert(reader)
            }
        };
        match reader.next() {
            Ok(Some(found)) if found.seq < seq => {}
            Ok(Some(found)) => return Ok(found.seq != seq || found.payload == payload),
            Ok(None) => return Ok(true),
            // Looked for again, to learn what the log still has.
            Err(LogError::Trimmed { .. }) => *copy = None,
            Err(error) => return Err(error),
        }
    }
}

impl CommitLog for ReplicatedLog {
    fn identity(&self) -> LogId {
        self.local.identity()
    }

    fn limits(&self) -> LogLimits {
        self.local.limits()
    }

    fn tail(&self) -> Lsn {
        self.local.tail()
    }

    fn flushed(&self) -> Lsn {
        self.local.flushed()
    }

    fn durable(&self) -> Lsn {
        self.local.durable()
    }

    fn append(&self, records: &[Record<'_>], expected_tail: Lsn) -> Result<Lsn> {
        self.check_running()?;
        if self.term().is_none() {
            return Err(LogError::NotLeader);
        }
        let mut group = self.group.lock();
        let tail = self.local.append(records, expected_tail)?;
        for record in records {
            if group.count == 0 {
                group.first = record.seq;
            }
            group.count += 1;
            put_commit(&mut group.body, record.payload);
        }
        group.tail = tail;
        Ok(tail)
    }

    fn flush(&self) -> Result<Lsn> {
        self.acknowledge()?;
        self.local.flush()
    }

    fn barrier(&self) -> Result<Lsn> {
        self.acknowledge()?;
        self.local.barrier()
    }

    fn acknowledge(&self) -> Result<()> {
        let turn = &mut *self.turn.lock();
        self.check_running()?;
        self.send_group(turn).map(|_| ())
    }

    fn is_shared(&self) -> bool {
        true
    }

    /// Only of the local copy, and only when the shared log has confirmed all of it.
    fn write_durable_mark(&self, expected_tail: Lsn) -> Result<Lsn> {
        self.check_running()?;
        self.local.write_durable_mark(expected_tail)
    }

    fn read(&self, from: Lsn) -> Result<Box<dyn LogReader>> {
        self.local.read(from)
    }

    fn read_near(&self, seq: Seq) -> (Seq, Box<dyn LogReader>) {
        self.local.read_near(seq)
    }

    fn oldest(&self) -> Lsn {
        self.local.oldest()
    }

    fn trim(&self, upto: Lsn) -> Result<()> {
        self.local.trim(upto)
    }

    fn hold(&self) -> Box<dyn TrimGuard + '_> {
        self.local.hold()
    }

    /// Closes the shared log for all nodes.
    fn seal(&self) -> Result<()> {
        let turn = &mut *self.turn.lock();
        self.check_running()?;
        self.send_group(turn)?;
        let seq = turn.follower.place().seq;
        self.write(turn, EntryKind::Close, (seq.next(), 0), &[], seq).map_err(|error| self.end(error))?;
        self.show(turn);
        self.local.seal()
    }

    fn stats(&self) -> LogStats {
        self.local.stats()
    }

    fn prepare_spare(&self) -> Result<bool> {
        LocalLog::prepare_spare(&self.local)
    }

    fn release_spares(&self) -> Result<()> {
        self.local.release_spares()
    }
}

impl std::fmt::Debug for ReplicatedLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReplicatedLog({:?} term {:?} at entry {})", self.local, self.term(), self.place().index)
    }
}
