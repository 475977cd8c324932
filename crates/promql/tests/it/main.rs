#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::print_stderr)] // helpers outside of test functions

mod allocations;
mod bombs;
mod conformance;
mod golden;
mod hostile_texts;
mod limits;
mod metricsql;
mod parse_errors;
mod print;
mod prometheus_scripts;
mod steps;
