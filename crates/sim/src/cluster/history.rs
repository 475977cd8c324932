//! The checks of a run: one log, one order, and the answers that clients got.
//!
//! ```text
//! shared log ─▶ every entry continues the chain; terms grow; commits are numbered without gaps
//! read of a node at commit N ─▶ equals every other read at N; its transfers begin with those of N-1
//! answer to a client ─▶ acknowledged: present from its commit on; refused: absent; unknown: either, for ever
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ropewalk::tables::{KeyRange, Row};
use ropewalk::{Database, Error, Snapshot};
use ropewalk_engine::Keyspace;
use ropewalk_log::shared::{
    ChainHash, Entry, EntryIndex, EntryKind, MemorySharedLog, SharedError, SharedLog,
};

use crate::events::scenario::{Bug, Check, ensure};
use crate::models::audit::books::{Books, TABLE as ACCOUNTS_TABLE};
use crate::models::audit::transfer::Transfer;

/// Keyspaces that transfers write to, each defined by the first of them.
pub(super) const KEYSPACES: [&str; 4] = ["k0", "k1", "k2", "k3"];
/// The key that they write in each.
pub(super) const LAST: &[u8] = b"last";
/// The table of bulk loads.
pub(super) const LOADED: &str = "loaded";

/// Contents of a node at a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Contents {
    /// `None` before the bank was created.
    pub(super) books: Option<Books>,
    /// The newest transfer of each keyspace.
    keys: Vec<Option<i64>>,
    /// Number of the load in the table of loads, and its rows.
    pub(super) loaded: Option<(i64, i64)>,
}

/// A number of a load that no load has.
const MIXED: i64 = i64::MIN;

impl Contents {
    pub(super) fn at(db: &Database, snapshot: &Snapshot) -> Result<Self, Error> {
        let names = db.tables().names_at(snapshot.engine())?;
        let has = |name: &str| names.iter().any(|found| found == name);
        let books = if has(ACCOUNTS_TABLE) { Some(Books::at(db, snapshot)?) } else { None };
        let mut loaded: Option<(i64, i64)> = None;
        if has(LOADED) {
            let mut each = |row: Row<'_>| {
                let number = row.column("load")?.as_integer().unwrap_or(MIXED);
                let (known, rows) = loaded.unwrap_or((number, 0));
                loaded = Some((if known == number { number } else { MIXED }, rows + 1));
                Ok(true)
            };
            snapshot.tables(db).scan(&db.table(LOADED)?, &KeyRange::all(), false, &mut each)?;
        }
        // By name: each node has to have given them the same numbers.
        let defined = db.stats().store.keyspaces;
        let mut keys = Vec::new();
        for name in KEYSPACES {
            let number = defined.iter().position(|keyspace| keyspace.name == name);
            let value = match number.and_then(|number| u16::try_from(number).ok()) {
                Some(number) => snapshot.engine().read().get(Keyspace(number), LAST)?,
                None => None,
            };
            keys.push(value.map(|value| (*value).try_into().map_or(MIXED, i64::from_le_bytes)));
        }
        Ok(Self { books, keys, loaded })
    }

    fn transfers(&self) -> &[i64] {
        self.books.as_ref().map_or(&[], |books| &books.transfers)
    }
}

/// Outcome of a transfer, as far as its client knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Acknowledged as this commit.
    Committed(u64),
    /// It happened, in this commit or an earlier one.
    Happened(u64),
    Never,
    Unknown,
}

/// Contents at each commit that was read, and the commits of transfers.
#[derive(Default, Clone)]
struct Branch {
    contents: BTreeMap<u64, Contents>,
    transfers: BTreeMap<u64, Transfer>,
}

/// See the module.
#[derive(Default)]
pub(super) struct History {
    log: Log,
    branch: Branch,
    fates: BTreeMap<i64, Fate>,
    /// Transfers that a client waits for.
    in_flight: BTreeSet<i64>,
    /// Rows of each load.
    loads: BTreeMap<i64, i64>,
    acknowledged: u64,
    damage: Option<Damage>,
}

