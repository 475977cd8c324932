//! Scheduler slots ("turns"): which request may use a CPU, in which order, and for how long.
//!
//! ```text
//!   write, short request         due now ─────────────┐
//!   new query, preempted query   due HEAD_START later ┴▶ earliest due runs a slice ─▶ another due earlier? yield
//! ```
//! Short requests are lookups of names and labels, cached responses, remote reads and federation.
//! Slots are given in order of arrival, but writes and short requests get a head start: they hardly wait, and
//! each of them delays a query by at most `HEAD_START`. A long query yields its slot after a slice and queues
//! like a new one, so a short query waits for slices and not for all of it. There is one slot more than there
//! are processors: no processor is idle while a slot passes from thread to thread. Measurements:
//! docs/decisions/0020.
//!
//! Not here: threads. A task with a slot works on its caller's thread. Waiting tasks are parked futures; only
//! a query that yielded its slot blocks its thread while it waits.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// Time that a query works before others get its slot.
const SLICE: Duration = Duration::from_millis(24);
/// Time by which a waiting query lets later writes overtake it.
const HEAD_START: Duration = Duration::from_millis(3);

/// Due time of a query that arrives now.
fn question_due() -> Instant {
    Instant::now() + HEAD_START
}

/// The scheduler: free slots and the queue of waiting requests.
#[derive(Debug)]
pub(crate) struct Turns(Mutex<State>);

#[derive(Debug)]
struct State {
    free: usize,
    waiting: BinaryHeap<Waiting>,
    /// Number of requests that have ever waited; orders requests with the same due time.
    count: u64,
}

#[derive(Debug)]
struct Waiting {
    due: Instant,
    number: u64,
    tell: oneshot::Sender<Held>,
}

impl Ord for Waiting {
    /// The greatest is due first; of two with the same due time, the one that arrived first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}

/// A slot; released when dropped.
#[derive(Debug)]
pub(crate) struct Held(Option<Arc<Turns>>);

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.give_back();
        }
    }
}

impl Turns {
    /// Creates `turns` slots, at least one.
    pub(crate) fn new(turns: usize) -> Arc<Self> {
        let state = State { free: turns.max(1), waiting: BinaryHeap::new(), count: 0 };
        Arc::new(Self(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a free slot, or queues and returns the channel that will deliver one.
    fn ask(self: &Arc<Self>, due: Instant) -> Result<Held, oneshot::Receiver<Held>> {
        let mut state = self.state();
        if state.free > 0 {
            state.free -= 1;
            return Ok(Held(Some(self.clone())));
        }
        let (tell, told) = oneshot::channel();
        state.count += 1;
        let number = state.count;
        state.waiting.push(Waiting { due, number, tell });
        Err(told)
    }

    /// Waits for a slot for a write or a short request.
    pub(crate) async fn next(self: &Arc<Self>) -> Held {
        self.due(Instant::now()).await
    }

    /// Waits for a slot for a query.
    pub(crate) async fn next_question(self: &Arc<Self>) -> Held {
        self.due(question_due()).await
    }

    async fn due(self: &Arc<Self>, due: Instant) -> Held {
        match self.ask(due) {
            Ok(held) => held,
            // The queue never drops a waiting sender, so the receive cannot fail.
            Err(told) => told.await.unwrap_or(Held(None)),
        }
    }

    fn give_back(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = self.state();
                let Some(next) = state.waiting.pop() else {
                    state.free += 1;
                    return;
                };
                next
            };
            match next.tell.send(Held(Some(self.clone()))) {
                Ok(()) => return,
                // The receiver is gone: offer the slot to the next one.
                Err(mut held) => held.0 = None,
            }
        }
    }

    /// True when a waiting request is due before `due`.
    fn is_behind(&self, due: Instant) -> bool {
        self.state().waiting.peek().is_some_and(|first| first.due < due)
    }
}

/// The slot of a running query, yielded now and then. Lives on a thread that may block.
pub(crate) struct Turn {
    turns: Arc<Turns>,
    held: RefCell<Option<Held>>,
    since: Cell<Instant>,
}

impl Turn {
    pub(crate) fn new(turns: Arc<Turns>, held: Held) -> Self {
        let (held, since) = (RefCell::new(Some(held)), Cell::new(Instant::now()));
        Self { turns, held, since }
    }

    /// Yields the slot when the slice is over and another request is due earlier; returns with a slot.
    pub(crate) fn pass(&self) {
        if self.since.get().elapsed() < SLICE {
            return;
        }
        let due = question_due();
        if self.turns.is_behind(due) {
            drop(self.held.take());
            let held = match self.turns.ask(due) {
                Ok(held) => held,
                Err(told) => told.blocking_recv().unwrap_or(Held(None)),
            };
            *self.held.borrow_mut() = Some(held);
        }
        self.since.set(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(base: Instant, ms: u64) -> Instant {
        base + Duration::from_millis(ms)
    }

    #[test]
    fn earliest_due_request_gets_slot_first() {
        let (turns, base) = (Turns::new(1), Instant::now());
        let held = turns.ask(base).unwrap();
        let mut told: Vec<_> = [30, 10, 20, 10].map(|ms| turns.ask(at(base, ms)).unwrap_err()).into();
        assert!(turns.is_behind(at(base, 11)) && !turns.is_behind(at(base, 10)));
        drop(held);
        let mut order = Vec::new();
        while order.len() < 4 {
            let next = told.iter_mut().position(|told| told.try_recv().is_ok()).unwrap();
            order.push(next);
        }
        assert_eq!(order, [1, 3, 2, 0]);
    }

    #[tokio::test]
    async fn writes_overtake_waiting_queries() {
        let turns = Turns::new(1);
        let held = turns.next().await;
        let order = std::sync::Mutex::new(Vec::new());
        let note = |name, held| {
            order.lock().unwrap().push(name);
            drop::<Held>(held);
        };
        tokio::join!(
            async { note("question", turns.next_question().await) },
            async { note("write", turns.next().await) },
            async { note("write", turns.next().await) },
            async { drop(held) },
        );
        assert_eq!(*order.lock().unwrap(), ["write", "write", "question"]);
    }

    #[test]
    fn abandoned_waiter_is_skipped() {
        let (turns, base) = (Turns::new(2), Instant::now());
        let held = [turns.ask(base).unwrap(), turns.ask(base).unwrap()];
        let gone: Vec<_> = (0..5).map(|_| turns.ask(base).unwrap_err()).collect();
        let mut waits = turns.ask(at(base, 1)).unwrap_err();
        let told_and_gone = turns.ask(base).unwrap_err();
        drop(gone);
        let [first, second] = held;
        drop(first);
        assert!(waits.try_recv().is_err());
        // The slot was delivered and never received.
        drop(told_and_gone);
        let its = waits.try_recv().unwrap();
        drop(second);
        drop(its);
        assert_eq!(turns.state().free, 2);
    }

    #[test]
    fn long_query_yields_slot_after_slice() {
        let turns = Turns::new(1);
        let turn = Turn::new(turns.clone(), turns.ask(Instant::now()).unwrap());
        let mut told = turns.ask(Instant::now()).unwrap_err();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while told.try_recv().is_err() {
                    std::thread::yield_now();
                }
            });
            // Returns when the other request has finished.
            std::thread::sleep(SLICE);
            turn.pass();
        });
        assert_eq!(turns.state().free, 0);
        drop(turn);
        assert_eq!(turns.state().free, 1);
    }
}
