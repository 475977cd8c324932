//! How many idempotency keys each caller has stored, and the bytes of their results.
//!
//! ```text
//! start of the process ─▶ count the stored keys, in steps ─┐
//! transaction with a key ─▶ reserve ──▶ rejected: release  ├▶ usage of its caller ─▶ limit
//! deletion of old keys ─▶ subtract ─────────────────────────┘
//! ```
//! The counts are in memory: a counter in the database would make all transactions of a caller conflict. Until
//! the stored keys are counted, only those of this process count. A commit whose outcome no task awaits stays
//! counted.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ropewalk_wire::{TransactionLimits, WireError};

use crate::limits::{KEYS_INTERVAL, RETENTION};

/// Keys of one caller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) keys: u64,
    /// Bytes of their records.
    pub(crate) bytes: u64,
}

impl Usage {
    pub(crate) fn add(&mut self, other: Self) {
        self.keys = self.keys.saturating_add(other.keys);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    fn subtract(&mut self, other: Self) {
        self.keys = self.keys.saturating_sub(other.keys);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }
}

/// Usage by caller.
pub(crate) type ByCaller = HashMap<String, Usage>;

/// Progress of the count of the keys that were stored before this process.
#[derive(Debug, Default)]
pub(crate) struct Count {
    /// The first key of the next step.
    pub(crate) next: Vec<u8>,
    pub(crate) found: ByCaller,
}

#[derive(Debug)]
enum Stage {
    Counting(Box<Count>),
    /// Another task is counting.
    Busy,
    Counted,
}

impl Default for Stage {
    fn default() -> Self {
        Self::Counting(Box::default())
    }
}

#[derive(Debug, Default)]
struct State {
    callers: ByCaller,
    stage: Stage,
    /// Microseconds since 1970 at the first use: earlier records are counted by [`Stage::Counting`].
    since_micros: Option<i64>,
}

/// The usage of the keys of one database.
#[derive(Debug, Default)]
pub(crate) struct KeyUsage(Mutex<State>);

/// A key that is about to be stored.
#[derive(Debug)]
#[must_use = "a rejected transaction releases it"]
pub(crate) struct Reserved {
    caller: String,
    added: Usage,
    replaced: Usage,
}

impl KeyUsage {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is a few assignments, which do not panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of the first use.
    pub(crate) fn since_micros(&self, now: i64) -> i64 {
        *self.state().since_micros.get_or_insert(now)
    }

    /// Reserves a key whose record has so many bytes. `replaced`: the bytes of an expired record of the key.
    ///
    /// # Errors
    /// [`ropewalk_wire::Code::ResourceExhausted`].
    pub(crate) fn reserve(
        &self,
        caller: &str,
        bytes: u64,
        replaced: Option<u64>,
        limits: &TransactionLimits,
    ) -> Result<Reserved, WireError> {
        let mut state = self.state();
        // Before that, the expired record is not counted.
        let replaced = replaced.filter(|_| matches!(state.stage, Stage::Counted));
        let replaced = replaced.map_or(Usage::default(), |bytes| Usage { keys: 1, bytes });
        let held = state.callers.get(caller).copied().unwrap_or_default();
        let mut new = held;
        let added = Usage { keys: 1, bytes };
        new.add(added);
        new.subtract(replaced);
        let (max, bytes_max) = (limits.keys_per_caller, limits.key_bytes_per_caller);
        if new.keys > max || new.bytes > bytes_max {
            let hours = RETENTION.as_secs() / 3600;
            let what = format!(
                "{} idempotency keys of this caller are stored, with {} bytes of results; at most {max} and \
                 {bytes_max} bytes are allowed, and each is deleted after {hours} hours",
                held.keys, held.bytes
            );
            return Err(WireError::exhausted(what).retry_after(KEYS_INTERVAL));
        }
        state.callers.insert(caller.to_owned(), new);
        Ok(Reserved { caller: caller.to_owned(), added, replaced })
    }

