//! Transactions over several requests: a token names the open transaction.
//!
//! ```text
//! begin ─▶ token ─▶ operations … ─▶ commit
//!                       └ an error, DELETE, its idle time, its lifetime, the end of the server: rolled back
//! ```
//! A transaction belongs to the caller that began it, and runs one request at a time. The rights of
//! its caller are checked again at each request. A rollback by its client does not wait for a running request:
//! it cancels the request, which then drops the transaction.

use core::time::Duration;
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

use ropewalk::Seq;
use ropewalk::hooks::idempotency::StoredResult;
use ropewalk_auth::{Caller, Right};
use ropewalk_sql::Canceller;
use ropewalk_wire::{Bounds, Service, Stop, TransactionLimits, WireError, committed, run_unpinned};
use tokio::sync::{Mutex as AsyncMutex, Semaphore};

use crate::failure::{Cause, Failure};
use crate::idempotency::Records;
use crate::limits::KEYS_INTERVAL;
use crate::operation::{AppendPositions, Operation, Store};
use crate::request::{self, Answer, Deadline, Encode, Request, answer, encoded, events_of, wait_for};
use crate::running::{Modes, Running};
use crate::sessions::Sessions;

/// Requests of open transactions that run at the same time.
const TURNS: usize = 64;
/// Interval of the checks for idle transactions.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The token of an open transaction: 128 random bits, as hexadecimal text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransactionId(u128);

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for TransactionId {
    type Err = Cause;

    fn from_str(text: &str) -> Result<Self, Cause> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = digits.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        number.map(Self).ok_or(Cause::UnknownTransaction)
    }
}

/// An open transaction.
struct Open {
    caller: Caller,
    began: Instant,
    /// Memory of its writes after its last request.
    bytes: usize,
    /// Taken by the request that runs in it; `None` once it has ended.
    running: Arc<AsyncMutex<Option<OpenState>>>,
    used: Instant,
    /// Cancels its SQL statement.
    canceller: Canceller,
    /// The bounds of the request that runs in it.
    request: Option<Bounds>,
}

impl Open {
    /// True after its lifetime, or its idle time. One that runs a request is not idle.
    fn is_over(&self, limits: &TransactionLimits) -> bool {
        let is_idle = self.used.elapsed() >= limits.idle_time && self.running.try_lock().is_ok();
        is_idle || self.began.elapsed() >= limits.lifetime
    }
}

struct OpenState {
    running: Running,
    /// The appends of all requests so far, in order.
    appends: Vec<AppendPositions>,
    /// The rights that its operations needed.
    needs: Vec<(String, &'static [Right])>,
}

struct Inner {
    service: Service,
    sessions: Arc<Sessions>,
    open: Mutex<HashMap<TransactionId, Open>>,
    turns: Semaphore,
    /// Stored idempotency keys, opened by the first request with a key.
    records: OnceLock<Records>,
    /// The task that ends idle transactions was started.
    is_swept: AtomicBool,
}

/// The transactions of a server, which share idle SQL sessions; the open ones by their tokens. Cheap to clone.
#[derive(Clone)]
pub struct OpenTransactions(Arc<Inner>);

impl OpenTransactions {
    /// No transactions yet.
    pub fn new(service: Service) -> Self {
        Self(Arc::new(Inner {
            service,
            sessions: Arc::default(),
            open: Mutex::default(),
            turns: Semaphore::new(TURNS),
            records: OnceLock::new(),
            is_swept: AtomicBool::new(false),
        }))
    }

    fn open(&self) -> MutexGuard<'_, HashMap<TransactionId, Open>> {
        // Each change of the map is a single call, so a panic leaves it consistent.
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn limits(&self) -> &TransactionLimits {
        &self.0.service.limits().transactions
    }

    /// Runs a transaction in one request, and returns when its commit has the requested durability.
    ///
    /// A transaction that conflicts with others runs again on the newest state. Nothing is written after an
    /// error.
    ///
    /// # Errors
    /// The first failing operation; missing rights; a conflict after many attempts; limits.
    pub async fn transact(
        &self,
        caller: &Caller,
        request: &Request,
        bounds: &Bounds,
        encode: &dyn Encode,
    ) -> Result<Answer, Failure> {
        let records = request.key.as_ref().map(|_| self.records()).transpose()?;
        request::transact(&self.0.service, &self.0.sessions, records, caller, request, bounds, encode).await
    }

