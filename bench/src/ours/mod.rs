//! Ropewalk's implementation of the benchmark traits, through its public API only.

mod bank;
mod bundoc;
mod busy;
mod events;
mod omendb;
mod one_tx;
mod projections;
mod rows;
mod series;
mod shared;
mod sql;

use anyhow::{Result, bail};
use ropewalk_bench::harness::worker::{Group, Outcome, Task};
use ropewalk_bench::workloads::events::{append, queries};
use ropewalk_bench::workloads::kernel::{commit, ordered};
use ropewalk_bench::workloads::opossum::run as opossum;

/// Runs one task.
pub(crate) fn measure(task: &Task) -> Result<Outcome> {
    match task.group {
        Group::Ordered => ordered::run::<rows::Store>(task),
        Group::Commit => commit::run::<rows::Store>(task),
        Group::Submit => rows::submit(task),
        Group::Append => append::run::<events::Store>(task),
        Group::Conditional => append::conditional::<events::Store>(task),
        Group::Queries => queries::run::<events::Store>(task),
        Group::Fill => queries::fill::<events::Store>(task, std::io::stdout()),
        Group::Reopen => queries::reopen::<events::Store>(task),
        Group::Opossum => opossum::run::<events::Store>(task),
        Group::Omendb => ropewalk_bench::workloads::omendb::run::run::<omendb::Rows>(task),
        Group::Busy => busy::run(task),
        Group::Ycsb => ropewalk_bench::workloads::ycsb::run::run::<shared::Shared>(task),
        Group::BundocInsert
        | Group::BundocFind
        | Group::BundocUpdate
        | Group::BundocMix
        | Group::BundocBatch => ropewalk_bench::workloads::bundoc::run::run::<bundoc::Store>(task),
        Group::BundocFill => {
            ropewalk_bench::workloads::bundoc::run::fill::<bundoc::Store>(task, std::io::stdout())
        }
        Group::BundocReopen => ropewalk_bench::workloads::bundoc::run::reopen::<bundoc::Store>(task),
        Group::Tpcb => ropewalk_bench::workloads::tpcb::run::run::<bank::Bank>(task),
        Group::SeriesReport => series::report(task),
        Group::SeriesScrapes => series::scrapes(task),
        Group::SeriesMixed => series::mixed(task),
        Group::SeriesMany => series::many(task),
        Group::OpossumAt => opossum::run_at::<events::Store>(task),
        Group::SqlSelect => ropewalk_bench::workloads::tpcb::accounts::select::<sql::Bank>(task),
        Group::SqlUpdate => ropewalk_bench::workloads::tpcb::accounts::update::<sql::Bank>(task),
        Group::CopyEmbedded => ropewalk_bench::workloads::sql::copying::run::<sql::Lines>(task),
        Group::Analytic => sql::analytic(task),
        Group::OneTx => one_tx::run(task),
        Group::ProjectionRust => projections::rust(task),
        Group::ProjectionSql => projections::declared(task),
        group => bail!("{group:?} measures a server"),
    }
}