    /// Takes a reservation back: its transaction was rejected.
    pub(crate) fn release(&self, reserved: Reserved) {
        let mut state = self.state();
        let usage = state.callers.entry(reserved.caller).or_default();
        usage.add(reserved.replaced);
        usage.subtract(reserved.added);
    }

    /// Subtracts deleted keys.
    pub(crate) fn subtract(&self, deleted: ByCaller) {
        let mut state = self.state();
        for (caller, deleted) in deleted {
            if let Some(usage) = state.callers.get_mut(&caller) {
                usage.subtract(deleted);
                if *usage == Usage::default() {
                    state.callers.remove(&caller);
                }
            }
        }
    }

    /// True once the keys that were stored before this process are counted.
    pub(crate) fn is_counted(&self) -> bool {
        matches!(self.state().stage, Stage::Counted)
    }

    /// Counts some of the keys that were stored before this process. `step` returns whether there are more.
    /// False when all are counted, or another task counts them.
    ///
    /// # Errors
    /// Those of `step`.
    pub(crate) fn count<E>(&self, step: impl FnOnce(&mut Count) -> Result<bool, E>) -> Result<bool, E> {
        let mut count = {
            let mut state = self.state();
            match std::mem::replace(&mut state.stage, Stage::Busy) {
                Stage::Counting(count) => count,
                other => {
                    state.stage = other;
                    return Ok(false);
                }
            }
        };
        let stepped = step(&mut count);
        let mut state = self.state();
        if let Ok(false) = stepped {
            for (caller, usage) in count.found {
                state.callers.entry(caller).or_default().add(usage);
            }
            state.stage = Stage::Counted;
        } else {
            state.stage = Stage::Counting(count);
        }
        stepped
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_wire::Code;

    use super::*;

    fn limits() -> TransactionLimits {
        TransactionLimits { keys_per_caller: 3, key_bytes_per_caller: 1_000, ..TransactionLimits::default() }
    }

    fn reserve(usage: &KeyUsage, caller: &str, bytes: u64) -> Result<Reserved, Code> {
        usage.reserve(caller, bytes, None, &limits()).map_err(|error| error.code)
    }

    fn found(caller: &str, keys: u64, bytes: u64) -> ByCaller {
        HashMap::from([(caller.to_owned(), Usage { keys, bytes })])
    }

    #[test]
    fn keys_and_bytes_over_the_limit_of_a_caller_are_rejected() {
        let usage = KeyUsage::default();
        let first = reserve(&usage, "ann", 600).unwrap();
        assert_eq!(reserve(&usage, "ann", 401).unwrap_err(), Code::ResourceExhausted);
        for _ in 0..2 {
            drop(reserve(&usage, "ann", 100).unwrap());
        }
        assert_eq!(reserve(&usage, "ann", 1).unwrap_err(), Code::ResourceExhausted);
        drop(reserve(&usage, "bob", 1).unwrap());
        usage.release(first);
        drop(reserve(&usage, "ann", 1).unwrap());
        assert_eq!(reserve(&usage, "ann", 1).unwrap_err(), Code::ResourceExhausted);
    }

    #[test]
    fn keys_of_earlier_processes_count_once_all_are_found() {
        let usage = KeyUsage::default();
        drop(reserve(&usage, "ann", 1).unwrap());
        let step = |count: &mut Count| {
            count.found = found("ann", 2, 10);
            Ok::<_, ()>(false)
        };
        assert_eq!(usage.count(|_| Ok::<_, ()>(true)), Ok(true));
        assert!(!usage.is_counted());
        assert_eq!(usage.count(step), Ok(false));
        assert!(usage.is_counted());
        assert_eq!(reserve(&usage, "ann", 1).unwrap_err(), Code::ResourceExhausted);
        // An expired key that is used again replaces its record.
        drop(usage.reserve("ann", 5, Some(5), &limits()).unwrap());
        usage.subtract(found("ann", 1, 5));
        drop(reserve(&usage, "ann", 1).unwrap());
        usage.subtract(found("ann", 9, 900));
        assert!(usage.state().callers.is_empty());
    }
}
