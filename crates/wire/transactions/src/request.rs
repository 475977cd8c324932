//! A transaction in one request, which runs again from the start after a conflict.

use core::time::Duration;
use std::sync::Arc;

use ropewalk::Seq;
use ropewalk::hooks::idempotency::StoredResult;
use ropewalk::transaction::Committed;
use ropewalk_auth::Caller;
use ropewalk_sql::Canceller;
use ropewalk_wire::{Bounds, Code, Service, WireError, committed};

use crate::brief;
use crate::failure::{Cause, Failure};
use crate::idempotency::{IdempotencyKey, Records};
use crate::key_usage::Reserved;
use crate::operation::{AppendPositions, Done, Operation};
use crate::running::{Modes, Running};
use crate::sessions::Sessions;

/// Most operations and preconditions of one request.
pub const OPERATIONS_MAX: usize = 10_000;
/// Attempts at a transaction that conflicts with others.
const ATTEMPTS: usize = 1_000;
/// Longest wait for the conflicting commit.
const CONFLICT_WAIT: Duration = Duration::from_secs(1);
/// Pause between two cancellations of a statement past its deadline.
const CANCEL_PAUSE: Duration = Duration::from_millis(50);

/// Encodes results for a protocol. Positions of appends are added after the commit.
pub trait Encode: Sync {
    /// Forgets all results: the transaction runs again.
    fn restart(&self);
    /// The result of the operation with this index.
    ///
    /// # Errors
    /// The results are too large.
    fn encode(&self, place: usize, done: Done) -> Result<Vec<u8>, WireError>;
}

/// A transaction in one request.
#[derive(Default)]
pub struct Request {
    /// The operations, in order: each sees the writes of those before it.
    pub operations: Vec<Operation>,
    /// Isolation and durability.
    pub modes: Modes,
    /// Reads a snapshot that includes this commit, which may not be visible yet.
    pub includes: Option<Seq>,
    /// Makes a repetition return the first result.
    pub key: Option<IdempotencyKey>,
}

/// Rejects a request without operations, or with more than [`OPERATIONS_MAX`] operations and preconditions.
///
/// # Errors
/// [`Code::InvalidArgument`].
pub fn check_operations(operations: usize, preconditions: usize) -> Result<(), WireError> {
    if operations == 0 || operations + preconditions > OPERATIONS_MAX {
        let what = format!(
            "{operations} operations and {preconditions} preconditions; at least one operation, and at most {OPERATIONS_MAX} together, are possible"
        );
        return Err(WireError::invalid(what));
    }
    Ok(())
}

/// The results of a transaction.
pub struct Answer {
    /// The commit; for a transaction without writes, the newest commit that it read.
    pub seq: Seq,
    /// True when it is the stored result of an earlier request with the same key.
    pub is_repeated: bool,
    /// The encoded results, in the order of the operations; `Err` for an append, with its positions.
    pub results: Vec<Result<Vec<u8>, AppendPositions>>,
}

