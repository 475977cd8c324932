//! Consumer checkpoints: the position that each named consumer of an event store has processed.
//!
//! Stored in keyspace `sys.checkpoints`:
//! ```text
//! key     store, 0, name          names hold no control characters
//! value   version 1 | number of the store varint | position varint | microseconds since 1970 UTC u64
//! ```
//! A checkpoint belongs to one incarnation of a store: once the store is deleted, it reads as absent.

use ropewalk_base::{DecodeError, Decoder, Position, put_u64, put_varint};
use ropewalk_engine::{Durability, EngineError, Isolation};
use ropewalk_events::{EventStore, EventsError};

use crate::database::Database;
use crate::database::system_keyspace::SystemKeyspace;
use crate::database::transaction::Transaction;
use crate::error::{Error, Result};
use crate::names::check_name;

const KEYSPACE: &str = "sys.checkpoints";
const VERSION: u8 = 1;
/// Most attempts of a call that conflicts with other commits.
const ATTEMPTS: usize = 1_000;

/// The progress of one consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerCheckpoint {
    /// The consumer's name.
    pub name: String,
    /// The consumer has processed every event up to this position.
    pub position: Position,
    /// When the checkpoint was set, microseconds since 1970 UTC.
    pub time_micros: i64,
}

/// Consumer checkpoints of one event store. Cheap to clone.
///
/// ```
/// use ropewalk::{Database, Event, Position, Query};
///
/// # fn main() -> Result<(), ropewalk::Error> {
/// let db = Database::in_memory()?;
/// let shop = db.events("shop")?;
/// shop.append(&[Event::new("Placed"), Event::new("Placed")], None)?;
/// let checkpoints = db.consumer_checkpoints("shop")?;
/// checkpoints.set("mail", Position(1))?;
/// let mut rest = shop.subscribe(&Query::all(), checkpoints.get("mail")?)?;
/// # let _ = rest.next(core::time::Duration::ZERO)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ConsumerCheckpoints {
    db: Database,
    store: EventStore,
    keyspace: SystemKeyspace,
}

impl Database {
    /// Returns the consumer checkpoints of the event store `store`.
    ///
    /// # Errors
    /// The name is not allowed for a store, or the commit that defines its keyspace fails.
    pub fn consumer_checkpoints(&self, store: &str) -> Result<ConsumerCheckpoints> {
        let keyspace = self.system_keyspace(KEYSPACE)?;
        Ok(ConsumerCheckpoints { store: self.events(store)?, db: self.clone(), keyspace })
    }
}

impl ConsumerCheckpoints {
    /// Records that the consumer `name` has processed every event up to `position`.
    ///
    /// The position may be before or after the recorded one. The checkpoint is durable when this returns.
    ///
    /// # Errors
    /// The name is empty, longer than 255 bytes, or contains control characters; the store does not exist;
    /// the position is after its last event.
    pub fn set(&self, name: &str, position: Position) -> Result<()> {
        self.db.transact_with(Isolation::Serializable, Durability::Sync, ATTEMPTS, |tx| {
            self.set_in(tx, name, position)
        })
    }

    /// Same as [`ConsumerCheckpoints::set`], within the transaction that processes the events.
    ///
    /// This gives exactly-once processing.
    ///
    /// # Errors
    /// As [`ConsumerCheckpoints::set`].
    pub fn set_in(&self, tx: &mut Transaction, name: &str, position: Position) -> Result<()> {
        check_name("consumer", name)?;
        let snapshot = tx.snapshot();
        let unknown = || EventsError::UnknownStore { name: self.store.name().to_owned() };
        let store = self.store.id_at(snapshot.engine()).ok_or_else(unknown)?;
        let head = self.store.head_at(snapshot.engine())?.unwrap_or(Position::ZERO);
        if position > head {
            return Err(Error::Invalid(format!("position {position} is after the last event, {head}")));
        }
        let mut value = vec![VERSION];
        put_varint(&mut value, u64::from(store));
        put_varint(&mut value, position.0);
        put_u64(&mut value, self.db.engine().env().clock.wall_micros().cast_unsigned());
        tx.put(self.keyspace.to_write(&self.db)?, &self.key(name), &value);
        Ok(())
    }

