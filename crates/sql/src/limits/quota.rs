//! Memory and disk quotas for data that outlives a statement, per session and for the process.
//!
//! A [`Share`] belongs to a session. Bytes taken from it are released when the [`Taken`] is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ropewalk::tables::Value;

use crate::error::{Result, SqlError, SqlState, state};
use crate::limits::budget::row_bytes;

/// A bounded resource of the process.
#[derive(Debug)]
pub(crate) struct Quota {
    what: &'static str,
    session_max: u64,
    process_max: u64,
    used: AtomicU64,
    state: SqlState,
    hint: &'static str,
}

/// Compiled regular expressions of statements.
pub(crate) static PATTERNS: Quota = Quota::new(
    "compiled regular expressions",
    (64 << 20, 512 << 20),
    state::OUT_OF_MEMORY,
    "use fewer patterns in a statement, or deallocate prepared statements",
);
/// Prepared statements, by an estimate of their size.
pub(crate) static STATEMENTS: Quota =
    Quota::new("prepared statements", (256 << 20, 4 << 30), state::OUT_OF_MEMORY, "deallocate some of them");
/// Results that clients have not fetched yet: those of portals, and cached pages of cursors. `work_mem`
/// limits a session.
pub(crate) static ANSWERS: Quota = Quota::new(
    "open portals and cursors",
    (u64::MAX, 4 << 30),
    state::OUT_OF_MEMORY,
    "fetch their rows or close some of them",
);
/// Temporary files of cursors.
pub(crate) static FILES: Quota = Quota::new(
    "temporary files of cursors",
    (4 << 30, 16 << 30),
    state::CONFIGURATION_LIMIT_EXCEEDED,
    "close cursors, or use COPY",
);

impl Quota {
    const fn new(
        what: &'static str,
        (session_max, process_max): (u64, u64),
        state: SqlState,
        hint: &'static str,
    ) -> Self {
        Self { what, session_max, process_max, used: AtomicU64::new(0), state, hint }
    }

    fn refused(&self, whose: &str, max: u64) -> SqlError {
        SqlError::new(self.state, format!("the {} of {whose} take more than {max} bytes", self.what))
            .hint(self.hint)
    }
}

/// The part of a quota that one session uses.
#[derive(Debug, Clone)]
pub(crate) struct Share {
    quota: &'static Quota,
    used: Arc<AtomicU64>,
}

fn add(used: &AtomicU64, bytes: u64, max: u64) -> bool {
    let more = |used: u64| used.checked_add(bytes).filter(|used| *used <= max);
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

impl Share {
    pub(crate) fn of(quota: &'static Quota) -> Self {
        Self { quota, used: Arc::default() }
    }

    /// Reserves bytes, if the session then uses at most `max`.
    ///
    /// # Errors
    /// The error of the quota.
    pub(crate) fn take_within(&self, bytes: u64, max: u64) -> Result<Taken> {
        let taken = self.take(bytes)?;
        if self.used.load(Ordering::Relaxed) > max {
            return Err(self.quota.refused("the session", max));
        }
        Ok(taken)
    }

    /// Reserves memory for rows, if the session then uses at most `max` bytes.
    ///
    /// # Errors
    /// The error of the quota.
    pub(crate) fn hold(&self, rows: &[Vec<Value<'static>>], max: usize) -> Result<Hold> {
        let bytes = rows.iter().map(|row| row_bytes(row) as u64).sum();
        self.take_within(bytes, max as u64).map(Hold)
    }

    /// Reserves bytes.
    ///
    /// # Errors
    /// The error of the quota.
    pub(crate) fn take(&self, bytes: u64) -> Result<Taken> {
        let mut taken = Taken { share: self.clone(), bytes: 0 };
        taken.grow(bytes)?;
        Ok(taken)
    }
}

/// Memory of a session that is returned when this value is dropped.
#[derive(Debug)]
pub struct Hold(#[expect(dead_code, reason = "returned when dropped")] Taken);

/// Reserved bytes.
#[derive(Debug)]
pub(crate) struct Taken {
    share: Share,
    bytes: u64,
}

impl Taken {
    /// Reserves more bytes.
    ///
    /// # Errors
    /// The error of the quota.
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<()> {
        let Share { quota, used } = &self.share;
        if !add(used, bytes, quota.session_max) {
            return Err(quota.refused("the session", quota.session_max));
        }
        if !add(&quota.used, bytes, quota.process_max) {
            used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(quota.refused("all sessions", quota.process_max));
        }
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.share.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.share.quota.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The shares of a session in all quotas.
#[derive(Debug, Clone)]
pub(crate) struct Shares {
    pub(crate) patterns: Share,
    pub(crate) statements: Share,
    pub(crate) files: Share,
    pub(crate) answers: Share,
}

impl Default for Shares {
    fn default() -> Self {
        let [patterns, statements, files, answers] =
            [&PATTERNS, &STATEMENTS, &FILES, &ANSWERS].map(Share::of);
        Self { patterns, statements, files, answers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m10_quota_bounds_sessions_and_their_sum() {
        static QUOTA: Quota = Quota::new("things", (100, 150), state::CONFIGURATION_LIMIT_EXCEEDED, "");
        let (one, other) = (Share::of(&QUOTA), Share::of(&QUOTA));
        let mut first = one.take(60).unwrap();
        assert_eq!(first.grow(41).unwrap_err().message, "the things of the session take more than 100 bytes");
        first.grow(40).unwrap();
        let refused = other.take(51).unwrap_err();
        assert_eq!((refused.state.0, refused.message.contains("all sessions")), ("53400", true));
        let second = other.take(50).unwrap();
        drop(first);
        one.take(100).unwrap();
        drop(second);
        assert_eq!(QUOTA.used.load(Ordering::Relaxed), 0);
    }
}
