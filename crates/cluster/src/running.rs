//! The thread that runs a node.

use core::pin::pin;
use core::task::Context;
use core::time::Duration;
use std::future::Future as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{current, park_timeout};

use ropewalk_base::threads::{StoppableThread, unparking_waker};

use crate::end::End;
use crate::node::{Done, Node};

/// A node in its thread. Dropping it stops the thread after the current step; the database stays open.
pub struct RunningNode {
    node: Arc<Node>,
    thread: StoppableThread,
}

impl Node {
    /// Repeats [`Node::step`] in a thread, until the returned value is dropped or the node ends; then calls `ended`, in that
    /// thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn run(self: &Arc<Self>, ended: impl FnOnce(&End) + Send + 'static) -> io::Result<RunningNode> {
        let node = self.clone();
        let thread = StoppableThread::spawn("rope-node", move |stops| {
            node.run_by(Some(current()));
            if let Some(end) = repeat(&node, stops) {
                ended(&end);
            }
            node.run_by(None);
        })?;
        Ok(RunningNode { node: self.clone(), thread })
    }
}

impl RunningNode {
    /// The node.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Stops the thread and waits for its end: for the calls of the shared log that are under way.
    pub fn stop(self) {
        drop(self.thread);
    }
}

/// Steps until the node ends, which it returns, or `stops`.
fn repeat(node: &Node, stops: &AtomicBool) -> Option<End> {
    let clock = &node.database().engine().env().clock;
    let waker = unparking_waker();
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