/// The shared log as far as it was read.
#[derive(Default)]
struct Log {
    index: EntryIndex,
    chain: ChainHash,
    term: u64,
    leader: [u8; 16],
    leaders: BTreeMap<u64, [u8; 16]>,
    newest: u64,
    /// The newest commit at each entry.
    ends: Vec<u64>,
    /// Commits of a group whose parts were not all read, and of how many.
    parts: Option<(u64, u32)>,
}

/// The shared log is damaged.
struct Damage {
    /// The newest commit before the damage.
    left: u64,
    /// The history with the lost commits, when other commits may get their numbers.
    lost: Option<Branch>,
    /// Whether each node, by its number, has lost commits: as it was when the log was damaged, or when it was opened first
    /// after that. Such a copy never gets commits of the log as it is now.
    holders: BTreeMap<usize, bool>,
    /// The oldest entry that is damaged, and whether each process of a node has read it before the damage.
    bad: EntryIndex,
    passed: BTreeMap<(usize, u64), bool>,
}

impl History {
    pub(super) fn is_damaged(&self) -> bool {
        self.damage.is_some()
    }

    /// The newest commit in the shared log.
    pub(super) fn logged(&self) -> u64 {
        self.log.newest
    }

    pub(super) fn newest_entry(&self) -> EntryIndex {
        self.log.index
    }

    pub(super) fn has_led(&self, term: u64, node: [u8; 16]) -> bool {
        self.log.leaders.get(&term) == Some(&node)
    }

    /// The newest commit that a client knows of.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Reads the entries that are new.
    pub(super) fn read_log(&mut self, log: &MemorySharedLog) -> Check {
        if self.damage.is_some() {
            return Ok(());
        }
        loop {
            let entries = log.read(self.log.index, 1 << 20, Duration::ZERO);
            let entries =
                entries.map_err(|error: SharedError| Bug(format!("the checks cannot read: {error}")))?;
            if entries.is_empty() {
                return Ok(());
            }
            for entry in entries {
                ensure!(entry.index == self.log.index.next(), "entry {} is not the next", entry.index);
                self.log
                    .check(&entry.bytes)
                    .map_err(|Bug(what)| Bug(format!("entry {}: {what}", entry.index)))?;
                self.log.index = entry.index;
            }
        }
    }

    /// A transfer that no client knows of yet, or that may have happened and is tried again.
    pub(super) fn begin(&mut self, number: i64) {
        self.fates.entry(number).or_insert(Fate::Unknown);
        self.in_flight.insert(number);
    }

    /// An attempt ended, with a result or without one.
    pub(super) fn end(&mut self, number: i64) {
        self.in_flight.remove(&number);
    }

    /// Transfers whose outcome is not known, and that no client waits for any more.
    pub(super) fn doubtful(&self) -> Vec<i64> {
        let unknown = |(number, fate): (&i64, &Fate)| (*fate == Fate::Unknown).then_some(*number);
        self.fates.iter().filter_map(unknown).filter(|number| !self.in_flight.contains(number)).collect()
    }

    /// A client received the result that the transfer is commit `seq`.
    pub(super) fn committed(&mut self, seq: u64, transfer: &Transfer) -> Check {
        let known = self.fates.insert(transfer.number, Fate::Committed(seq));
        let was_open = matches!(known, None | Some(Fate::Unknown | Fate::Never));
        ensure!(was_open, "transfer {} happens twice: {known:?}, and commit {seq}", transfer.number);
        self.branch.transfers.insert(seq, *transfer);
        self.acknowledge(seq)
    }

    /// A client received an acknowledgement of commit `seq`.
    pub(super) fn acknowledge(&mut self, seq: u64) -> Check {
        let logged = self.log.newest;
        let holds = seq <= logged || self.is_damaged();
        ensure!(holds, "commit {seq} was acknowledged, and the shared log ends at commit {logged}");
        self.acknowledged = self.acknowledged.max(seq);
        Ok(())
    }

    /// A client received the result that this attempt did not commit; `is_first`: there was no earlier attempt.
    pub(super) fn refused(&mut self, number: i64, is_first: bool) {
        if is_first {
            self.fates.insert(number, Fate::Never);
        }
    }

