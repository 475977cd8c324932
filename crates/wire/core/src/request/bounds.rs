//! Memory and time of one request that evaluates expressions over documents.
//!
//! ```text
//! body ─▶ parse ─▶ read, change ─▶ response            one budget, one deadline (`limits.request_time`,
//!                               │                      or that of the client, if it is earlier)
//!                               └▶ chunks of a stream  a deadline for each
//! ```
//! All evaluation of a request happens within [`Bounds::run`], so that filters, expressions, updates and
//! pipelines count in one budget and end with the request's time or with the server.

use core::time::Duration;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::calls::Service;
use ropewalk::documents::DocumentsError;
use ropewalk::documents::lang::{Budget, COMMAND_BYTES_MAX, Code, LangError, Options, Patterns, Random};

/// The bounds of one request. Cheap to clone.
#[derive(Clone)]
pub struct Bounds {
    budget: Budget,
    time: Arc<Time>,
}

struct Time {
    service: Service,
    /// When evaluation began: the body has a deadline before that.
    began: OnceLock<Instant>,
    /// The deadline that the client has set.
    deadline: Option<Instant>,
    is_cancelled: AtomicBool,
}

impl Time {
    fn look(&self) -> Result<(), LangError> {
        if self.service.stop().stopping() {
            return Err(LangError::new(Code::InterruptedAtShutdown, "the server is shutting down"));
        }
        if self.is_cancelled.load(Ordering::Relaxed) {
            return Err(LangError::new(Code::Interrupted, "the request was cancelled"));
        }
        if self.left().is_zero() {
            let what = match self.deadline {
                Some(deadline) if deadline <= Instant::now() => {
                    "the deadline of the request has passed".to_owned()
                }
                _ => {
                    let limit = self.service.limits().request_time;
                    format!("the request took longer than {limit:?}, the setting limits.request_time")
                }
            };
            return Err(LangError::new(Code::MaxTimeMSExpired, what));
        }
        Ok(())
    }

    /// Time until the request ends.
    fn left(&self) -> Duration {
        let limit = self.service.limits().request_time;
        let left = limit.saturating_sub(self.began.get_or_init(Instant::now).elapsed());
        match self.deadline {
            Some(deadline) => left.min(deadline.saturating_duration_since(Instant::now())),
            None => left,
        }
    }
}

impl Bounds {
    /// The bounds of a request that begins to evaluate later.
    pub fn new(service: &Service) -> Self {
        Self::build(service, None)
    }

    /// As [`Bounds::new`], for a client that does not wait beyond `deadline`.
    pub fn with_deadline(service: &Service, deadline: Instant) -> Self {
        Self::build(service, Some(deadline))
    }

    fn build(service: &Service, deadline: Option<Instant>) -> Self {
        let (began, is_cancelled) = (OnceLock::new(), AtomicBool::new(false));
        let time = Arc::new(Time { service: service.clone(), began, deadline, is_cancelled });
        let look = time.clone();
        let shared = Some(service.commands().clone());
        Self { budget: Budget::new(COMMAND_BYTES_MAX, shared, move || look.look()), time }
    }

    /// Evaluates a part of the request. The first part starts the clock.
    pub fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        self.time.began.get_or_init(Instant::now);
        self.budget.run(work)
    }

    /// Whether the request may continue, for scans.
    ///
    /// # Errors
    /// [`DocumentsError::Interrupted`]: its time is over, or the server stops.
    pub fn look(&self) -> Result<(), DocumentsError> {
        self.time.look().map_err(DocumentsError::Interrupted)
    }

    /// Ends the request at its next check, from any task.
    pub fn cancel(&self) {
        self.time.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Time until the request ends, for work that is cancelled from outside. Starts the clock.
    pub fn time_left(&self) -> Duration {
        self.time.left()
    }

    /// Regular expressions whose compilation ends with the request's time.
    pub fn patterns(&self) -> Patterns {
        let time = self.time.clone();
        Patterns::with_cancellation(move || time.look())
    }

    /// The properties of the request that parsers of filters, updates and projections need.
    pub fn options(&self) -> Options {
        let env = self.time.service.database().engine().env();
        Options {
            now_ms: env.clock.wall_micros().div_euclid(1000),
            variables: None,
            random: Random::seeded(env.random.next_u64()),
            patterns: self.patterns(),
        }
    }
}
