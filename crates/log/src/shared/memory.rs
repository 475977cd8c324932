//! A shared log in memory, with faults that a test or a simulation chooses.
//!
//! ```text
//! handle A ─┐                        ┌─ entries 1, 2, 3, …
//! handle B ─┼─▶ fault? ─▶ one log ───┤
//! handle C ─┘   (per handle)         └─ appends that are on their way: stored later, or never
//! ```
//!
//! Everything is deterministic: a fault happens when the caller's queue or closure says so, never by time. A closure that draws
//! from a seeded generator makes a simulation repeatable.

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use ropewalk_base::sync::{Condvar, Mutex, MutexGuard};

use crate::LogId;
use crate::shared::{
    AppendError, EntryIndex, SharedBounds, SharedEntry, SharedError, SharedLog, SharedResult,
};

/// Largest entry by default, that of common services.
const ENTRY_BYTES_MAX: usize = 1 << 20;

/// A call of a handle, before it has any effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedCall<'a> {
    /// [`SharedLog::append`].
    Append {
        /// The entry that has to be the newest.
        expected: EntryIndex,
        /// The entry to append.
        entry: &'a [u8],
    },
    /// [`SharedLog::read`].
    Read {
        /// The entry before the first one to read.
        after: EntryIndex,
    },
    /// [`SharedLog::bounds`].
    Bounds,
    /// [`SharedLog::identity`].
    Identity,
    /// [`SharedLog::trim`].
    Trim,
}

/// Failure of one call. Calls other than an append fail with [`SharedError::Unavailable`] under each of them except
/// [`SharedFault::StaleBounds`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedFault {
    /// The request is lost: nothing is stored, and the caller learns nothing.
    DropRequest,
    /// The answer is lost: the append is carried out, and the caller learns nothing.
    LoseAnswer,
    /// The request is delayed, and the caller learns nothing: the append is carried out at the beginning of a later call,
    /// by whichever handle, or by [`MemorySharedLog::deliver_delayed`]. It is dropped if its expectation no longer holds then.
    Delay {
        /// Calls that come first: with 0 the next one finds the entry stored, with 1 the one after that.
        calls: u64,
    },
    /// [`SharedLog::bounds`] reports a newest entry that is older by so many. Other calls are not affected.
    StaleBounds {
        /// Entries that are left out.
        by: u64,
    },
}

