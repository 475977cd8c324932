//! Scraping: the targets of each job, and the scrapes of each target.

pub(crate) mod pool;
pub(crate) mod target;