/// Runs the transaction, and returns when its commit has the requested durability. `records`: for a request with
/// a key.
///
/// # Errors
/// As `OpenTransactions::transact`.
pub(crate) async fn transact(
    service: &Service,
    sessions: &Arc<Sessions>,
    records: Option<&Records>,
    caller: &Caller,
    request: &Request,
    bounds: &Bounds,
    encode: &dyn Encode,
) -> Result<Answer, Failure> {
    request.modes.check()?;
    if request.includes.is_some() && request.modes.at.is_some() {
        return Err(WireError::invalid("includes: the commit of `at` includes all commits before it").into());
    }
    for (place, operation) in request.operations.iter().enumerate() {
        operation.check(caller).map_err(Cause::from).map_err(Failure::at(place))?;
    }
    for (field, seq) in request.awaited() {
        wait_for(service, field, seq).await?;
    }
    let bytes = request.operations.iter().map(Operation::bytes).sum();
    let _in_flight = service.admit_write(bytes).await?;
    let has_sql = request.operations.iter().any(|operation| matches!(operation, Operation::Sql(_)));
    // The state of an earlier commit may be on disk only.
    let mut is_brief = request.modes.at.is_none() && brief::are_brief(service, &request.operations);
    let mut attempt = 1;
    let mut may_be_repetition = request.key.is_some();
    loop {
        let kind = (records, is_brief);
        let work = || bounds.run(|| run(service, sessions, caller, request, bounds, kind, encode));
        let ran = match (is_brief, has_sql) {
            (true, _) => work(),
            (false, true) => service.in_statement(work).await,
            (false, false) => service.run_blocking_limited(work).await,
        };
        let (failure, at_commit) = match ran? {
            Ran::Repeated(answer) => return Ok(answer),
            Ran::Long => {
                is_brief = false;
                continue;
            }
            Ran::Failed { failure, at_commit } => (failure, at_commit),
            Ran::Submitted { snapshot, commit: None, results, .. } => {
                return Ok(answer(snapshot, results, None));
            }
            Ran::Submitted { commit: Some(commit), results, reserved, .. } => match committed(commit).await {
                Ok(done) => {
                    service.note_appended(events_of(&results));
                    return Ok(answer(done.seq, results, Some(&done)));
                }
                Err(error) => {
                    if let Some((records, reserved)) = records.zip(reserved) {
                        records.usage().release(reserved);
                    }
                    (Failure::from(Cause::from(error)), true)
                }
            },
        };
        // A condition can fail because a concurrent copy of the request was committed: the next run finds
        // its result.
        let runs_again = failure.cause.is_conflict() || (at_commit && may_be_repetition);
        if !runs_again || attempt == ATTEMPTS {
            return Err(failure);
        }
        may_be_repetition &= failure.cause.is_conflict();
        bounds.look().map_err(Cause::from)?;
        attempt += 1;
        // The other commit may not be durable yet, and is not visible before.
        let visible = service.database().wait_visible_after(service.database().seq());
        let _ = tokio::time::timeout(pause(attempt), visible).await;
    }
}

/// Waits that grow: most conflicting commits become visible within a write of the disk.
fn pause(attempt: usize) -> Duration {
    Duration::from_millis(1 << attempt.min(10)).min(CONFLICT_WAIT)
}

impl Request {
    /// The commits that have to be visible when it begins, with the names of their fields.
    fn awaited(&self) -> impl Iterator<Item = (&'static str, Seq)> {
        let expected = self.operations.iter().filter_map(|operation| match operation {
            Operation::Newest(seq) => Some(("seq", *seq)),
            _ => None,
        });
        let includes = self.includes.map(|seq| ("includes", seq));
        includes.into_iter().chain(self.modes.at.map(|seq| ("at", seq))).chain(expected)
    }
}

/// Waits until a commit is visible. `field`: the field of the request that names it.
///
/// # Errors
/// [`Code::Timeout`] after the longest wait; the server stops.
pub(crate) async fn wait_for(service: &Service, field: &str, Seq(seq): Seq) -> Result<(), WireError> {
    if service.database().seq() >= Seq(seq) {
        return Ok(());
    }
    let limits = service.limits();
    let most = limits.transactions.visible_time.min(limits.request_time);
    let visible = service.database().wait_visible_after(Seq(seq.saturating_sub(1)));
    tokio::select! {
        waited = tokio::time::timeout(most, visible) => match waited {
            Ok(visible) => {
                visible.map_err(|error| WireError::from(ropewalk::Error::from(error)))?;
                Ok(())
            }
            Err(_) => {
                let newest = service.database().seq();
                let what = format!(
                    "{field}: commit {seq} is not visible after {most:?}, the longest wait; the newest is {newest}"
                );
                Err(WireError::new(Code::Timeout, what))
            }
        },
        () = service.stop().wait() => Err(WireError::stopping()),
    }
}

/// Number of appended events.
pub(crate) fn events_of(results: &[StoredResult]) -> u64 {
    let events = |result: &StoredResult| match result {
        StoredResult::Appended(appended) => appended.events,
        StoredResult::Encoded(_) => 0,
    };
    results.iter().map(events).sum()
}

enum Ran {
    /// An earlier request with the same key has committed.
    Repeated(Answer),
    /// A statement may take long: nothing was written, and the transaction has to run as blocking work.
    Long,
    /// It may run again after a conflict, or, with a key, after a failed commit.
    Failed { failure: Failure, at_commit: bool },
    Submitted {
        snapshot: Seq,
        commit: Option<ropewalk::transaction::PendingCommit>,
        results: Vec<StoredResult>,
        /// The idempotency key that it stores.
        reserved: Option<Reserved>,
    },
}

