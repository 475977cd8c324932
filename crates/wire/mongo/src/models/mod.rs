//! Commands on events, rows and samples, in the transactions of documents.
//!
//! ```text
//! ropewalkAppend        ─▶ events      ─┐
//! ropewalkSql           ─▶ sql         ─┼▶ Change ─▶ the transaction of the session
//! ropewalkSamples       ─▶ samples     ─┤         └▶ a separate one: run, commit, and again after a conflict
//! insert into ropewalk  ─▶ collections ─┘
//! find, listCollections of ropewalk ─▶ collections
//! ```

pub(crate) mod change;
pub(crate) mod collections;
pub(crate) mod events;
pub(crate) mod samples;
pub(crate) mod sql;
mod sql_values;
