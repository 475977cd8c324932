use std::sync::Arc;

use tokio::sync::watch;

/// The signal that the server shuts down. Clones are the same signal.
#[derive(Clone)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Default for Stop {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Stop {
    /// A signal that was not given yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the signal: new requests are refused, live subscriptions end, running requests finish.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }

    /// True once it was given.
    pub fn stopping(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is given.
    pub async fn wait(&self) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|stopping| *stopping).await;
    }
}
