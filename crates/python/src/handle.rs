//! The open database, and the engine's objects that Python holds.
//!
//! ```text
//! Shared ─▶ Database          one per `ropewalk.open`
//!    └────▶ Slot, Slot, …     readers, cursors, transactions: emptied by `close`, so that nothing holds the engine
//! ```
//! Invariants
//! 1. After [`Shared::close`] no native object holds a part of the engine, whatever Python still refers to.
//! 2. In a forked process every use fails, and nothing of the engine is dropped: its threads do not exist there.
//! 3. No lock of this module is held while Python code runs.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use ropewalk::Database;

use crate::error::{Fault, Result};

/// Number of slots from which on dead ones are removed.
const SLOTS_MIN: usize = 64;

/// An open database of this process.
pub(crate) struct Shared {
    pid: u32,
    db: Arc<Mutex<Option<Database>>>,
    slots: Mutex<Vec<Weak<dyn Clear>>>,
}

/// A slot whose content can be dropped.
trait Clear: Send + Sync {
    fn clear(&self);
}

impl<T: Send> Clear for Mutex<Option<T>> {
    fn clear(&self) {
        let content = self.lock().take();
        drop(content);
    }
}

impl Shared {
    pub(crate) fn new(db: Database) -> Arc<Self> {
        let db = Arc::new(Mutex::new(Some(db)));
        Arc::new(Self { pid: std::process::id(), db, slots: Mutex::new(Vec::new()) })
    }

    fn is_forked(&self) -> bool {
        std::process::id() != self.pid
    }

    /// Rejects a use in a forked process.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_forked() { Err(Fault::Forked) } else { Ok(()) }
    }

    /// The database.
    pub(crate) fn db(&self) -> Result<Database> {
        self.check()?;
        self.db.lock().clone().ok_or(Fault::Closed)
    }

    /// The error of a call that may have been interrupted by [`Shared::close`].
    pub(crate) fn explained(&self, fault: Fault) -> Fault {
        match fault {
            Fault::Database(_) | Fault::Ended if self.db.lock().is_none() => Fault::Closed,
            fault => fault,
        }
    }

    /// Stops the engine and drops everything that holds it. A second call, and one in a forked process, does
    /// nothing.
    pub(crate) fn close(&self) -> Result<()> {
        if self.is_forked() {
            return Ok(());
        }
        let Some(db) = self.db.lock().take() else { return Ok(()) };
        // Calls in other threads that wait for the engine end with an error.
        let closed = db.close();
        let slots = std::mem::take(&mut *self.slots.lock());
        slots.iter().filter_map(Weak::upgrade).for_each(|slot| slot.clear());
        Ok(closed?)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.is_forked() {
            std::mem::forget(self.db.clone());
        }
    }
}

/// An object of the engine that Python refers to, until the database is closed.
pub(crate) struct Slot<T> {
    shared: Arc<Shared>,
    content: Arc<Mutex<Option<T>>>,
}

impl<T: Send + 'static> Slot<T> {
    /// # Errors
    /// [`Fault::Closed`].
    pub(crate) fn new(shared: &Arc<Shared>, content: T) -> Result<Self> {
        let content = Arc::new(Mutex::new(Some(content)));
        let mut slots = shared.slots.lock();
        // `close` takes the database first, so that it finds every slot that was made before.
        if shared.db.lock().is_none() {
            return Err(Fault::Closed);
        }
        if slots.len() >= SLOTS_MIN && slots.len().is_power_of_two() {
            slots.retain(|slot| slot.strong_count() > 0);
        }
        let slot = Arc::downgrade(&content);
        slots.push(slot);
        drop(slots);
        Ok(Self { shared: shared.clone(), content })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Uses the content; [`Fault::Ended`] when it was taken.
    ///
    /// Call it detached from the interpreter: another thread may be using the content.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        self.shared.check()?;
        match self.content.lock().as_mut() {
            Some(content) => work(content).map_err(|fault| self.shared.explained(fault)),
            None => Err(self.shared.explained(Fault::Ended)),
        }
    }

    /// Takes the content out; `None` when it was taken or the database was closed.
    pub(crate) fn take(&self) -> Result<Option<T>> {
        self.shared.check()?;
        Ok(self.content.lock().take())
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        if self.shared.is_forked() {
            std::mem::forget(self.content.clone());
        }
    }
}
