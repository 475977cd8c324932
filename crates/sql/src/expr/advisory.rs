//! Advisory locks: numbers that sessions lock and unlock, with a meaning that applications define. Migration
//! tools take one, so that no two of them change definitions concurrently.
//!
//! All sessions of a database in this process share them. A lock is held by its session until that releases
//! it or ends, or by its transaction. A waiting session polls every few milliseconds, and can be cancelled
//! like a query; deadlocks among advisory locks are not detected. Sessions of one caller may share a limit of
//! the locks that they hold together.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use ropewalk::Database;
use ropewalk::tables::{Type, Value};

use crate::error::{Result, SqlError, state};
use crate::expr::{Context, bug};

/// Interval between two polls.
const LOOK: Duration = Duration::from_millis(10);

/// Key of a lock: the database, whether it has two numbers, the number.
type Key = (usize, bool, i64);

/// Holder of a lock, and its lock count.
#[derive(Debug)]
struct Holder {
    session: u64,
    is_shared: bool,
    in_transaction: bool,
    count: u64,
    /// Its part of the limit of the session.
    _counted: Option<Counted>,
}

/// A limit of the advisory locks that several sessions hold together. Clones are the same limit.
#[derive(Debug, Clone)]
pub struct AdvisoryLimit(Arc<LimitState>);

#[derive(Debug)]
struct LimitState {
    most: usize,
    held: AtomicUsize,
}

/// A lock that counts for a limit until it is dropped.
#[derive(Debug)]
struct Counted(AdvisoryLimit);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AdvisoryLimit {
    /// At most so many locks.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(LimitState { most, held: AtomicUsize::new(0) }))
    }

    /// True while a session or a lock also has it.
    pub fn is_used(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    fn count(&self) -> Result<Counted> {
        let LimitState { most, held } = &*self.0;
        // Dropped when there is no room.
        let counted = Counted(self.clone());
        if held.fetch_add(1, Ordering::Relaxed) < *most {
            return Ok(counted);
        }
        let message = format!("the caller holds {most} advisory locks, the limit");
        let hint = "release locks with pg_advisory_unlock, or end transactions that hold some";
        Err(SqlError::new(state::OUT_OF_MEMORY, message).hint(hint))
    }
}

static LOCKS: LazyLock<Mutex<HashMap<Key, Vec<Holder>>>> = LazyLock::new(Mutex::default);
static SESSIONS: AtomicU64 = AtomicU64::new(1);

fn locks() -> MutexGuard<'static, HashMap<Key, Vec<Holder>>> {
    LOCKS.lock().unwrap_or_else(|held| held.into_inner())
}

/// The locks of a session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Held(Arc<Session>);

#[derive(Debug, Default)]
struct Session {
    number: u64,
    database: usize,
    /// False if it certainly holds none.
    holds: AtomicBool,
    limit: OnceLock<AdvisoryLimit>,
}

impl Drop for Session {
    fn drop(&mut self) {
        if *self.holds.get_mut() {
            release(self.number, |_| true);
        }
    }
}

fn release(session: u64, which: impl Fn(&Holder) -> bool) {
    locks().retain(|_, holders| {
        holders.retain(|holder| holder.session != session || !which(holder));
        !holders.is_empty()
    });
}

impl Held {
    /// The locks of a new session.
    pub(crate) fn of(db: &Database) -> Self {
        let database = Arc::as_ptr(db.engine()) as usize;
        let number = SESSIONS.fetch_add(1, Ordering::Relaxed);
        let (holds, limit) = (AtomicBool::new(false), OnceLock::new());
        Self(Arc::new(Session { number, database, holds, limit }))
    }

    /// Counts the session's locks from here on, unless it has a limit already.
    pub(crate) fn limit(&self, limit: AdvisoryLimit) {
        let _ = self.0.limit.set(limit);
    }

    /// Releases the locks of an ended transaction.
    pub(crate) fn end_transaction(&self) {
        if self.0.holds.load(Ordering::Relaxed) {
            release(self.0.number, |holder| holder.in_transaction);
        }
    }

    /// Releases all session locks: DISCARD ALL, and `pg_advisory_unlock_all`.
    pub(crate) fn release_all(&self) {
        if self.0.holds.load(Ordering::Relaxed) {
            release(self.0.number, |holder| !holder.in_transaction);
        }
    }

    /// Takes a lock, unless another session holds it.
    ///
    /// # Errors
    /// 53200: the limit.
    fn take(&self, key: Key, is_shared: bool, in_transaction: bool) -> Result<bool> {
        let mut locks = locks();
        let session = self.0.number;
        let conflicts = |holder: &Holder| holder.session != session && !(is_shared && holder.is_shared);
        if locks.get(&key).is_some_and(|holders| holders.iter().any(conflicts)) {
            return Ok(false);
        }
        let is_same = |holder: &&mut Holder| {
            (holder.session, holder.is_shared, holder.in_transaction) == (session, is_shared, in_transaction)
        };
        if let Some(holder) = locks.get_mut(&key).and_then(|holders| holders.iter_mut().find(is_same)) {
            holder.count += 1;
            return Ok(true);
        }
        let counted = self.0.limit.get().map(AdvisoryLimit::count).transpose()?;
        self.0.holds.store(true, Ordering::Relaxed);
        let holder = Holder { session, is_shared, in_transaction, count: 1, _counted: counted };
        locks.entry(key).or_default().push(holder);
        Ok(true)
    }

