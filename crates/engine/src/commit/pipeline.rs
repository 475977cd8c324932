//! Group commit: many committers, one `fdatasync`, no timer and, for a lone writer, no thread hop.
//!
//!   commit() ─▶ queue ─▶ a leader takes all ─▶ sequence ─┬─▶ settle (write, sync, publish) ─▶ wake the group
//!                                                         └─▶ the next leader sequences the next group meanwhile
//!
//! A committer that finds no leader leads. A leader that finds a sync running sequences the queue
//! (overlapping the sync), waits for the sync to end, sequences what came since, lets the next leader go
//! ahead, and settles all of it. A request that others wait for is sequenced at once by its caller; the next
//! leader settles it.
//!
//! Invariants
//! 1. `Stage::sequence` runs in one thread at a time, and groups settle in the order in which they were sequenced.
//! 2. A request gets its result only after the settle that covers it, also when it was rejected: the reason
//!    may depend on commits that were not durable yet.
//! 3. There is at most one leader until it settles. A request that is queued, or sequenced and not settled,
//!    is always taken by a later leader: leadership is given up only in the critical section that found the
//!    queue empty and took what was sequenced, or to the serving thread, which is woken.
//! 4. A panic of a stage stops the stage, not the pipeline: every request of the group is refused, and so are
//!    later ones.
//! 5. The one exception is a lone request that is to be awaited: it is left in the queue for its handle,
//!    which wakes the serving thread when it is polled or dropped, or leads. A committer that comes meanwhile
//!    leads and takes it along.
//!
//! Not here: sequencing and settling themselves (`commit`). Source: group commit, DeWitt et al., SIGMOD 1984.

use std::future::Future;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ropewalk_base::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering, WakeWord};
use ropewalk_base::threads::panic_text;

/// A group this large is settled before more is taken, so that one group's latency stays bounded.
const GROUP_BYTES_MAX: usize = 8 << 20;
/// Requests and bytes that may queue before a submitter waits.
const QUEUE_LEN_MAX: usize = 64 << 10;
const QUEUE_BYTES_MAX: usize = 64 << 20;

/// The two steps that the pipeline drives.
pub(crate) trait Stage: Send + Sync {
    type Request: Send;
    type Outcome: Send;
    /// The durability that a group requires from settling.
    type Ticket: Default + Send;

    /// Decides and numbers `requests`, in order; returns one outcome for each.
    fn sequence(&self, requests: Vec<Self::Request>, ticket: &mut Self::Ticket) -> Vec<Self::Outcome>;
    /// Makes the group as durable as it requires and publishes it. False on failure.
    fn settle(&self, ticket: Self::Ticket) -> bool;
    /// A stage panicked: from now on every request is refused with `cause`.
    fn stop(&self, cause: &str);
    /// The outcome of a request whose group did not settle; `outcome` is what sequencing has decided, if it has.
    fn failure(&self, outcome: Option<Self::Outcome>) -> Self::Outcome;
}

/// A lock that one thread has at a time. Waiters sleep at once: a sync takes far longer than spinning would,
/// and a thread that yields while it spins costs the others a context switch each time.
#[derive(Default)]
struct Turn {
    taken: Mutex<bool>,
    free: Condvar,
}

impl Turn {
    fn try_take(&self) -> Option<Taken<'_>> {
        let was_taken = mem::replace(&mut *self.taken.lock(), true);
        (!was_taken).then(|| Taken(self))
    }

    fn take(&self) -> Taken<'_> {
        let mut taken = self.taken.lock();
        while *taken {
            self.free.wait(&mut taken);
        }
        *taken = true;
        Taken(self)
    }
}

/// Releases the turn when it is dropped.
struct Taken<'t>(&'t Turn);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let was_taken = mem::replace(&mut *self.0.taken.lock(), false);
        debug_assert!(was_taken, "one thread has a turn, and gives it back once");
        self.0.free.notify_one();
    }
}

struct Entry<S: Stage> {
    request: S::Request,
    bytes: usize,
    slot: Arc<Slot<S::Outcome>>,
}

struct Slot<O> {
    done: AtomicBool,
    outcome: Mutex<Option<O>>,
}

