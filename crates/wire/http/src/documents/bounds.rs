//! Memory and time of one request over documents.
//!
//! ```text
//! body ─▶ parse ─▶ read, change ─▶ response            one budget, one deadline (`limits.request_time`)
//!                               └▶ chunks of a stream  a deadline for each
//! ```
//! All evaluation of a request happens within [`Bounds::run`], so that filters, expressions, updates and
//! pipelines count in one budget and end with the request's time or with the server.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use ropewalk::documents::DocumentsError;
use ropewalk::documents::lang::{Budget, COMMAND_BYTES_MAX, Code, LangError, Patterns};
use ropewalk_wire::Service;

/// The bounds of one request. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Bounds {
    budget: Budget,
    time: Arc<Time>,
}

struct Time {
    service: Service,
    /// When evaluation began: the body has a deadline before that.
    began: OnceLock<Instant>,
}

impl Time {
    fn look(&self) -> Result<(), LangError> {
        if self.service.stop().stopping() {
            return Err(LangError::new(Code::InterruptedAtShutdown, "the server is shutting down"));
        }
        let limit = self.service.limits().request_time;
        if self.began.get_or_init(Instant::now).elapsed() >= limit {
            let what = format!("the request took longer than {limit:?}");
            return Err(LangError::new(Code::MaxTimeMSExpired, what));
        }
        Ok(())
    }
}

impl Bounds {
    /// The bounds of a request that begins to evaluate later.
    pub(crate) fn new(service: &Service) -> Self {
        let time = Arc::new(Time { service: service.clone(), began: OnceLock::new() });
        let look = time.clone();
        let shared = Some(service.commands().clone());
        Self { budget: Budget::new(COMMAND_BYTES_MAX, shared, move || look.look()), time }
    }

    /// Evaluates a part of the request. The first part starts the clock.
    pub(crate) fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        self.time.began.get_or_init(Instant::now);
        self.budget.run(work)
    }

    /// Whether the request may continue, for scans.
    pub(crate) fn look(&self) -> Result<(), DocumentsError> {
        self.time.look().map_err(DocumentsError::Interrupted)
    }

    /// Regular expressions whose compilation ends with the request's time.
    pub(crate) fn patterns(&self) -> Patterns {
        let time = self.time.clone();
        Patterns::looking(move || time.look())
    }
}
