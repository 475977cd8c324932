//! The transaction in which operations run: that of an SQL session, for all models.

use std::sync::Arc;

use ropewalk::documents::lang::{Value, Writer};
use ropewalk::documents::{Caller as RulesCaller, DocumentsError, DocumentsTx};
use ropewalk::transaction::PendingCommit;
use ropewalk::{Durability, Error, Isolation, Position, Seq, Transaction};
use ropewalk_auth::{Caller, Right};
use ropewalk_sql::{Canceller, Outcome, Prepared, Rights, Session, SqlError, state};
use ropewalk_wire::{Bounds, Service, WireError};

use crate::failure::Cause;
use crate::operation::{
    AppendPositions, Documents, DocumentsWork, Done, EventsUnchanged, Operation, Samples, Statement,
};
use crate::sessions::{Sessions, UsedSession};
use crate::sql;

/// Most bytes of documents that one read returns.
const DOCUMENTS_BYTES_MAX: usize = 64 << 20;

/// Isolation and durability of a transaction.
#[derive(Debug, Clone, Copy, Default)]
pub struct Modes {
    /// Serializable or snapshot. At serializable, everything that the transaction reads of any model is
    /// validated at the commit.
    pub isolation: Isolation,
    /// When the commit is acknowledged.
    pub durability: Durability,
    /// Reads as of this commit, and writes nothing.
    pub at: Option<Seq>,
}

impl Modes {
    /// Rejects a level that has no meaning for a list of operations.
    ///
    /// # Errors
    /// Read committed.
    pub(crate) fn check(&self) -> Result<(), WireError> {
        match self.isolation {
            Isolation::ReadCommitted => {
                Err(WireError::invalid("isolation: serializable and snapshot are possible"))
            }
            Isolation::Serializable | Isolation::Snapshot => Ok(()),
        }
    }
}

/// A transaction in execution. Dropping it rolls it back.
pub(crate) struct Running {
    service: Service,
    session: UsedSession,
    only_reads: bool,
    /// Snapshot of its reads.
    snapshot: Seq,
    /// Rights that its SQL statements needed.
    sql_rights: Rights,
    /// The plan of the next operation.
    prepared: Option<Prepared>,
}

impl Running {
    /// Begins a transaction of the caller.
    ///
    /// # Errors
    /// The commit to read cannot be read any more.
    pub(crate) fn begin(
        service: &Service,
        sessions: &Arc<Sessions>,
        caller: &Caller,
        modes: Modes,
    ) -> Result<Self, Cause> {
        let mut session = sessions.take(service.database(), caller, modes.isolation, modes.durability);
        act_for(&mut session, caller);
        match modes.at {
            None => session.begin_implicit(),
            Some(seq) => session.begin_at(&service.database().snapshot_at(seq)?),
        }
        let mut running = Self {
            service: service.clone(),
            session,
            only_reads: modes.at.is_some(),
            snapshot: Seq::ZERO,
            sql_rights: Rights::NONE,
            prepared: None,
        };
        running.snapshot = running.within(|tx| Ok(tx.snapshot_seq()))?;
        Ok(running)
    }

    /// The newest commit that the transaction reads.
    pub(crate) fn snapshot(&self) -> Seq {
        self.snapshot
    }

    /// Cancels its SQL statement, from any task.
    pub(crate) fn canceller(&self) -> Canceller {
        self.session.canceller()
    }

    /// The rights of the caller of the current request.
    pub(crate) fn act_for(&mut self, caller: &Caller) {
        act_for(&mut self.session, caller);
    }

