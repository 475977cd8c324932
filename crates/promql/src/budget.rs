//! What one query may cost, and how it is told to stop.
//!
//! A [`Budget`] is shared by the evaluator and the source: both count into it, and whoever crosses a limit gets a typed error.
//! This crate knows no clock; the caller gives a function that says whether the query should stop, and it is asked every few
//! thousand samples or steps.

use std::cell::Cell;

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
pub enum Stop {
    /// Its client has gone, or somebody ended it.
    Cancelled,
    /// Its time is over.
    TimedOut,
}

/// A limit was crossed or the query was told to stop.
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
    /// More steps than allowed.
    #[error("query or subquery has {steps} steps: the limit is {max}")]
    Steps {
        /// Steps asked for.
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

/// Units of work between two looks at the stop function.
const CHECK_EVERY: u32 = 4096;

/// The running account of one query. Not shared between threads.
pub struct Budget<'a> {
    limits: Limits,
    stop: &'a dyn Fn() -> Option<Stop>,
    samples: Cell<u64>,
    series: Cell<u64>,
    memory: Cell<u64>,
    memory_peak: Cell<u64>,
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
    /// A fresh account. `stop` is cheap and is asked often.
    pub fn new(limits: Limits, stop: &'a dyn Fn() -> Option<Stop>) -> Self {
        Self {
            limits,
            stop,
            samples: Cell::new(0),
            series: Cell::new(0),
            memory: Cell::new(0),
            memory_peak: Cell::new(0),
            until_check: Cell::new(CHECK_EVERY),
            latest: Cell::new(None),
        }
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

    /// Counts bytes that an intermediate result holds from now on; [`Budget::release`] gives them back.
    ///
    /// # Errors
    /// [`BudgetError::Memory`] beyond the limit.
    pub fn hold(&self, bytes: usize) -> Result<(), BudgetError> {
        let total = self.memory.get().saturating_add(bytes as u64);
        self.memory.set(total);
        self.memory_peak.set(self.memory_peak.get().max(total));
        if total > self.limits.memory_bytes_max {
            return Err(BudgetError::Memory { max: self.limits.memory_bytes_max });
        }
        Ok(())
    }

    /// Gives back what [`Budget::hold`] took.
    pub fn release(&self, bytes: usize) {
        self.memory.set(self.memory.get().saturating_sub(bytes as u64));
    }

    /// Refuses more steps than allowed.
    ///
    /// # Errors
    /// [`BudgetError::Steps`].
    pub fn steps(&self, steps: u64) -> Result<(), BudgetError> {
        if steps > self.limits.steps_max {
            return Err(BudgetError::Steps { steps, max: self.limits.steps_max });
        }
        Ok(())
    }

    /// Counts `units` of work that are no samples (steps, buckets), and asks whether to stop every few thousand of them.
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

    /// Asks now whether to stop.
    ///
    /// # Errors
    /// [`BudgetError::Cancelled`] or [`BudgetError::TimedOut`].
    pub fn check(&self) -> Result<(), BudgetError> {
        self.until_check.set(CHECK_EVERY);
        match (self.stop)() {
            None => Ok(()),
            Some(Stop::Cancelled) => Err(BudgetError::Cancelled),
            Some(Stop::TimedOut) => Err(BudgetError::TimedOut),
        }
    }

    /// Notes that samples up to `end_ms` matter to the answer.
    pub(crate) fn looks_at(&self, end_ms: i64) {
        self.latest.set(self.latest.get().max(Some(end_ms)));
    }

    /// What the query has cost so far: samples, series, most bytes held at one time.
    pub fn spent(&self) -> Spent {
        Spent {
            samples: self.samples.get(),
            series: self.series.get(),
            memory_bytes_max: self.memory_peak.get(),
            latest_ms: self.latest.get(),
        }
    }
}

/// What a query has cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// Samples read from the source.
    pub samples: u64,
    /// Series read from the source.
    pub series: u64,
    /// Most bytes of intermediate results at one time, roughly.
    pub memory_bytes_max: u64,
    /// The latest time at which a sample could have changed the answer; `None` when no selector was evaluated.
    pub latest_ms: Option<i64>,
}
