//! The shared log on real servers of PostgreSQL 15, which each test starts for itself.

mod chain;
mod failover;
mod far;
mod faults;
mod secure;
mod server;
mod settings;
mod writer;