    /// Runs an operation of the caller, whose rights were checked ([`Operation::check`]) except those of SQL.
    ///
    /// # Errors
    /// The operation's own. The transaction accepts no further operation then.
    pub(crate) fn apply(
        &mut self,
        caller: &Caller,
        operation: &Operation,
        bounds: &Bounds,
    ) -> Result<Done, Cause> {
        if self.only_reads && !operation.only_reads() {
            return Err(WireError::invalid("a transaction at a chosen commit only reads").into());
        }
        bounds.look()?;
        let service = self.service.clone();
        let db = service.database();
        match operation {
            Operation::Append { store, events, options } => {
                let most = service.limits().append_events;
                if events.len() > most {
                    return Err(WireError::too_large("events in one append", events.len(), most).into());
                }
                let store = db.events(store)?;
                self.within(|tx| {
                    let appended = AppendPositions::pending(tx, &store, events.len());
                    tx.append(&store, events, options.clone())?;
                    Ok(Done::Appended(appended))
                })
            }
            Operation::ReadEvents { store, query, options } => {
                let store = db.events(store)?;
                self.within(|tx| Ok(Done::Events(tx.read_events(&store, query, *options)?)))
            }
            Operation::EventsUnchanged(unchanged) => self.check_events(unchanged),
            Operation::Newest(seq) => self.within(|tx| {
                tx.require_newest(*seq)?;
                Ok(Done::Unchanged)
            }),
            Operation::Documents(documents) => self.documents(caller, documents, bounds),
            Operation::Sql(statement) => {
                let outcome = self.sql(statement, bounds)?;
                expect("rows", outcome.count.unwrap_or_default(), statement.expected)?;
                Ok(if statement.is_check { Done::Unchanged } else { Done::Sql(outcome) })
            }
            Operation::Samples(Samples { store, batch }) => {
                let store = db.series(store)?;
                self.within(|tx| Ok(tx.append_samples(&store, batch)?))?;
                Ok(Done::Samples(batch.len() as u64))
            }
            Operation::Checkpoint { store, consumer, position, expected } => {
                let checkpoints = db.consumer_checkpoints(store)?;
                self.within(|tx| {
                    if let Some(expected) = expected {
                        let recorded = checkpoints.get_in(tx, consumer)?;
                        if recorded.unwrap_or(Position::ZERO) != *expected {
                            return Err(Cause::CheckpointMoved { recorded });
                        }
                    }
                    checkpoints.set_in(tx, consumer, *position)?;
                    Ok(Done::Checkpoint)
                })
            }
        }
    }

    /// Plans the statement that [`Running::apply`] runs next; false if it may take long.
    ///
    /// # Errors
    /// As [`Running::apply`].
    pub(crate) fn prepare(&mut self, statement: &Statement) -> Result<bool, Cause> {
        self.limit_locks();
        let prepared = sql::prepare(&mut self.session, statement, self.only_reads)?;
        let is_brief = prepared.is_brief();
        self.prepared = Some(prepared);
        Ok(is_brief)
    }

    fn check_events(&mut self, unchanged: &EventsUnchanged) -> Result<Done, Cause> {
        let store = self.service.database().events(&unchanged.store)?;
        let options = ropewalk::events::ReadOptions::default().after(unchanged.after).limit(1);
        self.within(|tx| match tx.read_events(&store, &unchanged.query, options)?.next() {
            None => Ok(Done::Unchanged),
            Some(event) => Err(Cause::EventsChanged { position: event.map_err(Error::from)?.position }),
        })
    }

    fn documents(&mut self, caller: &Caller, documents: &Documents, bounds: &Bounds) -> Result<Done, Cause> {
        let Documents { database, collection, work, expected } = documents;
        let collection = self.service.database().documents().collection(database, collection)?;
        let rules = rules_caller(caller, database);
        let look = || bounds.look();
        let (done, found) = self.within(|tx| {
            let mut tx = tx.documents();
            tx.act_for(rules);
            Ok(run_documents(&mut tx.with_cancellation(&look), &collection, work)?)
        })?;
        expect("documents", found, *expected)?;
        Ok(done)
    }

    fn sql(&mut self, statement: &Statement, bounds: &Bounds) -> Result<Outcome, Cause> {
        self.limit_locks();
        let prepared = match self.prepared.take() {
            Some(prepared) => Ok(prepared),
            None => sql::prepare(&mut self.session, statement, self.only_reads),
        };
        let ran = prepared.and_then(|prepared| sql::run(&mut self.session, prepared, statement));
        let (outcome, needed) = ran.map_err(|error| cancelled(error, bounds))?;
        let held = self.sql_rights;
        self.sql_rights = Rights {
            read: held.read || needed.read,
            append: held.append || needed.append,
            admin: held.admin || needed.admin,
        };
        Ok(outcome)
    }

    fn limit_locks(&mut self) {
        self.session.limit_locks(self.service.limits().transactions.advisory_locks_per_caller);
    }

