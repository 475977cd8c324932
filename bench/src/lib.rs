//! One command runs one benchmark for Ropewalk and for every peer that is built, and writes one JSON file.
//!
//!   plan (rows, tasks) ─▶ harness ─▶ ropewalk-bench  worker ours  GROUP …  ─▶ one JSON object: figures, digests
//!                          A/B/A └─▶ ropewalk-rivals worker PEER  GROUP …  ─▶ the same
//!                                    digests equal? ─▶ medians ─▶ table, JSON
//!
//! Invariants
//! 1. Each measurement runs in a separate process and empty directory, so no system inherits another's memory
//!    or cache.
//! 2. Inputs come only from [`rows`], [`dataset`] and [`opossum_data`], seeded, so every system gets the same
//!    ones.
//! 3. All systems are timed through the traits of [`ordered`] and [`event_store`], so the same operations are
//!    timed.
//! 4. A row counts only when all systems gave the same answers (equal digests).
//!
//! Peers are in the package `ropewalk-rivals`, which the default build omits.

pub mod accounts;
pub mod append;
pub mod bundoc;
pub mod bundoc_plan;
pub mod commit;
pub mod copy_plan;
pub mod copying;
pub mod counting;
pub mod crablet_plan;
pub mod dataset;
pub mod event_store;
pub mod events_plan;
pub mod figures;
pub mod harness;
pub mod kernel_plan;
pub mod machine;
pub mod mytsdb_data;
pub mod mytsdb_plan;
pub mod omendb;
pub mod omendb_plan;
pub mod opossum;
pub mod opossum_data;
pub mod opossum_plan;
pub mod ordered;
pub mod plan;
pub mod probe;
pub mod queries;
pub mod random;
pub mod report;
pub mod rows;
pub mod series_plan;
pub mod sql_analytic_plan;
pub mod sql_point_plan;
pub mod table;
pub mod tpcb;
pub mod tpcb_plan;
pub mod tpch;
pub mod wire_plan;
pub mod worker;
pub mod ycsb;
pub mod ycsb_plan;

#[cfg(test)]
mod naive;
