//! Memory and time of one command, and memory of all commands together.
//!
//! ```text
//! Budget::run(command)
//!   parsers     ─▶ Held: trees                      ┐
//!   expressions ─▶ Held: operands, variables        ├─▶ Budget ─▶ SharedMemory
//!   stages      ─▶ Memory ─▶ Held: documents        │
//!   sorts       ─▶ Held, for as long as a cursor    ┘
//!   all of them ─▶ steps ─▶ every 64 Ki of them: may the command continue?
//! ```
//!
//! The budget belongs to the thread for as long as the command runs on it, because a validator, a partial
//! index and a rule evaluate the same language within the command and were parsed before it. Without a
//! budget each [`Held`] has the limit of one command, and no check is called.
//!
//! Invariants
//! 1. Memory that grows with the input is counted before it is allocated. Exceptions: one value of at most
//!    [`DOCUMENT_BYTES_MAX`](crate::lang::DOCUMENT_BYTES_MAX) that is being built, and its copy in the
//!    result.
//! 2. A loop over elements, fields, conditions or documents takes steps.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::lang::error::{LangError, LangResult, refuse};

/// Memory of one command unless its budget says otherwise.
pub const COMMAND_BYTES_MAX: usize = 256 << 20;
/// Steps between two checks whether a command may continue: one or two milliseconds.
const STEPS_PER_LOOK: u64 = 1 << 16;
/// Bytes that are read or copied in one step.
const BYTES_PER_STEP: usize = 64;
/// A command takes shared memory in units of this size.
const SHARE_STEP: u64 = 1 << 20;

/// Memory that several commands share, in addition to the limit of each of them.
#[derive(Debug)]
pub struct SharedMemory {
    max: u64,
    used: AtomicU64,
}

impl SharedMemory {
    /// A pool of `max` bytes.
    #[must_use]
    pub fn new(max: u64) -> Arc<Self> {
        Arc::new(Self { max, used: AtomicU64::new(0) })
    }

    /// Bytes that commands and their cursors hold now.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> LangResult<()> {
        let more = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.max);
        if self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            refuse!(ExceededMemoryLimit, "all commands together hold their limit of {} bytes", self.max);
        }
        Ok(())
    }

    fn release(&self, bytes: u64) {
        let used = self.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(used >= bytes, "{bytes} bytes are released of {used}");
    }
}

/// Whether a command may continue.
type CancelCheck = dyn Fn() -> LangResult<()> + Send + Sync;

/// The memory of one command, and the check whether it may continue. Cheap to clone.
#[derive(Clone)]
pub struct Budget(Arc<Inner<CancelCheck>>);

struct Inner<L: ?Sized> {
    max: usize,
    account: Mutex<Account>,
    shared: Option<Arc<SharedMemory>>,
    look: L,
}

#[derive(Default)]
struct Account {
    used: usize,
    /// Bytes taken from the shared memory: `used`, rounded up.
    taken: u64,
}

impl<L: ?Sized> Drop for Inner<L> {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            shared.release(self.account.get_mut().taken);
        }
    }
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budget").field("used", &self.used()).field("max", &self.0.max).finish_non_exhaustive()
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Budget>> = const { RefCell::new(None) };
    static STEPS_LEFT: Cell<u64> = const { Cell::new(STEPS_PER_LOOK) };
}

/// Restores the budget that the thread had before, also when the command panics.
struct Restore(Option<Budget>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

impl Budget {
    /// A budget of `max` bytes; `look` checks whether the command may continue and must be cheap.
    pub fn new(
        max: usize,
        shared: Option<Arc<SharedMemory>>,
        look: impl Fn() -> LangResult<()> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inner { max, account: Mutex::default(), shared, look }))
    }

    /// Runs a part of the command: everything that this thread evaluates meanwhile is counted.
    pub fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        let _restore = Restore(CURRENT.replace(Some(self.clone())));
        work()
    }

    /// Bytes that are held now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.0.account.lock().used
    }

    fn current() -> Option<Self> {
        CURRENT.with_borrow(Clone::clone)
    }

    fn take(&self, what: &'static str, bytes: usize) -> LangResult<()> {
        let mut account = self.0.account.lock();
        let used = account.used.saturating_add(bytes);
        if used > self.0.max {
            return Err(exceeded(what, self.0.max));
        }
        if let Some(shared) = &self.0.shared
            && used as u64 > account.taken
        {
            let taken = (used as u64).next_multiple_of(SHARE_STEP);
            shared.take(taken - account.taken)?;
            account.taken = taken;
        }
        account.used = used;
        Ok(())
    }

    fn release(&self, bytes: usize) {
        let mut account = self.0.account.lock();
        debug_assert!(account.used >= bytes, "{bytes} bytes are released of {}", account.used);
        account.used = account.used.saturating_sub(bytes);
        let needed = (account.used as u64).next_multiple_of(SHARE_STEP);
        // One unit is retained, so that a loop around a boundary does not access the shared memory.
        if let Some(shared) = &self.0.shared
            && account.taken > needed + SHARE_STEP
        {
            shared.release(account.taken - needed);
            account.taken = needed;
        }
    }
}

pub(crate) fn exceeded(what: &str, max: usize) -> LangError {
    crate::lang::error::lang_error!(
        QueryExceededMemoryLimitNoDiskUseAllowed,
        "Exceeded memory limit for {what}: {max} bytes"
    )
}

/// Counts work that is about to be done; checks periodically whether the command may continue.
///
/// # Errors
/// The command was ended, or its time is over.
pub(crate) fn steps(count: usize) -> LangResult<()> {
    match STEPS_LEFT.get().checked_sub(count as u64) {
        Some(left) => {
            STEPS_LEFT.set(left);
            Ok(())
        }
        None => look(),
    }
}

/// Counts `bytes` that are about to be read, compared or copied.
///
/// # Errors
/// As [`steps`].
pub(crate) fn byte_steps(bytes: usize) -> LangResult<()> {
    steps(1 + bytes / BYTES_PER_STEP)
}

#[cold]
fn look() -> LangResult<()> {
    STEPS_LEFT.set(STEPS_PER_LOOK);
    Budget::current().map_or(Ok(()), |budget| (budget.0.look)())
}

/// Bytes that count in the budget of the thread's command until this value is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    what: &'static str,
    budget: Option<Budget>,
    own: AtomicUsize,
}

/// Holds nothing yet; `what` names the holder in an error.
pub(crate) fn held(what: &'static str) -> Held {
    Held { what, budget: Budget::current(), own: AtomicUsize::new(0) }
}

impl Held {
    /// Takes so many bytes more.
    ///
    /// # Errors
    /// More than the command may hold, or all commands together.
    pub(crate) fn take(&self, bytes: usize) -> LangResult<()> {
        let own = self.bytes().saturating_add(bytes);
        match &self.budget {
            Some(budget) => budget.take(self.what, bytes)?,
            None if own > COMMAND_BYTES_MAX => return Err(exceeded(self.what, COMMAND_BYTES_MAX)),
            None => {}
        }
        self.own.store(own, Ordering::Relaxed);
        Ok(())
    }

    /// Returns some of the bytes.
    pub(crate) fn give_back(&self, bytes: usize) {
        // Callers may estimate more than they took.
        let bytes = bytes.min(self.bytes());
        self.own.store(self.bytes() - bytes, Ordering::Relaxed);
        if let Some(budget) = &self.budget {
            budget.release(bytes);
        }
    }

    /// Bytes that are held.
    pub(crate) fn bytes(&self) -> usize {
        self.own.load(Ordering::Relaxed)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.give_back(self.bytes());
    }
}
