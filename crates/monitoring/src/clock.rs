//! The current time, and the ticks at which jobs run.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior};

/// The current time in milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// Ticks at multiples of `period`, plus an offset derived from the hash of `who`.
pub(crate) fn ticks(period: Duration, who: &impl Hash) -> Interval {
    let period_ms = i64::try_from(period.as_millis()).unwrap_or(i64::MAX).max(1);
    let mut hasher = DefaultHasher::new();
    who.hash(&mut hasher);
    let moved = (hasher.finish() % period_ms as u64) as i64;
    let wait = (moved - now_ms()).rem_euclid(period_ms) as u64;
    let mut ticks = tokio::time::interval_at(Instant::now() + Duration::from_millis(wait), period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}