/// Chooses a fault for a call, or none. Must not call the log.
pub type ChooseFault = Box<dyn FnMut(SharedCall<'_>) -> Option<SharedFault> + Send>;

/// One handle on a shared log in memory. Clones are the same handle; [`MemorySharedLog::handle`] makes another one.
///
/// ```
/// use ropewalk_log::LogId;
/// use ropewalk_log::shared::{AppendError, EntryIndex, MemorySharedLog, SharedFault, SharedLog};
///
/// let a = MemorySharedLog::new(LogId([1; 16]));
/// let b = a.handle();
/// a.queue_fault(SharedFault::LoseAnswer);
/// assert!(matches!(a.append(EntryIndex(0), b"one"), Err(AppendError::Unknown { .. })));
/// assert!(matches!(b.append(EntryIndex(0), b"other"), Err(AppendError::Fenced { newest: EntryIndex(1) })));
/// assert_eq!(b.entries(), [b"one"]);
/// ```
#[derive(Clone)]
pub struct MemorySharedLog {
    log: Arc<Log>,
    handle: Arc<Mutex<Handle>>,
}

struct Log {
    state: Mutex<State>,
    /// Notified when an entry is stored, and when a setting changes.
    changed: Condvar,
}

struct State {
    id: LogId,
    /// Number of the entry before the first of `entries`.
    trimmed: u64,
    /// Empty places are entries that were lost.
    entries: VecDeque<Option<Vec<u8>>>,
    entry_bytes_max: usize,
    delayed: Vec<Delayed>,
    /// Calls so far.
    calls: u64,
    /// Appends wait while this is set.
    hangs: bool,
}

/// An append that is on its way.
struct Delayed {
    /// Carried out at the beginning of this call.
    call: u64,
    expected: EntryIndex,
    entry: Vec<u8>,
}

#[derive(Default)]
struct Handle {
    queue: VecDeque<SharedFault>,
    choose: Option<ChooseFault>,
    disconnected: bool,
}

impl State {
    fn newest(&self) -> EntryIndex {
        EntryIndex(self.trimmed + self.entries.len() as u64)
    }

    fn get(&self, index: EntryIndex) -> Option<&Option<Vec<u8>>> {
        let place = index.0.checked_sub(self.trimmed + 1)?;
        self.entries.get(usize::try_from(place).ok()?)
    }

    fn append(&mut self, expected: EntryIndex, entry: &[u8]) -> Result<EntryIndex, AppendError> {
        let newest = self.newest();
        if newest != expected {
            return Err(AppendError::Fenced { newest });
        }
        if entry.len() > self.entry_bytes_max {
            let cause = format!("{} bytes are more than {}", entry.len(), self.entry_bytes_max);
            return Err(AppendError::Refused { cause });
        }
        self.entries.push_back(Some(entry.to_vec()));
        Ok(expected.next())
    }

    /// Carries out the delayed appends up to a call, in the order in which they were made; returns how many were stored.
    fn deliver(&mut self, call: u64) -> usize {
        let mut stored = 0;
        for delayed in std::mem::take(&mut self.delayed) {
            if delayed.call > call {
                self.delayed.push(delayed);
            } else if self.append(delayed.expected, &delayed.entry).is_ok() {
                stored += 1;
            }
        }
        stored
    }

    fn read(&self, after: EntryIndex, bytes_max: usize) -> SharedResult<Vec<SharedEntry>> {
        if after.0 < self.trimmed {
            return Err(SharedError::Trimmed { oldest: EntryIndex(self.trimmed + 1) });
        }
        if after > self.newest() {
            let what = format!("it ends at entry {}, before entry {after}", self.newest());
            return Err(SharedError::Lost { what });
        }
        let (mut found, mut bytes, mut index) = (Vec::new(), 0, after.next());
        while let Some(place) = self.get(index) {
            let Some(entry) = place else {
                if found.is_empty() {
                    return Err(SharedError::Lost { what: format!("entry {index} is missing") });
                }
                break;
            };
            bytes += entry.len();
            if bytes > bytes_max && !found.is_empty() {
                break;
            }
            found.push(SharedEntry { index, bytes: entry.clone() });
            index = index.next();
        }
        Ok(found)
    }
}

impl MemorySharedLog {
    /// The first handle on a new log without entries. An entry has at most a mebibyte.
    pub fn new(id: LogId) -> Self {
        Self::with_entry_bytes_max(id, ENTRY_BYTES_MAX)
    }

    /// As [`MemorySharedLog::new`], with another limit of an entry.
    pub fn with_entry_bytes_max(id: LogId, entry_bytes_max: usize) -> Self {
        let state = State {
            id,
            trimmed: 0,
            entries: VecDeque::new(),
            entry_bytes_max,
            delayed: Vec::new(),
            calls: 0,
            hangs: false,
        };
        Self {
            log: Arc::new(Log { state: Mutex::new(state), changed: Condvar::new() }),
            handle: Arc::default(),
        }
    }

    /// Another handle on the same log, without faults: that of another node.
    #[must_use]
    pub fn handle(&self) -> Self {
        Self { log: self.log.clone(), handle: Arc::default() }
    }

    /// The next append of this handle fails so. Queued faults come before those that are chosen.
    pub fn queue_fault(&self, fault: SharedFault) {
        self.handle.lock().queue.push_back(fault);
    }

    /// Asks `choose` for a fault at each call of this handle, from now on.
    pub fn choose_faults(&self, choose: impl FnMut(SharedCall<'_>) -> Option<SharedFault> + Send + 'static) {
        self.handle.lock().choose = Some(Box::new(choose));
    }

    /// Connects or disconnects this handle: without a connection each call fails, and no append is carried out.
    pub fn set_connected(&self, connected: bool) {
        self.handle.lock().disconnected = !connected;
        drop(self.log.state.lock());
        self.log.changed.notify_all();
    }

    /// While `hangs`, appends of all handles wait: they have no effect, and do not return. For tests with threads.
    pub fn set_hanging(&self, hangs: bool) {
        self.log.state.lock().hangs = hangs;
        self.log.changed.notify_all();
    }

    /// Carries out the delayed appends now; returns how many were stored.
    pub fn deliver_delayed(&self) -> usize {
        let stored = self.log.state.lock().deliver(u64::MAX);
        self.log.changed.notify_all();
        stored
    }

    /// Loses the newest `count` entries, as a service without durable storage does.
    pub fn lose_newest(&self, count: usize) {
        let mut state = self.log.state.lock();
        let left = state.entries.len().saturating_sub(count);
        state.entries.truncate(left);
    }

    /// Loses one entry in the middle; reads report the gap.
    pub fn lose_entry(&self, index: EntryIndex) {
        let mut state = self.log.state.lock();
        let place = index.0.checked_sub(state.trimmed + 1).and_then(|place| usize::try_from(place).ok());
        if let Some(entry) = place.and_then(|place| state.entries.get_mut(place)) {
            *entry = None;
        }
    }

    /// Replaces an entry by other bytes, as a damaged service may.
    pub fn replace_entry(&self, index: EntryIndex, bytes: &[u8]) {
        let mut state = self.log.state.lock();
        let place = index.0.checked_sub(state.trimmed + 1).and_then(|place| usize::try_from(place).ok());
        if let Some(entry) = place.and_then(|place| state.entries.get_mut(place)) {
            *entry = Some(bytes.to_vec());
        }
    }

    /// Creates the log again: without entries, with another identity. Delayed appends are dropped.
    pub fn create_again(&self, id: LogId) {
        let mut state = self.log.state.lock();
        (state.id, state.trimmed) = (id, 0);
        state.entries.clear();
        state.delayed.clear();
    }

    /// The entries that can be read now, oldest first.
    pub fn entries(&self) -> Vec<Vec<u8>> {
        self.log.state.lock().entries.iter().flatten().cloned().collect()
    }

    /// The newest entry now, whatever [`SharedLog::bounds`] reports.
    pub fn newest(&self) -> EntryIndex {
        self.log.state.lock().newest()
    }

    /// Begins a call: carries out delayed appends that are due, and chooses a fault.
    fn begin(
        &self,
        call: SharedCall<'_>,
    ) -> Result<(MutexGuard<'_, State>, Option<SharedFault>), &'static str> {
        let (fault, disconnected) = {
            let mut handle = self.handle.lock();
            let is_append = matches!(call, SharedCall::Append { .. });
            let queued = if is_append { handle.queue.pop_front() } else { None };
            let fault = queued.or_else(|| handle.choose.as_mut().and_then(|choose| choose(call)));
            (fault, handle.disconnected)
        };
        let mut state = self.log.state.lock();
        state.calls += 1;
        let now = state.calls;
        if state.deliver(now) > 0 {
            self.log.changed.notify_all();
        }
        if disconnected { Err("this handle is disconnected") } else { Ok((state, fault)) }
    }

    /// As `begin`, for all calls but appends.
    fn begin_reading(&self, call: SharedCall<'_>) -> SharedResult<(MutexGuard<'_, State>, u64)> {
        let unavailable = |cause: &str| SharedError::Unavailable { cause: cause.to_owned() };
        match self.begin(call).map_err(unavailable)? {
            (state, None) => Ok((state, 0)),
            (state, Some(SharedFault::StaleBounds { by })) => Ok((state, by)),
            (_, Some(_)) => Err(unavailable("injected fault")),
        }
    }
}

impl SharedLog for MemorySharedLog {
    fn identity(&self) -> SharedResult<LogId> {
        Ok(self.begin_reading(SharedCall::Identity)?.0.id)
    }

    fn entry_bytes_max(&self) -> usize {
        self.log.state.lock().entry_bytes_max
    }

    fn append(&self, expected: EntryIndex, entry: &[u8]) -> Result<EntryIndex, AppendError> {
        let unknown = |cause: &str| AppendError::Unknown { cause: cause.to_owned() };
        let (mut state, fault) = self.begin(SharedCall::Append { expected, entry }).map_err(unknown)?;
        while state.hangs {
            if self.handle.lock().disconnected {
                return Err(unknown("this handle is disconnected"));
            }
            self.log.changed.wait(&mut state);
        }
        let done = match fault {
            None | Some(SharedFault::StaleBounds { .. }) => state.append(expected, entry),
            Some(SharedFault::DropRequest) => Err(unknown("the request was lost")),
            Some(SharedFault::LoseAnswer) => {
                let _ = state.append(expected, entry);
                Err(unknown("the answer was lost"))
            }
            Some(SharedFault::Delay { calls }) => {
                let call = state.calls.saturating_add(calls).saturating_add(1);
                state.delayed.push(Delayed { call, expected, entry: entry.to_vec() });
                Err(unknown("the request was delayed"))
            }
        };
        drop(state);
        self.log.changed.notify_all();
        done
    }

    fn read(&self, after: EntryIndex, bytes_max: usize, wait: Duration) -> SharedResult<Vec<SharedEntry>> {
        let (mut state, _) = self.begin_reading(SharedCall::Read { after })?;
        let found = state.read(after, bytes_max)?;
        if !found.is_empty() || wait.is_zero() {
            return Ok(found);
        }
        // May end early; the caller reads again.
        self.log.changed.wait_for(&mut state, wait);
        state.read(after, bytes_max)
    }

    fn bounds(&self) -> SharedResult<SharedBounds> {
        let (state, stale) = self.begin_reading(SharedCall::Bounds)?;
        let newest = EntryIndex(state.newest().0.saturating_sub(stale).max(state.trimmed));
        Ok(SharedBounds { oldest: EntryIndex(state.trimmed + 1), newest })
    }

    fn trim(&self, oldest: EntryIndex) -> SharedResult<()> {
        let (mut state, _) = self.begin_reading(SharedCall::Trim)?;
        while state.trimmed + 1 < oldest.0 && state.entries.pop_front().is_some() {
            state.trimmed += 1;
        }
        Ok(())
    }
}

impl fmt::Debug for MemorySharedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.log.state.lock();
        write!(f, "MemorySharedLog({} newest {})", state.id, state.newest())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> MemorySharedLog {
        MemorySharedLog::new(LogId([1; 16]))
    }

    fn is_unknown(appended: &Result<EntryIndex, AppendError>) -> bool {
        matches!(appended, Err(AppendError::Unknown { .. }))
    }

    #[test]
    fn one_of_two_appends_after_the_same_entry_succeeds() {
        let a = log();
        let b = a.handle();
        assert_eq!(a.append(EntryIndex::ZERO, b"a").unwrap(), EntryIndex(1));
        assert_eq!(b.append(EntryIndex::ZERO, b"b"), Err(AppendError::Fenced { newest: EntryIndex(1) }));
        assert_eq!(b.append(EntryIndex(1), b"b").unwrap(), EntryIndex(2));
        let read = a.read(EntryIndex::ZERO, 1, Duration::ZERO).unwrap();
        assert_eq!(read, [SharedEntry { index: EntryIndex(1), bytes: b"a".to_vec() }], "one entry fits");
        assert_eq!(a.read(EntryIndex::ZERO, 100, Duration::ZERO).unwrap().len(), 2);
        let bounds = SharedBounds { oldest: EntryIndex(1), newest: EntryIndex(2) };
        assert_eq!(b.bounds().unwrap(), bounds);
    }

    #[test]
    fn delayed_append_is_stored_later_unless_a_rival_was_first() {
        let (a, b) = (log(), log());
        a.queue_fault(SharedFault::Delay { calls: 1 });
        assert!(is_unknown(&a.append(EntryIndex::ZERO, b"late")));
        assert!(a.bounds().is_ok_and(|bounds| bounds.newest == EntryIndex::ZERO));
        assert!(a.bounds().is_ok_and(|bounds| bounds.newest == EntryIndex(1)));
        let rival = b.handle();
        b.queue_fault(SharedFault::Delay { calls: 1 });
        assert!(is_unknown(&b.append(EntryIndex::ZERO, b"late")));
        rival.append(EntryIndex::ZERO, b"rival").unwrap();
        assert_eq!(b.deliver_delayed(), 0);
        assert_eq!(b.entries(), [b"rival"]);
    }

    #[test]
    fn faults_fail_as_they_say() {
        let a = log();
        a.queue_fault(SharedFault::DropRequest);
        a.queue_fault(SharedFault::LoseAnswer);
        assert!(is_unknown(&a.append(EntryIndex::ZERO, b"1")));
        assert!(a.entries().is_empty());
        assert!(is_unknown(&a.append(EntryIndex::ZERO, b"1")));
        a.append(EntryIndex(1), b"2").unwrap();
        a.append(EntryIndex(2), b"3").unwrap();
        a.set_connected(false);
        assert!(matches!(a.bounds(), Err(SharedError::Unavailable { .. })));
        assert!(a.handle().bounds().is_ok(), "another handle is connected");
        a.set_connected(true);
        a.lose_entry(EntryIndex(2));
        assert_eq!(a.read(EntryIndex::ZERO, 100, Duration::ZERO).unwrap().len(), 1);
        assert!(matches!(a.read(EntryIndex(1), 100, Duration::ZERO), Err(SharedError::Lost { .. })));
        a.trim(EntryIndex(3)).unwrap();
        let trimmed = SharedError::Trimmed { oldest: EntryIndex(3) };
        assert_eq!(a.read(EntryIndex(1), 100, Duration::ZERO), Err(trimmed));
        a.lose_newest(1);
        assert!(matches!(a.read(EntryIndex(3), 100, Duration::ZERO), Err(SharedError::Lost { .. })));
        a.create_again(LogId([2; 16]));
        assert_eq!((a.identity().unwrap(), a.newest()), (LogId([2; 16]), EntryIndex::ZERO));
    }

    #[test]
    fn chosen_faults_see_each_call() {
        let a = log();
        a.choose_faults(|call| {
            let stale = SharedFault::StaleBounds { by: 1 };
            (call == SharedCall::Bounds).then_some(stale)
        });
        a.append(EntryIndex::ZERO, b"1").unwrap();
        assert_eq!(a.bounds().unwrap(), SharedBounds { oldest: EntryIndex(1), newest: EntryIndex::ZERO });
    }
}