    fn give_back(&self, key: Key, is_shared: bool) -> bool {
        let mut locks = locks();
        let Some(holders) = locks.get_mut(&key) else { return false };
        let session = self.0.number;
        let is_it = |holder: &Holder| {
            (holder.session, holder.is_shared, holder.in_transaction) == (session, is_shared, false)
        };
        let Some(place) = holders.iter().position(is_it) else { return false };
        if let Some(holder) = holders.get_mut(place) {
            holder.count -= 1;
        }
        holders.retain(|holder| holder.count > 0);
        if holders.is_empty() {
            locks.remove(&key);
        }
        true
    }
}

/// Operation of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    Lock,
    Try,
    Unlock,
    UnlockAll,
}

/// A bound call.
#[derive(Debug, Clone)]
pub(crate) struct AdvisoryCall {
    asks: Asks,
    is_shared: bool,
    in_transaction: bool,
    held: Held,
}

impl PartialEq for AdvisoryCall {
    fn eq(&self, other: &Self) -> bool {
        (self.asks, self.is_shared, self.in_transaction)
            == (other.asks, other.is_shared, other.in_transaction)
    }
}

impl AdvisoryCall {
    /// The call with this name and number of arguments, and its result type; `None` for other functions.
    pub(crate) fn named(name: &str, arguments: usize, held: &Held) -> Option<(Self, Type)> {
        let (asks, is_shared, in_transaction) = match name {
            "pg_advisory_lock" => (Asks::Lock, false, false),
            "pg_advisory_lock_shared" => (Asks::Lock, true, false),
            "pg_advisory_xact_lock" => (Asks::Lock, false, true),
            "pg_advisory_xact_lock_shared" => (Asks::Lock, true, true),
            "pg_try_advisory_lock" => (Asks::Try, false, false),
            "pg_try_advisory_lock_shared" => (Asks::Try, true, false),
            "pg_try_advisory_xact_lock" => (Asks::Try, false, true),
            "pg_try_advisory_xact_lock_shared" => (Asks::Try, true, true),
            "pg_advisory_unlock" => (Asks::Unlock, false, false),
            "pg_advisory_unlock_shared" => (Asks::Unlock, true, false),
            "pg_advisory_unlock_all" => (Asks::UnlockAll, false, false),
            _ => return None,
        };
        let takes = if asks == Asks::UnlockAll { 0..=0 } else { 1..=2 };
        if !takes.contains(&arguments) {
            return None;
        }
        let ty = if matches!(asks, Asks::Lock | Asks::UnlockAll) { Type::TEXT } else { Type::BOOL };
        Some((Self { asks, is_shared, in_transaction, held: held.clone() }, ty))
    }

    /// True when it may wait.
    pub(crate) fn waits(&self) -> bool {
        self.asks == Asks::Lock
    }

    pub(crate) fn call(&self, arguments: &[Value<'_>], cx: &Context<'_>) -> Result<Value<'static>> {
        let database = self.held.0.database;
        let numbers: Option<Vec<i64>> = arguments.iter().map(Value::as_integer).collect();
        let key = match numbers.as_deref() {
            None => return Ok(Value::Null),
            Some([]) => {
                self.held.release_all();
                return Ok(Value::text(""));
            }
            Some([number]) => (database, false, *number),
            Some([first, second]) => (database, true, (first << 32) | (second & 0xffff_ffff)),
            Some(_) => return Err(bug("an advisory lock of more than two numbers")),
        };
        match self.asks {
            Asks::UnlockAll => Err(bug("a number that is not given back")),
            Asks::Unlock => Ok(Value::Bool(self.held.give_back(key, self.is_shared))),
            Asks::Try => Ok(Value::Bool(self.held.take(key, self.is_shared, self.in_transaction)?)),
            Asks::Lock => {
                // A wait in the engine may be cancelled, and its statement answered, while it sleeps or takes the lock.
                cx.interrupt.check_now(cx.env)?;
                while !self.held.take(key, self.is_shared, self.in_transaction)? {
                    cx.env.clock.sleep(LOOK);
                    cx.interrupt.check_now(cx.env)?;
                }
                if let Err(ended) = cx.interrupt.check_now(cx.env) {
                    self.held.give_back(key, self.is_shared);
                    return Err(ended);
                }
                Ok(Value::text(""))
            }
        }
    }
}
