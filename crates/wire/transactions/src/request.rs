//! A transaction in one request, which runs again from the start after a conflict.

use core::time::Duration;

use ropewalk::Seq;
use ropewalk::transaction::Committed;
use ropewalk_auth::Caller;
use ropewalk_sql::Canceller;
use ropewalk_wire::{Bounds, Service, WireError, committed};

use crate::failure::{Cause, Failure};
use crate::idempotency::{IdempotencyKey, Records, Stored};
use crate::operation::{Appended, Done, Operation};
use crate::running::{Modes, Running};

/// Attempts at a transaction that conflicts with others.
const ATTEMPTS: usize = 1_000;
/// Longest wait for the conflicting commit.
const CONFLICT_WAIT: Duration = Duration::from_secs(1);
/// Pause between two cancellations of a statement past its deadline.
const CANCEL_PAUSE: Duration = Duration::from_millis(50);

/// Encodes the result of the operation with this index for its protocol. Positions of appends are added after
/// the commit.
pub type Encode<'e> = &'e (dyn Fn(usize, Done) -> Result<Vec<u8>, WireError> + Sync);

/// A transaction in one request.
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

/// The results of a transaction.
pub struct Answer {
    /// The commit; for a transaction without writes, the newest commit that it read.
    pub seq: Seq,
    /// True when it is the stored result of an earlier request with the same key.
    pub is_repeated: bool,
    /// The encoded results, in the order of the operations; `Err` for an append, with its positions.
    pub results: Vec<Result<Vec<u8>, Appended>>,
}

/// Runs the transaction, and returns when its commit has the requested durability.
///
/// A transaction that conflicts with others runs again on the newest state. Nothing is written after an
/// error.
///
/// # Errors
/// The first failing operation; missing rights; a conflict after many attempts; limits.
pub async fn transact(
    service: &Service,
    caller: &Caller,
    request: &Request,
    bounds: &Bounds,
    encode: Encode<'_>,
) -> Result<Answer, Failure> {
    request.modes.check()?;
    for (place, operation) in request.operations.iter().enumerate() {
        operation.check(caller).map_err(Cause::from).map_err(Failure::at(place))?;
    }
    let bytes = request.operations.iter().map(Operation::bytes).sum();
    let _in_flight = service.admit_write(bytes).await?;
    if let Some(Seq(seq)) = request.includes {
        let visible = service.database().visible_beyond(Seq(seq.saturating_sub(1)));
        let waited = tokio::time::timeout(service.limits().request_time, visible).await;
        let timeout =
            || WireError::new(ropewalk_wire::Code::Timeout, format!("commit {seq} is not visible yet"));
        waited.map_err(|_| timeout())?.map_err(|error| WireError::from(ropewalk::Error::from(error)))?;
    }
    let records = match &request.key {
        Some(_) => Some(Records::new(service.database()).map_err(WireError::from)?),
        None => None,
    };
    let mut attempt = 1;
    loop {
        let ran = service
            .in_turn(|| bounds.run(|| run(service, caller, request, bounds, records.as_ref(), encode)));
        let failure = match ran.await {
            Ok(Ran::Repeated(answer)) => return Ok(answer),
            Ok(Ran::Submitted { snapshot, commit: None, results }) => {
                return Ok(answer(snapshot, results, None));
            }
            Ok(Ran::Submitted { commit: Some(commit), results, .. }) => match committed(commit).await {
                Ok(done) => return Ok(answer(done.seq, results, Some(&done))),
                Err(error) => Failure::from(Cause::from(error)),
            },
            Err(failure) => failure,
        };
        if !failure.cause.is_conflict() || attempt == ATTEMPTS {
            return Err(failure);
        }
        bounds.look().map_err(Cause::from)?;
        attempt += 1;
        // The other commit may not be durable yet, and is not visible before.
        let visible = service.database().visible_beyond(service.database().seq());
        let _ = tokio::time::timeout(pause(attempt), visible).await;
    }
}

/// Waits that grow: most conflicting commits become visible within a write of the disk.
fn pause(attempt: usize) -> Duration {
    Duration::from_millis(1 << attempt.min(10)).min(CONFLICT_WAIT)
}

enum Ran {
    Repeated(Answer),
    Submitted { snapshot: Seq, commit: Option<ropewalk::transaction::PendingCommit>, results: Vec<Stored> },
}

/// Runs all operations once, and submits the commit.
fn run(
    service: &Service,
    caller: &Caller,
    request: &Request,
    bounds: &Bounds,
    records: Option<&Records>,
    encode: Encode<'_>,
) -> Result<Ran, Failure> {
    let mut running = Running::begin(service, caller, request.modes);
    let keyed = records.zip(request.key.as_ref());
    if let Some((records, key)) = keyed
        && let Some(recorded) = running.within(|tx| records.find(tx, key))?
    {
        let answer = Answer { is_repeated: true, ..answer(recorded.seq, recorded.results, None) };
        return Ok(Ran::Repeated(answer));
    }
    let has_sql = request.operations.iter().any(|operation| matches!(operation, Operation::Sql(_)));
    let _deadline = has_sql.then(|| Deadline::new(service, running.canceller()));
    let mut results = Vec::with_capacity(request.operations.len());
    for (place, operation) in request.operations.iter().enumerate() {
        let result = running.apply(caller, operation, bounds).and_then(|done| encoded(place, done, encode));
        results.push(result.map_err(Failure::at(place))?);
    }
    if let Some((records, key)) = keyed {
        // A transaction without writes has nothing to repeat.
        let writes = request.operations.iter().any(Operation::writes);
        if writes {
            running.within(|tx| records.put(tx, key, &results))?;
        }
    }
    let snapshot = running.snapshot();
    Ok(Ran::Submitted { snapshot, commit: running.commit()?, results })
}

/// The result as it is answered.
///
/// # Errors
/// It is too large.
pub(crate) fn encoded(place: usize, done: Done, encode: Encode<'_>) -> Result<Stored, Cause> {
    Ok(match done {
        Done::Appended(appended) => Stored::Appended(appended),
        done => Stored::Encoded(encode(place, done)?),
    })
}

/// The results with the positions of the commit.
pub(crate) fn answer(seq: Seq, results: Vec<Stored>, done: Option<&Committed>) -> Answer {
    let mut appends = done.map_or(&[][..], |done| &done.appended).iter();
    let results = results.into_iter().map(|result| match result {
        Stored::Encoded(bytes) => Ok(bytes),
        Stored::Appended(appended) => Err(match appends.next() {
            Some(done) => {
                debug_assert_eq!(done.store, appended.store, "a commit reports its appends in order");
                Appended { first: done.first, last: done.last, ..appended }
            }
            None => appended,
        }),
    });
    Answer { seq, is_repeated: false, results: results.collect() }
}

/// Cancels the SQL statements of a request at its deadline, or when the server stops.
pub(crate) struct Deadline(tokio::task::JoinHandle<()>);

impl Deadline {
    pub(crate) fn new(service: &Service, canceller: Canceller) -> Self {
        let (stop, time) = (service.stop().clone(), service.limits().request_time);
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
