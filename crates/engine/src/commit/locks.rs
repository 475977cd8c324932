//! Locks on keys, for transactions that prefer to wait for each other over being rejected at commit.
//!
//!   lock(key) ─▶ free: held ─────────────────────────────▶ commit has its place in the log, or is forgotten ─▶ next in line
//!             └▶ held by another: into the key's queue ─▶ [`LockWait`]: block on it, or await it ─▶ begin the statement again
//!
//! The lock table knows keys, modes and owners, but not what the keys mean. Locks are advisory: commits are
//! validated as usual, and transactions that take no locks neither wait nor appear here (decision 0014).
//!
//! Invariants
//! 1. Holders of one key are compatible with each other, and each waiter is incompatible with a holder or
//!    with an earlier waiter: a queue always moves when holders leave.
//! 2. Waiters never form a cycle: a request that would close one is rejected. Waits begin one at a time, so
//!    the last one sees the cycle.
//! 3. Everything a transaction holds is released with its [`Held`], on every exit path.
//!
//! Source: Gray, Lorie, Putzolu, "Granularity of Locks", 1975; the four modes are PostgreSQL's of rows.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ropewalk_base::hash64;
use ropewalk_base::sync::{AtomicU64, Condvar, Mutex, Ordering};
use ropewalk_store::Keyspace;

const SHARDS: usize = 64;
/// Locks that one transaction may hold: about 200 MB.
pub const LOCKS_MAX: usize = 1 << 20;

/// How much of a key is taken. Each conflicts with everything that the one before conflicts with, and more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockMode {
    /// It must not go away: conflicts with `Update`.
    KeyShare,
    /// It must not change: conflicts with `NoKeyUpdate`, too.
    Share,
    /// It changes, and does not go away: conflicts with all but `KeyShare`.
    NoKeyUpdate,
    /// It may go away: conflicts with all.
    Update,
}

impl LockMode {
    fn conflicts(self, other: Self) -> bool {
        use LockMode::{KeyShare, NoKeyUpdate, Share, Update};
        match self {
            KeyShare => other == Update,
            Share => other >= NoKeyUpdate,
            NoKeyUpdate => other != KeyShare,
            Update => true,
        }
    }
}

/// Owner of locks: the transaction's number, and its caller's label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Owner {
    number: u64,
    label: u32,
}

/// Keyspace and key.
type Target = Arc<[u8]>;

/// Why a lock was not granted at once.
#[derive(Debug)]
pub(crate) enum LockRefusal {
    /// Held by another transaction: the place in its queue.
    Waits(LockWait),
    /// Held by another transaction, and the caller did not want to wait.
    Taken,
    /// Waiting would close a cycle.
    Deadlock,
    /// [`LOCKS_MAX`].
    TooMany,
}

/// Result of a granted lock request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockGrant {
    /// The owner did not hold it before.
    Now,
    /// The owner held it already.
    Already,
}

#[derive(Default)]
struct Entry {
    holders: Vec<(Owner, LockMode)>,
    queue: VecDeque<Arc<Waiter>>,
}

