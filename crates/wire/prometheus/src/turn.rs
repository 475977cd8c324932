//! Turns: who works, in which order, and for how long without a break.
//!
//! ```text
//! what is written, what is short  due now ─────────────┐
//! question, or one that           due HEAD_START later ┴▶ the one that is due first ─▶ works for a slice ─▶ another is due before? its turn
//! goes on
//! ```
//! Short are look-ups of names and labels, answers that are kept, remote reads and federation.
//! Who comes first is next, but for the head start of what is written or short: writers wait for little, and a question never longer
//! for them than that. A question that takes long passes its turn on after a slice and queues as one that comes then, so a
//! short one waits for slices and not for the whole of it. There is one turn more than there are processors: while a turn is
//! handed from thread to thread no processor is idle. Figures: docs/decisions/0020.
//!
//! Not here: threads. What has a turn works on the thread that it has; what waits takes none, but for a question that goes on.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// How long a question works before others have their turn.
const SLICE: Duration = Duration::from_millis(24);
/// How long a question that waits lets what is written go first.
const HEAD_START: Duration = Duration::from_millis(3);

/// When a question is due that comes now.
fn question_due() -> Instant {
    Instant::now() + HEAD_START
}

/// All turns.
#[derive(Debug)]
pub(crate) struct Turns(Mutex<State>);

#[derive(Debug)]
struct State {
    free: usize,
    waiting: BinaryHeap<Waiting>,
    /// How many have ever waited.
    count: u64,
}

#[derive(Debug)]
struct Waiting {
    due: Instant,
    number: u64,
    tell: oneshot::Sender<Held>,
}

impl Ord for Waiting {
    /// The greatest is the one that is due first, then the one that came first.
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

/// A turn; given back when dropped.
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
    /// So many turns; one at least.
    pub(crate) fn new(turns: usize) -> Arc<Self> {
        let state = State { free: turns.max(1), waiting: BinaryHeap::new(), count: 0 };
        Arc::new(Self(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn at once, or where it will come from.
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

    /// A turn for what is written.
    pub(crate) async fn next(self: &Arc<Self>) -> Held {
        self.due(Instant::now()).await
    }

    /// A turn for a question.
    pub(crate) async fn next_question(self: &Arc<Self>) -> Held {
        self.due(question_due()).await
    }

    async fn due(self: &Arc<Self>, due: Instant) -> Held {
        match self.ask(due) {
            Ok(held) => held,
            // Nobody forgets who waits.
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
                // It waits no longer: the next one.
                Err(mut held) => held.0 = None,
            }
        }
    }

    /// True when somebody is due before `due`.
    fn is_behind(&self, due: Instant) -> bool {
        self.state().waiting.peek().is_some_and(|first| first.due < due)
    }
}

/// The turn of a question, passed on now and then. Lives on a thread that may block.
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

    /// Lets others work when the slice is over and they are due before us; returns when it is our turn again.
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
    fn the_one_that_is_due_first_is_next() {
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
    async fn what_is_written_goes_before_questions_that_wait() {
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
    fn who_has_gone_is_passed_over() {
        let (turns, base) = (Turns::new(2), Instant::now());
        let held = [turns.ask(base).unwrap(), turns.ask(base).unwrap()];
        let gone: Vec<_> = (0..5).map(|_| turns.ask(base).unwrap_err()).collect();
        let mut waits = turns.ask(at(base, 1)).unwrap_err();
        let told_and_gone = turns.ask(base).unwrap_err();
        drop(gone);
        let [first, second] = held;
        drop(first);
        assert!(waits.try_recv().is_err());
        // It was told and never looked.
        drop(told_and_gone);
        let its = waits.try_recv().unwrap();
        drop(second);
        drop(its);
        assert_eq!(turns.state().free, 2);
    }

    #[test]
    fn a_long_question_lets_others_in() {
        let turns = Turns::new(1);
        let turn = Turn::new(turns.clone(), turns.ask(Instant::now()).unwrap());
        let mut told = turns.ask(Instant::now()).unwrap_err();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while told.try_recv().is_err() {
                    std::thread::yield_now();
                }
            });
            // Returns when the other is done.
            std::thread::sleep(SLICE);
            turn.pass();
        });
        assert_eq!(turns.state().free, 0);
        drop(turn);
        assert_eq!(turns.state().free, 1);
    }
}
