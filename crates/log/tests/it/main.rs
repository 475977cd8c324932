//! Behaviour of the local log, on a disk in memory, on one that forgets, and on a real one.

// The exemption for tests covers functions marked as such; the helpers of this test binary are tests, too.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]

mod basics;
mod copying;
mod damage;
mod disk;
mod failures;
mod held_back;
mod help;
mod model;
mod replicated;
mod rescue;
mod threads;
