//! Backoff between the attempts of a transaction after conflicts.

use core::time::Duration;

use crate::database::Database;
use crate::database::observer::Step;
use crate::error::Error;

/// Longest wait for the conflicting commit to become visible.
const VISIBLE_WAIT: Duration = Duration::from_secs(1);
/// Pause before the third attempt; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// The remaining attempts and the pause before the next one.
pub(crate) struct Backoff<'d> {
    db: &'d Database,
    left: usize,
    pause: Option<Duration>,
}

impl<'d> Backoff<'d> {
    /// Allows `attempts` attempts in all, at least one.
    pub(crate) fn new(db: &'d Database, attempts: usize) -> Self {
        Self { db, left: attempts.saturating_sub(1), pause: None }
    }

    /// Waits before the next attempt; false if `error` is not a conflict or no attempt is left.
    ///
    /// `transaction` is the number of the attempt that failed, if it is observed.
    pub(crate) fn retries(&mut self, transaction: Option<u64>, error: &Error) -> bool {
        if self.left == 0 || !error.is_conflict() {
            return false;
        }
        self.left -= 1;
        let db = self.db;
        let (observer, clock) = (db.observer.as_ref().zip(transaction), &db.engine.env().clock);
        let since = observer.map(|_| clock.monotonic_nanos());
        self.wait(error);
        if let Some(((observer, transaction), since)) = observer.zip(since) {
            let pause = Duration::from_nanos(clock.monotonic_nanos().saturating_sub(since));
            observer.report(transaction, &Step::Retry { error, attempts_left: self.left, pause });
        }
        true
    }

    /// Waits for the conflicting commit, and pauses.
    fn wait(&mut self, error: &Error) {
        // The conflicting commit may not be visible yet; until then the next attempt would meet it again.
        if let Some(seq) = error.conflict_seq().filter(|&seq| seq > self.db.seq()) {
            self.db.engine.wait_visible(seq, VISIBLE_WAIT);
        }
        // Transactions that read the same state at the same time conflict with each other, and all but one
        // lose.
        if let Some(pause) = self.pause {
            let env = self.db.engine.env();
            let half = pause.as_nanos() as u64 / 2;
            env.clock.sleep(Duration::from_nanos(half + env.random.next_u64() % half.max(1)));
        }
        self.pause = Some(self.pause.map_or(FIRST_PAUSE, |pause| (pause * 2).min(LONGEST_PAUSE)));
    }
}
