//! Settings of the server: names, sources, units.

pub(crate) mod settings;
pub(crate) mod units;
