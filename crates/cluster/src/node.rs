//! The loop of a node, one step at a time.
//!
//! ```text
//! follower: read ─┬─ entries ─▶ apply ─▶ heard of the leader, or asked to lead ─▶ campaign
//!                 ├─ unavailable ─▶ wait
//!                 └─ nothing ─▶ quiet for lease + random share ─▶ the log answers ─▶ one renewal interval ─▶ campaign
//! leader:   readers wait, or idle for a third of the lease ─▶ renew; a hash of contents is due ─▶ state it; asked to step
//!           down ─▶ end
//! ```
//! The interval before a campaign is for the leader: when the log service itself was away, both find it back at the same
//! time, and the leader should stay.

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

use ropewalk::{Database, Seq};
use ropewalk_base::sync::Mutex;
use ropewalk_engine::{Engine, EngineError, Role};
use ropewalk_log::LogId;
use ropewalk_log::shared::{EntryIndex, SharedError, SharedLog};

use crate::barriers::{self, BarrierError, Barriers};
use crate::end::End;
use crate::hashes::report::HashReport;
use crate::hashes::{Audit, HashStatus};
use crate::settings::{Settings, after};
use crate::status::Status;

/// Pause after a call that the shared log did not answer, or that the memory budget refused.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Time between two surveys of the shared log, and how many surveys ask for its warnings once.
const SURVEY_PAUSE: Duration = Duration::from_secs(1);
const SURVEYS_PER_WARNING: u64 = 60;

/// One database in a cluster. Shared by the thread that runs it and by everything that asks for its state.
pub struct Node {
    pub(crate) db: Database,
    log: Arc<dyn SharedLog>,
    settings: Settings,
    state: Mutex<State>,
    /// Separate, so that a status never waits for the log.
    status: Mutex<Status>,
    barriers: Barriers,
    audit: Mutex<Audit>,
    /// The thread that runs the node, if there is one.
    thread: Mutex<Option<Thread>>,
    /// A thread runs the node, or is about to: readers leave their proof to it.
    is_run: AtomicBool,
}

/// Outcome of a step.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Done {
    /// Nothing: it is not time yet.
    Nothing,
    /// Applied entries.
    Followed {
        /// How many.
        entries: u64,
    },
    /// The shared log did not answer.
    Unavailable {
        /// Cause of the failure.
        cause: String,
    },
    /// Began to lead.
    Led {
        /// The term.
        term: u64,
    },
    /// Tried to lead, and another node's entry came first.
    Outrun,
    /// Appended an empty entry.
    Renewed,
    /// Appended a statement about contents.
    Stated,
    /// Ended: every later step returns the same.
    Ended(End),
}

/// A step, and when the next one has something to do.
#[derive(Debug, Clone)]
pub struct Stepped {
    /// Outcome of the step.
    pub done: Done,
    /// Monotonic nanoseconds at which to call again. Earlier calls do no harm.
    pub again: u64,
}

/// State between steps. Times are monotonic nanoseconds.
struct State {
    end: Option<End>,
    /// The newest entry that was seen, and when.
    index: EntryIndex,
    heard: u64,
    /// How long this node waits for an entry before it may try to lead, and how many such times it has drawn.
    patience: Duration,
    attempts: u64,
    /// Since when the log answers, after that time has passed.
    answers_since: Option<u64>,
    /// When this node may try to lead at the earliest.
    not_before: u64,
    /// This node leads, and has prepared its database for that.
    has_begun: bool,
    /// It led, and gave that up.
    has_stepped_down: bool,
    /// When it had everything that the log had.
    caught_up: u64,
    /// Name of the log, once it has answered.
    identity: Option<LogId>,
    surveys: u64,
    survey_at: u64,
    newest: EntryIndex,
    unavailable: Option<String>,
    warnings: Vec<String>,
    /// When the leader looks for a statement about contents.
    audit_at: u64,
    hashes: HashStatus,
}