/// The requests taken from the queue together; all of them sleep on one word.
#[derive(Default)]
struct Group {
    word: WakeWord,
    wakers: Mutex<Vec<Waker>>,
}

struct Queue<S: Stage> {
    pending: Vec<Entry<S>>,
    bytes: usize,
    group: Arc<Group>,
    leading: bool,
    /// Number of consecutive groups with at most one request. After a few of them the next request probably
    /// has no others to share a group with, either.
    alone: u32,
    /// True when a request is sequenced and no leader settles it yet.
    unsettled: bool,
    /// Threads waiting for room.
    blocked: usize,
}

impl<S: Stage> Queue<S> {
    fn is_full(&self) -> bool {
        self.leading && (self.pending.len() >= QUEUE_LEN_MAX || self.bytes >= QUEUE_BYTES_MAX)
    }
}

/// The queue and the two stages. Shared by every committer.
pub(crate) struct Pipeline<S: Stage> {
    stage: S,
    queue: Mutex<Queue<S>>,
    room: Condvar,
    /// Sequenced requests that are not settled yet, in order. Locked while sequencing (invariant 1).
    order: Mutex<Sequenced<S>>,
    /// Held while settling.
    settling: Turn,
    /// Set when a helper thread serves submitted requests; without it a waiter leads.
    served: AtomicBool,
    serve: WakeWord,
    closing: AtomicBool,
    /// Number of consecutive groups of one after which the next request counts as lone.
    lone_after: u32,
}

/// Destination of each result of a group.
type Answers<T> = Vec<(Arc<Slot<T>>, T)>;

struct Sequenced<S: Stage> {
    ticket: S::Ticket,
    answers: Answers<S::Outcome>,
    groups: Vec<Arc<Group>>,
}

impl<S: Stage> Default for Sequenced<S> {
    fn default() -> Self {
        Self { ticket: S::Ticket::default(), answers: Vec::new(), groups: Vec::new() }
    }
}

/// When a request is sequenced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// With its group.
    Shared,
    /// At once: others wait for its place in the order.
    AtOnce,
}

impl<S: Stage> Pipeline<S> {
    pub(crate) fn new(stage: S, lone_after: u32) -> Self {
        Self {
            stage,
            queue: Mutex::new(Queue {
                pending: Vec::new(),
                bytes: 0,
                group: Arc::default(),
                leading: false,
                alone: 0,
                unsettled: false,
                blocked: 0,
            }),
            room: Condvar::default(),
            order: Mutex::default(),
            settling: Turn::default(),
            served: AtomicBool::new(false),
            serve: WakeWord::default(),
            closing: AtomicBool::new(false),
            lone_after,
        }
    }

    /// Queues a request of about `bytes` bytes and waits for its result; the caller leads if there is no
    /// leader.
    pub(crate) fn commit(self: &Arc<Self>, request: S::Request, bytes: usize, pace: Pace) -> S::Outcome {
        let (handle, lead) = self.enqueue(request, bytes);
        if lead {
            self.lead();
        } else if pace == Pace::AtOnce {
            self.sequence_pending();
        }
        handle.wait()
    }

    /// Queues a request and returns at once, unless the queue is full. The handle is waited on or awaited.
    pub(crate) fn submit(self: &Arc<Self>, request: S::Request, bytes: usize) -> Handle<S> {
        let (handle, lead) = self.enqueue(request, bytes);
        if lead {
            // The serving thread takes it from here; without one, the first to wait or `drive` will.
            self.hand_over();
        }
        handle
    }

    /// As [`Pipeline::submit`], but never blocks: `None` while the queue is full. A lone request is left to
    /// its handle.
    pub(crate) fn try_submit(
        self: &Arc<Self>,
        request: S::Request,
        bytes: usize,
        pace: Pace,
    ) -> Option<Handle<S>> {
        let queue = self.queue.lock();
        if queue.is_full() {
            return None;
        }
        let lone = queue.alone >= self.lone_after && queue.pending.is_empty() && !queue.unsettled;
        let idle = !queue.leading;
        let mut handle = self.push(queue, request, bytes);
        if pace == Pace::AtOnce {
            self.sequence_pending();
        }
        if idle && lone {
            handle.left = self.served.load(Ordering::Acquire);
        } else if idle {
            self.wake_serving();
        }
        Some(handle)
    }

