//! Checks that a history of transactions is serializable, from what they read and wrote alone.
//!
//! ```text
//! history ─▶ facts: writer of each version, committed transactions ─▶ reads that no isolation allows
//!              └▶ order: versions of each key ─▶ edges ww, wr, rw, time ─▶ graph: cycles ─▶ readable text
//! ```
//! An edge from one transaction to another says that the first precedes the second in every serial order that
//! explains the history. A cycle of edges therefore proves that there is no such order, and the kinds of its
//! edges name the anomaly.
//!
//! The order of versions is recovered from the history, never from commit numbers of the database:
//! - a list read completely shows the order in which its versions were appended;
//! - a register is read before it is written, so each version names the one that it replaces;
//! - a set only grows, so a reader precedes the writers of all versions that it did not see.
//!
//! Limits: reads of aborted transactions are not judged. Versions whose order the history does not show have
//! no edges between them, so a history without anomalies is not proven correct, while each reported cycle is
//! a violation. At [`Level::Snapshot`] a cycle with several rw edges passes, also one that snapshot isolation
//! forbids because no two of them follow each other.
//!
//! It knows nothing of the database: keys are text, versions are numbers.
//! Source: dependency graphs and their anomalies, Adya, "Weak Consistency", 1999; recoverable version orders,
//! Kingsbury and Alvaro, "Elle", VLDB 2020; real-time edges, Herlihy and Wing, "Linearizability", 1990.

mod facts;
mod graph;
mod history;
mod order;
#[cfg(test)]
mod tests;

use std::fmt;

pub use self::history::{Executed, Operation, Outcome, Seen, Version};

use self::facts::Facts;
use self::graph::Graph;

/// The isolation that a history has to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// No update is lost and no reader sees parts of a transaction; write skew is allowed.
    Snapshot,
    /// Some serial order of the transactions explains all reads.
    Serializable,
    /// As before, and a transaction that began after another had ended also follows it in that order.
    StrictSerializable,
}

/// Kind of an anomaly, named as in the literature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The history itself is wrong: two writes installed the same version of a key.
    DuplicateVersion,
    /// A read returned a version that no transaction wrote.
    UnwrittenVersion,
    /// A read contradicts earlier writes of the same transaction.
    Internal,
    /// Two reads of a list show versions in different orders.
    IncompatibleOrder,
    /// G0: two transactions overwrote each other's writes.
    DirtyWrite,
    /// G1a: a committed transaction read a version of an aborted one.
    AbortedRead,
    /// G1b: a transaction read a version that its writer replaced before its end.
    IntermediateRead,
    /// G1c: transactions read each other's writes.
    CircularInformation,
    /// Two transactions replaced the same version, so that one write is lost.
    LostUpdate,
    /// G-single: a transaction saw one write of another, and missed one that it had to see.
    ReadSkew,
    /// G2: each transaction missed a write of another.
    WriteSkew,
    /// A transaction missed a write of one that had ended before it began.
    StaleRead,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DuplicateVersion => "duplicate version",
            Self::UnwrittenVersion => "unwritten version",
            Self::Internal => "internal inconsistency",
            Self::IncompatibleOrder => "incompatible order",
            Self::DirtyWrite => "dirty write (G0)",
            Self::AbortedRead => "aborted read (G1a)",
            Self::IntermediateRead => "intermediate read (G1b)",
            Self::CircularInformation => "circular information flow (G1c)",
            Self::LostUpdate => "lost update",
            Self::ReadSkew => "read skew (G-single)",
            Self::WriteSkew => "write skew (G2)",
            Self::StaleRead => "stale read (real time)",
        })
    }
}

/// A violation of isolation, with the transactions that prove it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anomaly {
    /// Its kind.
    pub kind: Kind,
    /// The proof as text: the dependencies, and then all operations of the transactions.
    pub text: String,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.text)
    }
}

/// Returns the anomalies of a history; empty if it has the level, as far as it can be seen.
///
/// Of several cycles through the same transactions only the worst is reported. Cost: proportional to the
/// reads times the versions of their keys, so histories should move on to new keys.
pub fn check(history: &[Executed], level: Level) -> Vec<Anomaly> {
    let mut anomalies = Vec::new();
    let facts = Facts::of(history, &mut anomalies);
    let mut graph = Graph::default();
    for (key, uses) in facts.uses(&mut anomalies) {
        order::add_edges(&facts, key, &uses, &mut graph, &mut anomalies);
    }
    if level == Level::StrictSerializable {
        order::add_time(&facts, &mut graph);
    }
    anomalies.extend(graph.anomalies(history, level));
    anomalies
}
