//! Cost limits of one query, and its cancellation.
//!
//! A [`Budget`] is shared by the evaluator and the source: both count into it, and exceeding a limit is a
//! typed error. This crate reads no clock; the caller supplies a stop function, which is called every few
//! thousand samples or steps.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bounds of one query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Samples read from the source in all.
    pub samples_max: u64,
    /// Series read from the source in all (a series read by two selectors counts twice).
    pub series_max: u64,
    /// Bytes of intermediate results that live at one time, roughly.
    pub memory_bytes_max: u64,
    /// Steps of a range query or of a subquery.
    pub steps_max: u64,
}

impl Default for Limits {
    /// 50 million samples (as Prometheus), 1 million series, 1 GiB, 1 million steps.
    fn default() -> Self {
        Self {
            samples_max: 50_000_000,
            series_max: 1_000_000,
            memory_bytes_max: 1 << 30,
            steps_max: 1_000_000,
        }
    }
}

/// Why a query must stop before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The client has disconnected, or the query was cancelled.
    Cancelled,
    /// Its time limit has passed.
    TimedOut,
}

/// A limit was exceeded, or the query was stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// More samples than allowed.
    #[error("query processing would load too many samples into memory: the limit is {max}")]
    Samples {
        /// The limit.
        max: u64,
    },
    /// More series than allowed.
    #[error("query selects too many series: the limit is {max}")]
    Series {
        /// The limit.
        max: u64,
    },
    /// More memory than allowed.
    #[error("query needs too much memory: the limit is {max} bytes")]
    Memory {
        /// The limit.
        max: u64,
    },
    /// All queries together hold more memory than allowed: the same query may pass later.
    #[error("the queries of the server need too much memory together: the limit is {max} bytes")]
    Shared {
        /// The limit.
        max: u64,
    },
    /// More regular expressions, or larger ones, than allowed.
    #[error(
        "the regular expressions of the query are too large together: the limit is {max} bytes when compiled"
    )]
    Patterns {
        /// The limit.
        max: u64,
    },
    /// More steps than allowed.
    #[error("query or subquery has {steps} steps: the limit is {max}")]
    Steps {
        /// Requested steps.
        steps: u64,
        /// The limit.
        max: u64,
    },
    /// The query was cancelled.
    #[error("query was canceled")]
    Cancelled,
    /// The query's time is over.
    #[error("query timed out")]
    TimedOut,
}

impl From<StopReason> for BudgetError {
    fn from(stop: StopReason) -> Self {
        match stop {
            StopReason::Cancelled => Self::Cancelled,
            StopReason::TimedOut => Self::TimedOut,
        }
    }
}

/// Memory that several queries share, in addition to the limit of each of them.
#[derive(Debug)]
pub struct SharedMemory {
    max: u64,
    used: AtomicU64,
}

impl SharedMemory {
    /// A limit of `max` bytes.
    pub fn new(max: u64) -> Arc<Self> {
        Arc::new(Self { max, used: AtomicU64::new(0) })
    }

    /// Bytes that queries and their results hold now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// The part of [`SharedMemory`] that one query or its result holds, released on drop.
#[derive(Debug, Default)]
pub struct Share {
    of: Option<Arc<SharedMemory>>,
    bytes: u64,
}

impl Share {
    /// A share that holds 0 bytes. It has no limit if `of` is `None`.
    pub fn new(of: Option<Arc<SharedMemory>>) -> Self {
        Self { of, bytes: 0 }
    }