impl Node {
    /// A node around a database that was opened with `log` as its shared log. It follows until it has a reason to lead.
    ///
    /// # Panics
    /// The database is alone: it was opened without a shared log.
    pub fn new(db: Database, log: Arc<dyn SharedLog>, settings: Settings) -> Self {
        assert!(db.role() != Role::Alone, "the database of a node has a shared log");
        let engine = db.engine();
        let now = engine.env().clock.monotonic_nanos();
        let place = engine.place();
        let state = State {
            end: None,
            index: place.index,
            heard: now,
            patience: settings.patience(0),
            attempts: 0,
            answers_since: None,
            not_before: now,
            has_begun: false,
            has_stepped_down: false,
            caught_up: now,
            identity: None,
            surveys: 0,
            survey_at: now,
            newest: place.index,
            unavailable: None,
            warnings: Vec::new(),
            audit_at: now,
            hashes: HashStatus::default(),
        };
        let status = Status {
            role: engine.role(),
            term: place.term,
            leader: None,
            seq: engine.seq(),
            index: place.index,
            lag_entries: 0,
            lag: Duration::ZERO,
            unavailable: None,
            warnings: Vec::new(),
            hashes: HashStatus::default(),
            end: None,
        };
        Self {
            db,
            log,
            settings,
            state: Mutex::new(state),
            status: Mutex::new(status),
            barriers: Barriers::default(),
            audit: Mutex::default(),
            thread: Mutex::new(None),
            is_run: AtomicBool::new(false),
        }
    }

    /// Does not try to lead for `time` from now on: for a node that has stepped down, [`Settings::patience_max`] or more.
    #[must_use]
    pub fn hold_off(self, time: Duration) -> Self {
        let now = self.engine().env().clock.monotonic_nanos();
        self.state.lock().not_before = after(now, time);
        self
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.db
    }

    /// State after the last step. Never waits for the log.
    pub fn status(&self) -> Status {
        let mut status = self.status.lock().clone();
        status.seq = self.db.seq();
        status
    }

    /// Why the node ended, if it did.
    pub fn end(&self) -> Option<End> {
        self.status.lock().end.clone()
    }

    /// Waits for proof that this node leads, and returns the newest visible commit then: every commit that any node has
    /// acknowledged before the call is that one or an earlier one. `deadline` is in nanoseconds of the monotonic clock of
    /// the database.
    ///
    /// Cost: one append to the shared log, which all callers that wait at the same time share.
    ///
    /// # Errors
    /// [`BarrierError::NotLeader`] with the leader's address: ask there, and wait here until the commit that it returns is
    /// visible. [`BarrierError::Late`] after the deadline.
    pub fn barrier(&self, deadline: u64) -> Result<Seq, BarrierError> {
        let receiver = self.barriers.enter();
        if self.is_run.load(Ordering::Acquire) && self.end().is_none() {
            self.wake();
        } else {
            // The failure is also the answer.
            let _ = self.serve_readers();
        }
        let left = deadline.saturating_sub(self.db.engine().env().clock.monotonic_nanos());
        barriers::wait(&receiver, Duration::from_nanos(left))
    }

    /// Gives up leading, so that another node leads: the `successor` at once if it follows, otherwise any after a lease. Returns
    /// the term that ends. Commits that took place are acknowledged. The node ends with [`End::SteppedDown`]; its owner opens the
    /// database again, with [`Node::hold_off`].
    ///
    /// Cost: at most two appends to the shared log; until another node leads no node accepts a commit.
    ///
    /// # Errors
    /// [`EngineError::NotLeader`], with the leader's address. [`LogError::Unknown`](ropewalk_log::LogError::Unknown): it is
    /// unknown whether the last commits took place, and the node ends, too.
    pub fn step_down(&self, successor: Option<[u8; 16]>) -> Result<u64, EngineError> {
        // Between two steps, so that the next one finds the reason.
        let mut state = self.state.lock();
        let term = self.engine().place().term;
        self.engine().step_down(successor)?;
        state.has_stepped_down = true;
        drop(state);
        self.wake();
        Ok(term)
    }

    /// The hashes that this node reports to its leader.
    pub fn hash_report(&self) -> HashReport {
        HashReport::of(self.engine())
    }

    /// True when hashes that another node has reported differ from those of this node. Those of other commits do not.
    pub fn differs(&self, report: &HashReport) -> bool {
        report.differs(&self.hash_report())
    }

    /// Notes the hashes that a follower has reported to this node, if it leads.
    pub fn take_hashes(&self, node: [u8; 16], report: HashReport) {
        if matches!(self.engine().role(), Role::Leader { .. }) {
            let now = self.engine().env().clock.monotonic_nanos();
            self.audit.lock().take(node, report, now);
        }
    }

