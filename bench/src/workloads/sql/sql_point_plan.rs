//! `bench sql-point`: short statements, compared with SQLite through the library and with PostgreSQL over the
//! wire.
//!
//! Embedded: `accounts`. Over the wire: pgbench, PostgreSQL's load generator, for us and PostgreSQL 15, over
//! TCP on this machine. Both have the same tables, filled by the same statements; both acknowledge a commit
//! when it is on disk.
//!
//! `tpcb` is pgbench's built-in transaction: three updates, a select and an insert between BEGIN and COMMIT,
//! read committed as PostgreSQL's default. On a conflict both systems make the second transaction wait; at
//! serializable pgbench retries rejected transactions, and only committed ones count. Afterwards the sums of
//! balances must equal those of the history.

use crate::harness::plan::Better::{Higher, Lower};
use crate::harness::plan::{Plan, Row, Step, short};
use crate::harness::worker::{Group, Task};

const PEERS: &[&str] = &["postgres15"];
/// Accounts of one branch, as in pgbench.
pub const ACCOUNTS: u64 = 100_000;

/// One run of pgbench.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Its built-in script.
    pub script: &'static str,
    /// How statements are sent.
    pub mode: &'static str,
    /// Clients.
    pub clients: usize,
    /// Isolation of transactions.
    pub isolation: &'static str,
}

const READ_COMMITTED: &str = "read committed";

/// All loads that are measured on one server, in order.
pub fn loads() -> Vec<Load> {
    let mut loads = Vec::new();
    for script in ["select-only", "tpcb-like"] {
        let load = |mode, clients| Load { script, mode, clients, isolation: READ_COMMITTED };
        loads.extend([1, 8, 32].map(|clients| load("prepared", clients)));
        loads.extend(["simple", "extended"].map(|mode| load(mode, 8)));
    }
    let serializable =
        |clients| Load { script: "tpcb-like", mode: "prepared", clients, isolation: "serializable" };
    loads.extend([8, 32].map(serializable));
    loads
}

impl Load {
    /// The row's id, and the figure's name.
    pub fn id(self) -> String {
        let script = if self.script == "select-only" { "select" } else { "tpcb" };
        let mode = if self.mode == "prepared" { String::new() } else { format!("/{}", self.mode) };
        let isolation = if self.isolation == READ_COMMITTED { "" } else { "/serializable" };
        format!("wire/{script}{mode}{isolation}/c{}", self.clients)
    }

    fn row(self) -> Row {
        let what = if self.script == "select-only" { "a row by its key" } else { "TPC-B's transaction" };
        let isolation = if self.isolation == READ_COMMITTED { "" } else { ", serializable" };
        let plural = if self.clients == 1 { "" } else { "s" };
        let what = format!("{what}, {}{isolation}, {} client{plural}", self.mode, self.clients);
        let row = Row::new(self.id(), what, "tx/s", Higher, self.id());
        if self.script == "select-only" { row } else { row.durable("sync") }
    }
}

/// A SELECT by key and a durable UPDATE by key through the library.
fn embedded(quick: bool) -> Vec<Step> {
    let step = |task, peers, row| Step {
        task,
        victim: None,
        peers,
        rounds: if quick { 1 } else { 2 },
        rows: vec![row],
    };
    let select = |rows: u64, id: &str| {
        let what = format!("a row of {} by its key, prepared, one thread", short(rows));
        let (lookups, passes) = if quick { (300_000, 3) } else { (1_000_000, 5) };
        let task = Task { rows, lookups, passes, ..Task::new(Group::SqlSelect) };
        step(task, &["sqlite_tuned"], Row::new(id, what, "µs", Lower, "select"))
    };
    let update = |threads: usize| {
        let plural = if threads == 1 { "" } else { "s" };
        let what = format!("a row of 1M changed by its key, {threads} thread{plural}");
        let row =
            Row::new(format!("update/threads{threads}"), what, "op/s", Higher, "update").durable("sync");
        let seconds = if quick { 1.0 } else { 5.0 };
        step(Task { rows: 1_000_000, threads, seconds, ..Task::new(Group::SqlUpdate) }, &["sqlite_full"], row)
    };
    let mut steps = vec![select(1_000_000, "select/embedded"), update(1), update(32)];
    if !quick {
        steps.push(select(10_000_000, "select/embedded@10M"));
    }
    steps
}

/// The plan; `quick` has fewer branches and less time for each row.
pub fn plan(quick: bool) -> Plan {
    let (scale, seconds, rounds) = if quick { (10, 2.0, 1) } else { (50, 20.0, 2) };
    let task = Task { rows: scale * ACCOUNTS, seconds, ..Task::new(Group::Pgbench) };
    let rows = loads().into_iter().map(Load::row).collect();
    let mut steps = embedded(quick);
    steps.push(Step { task, victim: None, peers: PEERS, rounds, rows });
    Plan { name: "sql-point", steps }
}
