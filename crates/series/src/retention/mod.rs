//! Rules of retention and downsampling, and the pass that applies them.

pub(crate) mod enforce;
pub(crate) mod rules;
