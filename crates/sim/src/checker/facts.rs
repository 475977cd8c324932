//! Facts of a history that need no order: the writer of each version, the committed transactions, and reads
//! that no level allows.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::history::{Executed, Operation, Outcome, Seen, Version, line};
use super::{Anomaly, Kind};

/// Version of a register that a transaction knew when it first wrote the register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Base {
    /// It had not read the register.
    Blind,
    /// It had read this version.
    Read(Option<Version>),
}

/// Writes of a committed transaction to one key.
pub(super) struct Writes {
    pub(super) number: usize,
    pub(super) base: Base,
    pub(super) versions: Vec<Version>,
}

/// Reads and writes of one key by committed transactions.
#[derive(Default)]
pub(super) struct Uses {
    /// Reads, each with the number of its transaction, without the transaction's own versions.
    pub(super) reads: Vec<(usize, Seen)>,
    pub(super) writes: Vec<Writes>,
}

/// A transaction that wrote a version.
#[derive(Clone, Copy)]
struct Writer {
    number: usize,
    outcome: Outcome,
}

/// The writers and the committed transactions of a history.
pub(super) struct Facts<'h> {
    pub(super) history: &'h [Executed],
    /// Also those without a response whose versions were read.
    pub(super) committed: BTreeSet<usize>,
    writers: HashMap<(&'h str, Version), Writer>,
    /// The versions that a transaction wrote of a key, in order.
    written: HashMap<(usize, &'h str), Vec<Version>>,
}

impl<'h> Facts<'h> {
    pub(super) fn of(history: &'h [Executed], anomalies: &mut Vec<Anomaly>) -> Self {
        let mut facts =
            Self { history, committed: BTreeSet::new(), writers: HashMap::new(), written: HashMap::new() };
        for (number, executed) in history.iter().enumerate() {
            if executed.outcome == Outcome::Committed {
                facts.committed.insert(number);
            }
            for operation in &executed.operations {
                let Operation::Write(key, version) = operation else { continue };
                facts.written.entry((number, key.as_str())).or_default().push(*version);
                let writer = Writer { number, outcome: executed.outcome };
                if let Some(other) = facts.writers.insert((key.as_str(), *version), writer) {
                    let text = format!("version {version} of {key} was written twice");
                    anomalies.push(facts.anomaly(Kind::DuplicateVersion, text, [other.number, number]));
                }
            }
        }
        facts.decide_unknown();
        facts
    }

    /// A transaction without a response was committed if a committed one has read from it.
    fn decide_unknown(&mut self) {
        let mut open: Vec<usize> = self.committed.iter().copied().collect();
        while let Some(number) = open.pop() {
            let Some(executed) = self.history.get(number) else { continue };
            for operation in &executed.operations {
                let Operation::Read(key, seen) = operation else { continue };
                for version in seen.versions() {
                    let writer = self.writers.get(&(key.as_str(), version));
                    let unknown = writer.filter(|writer| writer.outcome == Outcome::Unknown);
                    if let Some(Writer { number, .. }) = unknown
                        && self.committed.insert(*number)
                    {
                        open.push(*number);
                    }
                }
            }
        }
    }

    /// The committed transaction that wrote a version.
    pub(super) fn writer(&self, key: &str, version: Version) -> Option<usize> {
        let number = self.writers.get(&(key, version))?.number;
        self.committed.contains(&number).then_some(number)
    }

    /// The uses of each key. Reports the reads that no level allows.
    pub(super) fn uses(&self, anomalies: &mut Vec<Anomaly>) -> BTreeMap<&'h str, Uses> {
        let mut uses: BTreeMap<&'h str, Uses> = BTreeMap::new();
        for number in &self.committed {
            let Some(executed) = self.history.get(*number) else { continue };
            let mut own: HashMap<&str, Vec<Version>> = HashMap::new();
            let mut bases: HashMap<&str, Base> = HashMap::new();
            for operation in &executed.operations {
                match operation {
                    Operation::Write(key, version) => {
                        let before = own.entry(key).or_default();
                        if before.is_empty() {
                            let base = bases.get(key.as_str()).copied().unwrap_or(Base::Blind);
                            let versions = self.versions_of(*number, key).to_vec();
                            let writes = Writes { number: *number, base, versions };
                            uses.entry(key).or_default().writes.push(writes);
                        }
                        before.push(*version);
                    }
                    Operation::Read(key, seen) => {
                        let own = own.get(key.as_str()).map_or(&[][..], Vec::as_slice);
                        if !seen.agrees_with(own) {
                            let text = format!("{key} was read as {seen} after own writes of {own:?}");
                            anomalies.push(self.anomaly(Kind::Internal, text, [*number]));
                            continue;
                        }
                        let Some(others) = seen.without(own) else { continue };
                        if let Seen::Newest(newest) = others {
                            bases.insert(key, Base::Read(newest));
                        }
                        self.judge(*number, key, &others, anomalies);
                        uses.entry(key).or_default().reads.push((*number, others));
                    }
                }
            }
        }
        uses
    }

    fn versions_of<'a>(&'a self, number: usize, key: &'a str) -> &'a [Version] {
        self.written.get(&(number, key)).map_or(&[], Vec::as_slice)
    }

    /// Reports versions that a committed transaction must not see, whatever the order.
    fn judge(&self, number: usize, key: &str, seen: &Seen, anomalies: &mut Vec<Anomaly>) {
        for version in seen.versions() {
            let Some(Writer { number: writer, outcome }) = self.writers.get(&(key, version)).copied() else {
                let text = format!("T{number} read version {version} of {key}, which no transaction wrote");
                anomalies.push(self.anomaly(Kind::UnwrittenVersion, text, [number]));
                continue;
            };
            if writer == number {
                let text = format!("T{number} read version {version} of {key} before it wrote it");
                anomalies.push(self.anomaly(Kind::Internal, text, [number]));
            } else if outcome == Outcome::Aborted {
                let text = format!("T{number} read version {version} of {key}, and T{writer} was aborted");
                anomalies.push(self.anomaly(Kind::AbortedRead, text, [writer, number]));
            } else if self.is_intermediate(writer, key, version, seen) {
                let text = format!("T{number} read {key} = {seen} in the middle of T{writer}");
                anomalies.push(self.anomaly(Kind::IntermediateRead, text, [writer, number]));
            }
        }
    }

    /// True if the read shows `version` and misses a later one of the same writer.
    fn is_intermediate(&self, writer: usize, key: &str, version: Version, seen: &Seen) -> bool {
        let written = self.versions_of(writer, key);
        match seen {
            Seen::Newest(_) => written.last() != Some(&version),
            Seen::List(list) => written.len() > 1 && written.iter().any(|version| !list.contains(version)),
            Seen::Set(set) => written.len() > 1 && written.iter().any(|version| !set.contains(version)),
        }
    }

    /// An anomaly with a line for each of its transactions.
    pub(super) fn anomaly(
        &self,
        kind: Kind,
        mut text: String,
        numbers: impl IntoIterator<Item = usize>,
    ) -> Anomaly {
        for number in numbers {
            text.push_str("\n  ");
            text.push_str(&line(self.history, number));
        }
        Anomaly { kind, text }
    }
}
