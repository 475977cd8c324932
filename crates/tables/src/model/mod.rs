//! What the engine calls for the tables' part of a commit, and the check of everything that is stored.

pub(crate) mod verify;