    /// A client received the result that the transfer has happened, from a node at commit `seq`.
    pub(super) fn happened(&mut self, node: usize, number: i64, seq: u64) -> Check {
        // It may have happened in a commit that the shared log has lost since then.
        if self.has_lost(node, seq) {
            return Ok(());
        }
        match self.fates.get(&number) {
            Some(Fate::Committed(_) | Fate::Happened(_)) => {}
            Some(Fate::Unknown) => {
                self.fates.insert(number, Fate::Happened(seq));
            }
            fate => return Err(Bug(format!("transfer {number} is said to have happened, and was {fate:?}"))),
        }
        Ok(())
    }

    pub(super) fn loads(&mut self, number: i64, rows: i64) {
        self.loads.insert(number, rows);
    }

    /// A node has these contents at commit `seq`.
    pub(super) fn observe(&mut self, node: usize, seq: u64, contents: &Contents) -> Check {
        let has_lost = self.has_lost(node, seq);
        if let Some(known) = self.branch_of(has_lost).contents.get(&seq) {
            ensure!(
                known == contents,
                "node {node} at commit {seq}: found {contents:?}, another node or an earlier read {known:?}"
            );
            return Ok(());
        }
        if let Some(books) = &contents.books {
            books.agree(seq)?;
        }
        if let Some((number, rows)) = contents.loaded {
            let expected = self.loads.get(&number);
            ensure!(
                expected == Some(&rows),
                "node {node} at commit {seq}: {rows} rows of load {number}, of {expected:?}"
            );
        }
        let newest = contents.transfers().last().copied();
        let is_known = |key: &Option<i64>| key.is_none_or(|key| contents.transfers().contains(&key));
        ensure!(
            contents.keys.iter().all(is_known),
            "node {node} at commit {seq}: keys {:?}, and the newest transfer is {newest:?}",
            contents.keys
        );
        // The knowledge of clients about lost commits is no longer true.
        if !has_lost {
            self.check_fates(node, seq, contents)?;
        }
        let branch = self.branch_of(has_lost);
        branch.check_neighbours(node, seq, contents)?;
        branch.contents.insert(seq, contents.clone());
        Ok(())
    }

    /// True when commit `seq` of a node is one that the shared log has lost.
    fn has_lost(&self, node: usize, seq: u64) -> bool {
        let holds =
            |damage: &Damage| damage.holders.get(&node).is_some_and(|holds| *holds && seq > damage.left);
        self.damage.as_ref().is_some_and(holds)
    }

    fn branch_of(&mut self, has_lost: bool) -> &mut Branch {
        let lost = self.damage.as_mut().and_then(|damage| damage.lost.as_mut());
        match lost {
            Some(lost) if has_lost => lost,
            _ => &mut self.branch,
        }
    }

    fn check_fates(&self, node: usize, seq: u64, contents: &Contents) -> Check {
        let there: BTreeSet<i64> = contents.transfers().iter().copied().collect();
        for (number, fate) in &self.fates {
            let is_there = there.contains(number);
            let is_right = match *fate {
                Fate::Committed(at) => is_there == (at <= seq),
                Fate::Happened(by) => is_there || seq < by,
                Fate::Never => !is_there,
                Fate::Unknown => true,
            };
            ensure!(
                is_right,
                "node {node} at commit {seq}: transfer {number} is there: {is_there}; its client knows {fate:?}"
            );
        }
        Ok(())
    }

    /// The shared log is damaged from entry `bad` on. `is_shorter`: the entries after that are gone, too, and their numbers are
    /// given again.
    pub(super) fn damaged_from(&mut self, bad: EntryIndex, is_shorter: bool) {
        let entries = usize::try_from(bad.0 - 1).unwrap_or(0);
        let left = entries.checked_sub(1).and_then(|last| self.log.ends.get(last)).copied().unwrap_or(0);
        let mut lost = None;
        if is_shorter {
            lost = Some(self.branch.clone());
            self.branch.contents.split_off(&(left + 1));
            self.branch.transfers.split_off(&(left + 1));
            for fate in self.fates.values_mut() {
                if matches!(fate, Fate::Committed(at) | Fate::Happened(at) if *at > left) {
                    *fate = Fate::Unknown;
                }
            }
        }
        let (holders, passed) = Default::default();
        self.damage = Some(Damage { left, lost, holders, bad, passed });
    }