    fn hand_over(&self) {
        let was_leading = mem::replace(&mut self.queue.lock().leading, false);
        debug_assert!(was_leading, "only the leader gives up the leadership");
        self.wake_serving();
    }

    /// Wakes the serving thread, if there is one, to check the queue.
    fn wake_serving(&self) {
        if self.served.load(Ordering::Acquire) {
            self.serve.wake_all();
        }
    }

    /// Leads until the queue is empty; for callers without a serving thread.
    pub(crate) fn drive(&self) {
        while self.take_lead() {
            self.lead();
        }
    }

    fn take_lead(&self) -> bool {
        let mut queue = self.queue.lock();
        let lead = !queue.leading && (queue.unsettled || !queue.pending.is_empty());
        queue.leading |= lead;
        lead
    }

    fn enqueue(self: &Arc<Self>, request: S::Request, bytes: usize) -> (Handle<S>, bool) {
        let mut queue = self.queue.lock();
        while queue.is_full() {
            queue.blocked += 1;
            self.room.wait(&mut queue);
            queue.blocked -= 1;
        }
        let lead = !mem::replace(&mut queue.leading, true);
        (self.push(queue, request, bytes), lead)
    }

    fn push(
        self: &Arc<Self>,
        mut queue: MutexGuard<'_, Queue<S>>,
        request: S::Request,
        bytes: usize,
    ) -> Handle<S> {
        let slot = Arc::new(Slot { done: AtomicBool::new(false), outcome: Mutex::new(None) });
        queue.pending.push(Entry { request, bytes, slot: slot.clone() });
        queue.bytes += bytes;
        let group = queue.group.clone();
        Handle { slot, group, pipeline: self.clone(), left: false }
    }

    /// Runs one group through both stages. The caller holds the leadership.
    fn lead(&self) {
        loop {
            let settling = match self.settling.try_take() {
                Some(taken) => taken,
                None => {
                    self.sequence_pending();
                    self.settling.take()
                }
            };
            let (mut taken, more) = self.take_sequenced();
            let ticket = mem::take(&mut taken.ticket);
            let settled = self.guarded("settling", || self.stage.settle(ticket)).unwrap_or(false);
            drop(settling);
            self.answer(taken, settled);
            if !more {
                return;
            }
            if self.served.load(Ordering::Acquire) {
                // A client should not work for others without end: the serving thread continues.
                self.hand_over();
                return;
            }
        }
    }

    /// Sequences the queued requests.
    fn sequence_pending(&self) {
        self.sequence_into(&mut self.order.lock(), false);
    }

    /// Sequences the queue and takes everything that is to be settled. Gives up the leadership if that
    /// empties the queue; returns true otherwise.
    fn take_sequenced(&self) -> (Sequenced<S>, bool) {
        let mut order = self.order.lock();
        let more = self.sequence_into(&mut order, true);
        (mem::take(&mut *order), more)
    }

    /// Takes the queued requests and sequences them. With `settles` the caller settles them and all that was
    /// sequenced before, and gives up the leadership if the queue is empty then; returns true otherwise.
    fn sequence_into(&self, sequenced: &mut Sequenced<S>, settles: bool) -> bool {
        let (entries, more) = {
            let mut queue = self.queue.lock();
            debug_assert!(!settles || queue.leading, "only the leader settles");
            let mut bytes = 0;
            let fits = queue.pending.iter().position(|entry| {
                bytes += entry.bytes;
                bytes > GROUP_BYTES_MAX
            });
            // The entry that crosses the line still goes with this group, so that each group has at least one.
            let count = fits.map_or(queue.pending.len(), |at| at + 1);
            let rest = queue.pending.split_off(count);
            let entries = mem::replace(&mut queue.pending, rest);
            queue.bytes = queue.pending.iter().map(|entry| entry.bytes).sum();
            let more = !queue.pending.is_empty();
            if !entries.is_empty() {
                let group = if more { queue.group.clone() } else { mem::take(&mut queue.group) };
                sequenced.groups.push(group);
                queue.unsettled = true;
            }
            debug_assert_eq!(
                sequenced.answers.is_empty() && entries.is_empty(),
                sequenced.groups.is_empty(),
                "a group wakes each request that is not settled"
            );
            if settles {
                queue.unsettled = false;
                queue.leading = more;
                let is_alone = sequenced.answers.len() + entries.len() <= 1;
                queue.alone = if is_alone { queue.alone.saturating_add(1) } else { 0 };
            }
            if queue.blocked > 0 {
                self.room.notify_all();
            }
            (entries, more)
        };
        if !entries.is_empty() {
            let (slots, requests): (Vec<_>, Vec<_>) =
                entries.into_iter().map(|e| (e.slot, e.request)).unzip();
            let ticket = &mut sequenced.ticket;
            let outcomes = self.guarded("sequencing", || self.stage.sequence(requests, ticket));
            let outcomes =
                outcomes.unwrap_or_else(|| slots.iter().map(|_| self.stage.failure(None)).collect());
            assert_eq!(slots.len(), outcomes.len(), "a stage answers each request once");
            sequenced.answers.extend(slots.into_iter().zip(outcomes));
        }
        more
    }