    /// Returns the checkpoint of the consumer `name`, or `None` if it has none.
    ///
    /// # Errors
    /// The name is not allowed for a consumer, or stored data is corrupt.
    pub fn get(&self, name: &str) -> Result<Option<Position>> {
        if self.keyspace.to_read(&self.db).is_none() {
            return check_name("consumer", name).map(|()| None);
        }
        self.get_in(&mut self.db.begin(), name)
    }

    /// Same as [`ConsumerCheckpoints::get`], within a transaction: its commit fails if another one sets the
    /// checkpoint.
    ///
    /// # Errors
    /// As [`ConsumerCheckpoints::get`].
    pub fn get_in(&self, tx: &mut Transaction, name: &str) -> Result<Option<Position>> {
        check_name("consumer", name)?;
        let Some(keyspace) = self.keyspace.to_read(&self.db) else { return Ok(None) };
        let Some(stored) = tx.get(keyspace, &self.key(name))? else { return Ok(None) };
        let (store, found) = self.decoded(name, &stored)?;
        Ok((self.store.id_at(tx.snapshot().engine()) == Some(store)).then_some(found.position))
    }

    /// Returns all checkpoints of the store, sorted by name.
    ///
    /// # Errors
    /// Stored data is corrupt.
    pub fn all(&self) -> Result<Vec<ConsumerCheckpoint>> {
        self.list_after(None, usize::MAX)
    }

    /// Returns the first `max` checkpoints of consumers whose names come after `after`, sorted by name.
    ///
    /// # Errors
    /// Stored data is corrupt.
    pub fn list_after(&self, after: Option<&str>, max: usize) -> Result<Vec<ConsumerCheckpoint>> {
        let Some(keyspace) = self.keyspace.to_read(&self.db) else { return Ok(Vec::new()) };
        let snapshot = self.db.snapshot();
        let store = self.store.id_at(snapshot.engine());
        let before = self.key("");
        let mut cursor = snapshot.cursor(keyspace);
        let mut all = Vec::new();
        // Names contain no control characters, so that this key is before that of any later name.
        cursor.seek(
            &after.map_or_else(|| before.clone(), |name| [self.key(name).as_slice(), b"\0"].concat()),
        )?;
        while cursor.valid() && all.len() < max {
            let Some(name) = cursor.key().strip_prefix(before.as_slice()) else { break };
            let name = String::from_utf8_lossy(name).into_owned();
            let (of, checkpoint) = self.decoded(&name, cursor.value())?;
            if store == Some(of) {
                all.push(checkpoint);
            }
            cursor.next()?;
        }
        Ok(all)
    }

    /// Deletes the checkpoint of the consumer `name`; false if it has none.
    ///
    /// # Errors
    /// The name is not allowed for a consumer; errors of the database.
    pub fn remove(&self, name: &str) -> Result<bool> {
        check_name("consumer", name)?;
        let key = self.key(name);
        let keyspace = self.keyspace.to_write(&self.db)?;
        self.db.transact_with(Isolation::Serializable, Durability::Sync, ATTEMPTS, |tx| {
            let there = tx.get(keyspace, &key)?.is_some();
            if there {
                tx.delete(keyspace, &key);
            }
            Ok(there)
        })
    }

    fn key(&self, name: &str) -> Vec<u8> {
        [self.store.name().as_bytes(), b"\0", name.as_bytes()].concat()
    }

    fn decoded(&self, name: &str, value: &[u8]) -> Result<(u32, ConsumerCheckpoint)> {
        decode(name, value).map_err(|error| {
            let what = format!("consumer {name:?} of event store {:?}: {error}", self.store.name()).into();
            EngineError::Damaged { model: "checkpoints", what }.into()
        })
    }
}

fn decode(name: &str, value: &[u8]) -> Result<(u32, ConsumerCheckpoint), DecodeError> {
    let mut decoder = Decoder::new(value);
    if decoder.u8("version")? != VERSION {
        return Err(DecodeError { what: "version 1 of a checkpoint", offset: 0 });
    }
    let store = decoder.varint("number of a store")?;
    let store = store.try_into().map_err(|_| DecodeError { what: "number of a store", offset: 1 })?;
    let position = Position(decoder.varint("position")?);
    let time_micros = decoder.u64("time")?.cast_signed();
    if !decoder.is_empty() {
        return Err(DecodeError { what: "the end of a checkpoint", offset: decoder.offset() });
    }
    Ok((store, ConsumerCheckpoint { name: name.to_owned(), position, time_micros }))
}
