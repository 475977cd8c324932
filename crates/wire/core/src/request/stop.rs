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
    /// A signal that is not set yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the signal: new requests are rejected, live subscriptions end, running requests finish.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }

    /// True once it is set.
    pub fn stopping(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is set.
    pub async fn wait(&self) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|stopping| *stopping).await;
    }
}