#[derive(Debug)]
struct Waiter {
    owner: Owner,
    mode: LockMode,
    target: Target,
    state: Mutex<WaitState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WaitState {
    is_granted: bool,
    is_nudged: bool,
    waker: Option<Waker>,
}

impl Waiter {
    fn change(&self, change: impl FnOnce(&mut WaitState)) {
        let waker = {
            let mut state = self.state.lock();
            change(&mut state);
            state.waker.take()
        };
        self.changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Entry {
    /// True when `owner` may hold the key in `mode` together with the holders and the first `ahead` waiters.
    fn is_free(&self, owner: Owner, mode: LockMode, ahead: usize) -> bool {
        let clash = |other: Owner, held: LockMode| other != owner && mode.conflicts(held);
        let held = self.holders.iter().any(|(other, held)| clash(*other, *held));
        // An owner that holds the key in a weaker mode goes before the waiters: they wait for it.
        let holds = self.holders.iter().any(|(other, _)| *other == owner);
        let waits = !holds && self.queue.iter().take(ahead).any(|waiter| clash(waiter.owner, waiter.mode));
        !held && !waits
    }

    /// Checks invariant 1. As expensive as [`Entry::grant`].
    fn check(&self) {
        for (at, waiter) in self.queue.iter().enumerate() {
            assert!(!self.is_free(waiter.owner, waiter.mode, at), "a waiter that need not wait: {waiter:?}");
        }
        if let Some((owner, mode)) = self.holders.last() {
            let clashes = |(other, held): &(Owner, LockMode)| other != owner && mode.conflicts(*held);
            assert!(!self.holders.iter().any(clashes), "{owner:?} holds a lock in conflict with another");
        }
    }

    /// Grants the lock to the waiters at the front that are compatible with the holders.
    fn grant(&mut self, granted: &mut Vec<Arc<Waiter>>) {
        let mut at = 0;
        while let Some(waiter) = self.queue.get(at) {
            if self.is_free(waiter.owner, waiter.mode, at) {
                self.holders.push((waiter.owner, waiter.mode));
                granted.extend(self.queue.remove(at));
            } else {
                at += 1;
            }
        }
    }
}

/// A transaction that holds a lock, or waits for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockHolder {
    /// Number of the transaction's locks.
    pub owner: u64,
    /// The caller's label for the transaction; 0 when it gave none.
    pub label: u32,
    /// Keyspace of the key.
    pub keyspace: Keyspace,
    /// The locked key.
    pub key: Vec<u8>,
    /// Lock mode.
    pub mode: LockMode,
    /// False while it waits.
    pub is_granted: bool,
}

/// The locks of an engine.
pub(crate) struct Locks {
    shards: Box<[Shard]>,
    /// The key that each waiting owner waits for. Locked while a wait begins (invariant 2).
    waiting: Mutex<HashMap<Owner, Target>>,
    owners: AtomicU64,
}

/// Aligned to separate cache lines, so that shards do not share one.
#[derive(Default)]
#[repr(align(128))]
struct Shard(Mutex<HashMap<Target, Entry>>);

impl Default for Locks {
    fn default() -> Self {
        Self {
            shards: std::iter::repeat_with(Shard::default).take(SHARDS).collect(),
            waiting: Mutex::default(),
            owners: AtomicU64::new(1),
        }
    }
}

impl Locks {
    fn shard(&self, target: &[u8]) -> &Mutex<HashMap<Target, Entry>> {
        let number = hash64(target) as usize % SHARDS;
        &self.shards.get(number).expect("there are that many shards").0
    }

    fn begin_to_wait(
        self: &Arc<Self>,
        owner: Owner,
        target: &Target,
        mode: LockMode,
    ) -> Result<(), LockRefusal> {
        let mut waiting = self.waiting.lock();
        let waiter = {
            let mut shard = self.shard(target).lock();
            let entry = shard.entry(target.clone()).or_default();
            if entry.is_free(owner, mode, entry.queue.len()) {
                entry.holders.push((owner, mode));
                return Ok(());
            }
            let (state, changed) = (Mutex::default(), Condvar::new());
            let waiter = Arc::new(Waiter { owner, mode, target: target.clone(), state, changed });
            // The others wait for an owner that holds the key already: after them it would wait for itself.
            match entry.holders.iter().any(|(holder, _)| *holder == owner) {
                true => entry.queue.push_front(waiter.clone()),
                false => entry.queue.push_back(waiter.clone()),
            }
            waiter
        };
        waiting.insert(owner, target.clone());
        let is_circle = self.closes_circle(&waiting, owner, target);
        drop(waiting);
        let wait = LockWait { locks: self.clone(), waiter };
        Err(if is_circle { LockRefusal::Deadlock } else { LockRefusal::Waits(wait) })
    }

    /// True when an owner that `owner` waits for waits, directly or through others, for `owner`.
    fn closes_circle(&self, waiting: &HashMap<Owner, Target>, owner: Owner, target: &Target) -> bool {
        let mut seen: HashSet<Owner> = HashSet::new();
        // Queue place and mode up to which each key was examined: a waiter ahead of that place with no
        // stronger mode waits for no further owners.
        let mut looked: HashMap<Target, (usize, LockMode)> = HashMap::new();
        let mut next = vec![(owner, target.clone())];
        while let Some((waiter, target)) = next.pop() {
            let shard = self.shard(&target).lock();
            // The wait was given up meanwhile, and no other lock names the key.
            let Some(entry) = shard.get(&target) else { continue };
            // An owner that is no longer in the queue has been granted the lock.
            let mut queue = entry.queue.iter().enumerate();
            let Some((place, found)) = queue.find(|(_, other)| other.owner == waiter) else { continue };
            let mode = found.mode;
            if looked.get(&target).is_some_and(|(at, most)| *at >= place && *most >= mode) {
                continue;
            }
            looked.insert(target.clone(), (place, mode));
            let ahead = entry.queue.iter().take(place).map(|other| (other.owner, other.mode));
            for (other, held) in entry.holders.iter().copied().chain(ahead) {
                if other == waiter || !mode.conflicts(held) {
                    continue;
                }
                if other == owner {
                    return true;
                }
                if seen.insert(other)
                    && let Some(target) = waiting.get(&other)
                {
                    next.push((other, target.clone()));
                }
            }
        }
        false
    }