    /// Runs a stage; `None` when it panicked. Unwinding through the pipeline would leave the group without a
    /// result and the leadership with a thread that no longer exists.
    fn guarded<T>(&self, during: &str, stage: impl FnOnce() -> T) -> Option<T> {
        // Unwind safety: the stage that panicked refuses everything from here on, so its state is not used again.
        match catch_unwind(AssertUnwindSafe(stage)) {
            Ok(done) => Some(done),
            Err(panic) => {
                let text = panic_text(&*panic).unwrap_or("no message");
                self.stage.stop(&format!("panic during {during}: {text}"));
                None
            }
        }
    }

    fn answer(&self, taken: Sequenced<S>, settled: bool) {
        for (slot, outcome) in taken.answers {
            let outcome = if settled { outcome } else { self.stage.failure(Some(outcome)) };
            let earlier = slot.outcome.lock().replace(outcome);
            debug_assert!(earlier.is_none(), "a request has one result");
            slot.done.store(true, Ordering::Release);
        }
        for group in taken.groups {
            group.word.wake_all();
            for waker in mem::take(&mut *group.wakers.lock()) {
                waker.wake();
            }
        }
    }

    /// Serves submitted requests until [`Pipeline::close`]; the body of the committer thread.
    pub(crate) fn serve(&self) {
        self.served.store(true, Ordering::Release);
        loop {
            let epoch = self.serve.epoch();
            if self.closing.load(Ordering::Acquire) {
                return;
            }
            if self.take_lead() {
                self.lead();
            } else {
                self.serve.wait(epoch);
            }
        }
    }

    /// Handles the requests still queued after [`Pipeline::close`], when the serving thread has ended.
    pub(crate) fn finish(&self) {
        self.drive();
    }

    /// Ends [`Pipeline::serve`].
    pub(crate) fn close(&self) {
        self.served.store(false, Ordering::Release);
        self.closing.store(true, Ordering::Release);
        self.serve.wake_all();
    }
}

/// A submitted request. Dropping the handle does not cancel the request.
pub(crate) struct Handle<S: Stage> {
    slot: Arc<Slot<S::Outcome>>,
    group: Arc<Group>,
    pipeline: Arc<Pipeline<S>>,
    /// No thread was notified of the request yet (invariant 5).
    left: bool,
}

impl<S: Stage> Handle<S> {
    pub(crate) fn wait(mut self) -> S::Outcome {
        self.lead();
        loop {
            let epoch = self.group.word.epoch();
            if let Some(outcome) = self.take() {
                return outcome;
            }
            if !self.pipeline.served.load(Ordering::Acquire) && self.pipeline.take_lead() {
                self.pipeline.lead();
            } else {
                self.group.word.wait(epoch);
            }
        }
    }

    /// True for a request that no other thread works on yet: [`Handle::lead`] would complete it.
    pub(crate) fn is_left(&self) -> bool {
        self.left && !self.slot.done.load(Ordering::Acquire)
    }

    /// Completes, in this thread, a request that was left to this handle; does nothing for any other.
    pub(crate) fn lead(&mut self) {
        // If another thread leads by now, it takes the request along.
        if mem::take(&mut self.left) && self.pipeline.take_lead() {
            self.pipeline.lead();
        }
    }

