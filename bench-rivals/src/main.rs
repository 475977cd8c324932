//! The peers, each implementing the traits of `ropewalk-bench` and each measured in a separate process.
//!
//! `ropewalk-rivals list` lists them; `ropewalk-rivals worker PEER GROUP` measures one and prints one line of
//! JSON. Each module's header lists versions and settings; docs/benchmarks.md repeats them.
#![allow(clippy::print_stdout, reason = "a program for the terminal")]

mod btreemap;
mod lmdb;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "rocksdb")]
mod rocksdb_bank;
mod sqlite;
mod sqlite_documents;
mod sqlite_sql;
mod umadb;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use ropewalk_bench::harness::counting::CountingAllocator;
use ropewalk_bench::harness::worker::{Group, Outcome, Task};
use ropewalk_bench::workloads::bundoc::run as bundoc;
use ropewalk_bench::workloads::events::{append, queries};
use ropewalk_bench::workloads::kernel::{commit, ordered};
use ropewalk_bench::workloads::omendb::run as omendb;
use ropewalk_bench::workloads::sql::copying;
use ropewalk_bench::workloads::tpcb::{accounts, run as tpcb};
use ropewalk_bench::workloads::ycsb::run as ycsb;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[cfg(not(feature = "rocksdb"))]
const PEERS: &[&str] = &[
    "sqlite_full",
    "sqlite_full_shared",
    "sqlite_full_own",
    "sqlite_normal_shared",
    "sqlite_normal_own",
    "sqlite_report_shape",
    "sqlite_prepared",
    "sqlite_tuned",
    "lmdb",
    "redb",
    "btreemap",
    "umadb",
];
#[cfg(feature = "rocksdb")]
const PEERS: &[&str] = &[
    "sqlite_full",
    "sqlite_full_shared",
    "sqlite_full_own",
    "sqlite_normal_shared",
    "sqlite_normal_own",
    "sqlite_report_shape",
    "sqlite_prepared",
    "sqlite_tuned",
    "rocksdb",
    "lmdb",
    "redb",
    "btreemap",
    "umadb",
];

/// The peers of Ropewalk's benchmarks.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lists the peers in this build.
    List,
    /// One measurement; prints one line of JSON.
    Worker {
        /// Name of the peer.
        peer: String,
        #[command(flatten)]
        task: Task,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::List => PEERS.iter().for_each(|peer| println!("{peer}")),
        Command::Worker { peer, task } => println!("{}", serde_json::to_string(&measure(&peer, &task)?)?),
    }
    Ok(())
}

fn measure(peer: &str, task: &Task) -> Result<Outcome> {
    use Group::{BundocBatch, BundocFind, BundocInsert, BundocMix, BundocUpdate};
    match (peer, task.group) {
        ("sqlite_full_own", Group::BundocFill) => {
            bundoc::fill::<sqlite_documents::Store<false>>(task, std::io::stdout())
        }
        ("sqlite_full_own", Group::BundocReopen) => bundoc::reopen::<sqlite_documents::Store<false>>(task),
        // The task determines whether it is FULL or NORMAL.
        (
            "sqlite_full_shared" | "sqlite_normal_shared",
            BundocInsert | BundocFind | BundocUpdate | BundocMix | BundocBatch,
        ) => bundoc::run::<sqlite_documents::Store<true>>(task),
        (
            "sqlite_full_own" | "sqlite_normal_own",
            BundocInsert | BundocFind | BundocUpdate | BundocMix | BundocBatch,
        ) => bundoc::run::<sqlite_documents::Store<false>>(task),
        ("sqlite_full", Group::Commit) => commit::run::<sqlite::Full>(task),
        ("sqlite_tuned", Group::Ordered) => ordered::run::<sqlite::Tuned>(task),
        #[cfg(feature = "rocksdb")]
        ("rocksdb", Group::Commit) => commit::run::<rocksdb::Rocks>(task),
        #[cfg(feature = "rocksdb")]
        ("rocksdb", Group::Ordered) => ordered::run::<rocksdb::Rocks>(task),
        ("lmdb", Group::Commit) => commit::run::<lmdb::Lmdb>(task),
        ("lmdb", Group::Ordered) => ordered::run::<lmdb::Lmdb>(task),
        ("redb", Group::Commit) => commit::run::<redb::Redb>(task),
        ("redb", Group::Ordered) => ordered::run::<redb::Redb>(task),
        ("sqlite_report_shape", Group::Omendb) => omendb::run::<sqlite::ReportShape>(task),
        ("sqlite_prepared", Group::Omendb) => omendb::run::<sqlite::Prepared>(task),
        ("sqlite_tuned", Group::Omendb) => omendb::run::<sqlite::Tuned>(task),
        #[cfg(feature = "rocksdb")]
        ("rocksdb", Group::Omendb) => omendb::run::<rocksdb::ReportRocks>(task),
        ("lmdb", Group::Omendb) => omendb::run::<lmdb::Lmdb>(task),
        ("redb", Group::Omendb) => omendb::run::<redb::Redb>(task),
        ("sqlite_tuned", Group::Ycsb) => ycsb::run::<sqlite::Shared>(task),
        #[cfg(feature = "rocksdb")]
        ("rocksdb", Group::Ycsb) => ycsb::run::<rocksdb::Shared>(task),
        ("lmdb", Group::Ycsb) => ycsb::run::<lmdb::Lmdb>(task),
        ("redb", Group::Ycsb) => ycsb::run::<redb::Shared>(task),
        ("sqlite_full", Group::Tpcb) => tpcb::run::<sqlite::Bank>(task),
        #[cfg(feature = "rocksdb")]
        ("rocksdb", Group::Tpcb) => tpcb::run::<rocksdb_bank::Bank>(task),
        ("btreemap", Group::Ordered) => ordered::run::<btreemap::Map>(task),
        // The group determines the settings.
        ("sqlite_tuned", Group::SqlSelect) => accounts::select::<sqlite_sql::Bank>(task),
        ("sqlite_full", Group::SqlUpdate) => accounts::update::<sqlite_sql::Bank>(task),
        ("sqlite_prepared", Group::CopyEmbedded) => copying::run::<sqlite_sql::Lines>(task),
        ("umadb", Group::Append) => append::run::<umadb::Store>(task),
        ("umadb", Group::Conditional) => append::conditional::<umadb::Store>(task),
        ("umadb", Group::Queries) => queries::run::<umadb::Store>(task),
        ("umadb", Group::Fill) => queries::fill::<umadb::Store>(task, std::io::stdout()),
        ("umadb", Group::Reopen) => queries::reopen::<umadb::Store>(task),
        (_, group) => bail!("{peer} does not take part in {group:?}"),
    }
}