    /// A process of a node is open at commit `seq` and entry `index`, when the shared log is damaged or after that.
    pub(super) fn opened(&mut self, process: (usize, u64), seq: u64, index: EntryIndex) {
        if let Some(damage) = &mut self.damage {
            let holds = damage.lost.is_some() && seq > damage.left;
            damage.holders.entry(process.0).or_insert(holds);
            damage.passed.insert(process, index >= damage.bad);
        }
    }

    /// A process is at this entry: not after one that is damaged, unless it was there before.
    pub(super) fn check_damaged(&self, process: (usize, u64), index: EntryIndex) -> Check {
        let Some(damage) = self.damage.as_ref().filter(|damage| damage.lost.is_none()) else { return Ok(()) };
        let passed = damage.passed.get(&process) == Some(&true);
        ensure!(
            passed || index <= damage.bad,
            "node {} is at entry {index}, after the damaged entry {}",
            process.0,
            damage.bad
        );
        Ok(())
    }

    /// True for a node that has commits which the shared log has lost.
    pub(super) fn holds_lost(&self, node: usize) -> bool {
        self.damage.as_ref().is_some_and(|damage| damage.holders.get(&node) == Some(&true))
    }
}

impl Branch {
    fn check_neighbours(&self, node: usize, seq: u64, contents: &Contents) -> Check {
        if let Some((at, before)) = self.contents.range(..seq).next_back() {
            let is_continued = contents.transfers().starts_with(before.transfers());
            ensure!(
                is_continued,
                "node {node}: commit {seq} does not continue commit {at}: {contents:?}, {before:?}"
            );
            if let Some((transfer, books)) = self.transfers.get(&seq).zip(before.books.as_ref())
                && at + 1 == seq
            {
                let expected = Some(books.after(transfer));
                ensure!(
                    contents.books == expected,
                    "node {node} at commit {seq}: {:?}, expected {expected:?}",
                    contents.books
                );
            }
        }
        if let Some((at, later)) = self.contents.range(seq + 1..).next() {
            let is_continued = later.transfers().starts_with(contents.transfers());
            ensure!(
                is_continued,
                "node {node}: commit {at} does not continue commit {seq}: {later:?}, {contents:?}"
            );
        }
        Ok(())
    }
}

impl Log {
    /// The bytes are the next entry.
    fn check(&mut self, bytes: &[u8]) -> Check {
        let entry = Entry::decode(bytes).map_err(|error| Bug(format!("it does not decode: {error}")))?;
        ensure!(entry.previous == self.chain, "it follows {}, not {}", entry.previous, self.chain);
        self.chain = ChainHash::of_entry(bytes);
        if entry.kind == EntryKind::Lead {
            ensure!(entry.term > self.term, "term {} begins after {}", entry.term, self.term);
            (self.term, self.leader, self.parts) = (entry.term, entry.node, None);
            self.leaders.insert(entry.term, entry.node);
        }
        let is_of_leader = (entry.term, entry.node) == (self.term, self.leader);
        ensure!(is_of_leader, "{:?} of term {} in term {}", entry.kind, entry.term, self.term);
        ensure!(
            entry.first.0 == self.newest + 1,
            "it begins at commit {} after {}",
            entry.first,
            self.newest
        );
        let count = u64::from(entry.count);
        match entry.kind {
            EntryKind::Commits => {
                ensure!(self.parts.is_none(), "commits inside a group");
                self.newest += count;
            }
            EntryKind::Part { first, last } => {
                let group = (entry.first.0, entry.count);
                ensure!(first == self.parts.is_none(), "a part without its beginning");
                ensure!(first || self.parts == Some(group), "a part of another group");
                self.parts = Some(group);
                if last {
                    self.parts = None;
                    self.newest += count;
                }
            }
            _ => {}
        }
        self.ends.push(self.newest);
        Ok(())
    }
}