    /// Begins to compare all contents of the nodes, unless that is under way. [`Status::hashes`] shows how far it is.
    ///
    /// # Errors
    /// [`EngineError::NotLeader`], with the leader's address.
    pub fn check_contents(&self) -> Result<(), EngineError> {
        match self.engine().role() {
            Role::Leader { .. } => self.audit.lock().request(),
            Role::Follower { leader } => return Err(EngineError::NotLeader { leader }),
            Role::Alone => return Err(EngineError::NotLeader { leader: None }),
        }
        self.wake();
        Ok(())
    }

    /// Does what is due at `now`, in nanoseconds of the monotonic clock of the database. One call at a time does something;
    /// others wait for it.
    pub fn step(&self, now: u64) -> Stepped {
        let mut state = self.state.lock();
        let stepped = self.advance(&mut state, now).unwrap_or_else(|end| {
            state.end = Some(end.clone());
            Stepped { done: Done::Ended(end), again: u64::MAX }
        });
        self.observe(&state, now);
        if state.end.is_some() {
            let _ = self.serve_readers();
        }
        stepped
    }

    fn advance(&self, state: &mut State, now: u64) -> Result<Stepped, End> {
        if let Some(end) = &state.end {
            return Err(end.clone());
        }
        self.check_running(state)?;
        self.survey(state, now)?;
        match self.engine().role() {
            Role::Leader { term } => self.lead(state, now, term),
            Role::Follower { .. } | Role::Alone => {
                if core::mem::take(&mut state.has_begun) {
                    self.audit.lock().clear();
                }
                // A follower refuses them.
                let _ = self.serve_readers();
                self.follow(state, now)
            }
        }
    }

    /// Applies the next entries, or tries to lead after a long time without entries.
    fn follow(&self, state: &mut State, now: u64) -> Result<Stepped, End> {
        let after = self.engine().place().index;
        let entries = match self.log.read(after, self.settings.read_bytes, self.settings.read_wait) {
            Ok(entries) => entries,
            Err(error) => return self.unanswered(state, now, error),
        };
        state.unavailable = None;
        if entries.is_empty() {
            return self.wait_or_campaign(state, now);
        }
        let mut is_successor = false;
        for entry in &entries {
            match self.engine().follow(entry) {
                Ok(followed) => (state.index, is_successor) = (followed.place.index, followed.is_successor),
                Err(error @ EngineError::Diverged { .. }) => return Err(End::Diverged { error }),
                Err(error @ EngineError::Differs(_)) => return Err(End::Differs { error }),
                Err(error) => return self.failed(state, now, &error),
            }
        }
        state.heard_at(now, &self.settings);
        // A full answer leaves some out, and so may another one: those that would have made it too long.
        let bytes: usize = entries.iter().map(|entry| entry.bytes.len()).sum();
        if bytes < self.settings.read_bytes && state.index >= state.newest {
            state.caught_up = now;
        }
        state.newest = state.newest.max(state.index);
        if is_successor {
            return self.campaign(state, now);
        }
        Ok(Stepped { done: Done::Followed { entries: entries.len() as u64 }, again: now })
    }

    /// The log has no further entry.
    fn wait_or_campaign(&self, state: &mut State, now: u64) -> Result<Stepped, End> {
        state.caught_up = now;
        let waits_until = after(state.heard, state.patience).max(state.not_before);
        if now < waits_until {
            // The read has waited for an entry, unless the settings say that it does not.
            let again = if self.settings.read_wait.is_zero() { after(now, RETRY_PAUSE) } else { now };
            return Ok(Stepped { done: Done::Nothing, again: again.min(waits_until) });
        }
        // A read may be answered by a copy of the log that is out of date; the bounds show that it is.
        let bounds = match self.log.bounds() {
            Ok(bounds) => bounds,
            Err(error) => return self.unanswered(state, now, error),
        };
        state.newest = state.newest.max(bounds.newest);
        if bounds.newest > state.index {
            state.answers_since = None;
            return Ok(Stepped { done: Done::Nothing, again: after(now, RETRY_PAUSE) });
        }
        let since = *state.answers_since.get_or_insert(now);
        let campaign_at = after(since, self.settings.renewal_interval());
        if now < campaign_at {
            return Ok(Stepped { done: Done::Nothing, again: campaign_at });
        }
        self.campaign(state, now)
    }

