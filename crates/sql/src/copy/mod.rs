//! COPY: the statement, decoding and encoding of rows, the stream of a session.

pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod session;
