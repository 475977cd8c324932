//! The transaction or retryable write that a command is part of.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ropewalk::documents::{DocumentsTx, RetryKey};
use ropewalk::{Isolation, Transaction};
use tokio::sync::OwnedMutexGuard;

use crate::call::Call;
use crate::protocol::failure::{Code, Failure, Outcome};
use crate::state::sessions::{self, Phase, SessionId, State, in_use, no_transaction};

/// Interval at which a waiting command checks whether it must end.
const LOOK: Duration = Duration::from_millis(100);
/// How long a command waits for the one that begins its transaction, and how often it looks.
const BEGIN_TIME: Duration = Duration::from_millis(100);
const BEGIN_LOOK: Duration = Duration::from_millis(1);

impl<'a> Call<'a> {
    /// Key under which a retryable write stores its result.
    ///
    /// # Errors
    /// A number below the session's newest.
    pub(crate) fn retry(&self, statement: i32) -> Outcome<Option<RetryKey>> {
        let (Some(session), Some(number), false) = (&self.session, self.number, self.in_transaction) else {
            return Ok(None);
        };
        if let Some(state) = self.shared.sessions.find(session) {
            let mut state = sessions::lock(&state);
            state.touch_with(number)?;
            if number > state.number {
                // A higher number ends the transaction that was open.
                state.phase = Phase::None;
                state.number = number;
            }
        }
        Ok(Some(RetryKey { session: session.clone(), number, statement }))
    }

    /// Waits until no other command of the transaction runs; the returned value is held while this one runs.
    /// An abort does not wait.
    ///
    /// # Errors
    /// The command must end, or there are too many sessions.
    pub(crate) async fn turn(&self) -> Outcome<Option<OwnedMutexGuard<()>>> {
        let (Some(id), true) = (&self.session, self.in_transaction) else { return Ok(None) };
        if self.args.name == "abortTransaction" {
            return Ok(None);
        }
        let session = match self.starts {
            true => Some(self.shared.sessions.enter(id)?),
            false => self.begun(id).await,
        };
        let Some(session) = session else { return Ok(None) };
        let turn = sessions::lock(&session).turn.clone();
        let mut turn = pin!(turn.lock_owned());
        loop {
            tokio::select! {
                biased;
                turn = &mut turn => return Ok(Some(turn)),
                () = tokio::time::sleep(LOOK) => self.may_go_on()?,
            }
        }
    }

    /// The session of the command's transaction, if it is known. Waits for the command that begins the transaction: a driver
    /// sends the commands of a transaction that its user does not wait for by several connections.
    async fn begun(&self, id: &SessionId) -> Option<Arc<Mutex<State>>> {
        let until = Instant::now() + BEGIN_TIME;
        loop {
            let session = self.shared.sessions.find(id);
            let number = session.as_ref().map(|session| sessions::lock(session).number);
            if number >= self.number || Instant::now() >= until {
                return session;
            }
            tokio::time::sleep(BEGIN_LOOK).await;
        }
    }

    /// The transaction that the command belongs to; `None` outside of one. The first call of a command that
    /// starts a transaction begins it.
    ///
    /// # Errors
    /// There is no such transaction, or it cannot begin.
    pub(crate) fn transaction(&self) -> Outcome<Option<InTransaction<'_, 'a>>> {
        let (Some(id), Some(number), true) = (&self.session, self.number, self.in_transaction) else {
            return Ok(None);
        };
        if self.starts && !self.has_begun.load(Ordering::Relaxed) {
            let session = self.shared.sessions.enter(id)?;
            let mut state = sessions::lock(&session);
            state.touch_with(number)?;
            if number == state.number {
                let message = format!("transaction {number} of this session was started already");
                return Err(Failure::new(Code::ConflictingOperationInProgress, message));
            }
            let transaction = Box::new(self.shared.service.database().begin_with(Isolation::Snapshot));
            state.number = number;
            state.phase = Phase::Open { transaction, since: Instant::now(), wrote: false };
            drop(state);
            self.has_begun.store(true, Ordering::Relaxed);
            return Ok(Some(InTransaction { session, number, call: self }));
        }
        let session = self.shared.sessions.find(id).ok_or_else(|| no_transaction(number))?;
        {
            let mut state = sessions::lock(&session);
            state.touch_with(number)?;
            match state.phase {
                Phase::Open { .. } if number == state.number => {}
                Phase::Busy { .. } if number == state.number => return Err(in_use(number)),
                Phase::Committed if number == state.number => {
                    let message = format!("Transaction with {{ txnNumber: {number} }} has been committed.");
                    return Err(Failure::new(Code::TransactionCommitted, message));
                }
                _ => return Err(no_transaction(number)),
            }
        }
        Ok(Some(InTransaction { session, number, call: self }))
    }
}

/// A transaction in progress.
pub(crate) struct InTransaction<'c, 'a> {
    session: Arc<Mutex<State>>,
    number: i64,
    call: &'c Call<'a>,
}

impl InTransaction<'_, '_> {
    fn state(&self) -> MutexGuard<'_, State> {
        sessions::lock(&self.session)
    }

    /// Runs `work` in the transaction; any failure ends the transaction. `writes`: it is more than a read.
    ///
    /// # Errors
    /// The error of `work`; the transaction is gone.
    pub(crate) fn run<R>(
        &self,
        writes: bool,
        work: impl FnOnce(&mut DocumentsTx<'_>) -> Outcome<R>,
    ) -> Outcome<R> {
        self.within(|transaction, wrote| {
            *wrote |= writes;
            let mut documents = transaction.documents();
            documents.act_for(self.call.asked());
            documents.share(&self.call.shared.transactions)?;
            let look = || self.call.may_go_on();
            work(&mut documents.with_cancellation(&look))
        })
    }

    /// The same for work on any model.
    ///
    /// Its writes count in the memory of open transactions.
    ///
    /// # Errors
    /// As [`InTransaction::run`].
    pub(crate) fn run_models<R>(&self, work: impl FnOnce(&mut Transaction) -> Outcome<R>) -> Outcome<R> {
        self.within(|transaction, wrote| {
            let mut documents = transaction.documents();
            documents.share(&self.call.shared.transactions)?;
            // An earlier command of the transaction may have bypassed the validators.
            documents.validate(true);
            let before = transaction.write_bytes();
            let result = work(transaction)?;
            let bytes = transaction.write_bytes().saturating_sub(before);
            *wrote |= bytes > 0;
            transaction.documents().charge(bytes)?;
            Ok(result)
        })
    }

    /// Runs `work` with the transaction and its flag of writes; any failure ends the transaction. The session is
    /// not locked meanwhile.
    fn within<R>(&self, work: impl FnOnce(&mut Transaction, &mut bool) -> Outcome<R>) -> Outcome<R> {
        let mut out = self.state().check_out(self.number)?;
        let result = work(&mut out.transaction, &mut out.wrote);
        let is_open = self.state().check_in(out, result.is_err());
        match result {
            Ok(_) if !is_open => Err(no_transaction(self.number)),
            result => result,
        }
    }

    /// Ends the transaction after a failure outside of [`InTransaction::run`].
    pub(crate) fn abort(&self) {
        let mut state = self.state();
        if state.number == self.number && matches!(state.phase, Phase::Open { .. } | Phase::Busy { .. }) {
            state.phase = Phase::Aborted;
        }
    }
}