    /// Tries to lead.
    fn campaign(&self, state: &mut State, now: u64) -> Result<Stepped, End> {
        match self.engine().campaign() {
            Ok(true) => {
                let term = self.engine().place().term;
                state.heard_at(now, &self.settings);
                self.lead(state, now, term)
            }
            Ok(false) => {
                state.heard_at(now, &self.settings);
                Ok(Stepped { done: Done::Outrun, again: now })
            }
            Err(error @ EngineError::Diverged { .. }) => Err(End::Diverged { error }),
            Err(error) => {
                // The leader, too, finds the log back later.
                state.answers_since = None;
                self.failed(state, now, &error)
            }
        }
    }

    /// Prepares to lead; renews when readers wait for it or nothing was appended for long.
    fn lead(&self, state: &mut State, now: u64, term: u64) -> Result<Stepped, End> {
        if !state.has_begun {
            if let Err(error) = self.db.begin_leading() {
                return self.failed(state, now, &error);
            }
            state.has_begun = true;
            state.seen(self.engine(), now);
            let again = after(now, self.settings.renewal_interval());
            return Ok(Stepped { done: Done::Led { term }, again });
        }
        if state.index != self.engine().place().index {
            state.seen(self.engine(), now);
        }
        if now >= state.audit_at && self.compare(state, now)? {
            return Ok(Stepped { done: Done::Stated, again: now });
        }
        let due = after(state.heard, self.settings.renewal_interval());
        let has_readers = !self.barriers.is_empty();
        if now < due && !has_readers {
            return Ok(Stepped { done: Done::Nothing, again: due.min(state.audit_at) });
        }
        let renewed = if has_readers { self.serve_readers() } else { self.engine().renew() };
        match renewed {
            Ok(()) => {}
            Err(error @ EngineError::Diverged { .. }) => return Err(End::Diverged { error }),
            Err(error) => return self.failed(state, now, &error),
        }
        state.unavailable = None;
        state.seen(self.engine(), now);
        Ok(Stepped { done: Done::Renewed, again: after(now, self.settings.renewal_interval()) })
    }

    /// Appends the next statement about contents, as the leader: true if one was due.
    fn compare(&self, state: &mut State, now: u64) -> Result<bool, End> {
        state.audit_at = after(now, self.settings.renewal_interval());
        let engine = self.engine();
        let random = || engine.env().random.next_u64();
        let Some(body) = self.audit.lock().due(engine, now, &self.settings, random) else { return Ok(false) };
        match engine.write_hash(&body) {
            Ok(index) => self.audit.lock().stated(&body, index, engine, now, &self.settings),
            Err(error @ EngineError::Differs(_)) => return Err(End::Differs { error }),
            Err(error) => {
                // The key at which a slice begins is longer than an entry, or the leader is deposed.
                self.audit.lock().fail(error.to_string(), now, &self.settings);
                self.check_running(state)?;
                return Ok(false);
            }
        }
        state.seen(engine, now);
        Ok(true)
    }

    /// Asks the log, now and then, what an operator wants to know, and whether it is still the same.
    fn survey(&self, state: &mut State, now: u64) -> Result<(), End> {
        if now < state.survey_at {
            return Ok(());
        }
        state.survey_at = after(now, SURVEY_PAUSE);
        state.hashes = self.audit.lock().status(self.engine());
        let surveyed = self.log.identity().and_then(|identity| {
            let bounds = self.log.bounds()?;
            let asks = state.surveys.is_multiple_of(SURVEYS_PER_WARNING);
            let warnings = if asks { Some(self.log.warnings()?) } else { None };
            Ok((identity, bounds, warnings))
        });
        let (identity, bounds, warnings) = match surveyed {
            Ok(surveyed) => surveyed,
            Err(error) => return self.unanswered(state, now, error).map(|_| ()),
        };
        if let Some(known) = state.identity.filter(|known| *known != identity) {
            return Err(End::Lost {
                what: format!("it was created again: its name is {identity}, not {known}"),
            });
        }
        state.identity = Some(identity);
        state.surveys += 1;
        state.newest = bounds.newest;
        state.warnings = warnings.unwrap_or_else(|| core::mem::take(&mut state.warnings));
        if bounds.oldest > self.engine().place().index.next() && bounds.newest >= bounds.oldest {
            return Err(End::Trimmed { oldest: bounds.oldest });
        }
        Ok(())
    }