/// Runs all operations once, and submits the commit. `is_brief`: on a thread that must not block.
fn run(
    service: &Service,
    sessions: &Arc<Sessions>,
    caller: &Caller,
    request: &Request,
    bounds: &Bounds,
    (records, is_brief): (Option<&Records>, bool),
    encode: &dyn Encode,
) -> Result<Ran, Failure> {
    encode.restart();
    let mut running = Running::begin(service, sessions, caller, request.modes)?;
    let keyed = records.zip(request.key.as_ref());
    if let Some((records, key)) = keyed
        && let Some(recorded) = running.within(|tx| records.find(tx, key))?
    {
        // The rights may have changed since then; those of the other operations were checked.
        for (place, operation) in request.operations.iter().enumerate() {
            if let Operation::Sql(statement) = operation {
                running.check_sql(statement).map_err(Failure::at(place))?;
            }
        }
        let answer = Answer { is_repeated: true, ..answer(recorded.seq, recorded.results, None) };
        return Ok(Ran::Repeated(answer));
    }
    let has_sql = request.operations.iter().any(|operation| matches!(operation, Operation::Sql(_)));
    let _deadline = (has_sql && !is_brief).then(|| Deadline::new(service, running.canceller(), bounds));
    let mut results = Vec::with_capacity(request.operations.len());
    for (place, operation) in request.operations.iter().enumerate() {
        if let (Operation::Sql(statement), true) = (operation, is_brief) {
            match running.prepare(statement).map_err(Failure::at(place)) {
                Ok(true) => {}
                Ok(false) => return Ok(Ran::Long),
                Err(failure) => return Ok(Ran::Failed { failure, at_commit: false }),
            }
        }
        let result = running.apply(caller, operation, bounds).and_then(|done| encoded(place, done, encode));
        match result.map_err(Failure::at(place)) {
            Ok(result) => results.push(result),
            Err(failure) => return Ok(Ran::Failed { failure, at_commit: false }),
        }
    }
    // A transaction without writes has nothing to repeat.
    let mut reserved = None;
    if let Some((records, key)) = keyed
        && running.write_bytes()? > 0
    {
        let limits = &service.limits().transactions;
        reserved = Some(running.within(|tx| records.put(tx, key, &results, limits))?);
    }
    let snapshot = running.snapshot();
    match running.commit() {
        Ok(commit) => Ok(Ran::Submitted { snapshot, commit, results, reserved }),
        Err(cause) => {
            if let Some((records, reserved)) = records.zip(reserved) {
                records.usage().release(reserved);
            }
            Ok(Ran::Failed { failure: cause.into(), at_commit: true })
        }
    }
}

/// The result as it is answered.
///
/// # Errors
/// It is too large.
pub(crate) fn encoded(place: usize, done: Done, encode: &dyn Encode) -> Result<StoredResult, Cause> {
    Ok(match done {
        Done::Appended(appended) => StoredResult::Appended(appended),
        done => StoredResult::Encoded(encode.encode(place, done)?),
    })
}

/// The results with the positions of the commit.
pub(crate) fn answer(seq: Seq, results: Vec<StoredResult>, done: Option<&Committed>) -> Answer {
    let results = results.into_iter().map(|result| match result {
        StoredResult::Encoded(bytes) => Ok(bytes),
        StoredResult::Appended(appended) => {
            Err(match done.and_then(|done| done.appended.get(appended.index)) {
                Some(done) => {
                    assert_eq!(done.store, appended.store, "a commit reports its appends in order");
                    AppendPositions { first: done.first, last: done.last, ..appended }
                }
                None => appended,
            })
        }
    });
    Answer { seq, is_repeated: false, results: results.collect() }
}

/// Cancels the SQL statements of a request at its deadline, or when the server stops.
pub(crate) struct Deadline(tokio::task::JoinHandle<()>);

impl Deadline {
    pub(crate) fn new(service: &Service, canceller: Canceller, bounds: &Bounds) -> Self {
        let (stop, time) = (service.stop().clone(), bounds.time_left());
        Self(tokio::spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(time) => {}
                () = stop.wait() => {}
            }
            // The request may have further statements.
            loop {
                canceller.cancel();
                tokio::time::sleep(CANCEL_PAUSE).await;
            }
        }))
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.0.abort();
    }
}