    /// Leaves the request to the serving thread.
    fn leave(&mut self) {
        if mem::take(&mut self.left) && !self.slot.done.load(Ordering::Acquire) {
            self.pipeline.wake_serving();
        }
    }

    /// The outcome, once it is available; returned only once.
    pub(crate) fn take(&mut self) -> Option<S::Outcome> {
        self.leave();
        if self.slot.done.load(Ordering::Acquire) { self.slot.outcome.lock().take() } else { None }
    }
}

impl<S: Stage> Drop for Handle<S> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<S: Stage> Future for Handle<S> {
    type Output = S::Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<S::Outcome> {
        if let Some(outcome) = self.take() {
            return Poll::Ready(outcome);
        }
        self.group.wakers.lock().push(context.waker().clone());
        // The group may have been completed between the check and the push.
        self.take().map_or(Poll::Pending, Poll::Ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers requests and records what settled, so that a broken order or a lost result is detected.
    #[derive(Default)]
    struct Counting {
        sequenced: Mutex<u64>,
        settled: Mutex<u64>,
        settling: Mutex<()>,
    }

    impl Stage for Counting {
        type Request = ();
        type Outcome = u64;
        type Ticket = u64;

        fn sequence(&self, requests: Vec<()>, ticket: &mut u64) -> Vec<u64> {
            let mut last = self.sequenced.try_lock().expect("one sequencer at a time");
            let first = *last + 1;
            *last += requests.len() as u64;
            *ticket = *last;
            (first..=*last).collect()
        }

        fn settle(&self, ticket: u64) -> bool {
            let alone = self.settling.try_lock().expect("one settles at a time");
            // A sync takes time: other requests arrive meanwhile.
            #[cfg(shuttle)]
            ::shuttle::thread::yield_now();
            let mut settled = self.settled.lock();
            if ticket > 0 {
                assert!(ticket > *settled, "groups settle in the order in which they were sequenced");
                *settled = ticket;
            }
            drop(alone);
            true
        }

        fn stop(&self, cause: &str) {
            panic!("this stage does not panic, yet {cause}");
        }

        fn failure(&self, _outcome: Option<u64>) -> u64 {
            0
        }
    }

    fn commit(pipeline: &Arc<Pipeline<Counting>>) -> u64 {
        let number = pipeline.commit((), 1, Pace::Shared);
        assert!(*pipeline.stage.settled.lock() >= number, "answered before it settled");
        number
    }

    fn numbers_are_complete(mut numbers: Vec<u64>) {
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    }

    #[cfg(shuttle)]
    mod shuttle {
        use super::*;
        use ::shuttle::{check_random, thread};

        /// Runs `work` next to a thread that serves a pipeline; returns the pipeline after its end.
        fn served<T>(work: impl FnOnce(&Arc<Pipeline<Counting>>) -> T) -> (Arc<Pipeline<Counting>>, T) {
            let pipeline = Arc::new(Pipeline::new(Counting::default(), 1));
            let server = {
                let pipeline = pipeline.clone();
                thread::spawn(move || pipeline.serve())
            };
            let done = work(&pipeline);
            pipeline.close();
            server.join().unwrap();
            pipeline.finish();
            (pipeline, done)
        }

        #[test]
        fn committers_share_groups_without_losing_a_result() {
            check_random(
                || {
                    let pipeline = Arc::new(Pipeline::new(Counting::default(), 1));
                    let threads: Vec<_> = (0..4)
                        .map(|_| {
                            let pipeline = pipeline.clone();
                            thread::spawn(move || [commit(&pipeline), commit(&pipeline)])
                        })
                        .collect();
                    numbers_are_complete(threads.into_iter().flat_map(|t| t.join().unwrap()).collect());
                },
                5_000,
            );
        }

        #[test]
        fn requests_that_are_sequenced_at_once_are_settled_by_the_next_leader() {
            check_random(
                || {
                    let (_, numbers) = served(|pipeline| {
                        let threads: Vec<_> = (0..2)
                            .map(|_| {
                                let pipeline = pipeline.clone();
                                thread::spawn(move || {
                                    let handle = pipeline.try_submit((), 1, Pace::AtOnce).expect("room");
                                    let number = pipeline.commit((), 1, Pace::AtOnce);
                                    vec![handle.wait(), number]
                                })
                            })
                            .collect();
                        let mut numbers = vec![commit(pipeline)];
                        numbers.extend(threads.into_iter().flat_map(|t| t.join().unwrap()));
                        numbers
                    });
                    numbers_are_complete(numbers);
                },
                5_000,
            );
        }

        #[test]
        fn submitters_and_committers_with_a_serving_thread() {
            check_random(
                || {
                    let (_, numbers) = served(|pipeline| {
                        let submitter = {
                            let pipeline = pipeline.clone();
                            thread::spawn(move || {
                                let handles: Vec<_> = (0..3).map(|_| pipeline.submit((), 1)).collect();
                                handles.into_iter().map(Handle::wait).collect::<Vec<_>>()
                            })
                        };
                        let mut numbers = vec![commit(pipeline)];
                        numbers.extend(submitter.join().unwrap());
                        numbers
                    });
                    numbers_are_complete(numbers);
                },
                5_000,
            );
        }

        /// Left to their handles, which lead, wait, or are dropped.
        #[test]
        fn lone_requests_with_a_serving_thread() {
            check_random(
                || {
                    let (pipeline, mut numbers): (_, Vec<_>) = served(|pipeline| {
                        let threads: Vec<_> = [true, false]
                            .into_iter()
                            .map(|leads| {
                                let pipeline = pipeline.clone();
                                thread::spawn(move || {
                                    let mut numbers = vec![commit(&pipeline)];
                                    let mut handle =
                                        pipeline.try_submit((), 1, Pace::Shared).expect("there is room");
                                    if leads {
                                        handle.lead();
                                    }
                                    numbers.push(handle.wait());
                                    let awaited =
                                        pipeline.try_submit((), 1, Pace::Shared).expect("there is room");
                                    numbers.push(::shuttle::future::block_on(awaited));
                                    drop(pipeline.try_submit((), 1, Pace::Shared));
                                    numbers
                                })
                            })
                            .collect();
                        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
                    });
                    assert_eq!(*pipeline.stage.settled.lock(), 8, "the dropped ones too");
                    numbers.sort_unstable();
                    numbers.dedup();
                    assert_eq!(numbers.len(), 6, "each is numbered once");
                },
                5_000,
            );
        }

        #[test]
        fn handles_are_waited_on_without_a_serving_thread() {
            check_random(
                || {
                    let pipeline = Arc::new(Pipeline::new(Counting::default(), 1));
                    let threads: Vec<_> = (0..2)
                        .map(|_| {
                            let pipeline = pipeline.clone();
                            thread::spawn(move || {
                                let handle = pipeline.submit((), 1);
                                let number = commit(&pipeline);
                                vec![handle.wait(), number]
                            })
                        })
                        .collect();
                    numbers_are_complete(threads.into_iter().flat_map(|t| t.join().unwrap()).collect());
                },
                5_000,
            );
        }
    }

    #[cfg(not(shuttle))]
    mod threads {
        use super::*;

        #[test]
        fn every_commit_is_numbered_once_and_answered_after_it_settled() {
            let pipeline = Arc::new(Pipeline::new(Counting::default(), 1));
            let numbers = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8)
                    .map(|_| scope.spawn(|| (0..500).map(|_| commit(&pipeline)).collect::<Vec<_>>()))
                    .collect();
                threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
            });
            numbers_are_complete(numbers);
        }

