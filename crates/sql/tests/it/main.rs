//! SQL, as scripts and as code.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // helpers outside of test functions

mod announcing;
mod arrow;
mod cancelling;
mod columns;
mod conditions;
mod copying;
mod differential;
mod executor_setting;
mod executors;
mod fuzzing;
mod golden;
mod logic;
mod models;
mod models_written;
mod one_commit;
mod order;
mod random;
mod reused;
mod rights;
mod sessions;
mod waiting;