    fn records(&self) -> Result<&Records, WireError> {
        if let Some(records) = self.0.records.get() {
            return Ok(records);
        }
        let records = Records::new(self.0.service.database())?;
        Ok(self.0.records.get_or_init(|| records))
    }

    /// Begins a transaction of the caller.
    ///
    /// # Errors
    /// [`ropewalk_wire::Code::ResourceExhausted`] at the limits; the server is stopping; the commit to read is
    /// not visible in time, or cannot be read any more.
    pub async fn begin(&self, caller: &Caller, modes: Modes) -> Result<(TransactionId, Seq), Failure> {
        modes.check()?;
        if self.0.service.stop().stopping() {
            return Err(WireError::stopping().into());
        }
        self.start_sweep();
        if let Some(seq) = modes.at {
            wait_for(&self.0.service, "at", seq).await?;
        }
        self.insert(caller, modes)
    }

    fn insert(&self, caller: &Caller, modes: Modes) -> Result<(TransactionId, Seq), Failure> {
        let limits = self.limits();
        let mut open = self.open();
        let own = open.values().filter(|open| open.caller.is_same(caller)).count();
        // A caller without any right can run nothing in it that needs one.
        let most = if caller.has_any_right() { limits.open_per_caller } else { 1 };
        if own >= most {
            let what = format!("{own} transactions of this caller are open, the limit");
            return Err(WireError::exhausted(what).into());
        }
        if open.len() >= limits.open {
            let what = format!("{} transactions are open, the limit of the server", open.len());
            return Err(WireError::exhausted(what).into());
        }
        let id = TransactionId(random()?);
        let running = Running::begin(&self.0.service, &self.0.sessions, caller, modes)?;
        let (snapshot, canceller) = (running.snapshot(), running.canceller());
        let state = OpenState { running, appends: Vec::new(), needs: Vec::new() };
        let running = Arc::new(AsyncMutex::new(Some(state)));
        let (caller, now) = (caller.clone(), Instant::now());
        let begun = Open { caller, began: now, bytes: 0, running, used: now, canceller, request: None };
        open.insert(id, begun);
        Ok((id, snapshot))
    }

    /// The transaction of the caller, marked as used.
    fn find(&self, caller: &Caller, id: TransactionId) -> Result<Arc<AsyncMutex<Option<OpenState>>>, Cause> {
        let mut open = self.open();
        // A foreign token is as unknown as a wrong one.
        let found = open.get_mut(&id).filter(|open| open.caller.is_same(caller));
        let found = found.filter(|open| !open.is_over(self.limits())).ok_or(Cause::UnknownTransaction)?;
        found.used = Instant::now();
        Ok(found.running.clone())
    }

    /// Notes the request that runs in the transaction, or its end; false when the transaction was rolled back.
    fn note_request(&self, id: TransactionId, request: Option<&Bounds>) -> bool {
        let mut open = self.open();
        let Some(found) = open.get_mut(&id) else { return false };
        // The time of the request does not count as idle.
        found.used = Instant::now();
        found.request = request.cloned();
        true
    }

