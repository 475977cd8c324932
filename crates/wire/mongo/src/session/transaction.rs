//! `commitTransaction` and `abortTransaction`.
//!
//! The fact that a transaction was committed is stored in its commit, under its session and number: a client
//! that retries after a crash learns of the commit, and does not run the transaction a second time.

use std::sync::{Arc, Mutex};

use ropewalk::documents::RetryKey;
use ropewalk::documents::lang::{Doc, Writer};
use ropewalk::{Class, Durability, Error, Transaction};
use ropewalk_wire::{committed, run_unpinned};
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::call::Call;
use crate::protocol::failure::{Code, Failure, Outcome, TRANSIENT, UNKNOWN_COMMIT};
use crate::state::sessions::{self, Phase, SessionId, State, in_use, no_transaction};

/// Statement number of a commit's record; statements of writes count from zero.
const COMMITTED: i32 = -1;

fn parts<'c>(call: &'c Call<'_>) -> Outcome<(&'c SessionId, i64)> {
    match (&call.session, call.number, call.in_transaction) {
        (Some(session), Some(number), true) => Ok((session, number)),
        _ => {
            let message = format!("{} must be run within a transaction", call.args.name);
            Err(Failure::new(Code::CommandFailed, message))
        }
    }
}

fn unknown_result(failure: Failure) -> Failure {
    failure.label(UNKNOWN_COMMIT)
}

/// `commitTransaction`. No thread waits for the disk write.
pub(crate) async fn commit(call: &Call<'_>) -> Outcome<Writer> {
    call.args.only(&["commitTransaction", "recoveryToken"])?;
    let (id, number) = parts(call)?;
    let retry = RetryKey { session: id.clone(), number, statement: COMMITTED };
    let Some(session) = call.shared.sessions.find(id) else {
        return run_unpinned(|| committed_before(call, &retry));
    };
    call.shared.service.wait_for_write_capacity().await?;
    loop {
        let step = next_step(&session, number)?;
        match step {
            Step::Done => return Ok(Writer::new()),
            Step::Elsewhere => return run_unpinned(|| committed_before(call, &retry)),
            Step::Wait(settled) => settled.await,
            Step::Commit(transaction, wrote, settled) => {
                let retry = wrote.then(|| retry.clone());
                let durability = call.durability();
                // The commit continues if the client disconnects, and its outcome must be recorded.
                let task = settle(session.clone(), number, transaction, retry, durability, settled);
                return match tokio::spawn(task).await {
                    Ok(outcome) => outcome.map(|()| Writer::new()),
                    Err(_) => {
                        Err(unknown_result(Failure::new(Code::InternalError, "the commit was interrupted")))
                    }
                };
            }
        }
    }
}

/// Next step of a commit.
enum Step {
    /// None: it is committed.
    Done,
    /// The session has a newer transaction; the database knows the outcome.
    Elsewhere,
    /// Another connection is committing it.
    Wait(OwnedNotified),
    /// Commit the transaction and notify waiters. The flag: it wrote something.
    Commit(Box<Transaction>, bool, Arc<Notify>),
}

fn next_step(session: &Mutex<State>, number: i64) -> Outcome<Step> {
    let mut state = sessions::lock(session);
    state.touch_with(number)?;
    if number > state.number {
        return Ok(Step::Elsewhere);
    }
    match &state.phase {
        Phase::Committed => return Ok(Step::Done),
        Phase::Committing(settled) => return Ok(Step::Wait(settled.clone().notified_owned())),
        Phase::Busy { .. } => return Err(in_use(number)),
        _ => {}
    }
    let (transaction, wrote) = state.take_open().ok_or_else(|| no_transaction(number))?;
    let settled = Arc::new(Notify::new());
    state.phase = Phase::Committing(settled.clone());
    Ok(Step::Commit(transaction, wrote, settled))
}

/// The failure of a commit, with the label that says what drivers may do.
fn not_committed(error: Error) -> Failure {
    let class = error.class();
    let failure = Failure::from(error);
    match class {
        // The condition fails again, unless the client reads and decides again.
        _ if failure.code == Code::AppendConditionFailed.number() => failure,
        // It is certain that it did not take place: the driver may run the whole transaction on the primary.
        Class::Conflict | Class::NotLeader => failure.label(TRANSIENT),
        Class::Invalid | Class::NotFound | Class::Refused => failure,
        // It may be in the log, or not.
        _ => unknown_result(failure),
    }
}

/// Commits, and records the outcome in the session.
async fn settle(
    session: Arc<Mutex<State>>,
    number: i64,
    mut transaction: Box<Transaction>,
    retry: Option<RetryKey>,
    durability: Durability,
    settled: Arc<Notify>,
) -> Outcome<()> {
    let kept = retry.map_or(Ok(()), |retry| transaction.documents().answer(&retry, Doc::empty()));
    let outcome = match kept {
        Err(error) => Err(error.into()),
        Ok(()) => {
            let committed = match transaction.submit_with(durability) {
                Ok(Some(pending)) => committed(pending).await.map(drop),
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            committed.map_err(not_committed)
        }
    };
    let mut state = sessions::lock(&session);
    if state.number == number && matches!(state.phase, Phase::Committing(_)) {
        state.phase = if outcome.is_ok() { Phase::Committed } else { Phase::Aborted };
    }
    drop(state);
    settled.notify_waiters();
    outcome
}

/// Looks up in the database a commit that no session knows of.
fn committed_before(call: &Call<'_>, retry: &RetryKey) -> Outcome<Writer> {
    let known = call.documents().transact(call.durability(), |tx| tx.answered(retry));
    match known {
        Ok(Some(_)) => Ok(Writer::new()),
        Ok(None) => Err(no_transaction(retry.number)),
        Err(error) => Err(error.into()),
    }
}

/// `abortTransaction`
pub(crate) fn abort(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["abortTransaction", "recoveryToken"])?;
    let (id, number) = parts(call)?;
    let session = call.shared.sessions.find(id).ok_or_else(|| no_transaction(number))?;
    let mut state = sessions::lock(&session);
    state.touch();
    match state.phase {
        // A running command of the transaction finds out when it ends.
        Phase::Open { .. } | Phase::Busy { .. } if number == state.number => {
            state.phase = Phase::Aborted;
            Ok(Writer::new())
        }
        Phase::Committed if number == state.number => {
            let message = format!("Transaction {number} has been committed.");
            Err(Failure::new(Code::TransactionCommitted, message))
        }
        _ => Err(no_transaction(number)),
    }
}
