//! Formats that read samples without PromQL.

pub(crate) mod federate;
pub(crate) mod remote_read;
pub(crate) mod xor;