    /// Reserves or releases bytes until the share holds `bytes`.
    ///
    /// # Errors
    /// [`BudgetError::Shared`] when the others hold too much; the share is then unchanged.
    pub fn resize(&mut self, bytes: u64) -> Result<(), BudgetError> {
        let Some(of) = &self.of else { return Ok(()) };
        if let Some(less) = self.bytes.checked_sub(bytes) {
            of.used.fetch_sub(less, Ordering::Relaxed);
        } else {
            let more = bytes.saturating_sub(self.bytes);
            let take = |used: u64| used.checked_add(more).filter(|used| *used <= of.max);
            let taken = of.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
            taken.map_err(|_| BudgetError::Shared { max: of.max })?;
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Reserves more bytes.
    ///
    /// # Errors
    /// As [`Share::resize`].
    pub fn grow(&mut self, bytes: usize) -> Result<(), BudgetError> {
        self.resize(self.bytes.saturating_add(bytes as u64))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Some(of) = &self.of {
            of.used.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// A share grows and shrinks by steps of this size, so that queries seldom touch the shared counter.
const SHARE_STEP: u64 = 1 << 20;

/// Bytes counted in a [`Budget`] until this value is dropped.
pub(crate) struct Holding<'a> {
    budget: &'a Budget<'a>,
    bytes: usize,
}

impl Holding<'_> {
    /// Counts more bytes.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), BudgetError> {
        self.bytes = self.bytes.saturating_add(bytes);
        self.budget.hold(bytes)
    }

    /// Releases some of the bytes.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.budget.release(bytes);
    }

    /// Replaces the counted bytes by `bytes`.
    pub(crate) fn set(&mut self, bytes: usize) -> Result<(), BudgetError> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.grow(more),
            None => {
                self.shrink(self.bytes - bytes);
                Ok(())
            }
        }
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

/// Units of work between two calls of the stop function.
const CHECK_EVERY: u32 = 4096;

/// Running costs of one query. Not shared between threads.
pub struct Budget<'a> {
    limits: Limits,
    stop: &'a dyn Fn() -> Option<StopReason>,
    samples: Cell<u64>,
    series: Cell<u64>,
    memory: Cell<u64>,
    memory_peak: Cell<u64>,
    share: RefCell<Share>,
    until_check: Cell<u32>,
    latest: Cell<Option<i64>>,
}

impl std::fmt::Debug for Budget<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Budget")
            .field("limits", &self.limits)
            .field("samples", &self.samples)
            .field("series", &self.series)
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}

impl<'a> Budget<'a> {
    /// A new account. `stop` is called often and has to be cheap.
    pub fn new(limits: Limits, stop: &'a dyn Fn() -> Option<StopReason>) -> Self {
        Self {
            limits,
            stop,
            samples: Cell::new(0),
            series: Cell::new(0),
            memory: Cell::new(0),
            memory_peak: Cell::new(0),
            share: RefCell::default(),
            until_check: Cell::new(CHECK_EVERY),
            latest: Cell::new(None),
        }
    }

    /// The same account, with its memory reserved from what several queries share.
    pub fn sharing(self, share: Share) -> Self {
        Self { share: RefCell::new(share), ..self }
    }

    /// The share of the result, `bytes` large, once the query is over.
    ///
    /// # Errors
    /// As [`Share::resize`].
    pub(crate) fn into_share(self, bytes: usize) -> Result<Share, BudgetError> {
        let mut share = self.share.into_inner();
        share.resize(bytes as u64)?;
        Ok(share)
    }

    /// Counts `count` samples read.
    ///
    /// # Errors
    /// [`BudgetError::Samples`] beyond the limit; a stop.
    pub fn sample(&self, count: usize) -> Result<(), BudgetError> {
        let total = self.samples.get().saturating_add(count as u64);
        self.samples.set(total);
        if total > self.limits.samples_max {
            return Err(BudgetError::Samples { max: self.limits.samples_max });
        }
        self.work(count)
    }

    /// Counts one series read.
    ///
    /// # Errors
    /// [`BudgetError::Series`] beyond the limit; a stop.
    pub fn one_series(&self) -> Result<(), BudgetError> {
        let total = self.series.get().saturating_add(1);
        self.series.set(total);
        if total > self.limits.series_max {
            return Err(BudgetError::Series { max: self.limits.series_max });
        }
        self.work(16)
    }

