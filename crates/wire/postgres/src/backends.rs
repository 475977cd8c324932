//! Who is connected, so that one connection can cancel what another does.
//!
//! A client learns its process number and a secret when it begins; whoever shows both on a connection of its own cancels the
//! statement. The number is no process of the system.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use ropewalk_sql::Canceller;

struct Backend {
    secret: i32,
    canceller: Canceller,
}

#[derive(Default)]
struct All {
    newest: i32,
    backends: HashMap<i32, Backend>,
}

/// Everybody who is connected.
#[derive(Clone, Default)]
pub(crate) struct Backends(Arc<Mutex<All>>);

/// A connection's entry; it goes with the value.
pub(crate) struct Entered {
    backends: Backends,
    pub(crate) process: i32,
    pub(crate) secret: i32,
}

impl Backends {
    fn all(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(|held| held.into_inner())
    }

    pub(crate) fn enter(&self, canceller: Canceller) -> Result<Entered, getrandom::Error> {
        let mut secret = [0; 4];
        getrandom::fill(&mut secret)?;
        let secret = i32::from_be_bytes(secret);
        let mut all = self.all();
        loop {
            all.newest = all.newest.checked_add(1).unwrap_or(1);
            if !all.backends.contains_key(&all.newest) {
                break;
            }
        }
        let process = all.newest;
        all.backends.insert(process, Backend { secret, canceller });
        Ok(Entered { backends: self.clone(), process, secret })
    }

    /// Cancels what a connection does, if the secret is its own. Nobody learns whether it was.
    pub(crate) fn cancel(&self, process: i32, secret: i32) {
        if let Some(backend) = self.all().backends.get(&process).filter(|backend| backend.secret == secret) {
            backend.canceller.cancel();
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.backends.all().backends.remove(&self.process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_secret_cancels() {
        let backends = Backends::default();
        let canceller = Canceller::default();
        let entered = backends.enter(canceller.clone()).unwrap();
        backends.cancel(entered.process, entered.secret.wrapping_add(1));
        backends.cancel(entered.process + 1, entered.secret);
        assert!(!canceller.is_cancelled());
        backends.cancel(entered.process, entered.secret);
        assert!(canceller.is_cancelled());
        canceller.reset();
        let (process, secret) = (entered.process, entered.secret);
        drop(entered);
        backends.cancel(process, secret);
        assert!(!canceller.is_cancelled());
    }
}