    /// Runs operations in the transaction. Positions of appends are known after the commit.
    ///
    /// # Errors
    /// [`Cause::UnknownTransaction`]. Any other error rolls the transaction back.
    pub async fn run(
        &self,
        caller: &Caller,
        id: TransactionId,
        operations: &[Operation],
        bounds: &Bounds,
        encode: &dyn Encode,
    ) -> Result<Answer, Failure> {
        let place = self.find(caller, id)?;
        let mut held = place.lock().await;
        // Its statements may wait for locks that other open transactions release: separate turns.
        let turn = self.0.turns.acquire().await.ok();
        if !self.note_request(id, Some(bounds)) {
            return Err(Cause::UnknownTransaction.into());
        }
        // Taken out after the last wait, so that a client that disconnects before does not end the transaction.
        let mut state = held.take().ok_or(Cause::UnknownTransaction)?;
        let ran = run_unpinned(|| {
            bounds.run(|| {
                let results = apply(&self.0.service, caller, &mut state, operations, bounds, encode)?;
                self.note_bytes(id, caller, state.running.write_bytes()?)?;
                Ok::<_, Failure>(results)
            })
        });
        drop(turn);
        if !self.note_request(id, None) {
            return Err(Cause::UnknownTransaction.into());
        }
        match ran {
            Ok(results) => {
                let answer = answer(state.running.snapshot(), results, None);
                *held = Some(state);
                Ok(answer)
            }
            Err(failure) => {
                self.open().remove(&id);
                Err(failure)
            }
        }
    }

    /// Commits the transaction; its token is unknown afterwards. The results are those of its appends, in
    /// order.
    ///
    /// # Errors
    /// [`Cause::UnknownTransaction`]; a conflict with another transaction: the client runs it again from the
    /// start.
    pub async fn commit(&self, caller: &Caller, id: TransactionId) -> Result<Answer, Failure> {
        // Admitted before it is taken, so that the client can commit again after a refusal.
        let bytes = self.open().get(&id).map_or(0, |open| open.bytes);
        let _in_flight = self.0.service.admit_write(bytes).await?;
        let mut state = self.take(caller, id).await?;
        for (store, rights) in &state.needs {
            rights.iter().try_for_each(|right| caller.check(*right, Some(store))).map_err(WireError::from)?;
        }
        state.running.act_for(caller);
        state.running.check_sql_rights()?;
        let snapshot = state.running.snapshot();
        let results: Vec<StoredResult> = state.appends.into_iter().map(StoredResult::Appended).collect();
        match state.running.commit()? {
            None => Ok(answer(snapshot, results, None)),
            Some(commit) => {
                let done = committed(commit).await.map_err(Cause::from)?;
                self.0.service.note_appended(events_of(&results));
                Ok(answer(done.seq, results, Some(&done)))
            }
        }
    }

    /// Rolls the transaction back; its token is unknown afterwards. A request that runs in it is cancelled, and
    /// fails with [`Cause::UnknownTransaction`].
    ///
    /// # Errors
    /// [`Cause::UnknownTransaction`].
    pub fn roll_back(&self, caller: &Caller, id: TransactionId) -> Result<(), Failure> {
        self.find(caller, id)?;
        // Dropped after the lock is released: a large transaction takes a while.
        let ended = self.open().remove(&id);
        if let Some(Open { canceller, request: Some(request), .. }) = &ended {
            request.cancel();
            canceller.cancel();
        }
        Ok(())
    }

    /// Records the memory of a transaction.
    ///
    /// # Errors
    /// The open transactions, or those of the caller, hold too much.
    fn note_bytes(&self, id: TransactionId, caller: &Caller, bytes: usize) -> Result<(), WireError> {
        let mut open = self.open();
        let Some(own) = open.get_mut(&id) else { return Ok(()) };
        own.bytes = bytes;
        let all: usize = open.values().map(|open| open.bytes).sum();
        let of_caller = open.values().filter(|open| open.caller.is_same(caller));
        let of_caller: usize = of_caller.map(|open| open.bytes).sum();
        let limits = self.limits();
        for (whose, bytes, most) in
            [("this caller's", of_caller, limits.open_bytes_per_caller), ("all", all, limits.open_bytes)]
        {
            if bytes > most {
                let what = format!(
                    "{bytes} bytes of unwritten changes in {whose} open transactions; at most {most} are allowed"
                );
                return Err(WireError::exhausted(what));
            }
        }
        Ok(())
    }

    async fn take(&self, caller: &Caller, id: TransactionId) -> Result<OpenState, Cause> {
        let place = self.find(caller, id)?;
        let state = place.lock().await.take();
        self.open().remove(&id);
        state.ok_or(Cause::UnknownTransaction)
    }

    /// Number of open transactions.
    pub fn count(&self) -> usize {
        self.open().len()
    }

