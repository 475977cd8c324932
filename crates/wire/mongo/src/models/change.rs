//! A write of any model: in the transaction of the session, or in a separate one.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ropewalk::documents::RetryKey;
use ropewalk::documents::lang::{DocBuf, Value, Writer};
use ropewalk::transaction::PendingCommit;
use ropewalk::{Durability, Isolation, Transaction};
use ropewalk_wire::committed;

use crate::call::Call;
use crate::crud::write::{run_blocking_limited, written};
use crate::protocol::failure::{Code, Outcome};

/// Attempts at a write that conflicts with others.
const ATTEMPTS: usize = 1_000;
/// Longest wait for the conflicting commit.
const CONFLICT_WAIT: Duration = Duration::from_secs(1);
/// Field of the answer to an append whose positions are not known.
pub(super) const COUNT: &str = "count";

type Work<'a> = Box<dyn FnMut(&Call<'_>, &mut Transaction) -> Outcome<DocBuf> + Send + 'a>;

/// A pending write of events, rows or samples.
pub(crate) struct Change<'a> {
    work: Work<'a>,
    /// Approximate bytes of what it writes.
    bytes: usize,
    /// Its answer outside of a transaction has the positions of its events.
    appends: bool,
}

impl<'a> Change<'a> {
    /// A write of about `bytes`. `work` runs again after a conflict.
    pub(super) fn new(
        bytes: usize,
        work: impl FnMut(&Call<'_>, &mut Transaction) -> Outcome<DocBuf> + Send + 'a,
    ) -> Self {
        Self { work: Box::new(work), bytes, appends: false }
    }

    /// The same for an append of events.
    pub(super) fn appending(self) -> Self {
        Self { appends: true, ..self }
    }

    fn run(&mut self, call: &Call<'_>, tx: &mut Transaction) -> Outcome<DocBuf> {
        (self.work)(call, tx)
    }
}

/// Executes and commits a change. No thread waits for the disk write.
pub(crate) async fn commit(call: &Call<'_>, mut change: Change<'_>) -> Outcome<Writer> {
    if let Some(transaction) = call.transaction()? {
        let answer = run_blocking_limited(call, true, || {
            call.budget().run(|| transaction.run_models(|tx| change.run(call, tx)))
        });
        return Ok(written(&answer.await?));
    }
    let (retry, durability, appends) = (call.retry(0)?, call.durability(), change.appends);
    let db = call.shared.service.database();
    let _in_flight = call.shared.service.admit_write(change.bytes).await?;
    let mut attempt = 1;
    loop {
        let submitted = run_blocking_limited(call, true, || {
            call.budget().run(|| submit(call, &mut change, retry.as_ref(), durability))
        });
        let outcome = match submitted.await {
            Ok(submitted) => finished(submitted, appends).await,
            Err(failure) => Err(failure),
        };
        match outcome {
            Ok((answer, again)) => {
                call.client.answered_again.store(again, Ordering::Relaxed);
                return Ok(answer);
            }
            Err(failure) if failure.code == Code::WriteConflict.number() && attempt < ATTEMPTS => {
                call.may_go_on()?;
                attempt += 1;
                // The other commit may not be durable yet, and is not visible before.
                let _ = tokio::time::timeout(pause(attempt), db.wait_visible_after(db.seq())).await;
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// Waits that grow: most conflicting commits become visible within a write of the disk.
fn pause(attempt: usize) -> Duration {
    Duration::from_millis(1 << attempt.min(10)).min(CONFLICT_WAIT)
}

/// A change that ran once, with its commit.
struct Submitted {
    answer: DocBuf,
    /// It had been executed before.
    again: bool,
    /// `None`: it wrote nothing.
    commit: Option<PendingCommit>,
}

/// Runs the change once, or finds its stored answer, and submits the commit.
fn submit(
    call: &Call<'_>,
    change: &mut Change<'_>,
    retry: Option<&RetryKey>,
    durability: Durability,
) -> Outcome<Submitted> {
    // The data that a statement reads has not changed at its commit, as in SQL.
    let mut tx = call.shared.service.database().begin_with(Isolation::Serializable);
    let stored = match retry {
        Some(retry) => tx.documents().answered(retry)?,
        None => None,
    };
    let again = stored.is_some();
    let answer = match stored {
        // The idempotency key of the append finds its positions, and nothing is written again.
        Some(stored) if change.appends && stored.doc().get(COUNT).is_some() => change.run(call, &mut tx)?,
        Some(stored) => stored,
        None => {
            let answer = change.run(call, &mut tx)?;
            // A command that wrote nothing can run again. Its rows may be large, and reading takes no right to
            // store them.
            if let Some(retry) = retry
                && tx.write_bytes() > 0
            {
                tx.documents().answer(retry, answer.doc())?;
            }
            answer
        }
    };
    Ok(Submitted { answer, again, commit: tx.submit_with(durability)? })
}

/// Awaits the commit; returns the answer, and whether the change had been executed before.
async fn finished(submitted: Submitted, appends: bool) -> Outcome<(Writer, bool)> {
    let Submitted { answer, again, commit } = submitted;
    let done = match commit {
        Some(commit) => Some(committed(commit).await?),
        None => None,
    };
    let answer = match done.as_ref().and_then(|done| done.appended.first()) {
        Some(appended) if appends => {
            let mut out = Writer::new();
            out.put("first", Value::Int64(appended.first.0 as i64));
            out.put("last", Value::Int64(appended.last.0 as i64));
            out
        }
        _ => written(&answer),
    };
    Ok((answer, again))
}