    /// Runs `work` in the transaction; an error of it ends the transaction.
    pub(crate) fn within<R>(
        &mut self,
        work: impl FnOnce(&mut Transaction) -> Result<R, Cause>,
    ) -> Result<R, Cause> {
        if self.only_reads { self.session.with_reads(work) } else { self.session.with_transaction(work) }
    }

    /// Rejects a caller without the rights of an SQL statement.
    ///
    /// # Errors
    /// 42501.
    pub(crate) fn check_sql(&mut self, statement: &Statement) -> Result<(), Cause> {
        Ok(sql::check(&mut self.session, statement)?)
    }

    /// Rejects a caller without the rights that the SQL statements so far needed.
    ///
    /// # Errors
    /// 42501.
    pub(crate) fn check_sql_rights(&self) -> Result<(), Cause> {
        Ok(self.session.check_rights(self.sql_rights)?)
    }

    /// Memory of the buffered writes, bytes; more than zero when there are any.
    pub(crate) fn write_bytes(&mut self) -> Result<usize, Cause> {
        self.within(|tx| Ok(tx.write_bytes() + tx.pending_appends()))
    }

    /// Submits the commit; `None` for a transaction without writes.
    ///
    /// # Errors
    /// Errors that are found before the commit is validated.
    pub(crate) fn commit(mut self) -> Result<Option<PendingCommit>, Cause> {
        Ok(self.session.submit_commit()?)
    }
}

/// Runs the read or write, and returns how many documents it concerned.
fn run_documents(
    tx: &mut DocumentsTx<'_>,
    collection: &ropewalk::documents::Collection,
    work: &DocumentsWork,
) -> Result<(Done, u64), DocumentsError> {
    Ok(match work {
        DocumentsWork::Insert(document) => (Done::Inserted(tx.insert_one(collection, document.bytes())?), 1),
        DocumentsWork::Update { spec, many } => {
            let updated =
                if *many { tx.update_many(collection, spec)? } else { tx.update_one(collection, spec)? };
            let matched = updated.matched;
            (Done::Updated(updated), matched)
        }
        DocumentsWork::Delete(find) => {
            let deleted = tx.delete(collection, find)?;
            (Done::Deleted(deleted), deleted)
        }
        DocumentsWork::Get(id) => {
            let found = tx.get(collection, id.value())?;
            let count = u64::from(found.is_some());
            (Done::Document(found), count)
        }
        DocumentsWork::Find(find) => {
            let (mut found, mut bytes) = (Vec::new(), 0);
            tx.visit(collection, find, &mut |document| {
                bytes += document.bytes().len();
                if bytes > DOCUMENTS_BYTES_MAX {
                    return Err(DocumentsError::TooLarge { what: "answer", bytes, max: DOCUMENTS_BYTES_MAX });
                }
                found.push(document);
                Ok(true)
            })?;
            let count = found.len() as u64;
            (Done::Documents(found), count)
        }
        DocumentsWork::Count(find) => {
            let mut count = 0;
            tx.visit(collection, find, &mut |_| {
                count += 1;
                Ok(true)
            })?;
            (Done::Unchanged, count)
        }
    })
}

/// The error of a statement. One that was cancelled reports the deadline, if that has passed.
fn cancelled(error: SqlError, bounds: &Bounds) -> Cause {
    match bounds.look() {
        Err(why) if error.state == state::QUERY_CANCELED => why.into(),
        _ => error.into(),
    }
}

/// Rejects another number than the expected one.
fn expect(what: &'static str, found: u64, expected: Option<u64>) -> Result<(), Cause> {
    match expected {
        Some(expected) if expected != found => Err(Cause::Unexpected { what, found, expected }),
        _ => Ok(()),
    }
}

/// The caller to whom the rules of collections apply; `None` for one who may administer the database.
fn rules_caller(caller: &Caller, database: &str) -> Option<RulesCaller> {
    if caller.may(Right::Admin, Some(database)) {
        return None;
    }
    let mut auth = Writer::new();
    auth.put("uid", Value::String(caller.name()));
    Some(RulesCaller { auth: Some(auth.finish()) })
}

fn act_for(session: &mut Session, caller: &Caller) {
    let may = |right| caller.may(right, None);
    let rights = Rights { read: may(Right::Read), append: may(Right::Append), admin: may(Right::Admin) };
    session.act_for(rights, caller.name());
}