    /// A call of the log failed.
    fn unanswered(&self, state: &mut State, now: u64, error: SharedError) -> Result<Stepped, End> {
        match error {
            SharedError::Trimmed { oldest } => Err(End::Trimmed { oldest }),
            SharedError::Lost { what } => Err(End::Lost { what }),
            SharedError::Unavailable { cause } => {
                state.answers_since = None;
                self.failed(state, now, &cause)
            }
        }
    }

    /// Something failed that may succeed later, unless the engine has stopped.
    fn failed(&self, state: &mut State, now: u64, cause: &dyn core::fmt::Display) -> Result<Stepped, End> {
        self.check_running(state)?;
        let cause = cause.to_string();
        state.unavailable = Some(cause.clone());
        Ok(Stepped { done: Done::Unavailable { cause }, again: after(now, RETRY_PAUSE) })
    }

    fn check_running(&self, state: &State) -> Result<(), End> {
        match self.engine().stopped() {
            None => Ok(()),
            Some(error @ EngineError::Differs(_)) => Err(End::Differs { error }),
            Some(_) if state.has_stepped_down => Err(End::SteppedDown),
            Some(_) if self.engine().is_deposed() => Err(End::Deposed),
            Some(error @ EngineError::Diverged { .. }) => Err(End::Diverged { error }),
            Some(error) => Err(End::Stopped { error }),
        }
    }

    /// Answers the readers that wait now, with one proof for all.
    fn serve_readers(&self) -> Result<(), EngineError> {
        let mut proven = Ok(());
        self.barriers.serve(|| match self.engine().role() {
            Role::Leader { .. } => {
                proven = self.engine().renew();
                proven.clone().map(|()| self.db.seq()).map_err(BarrierError::from)
            }
            Role::Follower { leader } => Err(BarrierError::NotLeader { leader }),
            Role::Alone => Ok(self.db.seq()),
        });
        proven
    }

    fn observe(&self, state: &State, now: u64) {
        let (role, place) = (self.engine().role(), self.engine().place());
        let is_leader = matches!(role, Role::Leader { .. });
        let leader = match &role {
            Role::Follower { leader } => leader.clone(),
            Role::Leader { .. } | Role::Alone => None,
        };
        let lag_entries = if is_leader { 0 } else { state.newest.0.saturating_sub(place.index.0) };
        let lag = if is_leader { 0 } else { now.saturating_sub(state.caught_up) };
        *self.status.lock() = Status {
            role,
            term: place.term,
            leader,
            seq: self.db.seq(),
            index: place.index,
            lag_entries,
            lag: Duration::from_nanos(lag),
            unavailable: state.unavailable.clone(),
            warnings: state.warnings.clone(),
            hashes: state.hashes.clone(),
            end: state.end.clone(),
        };
    }

    fn engine(&self) -> &Engine {
        self.db.engine()
    }

    /// Wakes the thread that runs the node.
    pub(crate) fn wake(&self) {
        if let Some(thread) = &*self.thread.lock() {
            thread.unpark();
        }
    }

    /// A thread runs the node from now on; `None` ends that.
    pub(crate) fn run_by(&self, thread: Option<Thread>) {
        self.is_run.store(thread.is_some(), Ordering::Release);
        *self.thread.lock() = thread;
        if !self.is_run.load(Ordering::Acquire) {
            let _ = self.serve_readers();
        }
    }

    pub(crate) fn has_readers(&self) -> bool {
        !self.barriers.is_empty()
    }
}

impl State {
    /// The log has shown a new entry.
    fn heard_at(&mut self, now: u64, settings: &Settings) {
        self.heard = now;
        self.answers_since = None;
        self.attempts += 1;
        self.patience = settings.patience(self.attempts);
    }

    /// This node has appended.
    fn seen(&mut self, engine: &Engine, now: u64) {
        self.index = engine.place().index;
        self.heard = now;
    }
}