    /// Starts the task that rolls back idle transactions and deletes old idempotency keys, unless it runs.
    ///
    /// It ends with the server, or with the last clone of this value.
    pub fn start_sweep(&self) {
        if !self.0.is_swept.swap(true, Ordering::Relaxed) {
            tokio::spawn(sweep(Arc::downgrade(&self.0), self.0.service.stop().clone()));
        }
    }

    /// Rolls back the transactions that are over. One whose last request runs lasts as long as that.
    fn roll_back_over(&self) {
        let limits = self.limits();
        let is_over = |open: &Open| open.is_over(limits) && open.running.try_lock().is_ok();
        // Dropped after the lock is released: a large transaction takes a while.
        let ended: Vec<_> = self.open().extract_if(|_, open| is_over(open)).collect();
        drop(ended);
    }

    /// Counts the idempotency keys of earlier processes; true once that is complete.
    async fn count_keys(&self) -> bool {
        let step = || {
            let records = Records::new(self.0.service.database())?;
            Ok::<_, ropewalk::Error>((records.count_earlier()?, records.usage().is_counted()))
        };
        loop {
            match self.0.service.run_blocking_limited(step).await {
                Ok((true, _)) => {}
                Ok((false, is_counted)) => return is_counted,
                Err(error) => {
                    tracing::warn!(%error, "stored idempotency keys could not be counted");
                    return false;
                }
            }
        }
    }

    async fn delete_keys(&self) {
        let delete = || Records::new(self.0.service.database())?.delete_expired();
        loop {
            match self.0.service.run_blocking_limited(delete).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::warn!(%error, "old idempotency keys could not be deleted");
                    break;
                }
            }
        }
    }
}

async fn sweep(transactions: Weak<Inner>, stop: Stop) {
    let mut keys_deleted = Instant::now();
    let mut are_counted = false;
    loop {
        tokio::select! {
            () = tokio::time::sleep(SWEEP_INTERVAL) => {}
            () = stop.wait() => break,
        }
        let Some(inner) = transactions.upgrade() else { return };
        let transactions = OpenTransactions(inner);
        transactions.roll_back_over();
        // The keys belong to the leader.
        if !transactions.0.service.database().leads() {
            continue;
        }
        if !are_counted {
            are_counted = transactions.count_keys().await;
        }
        // Before they are counted, a deletion would subtract keys that are then counted.
        if are_counted && keys_deleted.elapsed() >= KEYS_INTERVAL {
            keys_deleted = Instant::now();
            transactions.delete_keys().await;
        }
    }
    if let Some(inner) = transactions.upgrade() {
        OpenTransactions(inner).open().clear();
    }
}

/// Runs the operations in the open transaction.
fn apply(
    service: &Service,
    caller: &Caller,
    state: &mut OpenState,
    operations: &[Operation],
    bounds: &Bounds,
    encode: &dyn Encode,
) -> Result<Vec<StoredResult>, Failure> {
    state.running.act_for(caller);
    let has_sql = operations.iter().any(|operation| matches!(operation, Operation::Sql(_)));
    let _deadline = has_sql.then(|| Deadline::new(service, state.running.canceller(), bounds));
    let mut results = Vec::with_capacity(operations.len());
    for (place, operation) in operations.iter().enumerate() {
        if let Some(Store { name, rights }) = operation.needs()
            && !state.needs.iter().any(|(store, held)| store == name && *held == rights)
        {
            state.needs.push((name.to_owned(), rights));
        }
        let result = operation
            .check(caller)
            .map_err(Cause::from)
            .and_then(|()| state.running.apply(caller, operation, bounds))
            .and_then(|done| encoded(place, done, encode));
        let result = result.map_err(Failure::at(place))?;
        if let StoredResult::Appended(appended) = &result {
            state.appends.push(appended.clone());
        }
        results.push(result);
    }
    Ok(results)
}

fn random() -> Result<u128, WireError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        WireError::new(ropewalk_wire::Code::Internal, format!("no random numbers: {error}"))
    })?;
    Ok(u128::from_le_bytes(bytes))
}
