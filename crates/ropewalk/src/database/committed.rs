//! Rows and samples of one commit, decoded from its record in the log.
//!
//!   change feed ─▶ Change ─┬▶ keys of the tables ─▶ ChangedRow: before and after
//!                          └▶ section of the series ─▶ CommittedSamples
//!
//! Events are in the change itself; changes of documents are read by a change stream from the same commit.

use ropewalk_base::Seq;
use ropewalk_engine::{EngineError, KvWrite};
pub use ropewalk_series::CommittedSamples;
use ropewalk_series::SERIES;
use ropewalk_tables::{OwnedRow, TablesError};

use crate::database::{Change, ChangedPart, Database};
use crate::error::Result;

/// A row that a commit wrote.
#[derive(Clone)]
pub struct ChangedRow {
    /// Name of the table, as stored.
    pub table: String,
    /// The row before the commit. `None`: there was none, or [`ChangedRows::knows_before`] is false.
    pub before: Option<OwnedRow>,
    /// The row after the commit. `None`: the commit deleted it.
    pub after: Option<OwnedRow>,
}

/// The rows that a commit wrote.
#[derive(Clone)]
pub struct ChangedRows {
    /// The rows, in the order of the writes.
    pub rows: Vec<ChangedRow>,
    /// False when the state before the commit cannot be read any more.
    pub knows_before: bool,
    /// True when rows were left out: more than requested, or a range such as that of TRUNCATE.
    pub is_truncated: bool,
}

/// The samples that a commit wrote.
#[derive(Debug, Clone)]
pub struct ChangedSamples {
    /// Samples by series.
    pub series: Vec<CommittedSamples>,
    /// True when series were left out.
    pub is_truncated: bool,
}

impl Database {
    /// The rows that a commit wrote, with their state before it where that can be read: at most `rows_max`,
    /// and none after the row with which they exceed `bytes_max`.
    ///
    /// Rows of tables that do not exist any more are left out.
    ///
    /// # Errors
    /// Damage.
    pub fn changed_rows(
        &self,
        change: &Change<'_>,
        rows_max: usize,
        bytes_max: usize,
    ) -> Result<ChangedRows> {
        let rows_space = self.tables.rows_keyspace();
        let after = self.snapshot_at(change.seq).unwrap_or_else(|_| self.snapshot());
        let before = self.snapshot_at(Seq(change.seq.0.saturating_sub(1))).ok();
        let mut now = after.tables(self);
        let mut then = before.as_ref().map(|snapshot| snapshot.tables(self));
        let mut found = ChangedRows { rows: Vec::new(), knows_before: before.is_some(), is_truncated: false };
        let mut bytes = 0;
        for part in &change.parts {
            let ChangedPart::Keys(writes) = part else { continue };
            for (keyspace, write) in writes {
                if keyspace.0 != rows_space {
                    continue;
                }
                let (key, value) = match write {
                    KvWrite::Put(key, value) => (*key, Some(*value)),
                    KvWrite::Delete(key) => (*key, None),
                    KvWrite::DeleteRange(..) => {
                        found.is_truncated = true;
                        continue;
                    }
                };
                let Some(table) = now.table_of_row(key)? else { continue };
                if found.rows.len() >= rows_max || bytes > bytes_max {
                    found.is_truncated = true;
                    return Ok(found);
                }
                let before = match then.as_mut().map(|then| then.stored_row(&table, key)) {
                    // A table that the commit created has no rows before it.
                    None | Some(Err(TablesError::UnknownTable { .. })) => None,
                    Some(row) => row?,
                };
                let after = value.map(|value| now.decode_row(&table, key, value)).transpose()?;
                bytes += before.iter().chain(&after).map(OwnedRow::bytes).sum::<usize>();
                found.rows.push(ChangedRow { table: table.name().to_owned(), before, after });
            }
        }
        Ok(found)
    }

    /// The samples that a commit wrote: of at most `series_max` series, at most `samples_max` of each, and of
    /// no more series once their labels exceed `bytes_max`.
    ///
    /// # Errors
    /// A record that does not decode.
    pub fn changed_samples(
        &self,
        change: &Change<'_>,
        series_max: usize,
        samples_max: usize,
        bytes_max: usize,
    ) -> Result<ChangedSamples> {
        let mut found = ChangedSamples { series: Vec::new(), is_truncated: false };
        for part in &change.parts {
            let ChangedPart::Other(SERIES, section) = part else { continue };
            let most = (series_max, samples_max, bytes_max);
            let truncated = self.series.committed_samples(section, &mut found.series, most);
            found.is_truncated |= truncated.map_err(|source| EngineError::Record {
                seq: change.seq,
                lsn: change.lsn,
                source,
            })?;
        }
        Ok(found)
    }
}