        #[test]
        fn a_lone_request_is_left_to_its_handle_until_that_is_polled_or_dropped() {
            let pipeline = Arc::new(Pipeline::new(Counting::default(), 1));
            std::thread::scope(|scope| {
                scope.spawn(|| pipeline.serve());
                while !pipeline.served.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                assert_eq!(commit(&pipeline), 1);
                let mut led = pipeline.try_submit((), 1, Pace::Shared).unwrap();
                assert!(led.is_left());
                led.lead();
                assert_eq!(led.take(), Some(2));

                let taken_along = pipeline.try_submit((), 1, Pace::Shared).unwrap();
                assert!(taken_along.is_left());
                assert_eq!(commit(&pipeline), 4, "whoever comes leads");
                assert_eq!(taken_along.wait(), 3);

                // The previous group had two requests: the serving thread takes the next one.
                assert!(!pipeline.try_submit((), 1, Pace::Shared).unwrap().is_left());
                while *pipeline.stage.settled.lock() < 5 {
                    std::thread::yield_now();
                }
                drop(pipeline.try_submit((), 1, Pace::Shared).unwrap());
                while *pipeline.stage.settled.lock() < 6 {
                    std::thread::yield_now();
                }
                pipeline.close();
            });
        }

        #[test]
        fn requests_are_lone_after_some_groups_of_one() {
            let pipeline = Arc::new(Pipeline::new(Counting::default(), 3));
            std::thread::scope(|scope| {
                scope.spawn(|| pipeline.serve());
                while !pipeline.served.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                for number in 1..=3 {
                    let handle = pipeline.try_submit((), 1, Pace::Shared).unwrap();
                    assert!(!handle.is_left());
                    assert_eq!(handle.wait(), number);
                }
                let handle = pipeline.try_submit((), 1, Pace::Shared).unwrap();
                assert!(handle.is_left());
                assert_eq!(handle.wait(), 4);
                pipeline.close();
            });
        }

