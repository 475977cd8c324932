//! Behaviour of the local log, on a disk in memory and on a real one.

mod basics;
mod help;
