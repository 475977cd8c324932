//! The server as a process: service manager, logs, memory pages.

pub(crate) mod huge_pages;
pub(crate) mod logs;
pub(crate) mod notify;
pub(crate) mod spans;