        #[test]
        fn some_requests_are_sequenced_at_once_and_all_complete() {
            let pipeline = Arc::new(Pipeline::new(Counting::default(), 1));
            let numbers = std::thread::scope(|scope| {
                let _server = scope.spawn(|| pipeline.serve());
                let threads: Vec<_> = (0..8)
                    .map(|thread| {
                        let pipeline = &pipeline;
                        scope.spawn(move || {
                            let each = |turn: usize| match (thread + turn) % 3 {
                                0 => pipeline.commit((), 1, Pace::AtOnce),
                                1 => pipeline.try_submit((), 1, Pace::AtOnce).expect("room").wait(),
                                _ => commit(pipeline),
                            };
                            (0..500).map(each).collect::<Vec<_>>()
                        })
                    })
                    .collect();
                let numbers = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
                pipeline.close();
                numbers
            });
            numbers_are_complete(numbers);
        }

        /// Panics in one of its calls; refuses everything from then on.
        struct Panicking {
            in_settle: bool,
            stopped: AtomicBool,
        }

        impl Stage for Panicking {
            type Request = ();
            type Outcome = bool;
            type Ticket = ();

            fn sequence(&self, requests: Vec<()>, _: &mut ()) -> Vec<bool> {
                assert!(self.in_settle || self.stopped.load(Ordering::SeqCst), "planned panic");
                vec![false; requests.len()]
            }

            fn settle(&self, _: ()) -> bool {
                assert!(!self.in_settle || self.stopped.load(Ordering::SeqCst), "planned panic");
                false
            }

            fn stop(&self, cause: &str) {
                assert!(cause.ends_with("planned panic"), "{cause}");
                self.stopped.store(true, Ordering::SeqCst);
            }

            fn failure(&self, _outcome: Option<bool>) -> bool {
                false
            }
        }

        #[test]
        fn requests_are_refused_when_a_stage_panics() {
            for in_settle in [false, true] {
                let stage = Panicking { in_settle, stopped: AtomicBool::new(false) };
                let pipeline = Arc::new(Pipeline::new(stage, 1));
                let handles: Vec<_> = (0..3).map(|_| pipeline.submit((), 1)).collect();
                assert!(!pipeline.commit((), 1, Pace::Shared));
                assert!(handles.into_iter().all(|handle| !handle.wait()));
                assert!(!pipeline.commit((), 1, Pace::AtOnce), "the pipeline itself works on");
            }
        }

        #[test]
        fn handles_can_be_awaited() {
            let pipeline = Arc::new(Pipeline::new(Counting::default(), 1));
            let mut handle = pipeline.submit((), 1);
            let mut context = Context::from_waker(Waker::noop());
            assert!(Pin::new(&mut handle).poll(&mut context).is_pending());
            pipeline.drive();
            assert_eq!(Pin::new(&mut handle).poll(&mut context), Poll::Ready(1));
        }
    }
}
