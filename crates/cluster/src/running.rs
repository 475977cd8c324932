//! The thread that runs a node.

use core::pin::pin;
use core::task::{Context, Waker};
use core::time::Duration;
use std::future::Future as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::thread::{Builder, JoinHandle, Thread, current, park_timeout};

use crate::end::End;
use crate::node::{Done, Node};

/// A node in its thread. Dropping it stops the thread after the current step; the database stays open.
pub struct RunningNode {
    node: Arc<Node>,
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Node {
    /// Repeats [`Node::step`] in a thread, until the returned value is dropped or the node ends; then calls `ended`, in that
    /// thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn run(self: &Arc<Self>, ended: impl FnOnce(&End) + Send + 'static) -> io::Result<RunningNode> {
        let (node, stops) = (self.clone(), Arc::new(AtomicBool::new(false)));
        let stopping = stops.clone();
        let thread = Builder::new().name("rope-node".to_owned()).spawn(move || {
            node.run_by(Some(current()));
            if let Some(end) = repeat(&node, &stopping) {
                ended(&end);
            }
            node.run_by(None);
        })?;
        Ok(RunningNode { node: self.clone(), stops, thread: Some(thread) })
    }
}

impl RunningNode {
    /// The node.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Stops the thread and waits for its end: for the calls of the shared log that are under way.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stops.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of the thread was reported by its hook.
            let _ = thread.join();
        }
    }
}

impl Drop for RunningNode {
    fn drop(&mut self) {
        self.end();
    }
}

/// Steps until the node ends, which it returns, or `stops`.
fn repeat(node: &Node, stops: &AtomicBool) -> Option<End> {
    let clock = &node.database().engine().env().clock;
    let waker = Waker::from(Arc::new(Unpark(current())));
    let mut context = Context::from_waker(&waker);
    let mut stopped = pin!(node.database().until_stopped());
    while !stops.load(Ordering::Acquire) {
        let stepped = node.step(clock.monotonic_nanos());
        if let Done::Ended(end) = stepped.done {
            return Some(end);
        }
        // The end of the engine wakes this thread: a deposed leader should be opened again at once.
        let has_stopped = stopped.as_mut().poll(&mut context).is_ready();
        let pause = stepped.again.saturating_sub(clock.monotonic_nanos());
        if pause > 0 && !has_stopped && !node.has_readers() {
            park_timeout(Duration::from_nanos(pause));
        }
    }
    None
}

/// Wakes a thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