    /// Changes a key's entry, and wakes those who have it then.
    fn leave(&self, target: &Target, change: impl FnOnce(&mut Entry)) {
        let mut granted = Vec::new();
        {
            let mut shard = self.shard(target).lock();
            // Without holders and waiters: the wait of the last one to name the key has ended.
            let Some(entry) = shard.get_mut(target) else { return };
            change(entry);
            if !entry.queue.is_empty() {
                entry.grant(&mut granted);
            }
            if cfg!(debug_assertions) {
                entry.check();
            }
            if entry.holders.is_empty() && entry.queue.is_empty() {
                shard.remove(target);
            }
        }
        for waiter in granted {
            waiter.change(|state| state.is_granted = true);
        }
    }

    /// All granted and waiting locks, unordered. For diagnostics: read shard by shard, not at one instant.
    pub(crate) fn list(&self) -> Vec<LockHolder> {
        let mut all = Vec::new();
        for shard in &self.shards {
            for (target, entry) in shard.0.lock().iter() {
                let (keyspace, key) = target.split_first_chunk().expect("a target starts with its keyspace");
                let keyspace = Keyspace(u16::from_le_bytes(*keyspace));
                let one = |owner: Owner, mode, is_granted| LockHolder {
                    owner: owner.number,
                    label: owner.label,
                    keyspace,
                    key: key.to_vec(),
                    mode,
                    is_granted,
                };
                all.extend(entry.holders.iter().map(|(owner, mode)| one(*owner, *mode, true)));
                all.extend(entry.queue.iter().map(|waiter| one(waiter.owner, waiter.mode, false)));
            }
        }
        all
    }
}

/// Locks of one transaction. Dropping it releases all of them.
pub(crate) struct Held {
    locks: Arc<Locks>,
    owner: Owner,
    all: Vec<(Target, LockMode)>,
    name: Vec<u8>,
}

impl Held {
    pub(crate) fn new(locks: &Arc<Locks>, label: u32) -> Self {
        let owner = Owner { number: locks.owners.fetch_add(1, Ordering::Relaxed), label };
        Self { locks: locks.clone(), owner, all: Vec::new(), name: Vec::new() }
    }

    /// How much it holds: a mark for [`Held::release_since`].
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Takes a lock on a key. After [`LockRefusal::Waits`] the lock is held once the wait reports that it was
    /// granted.
    pub(crate) fn take(
        &mut self,
        keyspace: Keyspace,
        key: &[u8],
        mode: LockMode,
        waits: bool,
    ) -> Result<LockGrant, LockRefusal> {
        self.name.clear();
        self.name.extend_from_slice(&keyspace.0.to_le_bytes());
        self.name.extend_from_slice(key);
        let owner = self.owner;
        let target: Target = {
            let mut shard = self.locks.shard(&self.name).lock();
            match shard.get_mut(self.name.as_slice()) {
                Some(entry) => {
                    if entry.holders.iter().any(|(holder, held)| *holder == owner && *held >= mode) {
                        return Ok(LockGrant::Already);
                    }
                    if self.all.len() >= LOCKS_MAX {
                        return Err(LockRefusal::TooMany);
                    }
                    let target: Target = Arc::from(self.name.as_slice());
                    if entry.is_free(owner, mode, entry.queue.len()) {
                        entry.holders.push((owner, mode));
                        drop(shard);
                        self.all.push((target, mode));
                        return Ok(LockGrant::Now);
                    }
                    target
                }
                None => {
                    if self.all.len() >= LOCKS_MAX {
                        return Err(LockRefusal::TooMany);
                    }
                    let target: Target = Arc::from(self.name.as_slice());
                    let entry = Entry { holders: vec![(owner, mode)], queue: VecDeque::new() };
                    shard.insert(target.clone(), entry);
                    drop(shard);
                    self.all.push((target, mode));
                    return Ok(LockGrant::Now);
                }
            }
        };
        if !waits {
            return Err(LockRefusal::Taken);
        }
        // Recorded before it is granted, so that it is released however the wait ends.
        self.all.push((target.clone(), mode));
        let locks = self.locks.clone();
        locks.begin_to_wait(owner, &target, mode).map(|()| LockGrant::Now)
    }