    /// Counts bytes of an intermediate result until [`Budget::release`].
    ///
    /// # Errors
    /// [`BudgetError::Memory`] beyond the limit, [`BudgetError::Shared`] when other queries hold too much.
    pub fn hold(&self, bytes: usize) -> Result<(), BudgetError> {
        let total = self.memory.get().saturating_add(bytes as u64);
        self.memory.set(total);
        self.memory_peak.set(self.memory_peak.get().max(total));
        if total > self.limits.memory_bytes_max {
            return Err(BudgetError::Memory { max: self.limits.memory_bytes_max });
        }
        let mut share = self.share.borrow_mut();
        if total > share.bytes {
            share.resize(total.next_multiple_of(SHARE_STEP))?;
        }
        Ok(())
    }

    /// Counts bytes until the returned value is dropped.
    ///
    /// # Errors
    /// As [`Budget::hold`].
    pub(crate) fn holding(&'a self, bytes: usize) -> Result<Holding<'a>, BudgetError> {
        let mut holding = Holding { budget: self, bytes: 0 };
        holding.grow(bytes)?;
        Ok(holding)
    }

    /// Releases bytes that [`Budget::hold`] counted.
    pub fn release(&self, bytes: usize) {
        let total = self.memory.get().saturating_sub(bytes as u64);
        self.memory.set(total);
        let mut share = self.share.borrow_mut();
        // Half of it stays reserved for later use. Releasing bytes cannot fail.
        if share.bytes > 16 * SHARE_STEP && total < share.bytes / 2 {
            let half = (share.bytes / 2).next_multiple_of(SHARE_STEP);
            let _ = share.resize(half);
        }
    }

    /// Rejects more steps than allowed.
    ///
    /// # Errors
    /// [`BudgetError::Steps`].
    pub fn steps(&self, steps: u64) -> Result<(), BudgetError> {
        if steps > self.limits.steps_max {
            return Err(BudgetError::Steps { steps, max: self.limits.steps_max });
        }
        Ok(())
    }

    /// Counts `units` of work other than samples (steps, buckets), and calls the stop function every few
    /// thousand of them.
    ///
    /// # Errors
    /// A stop.
    pub fn work(&self, units: usize) -> Result<(), BudgetError> {
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        match self.until_check.get().checked_sub(units) {
            Some(left) if left > 0 => {
                self.until_check.set(left);
                Ok(())
            }
            _ => self.check(),
        }
    }

    /// Calls the stop function now.
    ///
    /// # Errors
    /// [`BudgetError::Cancelled`] or [`BudgetError::TimedOut`].
    pub fn check(&self) -> Result<(), BudgetError> {
        self.until_check.set(CHECK_EVERY);
        match (self.stop)() {
            None => Ok(()),
            Some(stop) => Err(stop.into()),
        }
    }

    /// The reason to stop now, if any.
    pub(crate) fn stopped(&self) -> Option<StopReason> {
        (self.stop)()
    }

    /// Notes that samples up to `end_ms` affect the result.
    pub(crate) fn looks_at(&self, end_ms: i64) {
        self.latest.set(self.latest.get().max(Some(end_ms)));
    }

    /// The cost so far: samples, series, peak of bytes held.
    pub fn spent(&self) -> Usage {
        Usage {
            samples: self.samples.get(),
            series: self.series.get(),
            memory_bytes_max: self.memory_peak.get(),
            latest_ms: self.latest.get(),
        }
    }
}

/// The cost of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Samples read from the source.
    pub samples: u64,
    /// Series read from the source.
    pub series: u64,
    /// Peak of bytes of intermediate results, roughly.
    pub memory_bytes_max: u64,
    /// The latest time at which a sample could have changed the result; `None` when no selector was
    /// evaluated.
    pub latest_ms: Option<i64>,
}
