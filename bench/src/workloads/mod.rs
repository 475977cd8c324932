//! One folder for each workload: rows, tasks, data.

pub mod bundoc;
pub mod cluster;
pub mod console;
pub mod crablet;
pub mod events;
pub mod kernel;
pub mod mytsdb;
pub mod omendb;
pub mod one_tx;
pub mod opossum;
pub mod projections;
pub mod series;
pub mod sql;
pub mod tpcb;
pub mod ycsb;