    /// Releases the locks taken since the owner held `mark` of them.
    pub(crate) fn release_since(&mut self, mark: usize) {
        let owner = self.owner;
        while self.all.len() > mark {
            let (target, mode) = self.all.pop().expect("more locks than the mark");
            let mut given_up = None;
            self.locks.leave(&target, |entry| {
                let held = entry.holders.iter().position(|holder| *holder == (owner, mode));
                if let Some(place) = held {
                    entry.holders.swap_remove(place);
                } else {
                    // The wait for it ended without the lock. Or it lasts: granted later, the lock would never be
                    // released.
                    let waits = |waiter: &Arc<Waiter>| waiter.owner == owner && waiter.mode == mode;
                    given_up = entry.queue.iter().position(waits).and_then(|place| entry.queue.remove(place));
                }
            });
            if let Some(waiter) = given_up {
                waiter.change(|state| state.is_nudged = true);
            }
        }
    }

    /// Checks that no lock on `target` is left (invariant 3).
    fn check_released(&self, target: &Target) {
        let shard = self.locks.shard(target).lock();
        let Some(entry) = shard.get(target) else { return };
        assert!(entry.holders.iter().all(|(holder, _)| *holder != self.owner), "a released lock is held");
        assert!(entry.queue.iter().all(|waiter| waiter.owner != self.owner), "a released lock is awaited");
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let all = if cfg!(debug_assertions) { self.all.clone() } else { Vec::new() };
        self.release_since(0);
        all.iter().for_each(|(target, _)| self.check_released(target));
    }
}

/// A place in the queue for a key. It resolves when the lock is granted or the wait is
/// [woken](LockWait::waker). Dropping it earlier gives up the place.
pub struct LockWait {
    locks: Arc<Locks>,
    waiter: Arc<Waiter>,
}

impl std::fmt::Debug for LockWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LockWait({:?})", self.waiter.mode)
    }
}

/// Ends a [`LockWait`] early, from any thread.
#[derive(Debug, Clone)]
pub struct LockWaitWaker(Arc<Waiter>);

impl LockWaitWaker {
    /// Wakes the waiter, whether it has the lock or not.
    pub fn wake(&self) {
        self.0.change(|state| state.is_nudged = true);
    }
}

impl LockWait {
    /// True once the key is had.
    pub fn is_granted(&self) -> bool {
        self.waiter.state.lock().is_granted
    }

    /// A handle with which another task may end the wait.
    pub fn waker(&self) -> LockWaitWaker {
        LockWaitWaker(self.waiter.clone())
    }

    /// Blocks until the lock is granted, the wait is nudged, or the timeout expires; true when the lock is
    /// granted.
    pub fn block(&self, timeout: Option<Duration>) -> bool {
        let mut state = self.waiter.state.lock();
        while !state.is_granted && !state.is_nudged {
            match timeout {
                None => self.waiter.changed.wait(&mut state),
                Some(timeout) => {
                    if self.waiter.changed.wait_for(&mut state, timeout).timed_out() {
                        break;
                    }
                }
            }
        }
        state.is_granted
    }
}

