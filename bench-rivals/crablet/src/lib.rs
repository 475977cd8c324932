//! Parts that the thin servers over PostgreSQL share: a bounded set of connections, and errors as responses.

pub mod failed;
pub mod pool;
