//! Two transactions on one snapshot, with a chosen order of their commits.

use crate::database::Database;
use crate::database::run::RunResult;
use crate::database::transaction::Transaction;
use crate::error::{Error, Result};

/// Runs two transactions up to their commits, then commits the first before the second.
///
/// Both are serializable, read the same snapshot, and are attempted once. If work returns an error, its
/// transaction is rolled back. Exchange the arguments for the other order.
///
/// ```
/// use ropewalk::engine::KeyspaceOptions;
/// use ropewalk::testing::race;
/// use ropewalk::{Database, Error};
///
/// # fn main() -> Result<(), Error> {
/// let db = Database::in_memory()?;
/// let seats = db.keyspace("seats", KeyspaceOptions::default())?;
/// let take = |name: &'static str| {
///     move |tx: &mut ropewalk::Transaction| {
///         let is_free = tx.get(seats, b"1A")?.is_none();
///         if is_free {
///             tx.put(seats, b"1A", name.as_bytes());
///         }
///         Ok::<_, Error>(is_free)
///     }
/// };
/// let (ann, bob) = race(&db, take("ann"), take("bob"));
/// assert!(ann?.value);
/// assert!(bob.is_err_and(|error| error.is_conflict()));
/// # Ok(())
/// # }
/// ```
pub fn race<A, B, E: From<Error>>(
    db: &Database,
    first: impl FnOnce(&mut Transaction) -> Result<A, E>,
    second: impl FnOnce(&mut Transaction) -> Result<B, E>,
) -> (Result<RunResult<A>, E>, Result<RunResult<B>, E>) {
    let (mut earlier, mut later) = (db.begin(), db.begin());
    let (first, second) = (first(&mut earlier), second(&mut later));
    (finish(earlier, first), finish(later, second))
}

fn finish<R, E: From<Error>>(transaction: Transaction, work: Result<R, E>) -> Result<RunResult<R>, E> {
    let value = work?;
    Ok(RunResult { value, committed: transaction.commit()? })
}