impl Future for &LockWait {
    type Output = bool;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        let mut state = self.waiter.state.lock();
        if state.is_granted || state.is_nudged {
            return Poll::Ready(state.is_granted);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for LockWait {
    fn drop(&mut self) {
        let waiter = &self.waiter;
        self.locks.waiting.lock().remove(&waiter.owner);
        if !self.is_granted() {
            self.locks.leave(&waiter.target, |entry| entry.queue.retain(|other| !Arc::ptr_eq(other, waiter)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: Keyspace = Keyspace(7);

    fn take(held: &mut Held, key: &str, mode: LockMode) -> Result<LockGrant, LockRefusal> {
        held.take(SPACE, key.as_bytes(), mode, true)
    }

    fn wait(result: Result<LockGrant, LockRefusal>) -> LockWait {
        match result {
            Err(LockRefusal::Waits(wait)) => wait,
            other => panic!("expected a wait, not {other:?}"),
        }
    }

    #[test]
    fn modes_conflict_as_postgresql_says() {
        use LockMode::{KeyShare, NoKeyUpdate, Share, Update};
        let table = [
            (KeyShare, [false, false, false, true]),
            (Share, [false, false, true, true]),
            (NoKeyUpdate, [false, true, true, true]),
            (Update, [true, true, true, true]),
        ];
        for (mode, row) in table {
            let found = [KeyShare, Share, NoKeyUpdate, Update].map(|other| mode.conflicts(other));
            assert_eq!(found, row, "{mode:?}");
        }
    }

    #[test]
    fn a_queue_is_served_in_order_and_the_table_is_empty_at_the_end() {
        let locks = Arc::new(Locks::default());
        let (mut a, mut b, mut c) = (Held::new(&locks, 0), Held::new(&locks, 0), Held::new(&locks, 0));
        assert_eq!(take(&mut a, "k", LockMode::Update).unwrap(), LockGrant::Now);
        assert_eq!(take(&mut a, "k", LockMode::Share).unwrap(), LockGrant::Already);
        let (second, third) =
            (wait(take(&mut b, "k", LockMode::Update)), wait(take(&mut c, "k", LockMode::Share)));
        assert!(matches!(c.take(SPACE, b"k", LockMode::KeyShare, false), Err(LockRefusal::Taken)));
        drop(a);
        assert!(second.block(None) && !third.is_granted());
        drop(second);
        drop(b);
        assert!(third.block(None));
        drop((third, c));
        assert!(locks.list().is_empty() && locks.waiting.lock().is_empty());
    }

    #[test]
    fn shared_locks_coexist_and_last_release_grants_exclusive() {
        let locks = Arc::new(Locks::default());
        let (mut a, mut b, mut writer) = (Held::new(&locks, 0), Held::new(&locks, 0), Held::new(&locks, 0));
        take(&mut a, "k", LockMode::KeyShare).unwrap();
        take(&mut b, "k", LockMode::KeyShare).unwrap();
        assert_eq!(take(&mut writer, "k", LockMode::NoKeyUpdate).unwrap(), LockGrant::Now);
        let wait = wait(take(&mut writer, "k", LockMode::Update));
        drop(a);
        assert!(!wait.is_granted());
        drop(b);
        assert!(wait.is_granted());
    }

    #[test]
    fn lock_request_that_closes_a_cycle_is_refused() {
        let locks = Arc::new(Locks::default());
        let mut all: Vec<Held> = (0..3).map(|_| Held::new(&locks, 0)).collect();
        for (number, held) in all.iter_mut().enumerate() {
            take(held, &number.to_string(), LockMode::Update).unwrap();
        }
        let _first = wait(take(&mut all[0], "1", LockMode::Update));
        let _second = wait(take(&mut all[1], "2", LockMode::Update));
        assert!(matches!(take(&mut all[2], "0", LockMode::Update), Err(LockRefusal::Deadlock)));
        // Two owners share the lock, and both request a stronger mode.
        let (mut a, mut b) = (Held::new(&locks, 0), Held::new(&locks, 0));
        take(&mut a, "s", LockMode::Share).unwrap();
        take(&mut b, "s", LockMode::Share).unwrap();
        let _third = wait(take(&mut a, "s", LockMode::Update));
        assert!(matches!(take(&mut b, "s", LockMode::Update), Err(LockRefusal::Deadlock)));
    }

    #[test]
    fn abandoned_wait_grants_lock_to_next_waiter() {
        let locks = Arc::new(Locks::default());
        let (mut a, mut b, mut c) = (Held::new(&locks, 0), Held::new(&locks, 0), Held::new(&locks, 0));
        take(&mut a, "k", LockMode::Share).unwrap();
        let given_up = wait(take(&mut b, "k", LockMode::Update));
        let next = wait(take(&mut c, "k", LockMode::Share));
        given_up.waker().wake();
        assert!(!given_up.block(None));
        drop(given_up);
        assert!(next.is_granted());
        b.release_since(0);
        assert_eq!(locks.list().len(), 2);
    }

    #[test]
    fn wait_that_outlives_its_transaction_is_never_granted() {
        let locks = Arc::new(Locks::default());
        let (mut a, mut b) = (Held::new(&locks, 0), Held::new(&locks, 0));
        take(&mut a, "k", LockMode::Update).unwrap();
        let late = wait(take(&mut b, "k", LockMode::Update));
        drop(b);
        drop(a);
        assert!(!late.block(None), "no transaction would release the lock");
        drop(late);
        assert!(locks.list().is_empty() && locks.waiting.lock().is_empty());
    }

    #[test]
    fn many_threads_count_without_losing_one() {
        let locks = Arc::new(Locks::default());
        let count = Mutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let mut held = Held::new(&locks, 0);
                        match take(&mut held, "k", LockMode::Update) {
                            Ok(_) => {}
                            Err(LockRefusal::Waits(wait)) => assert!(wait.block(None)),
                            Err(other) => panic!("{other:?}"),
                        }
                        *count.try_lock().expect("one at a time") += 1;
                    }
                });
            }
        });
        assert_eq!(*count.lock(), 4_000);
        assert!(locks.list().is_empty());
    }
}
