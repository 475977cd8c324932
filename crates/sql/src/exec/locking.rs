//! SELECT ... FOR UPDATE and FOR SHARE at read committed: locks the rows of the result, in its order, before
//! returning them.
//!
//! ```text
//! SELECT ─▶ rows in order, followed by the keys to lock ─▶ lock each: wait, reject or skip ─▶ LIMIT
//! ```
//! The limit counts locked rows, so the number of rows to read is not known before. SKIP LOCKED first reads a
//! few more rows than the limit, and four times as many each time that too few of them could be locked.

use crate::access::row_source::Access;
use crate::error::{Result, SqlError, state};
use crate::exec::point::{count, run_some};
use crate::expr::{Context, Record, bug};
use crate::limits::budget::Budget;
use crate::plan::locking::{Locking, Taken};

/// Rows read beyond the limit because some may be skipped.
const SPARE: u64 = 16;

impl Locking {
    /// Returns the locked rows.
    pub(crate) fn run(
        &self,
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<Vec<Record>> {
        let skip = count(self.offset.as_ref(), cx, "OFFSET")?.unwrap_or(0);
        let wanted = match count(self.limit.as_ref(), cx, "LIMIT")? {
            Some(0) => return Ok(Vec::new()),
            limit => limit.map_or(u64::MAX, |limit| limit.saturating_add(skip)),
        };
        let mut most = if self.skips() { wanted.saturating_add(SPARE) } else { wanted };
        loop {
            let budget = &Budget::new(budget.remaining());
            let mut found = Vec::new();
            run_some(&self.select, (0, most), access, cx, budget, &mut |row| {
                budget.take_row(&row)?;
                found.push(row);
                Ok(true)
            })?;
            let is_all = (found.len() as u64) < most;
            let mut rows: Vec<Record> = Vec::new();
            for mut row in found {
                if rows.len() as u64 == wanted {
                    break;
                }
                cx.interrupt.check(cx.env)?;
                if self.lock(&row, access)? {
                    row.truncate(self.width);
                    rows.push(row);
                }
            }
            if is_all || rows.len() as u64 == wanted {
                return Ok(rows.into_iter().skip(usize::try_from(skip).unwrap_or(usize::MAX)).collect());
            }
            most = most.saturating_mul(4);
        }
    }

    /// Locks the table rows of a result row; returns false when it is to be skipped.
    fn lock(&self, row: &Record, access: &mut Access<'_>) -> Result<bool> {
        for target in &self.targets {
            let key = row.get(target.key.clone()).ok_or_else(|| bug("a key after the row"))?;
            // The NULL side of an outer join.
            if key.iter().any(|value| value.is_null()) {
                continue;
            }
            let waits = target.taken == Taken::Waits;
            if access.transaction()?.tables().lock(&target.table, key, target.mode, waits)? {
                continue;
            }
            if target.taken == Taken::Skips {
                return Ok(false);
            }
            let message = format!("could not obtain lock on row in relation \"{}\"", target.table.name());
            return Err(SqlError::new(state::LOCK_NOT_AVAILABLE, message));
        }
        Ok(true)
    }
}
