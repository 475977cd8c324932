//! One command runs one benchmark for Ropewalk and for every peer that is built, and writes one JSON file.
//!
//!   plan (rows, tasks) ─▶ harness ─▶ ropewalk-bench  worker ours  GROUP …  ─▶ one JSON object: figures, digests
//!                          A/B/A └─▶ ropewalk-rivals worker PEER  GROUP …  ─▶ the same
//!                                    digests equal? ─▶ medians ─▶ table, JSON
//!
//! Invariants
//! 1. Each measurement runs in a separate process and empty directory, so no system inherits another's memory
//!    or cache.
//! 2. Inputs come only from `kernel::rows`, `events::dataset` and `opossum::data`, seeded, so every system gets the same
//!    ones.
//! 3. All systems are timed through the traits of `kernel::ordered` and `events::event_store`, so the same operations are
//!    timed.
//! 4. A row counts only when all systems gave the same answers (equal digests).
//!
//! Peers are in the package `ropewalk-rivals`, which the default build omits.

pub mod harness;
pub mod workloads;
