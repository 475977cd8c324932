//! Registry of connections and their activity: for `pg_stat_activity`, and so that one connection can cancel
//! or terminate another.
//!
//! A client receives its process number and a secret at login; a connection that presents both cancels the
//! statement. The number is not an operating system process. In SQL the number is enough, for an
//! administrator or the same user.
//!
//! Each connection records its activity in a separate entry, so that the lock that a statement takes is
//! contended only when all entries are listed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use ropewalk_auth::{Caller, Right};
use ropewalk_sql::{Canceller, SessionInfo, SessionRegistry, SessionState, SqlError, Status};
use ropewalk_wire::Stop;

use crate::failure::INSUFFICIENT_PRIVILEGE;

/// Bytes of a statement's text that are displayed, PostgreSQL's default.
const QUERY_BYTES: usize = 1023;

/// Identity of a connection.
pub(crate) struct Who {
    pub(crate) user: String,
    pub(crate) database: String,
    pub(crate) peer: Option<SocketAddr>,
    /// The name to which its rights are granted; empty for anonymous access.
    pub(crate) role: String,
    pub(crate) is_admin: bool,
    /// Microseconds since 1970.
    pub(crate) since: i64,
}

/// A connection, as other connections see it.
pub(crate) struct Backend {
    pub(crate) process: i32,
    pub(crate) secret: i32,
    who: Who,
    /// The instant of `who.since`.
    began: Instant,
    canceller: Canceller,
    is_admin: AtomicBool,
    is_terminated: AtomicBool,
    over: Stop,
    now: Mutex<Now>,
}

/// Current activity.
struct Now {
    application: String,
    query: Arc<str>,
    state: &'static str,
    waits: bool,
    transaction_since: Option<Instant>,
    query_since: Option<Instant>,
    state_since: Instant,
}

#[derive(Default)]
struct All {
    newest: i32,
    backends: BTreeMap<i32, Arc<Backend>>,
}

/// All connections.
#[derive(Clone, Default)]
pub(crate) struct Backends(Arc<Mutex<All>>);

/// A connection's entry; removed when the value is dropped.
pub(crate) struct Entered {
    backends: Backends,
    own: Arc<Backend>,
}

impl std::ops::Deref for Entered {
    type Target = Arc<Backend>;

    fn deref(&self) -> &Arc<Backend> {
        &self.own
    }
}

/// The displayed part of a statement's text.
pub(crate) fn shown(sql: &str) -> &str {
    sql.get(..sql.floor_char_boundary(QUERY_BYTES)).unwrap_or(sql)
}

impl Backends {
    fn all(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(|held| held.into_inner())
    }

    fn get(&self, process: i32) -> Option<Arc<Backend>> {
        self.all().backends.get(&process).cloned()
    }

    pub(crate) fn enter(&self, canceller: Canceller, who: Who) -> Result<Entered, getrandom::Error> {
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
        let began = Instant::now();
        let now = Now {
            application: String::new(),
            query: Arc::default(),
            state: "idle",
            waits: false,
            transaction_since: None,
            query_since: None,
            state_since: began,
        };
        let own = Arc::new(Backend {
            process,
            secret,
            began,
            canceller,
            is_admin: who.is_admin.into(),
            is_terminated: false.into(),
            over: Stop::new(),
            now: Mutex::new(now),
            who,
        });
        all.backends.insert(process, own.clone());
        Ok(Entered { backends: self.clone(), own })
    }

    /// Cancels the statement of connection `process` if the secret matches. The caller does not learn the
    /// outcome.
    pub(crate) fn cancel(&self, process: i32, secret: i32) {
        if let Some(backend) = self.get(process).filter(|backend| backend.secret == secret) {
            backend.canceller.cancel();
        }
    }
}

impl Backend {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(|held| held.into_inner())
    }

    /// Records that a statement starts.
    pub(crate) fn runs(&self, query: &Arc<str>, at: Instant) {
        let mut now = self.now();
        if !Arc::ptr_eq(&now.query, query) {
            now.query = query.clone();
        }
        now.state = "active";
        (now.query_since, now.state_since) = (Some(at), at);
        now.transaction_since.get_or_insert(at);
    }

    /// Records that the connection is idle.
    pub(crate) fn rests(&self, status: Status, at: Instant) {
        let mut now = self.now();
        now.state_since = at;
        now.state = match status {
            Status::Idle => "idle",
            Status::Open => "idle in transaction",
            Status::Failed => "idle in transaction (aborted)",
        };
        if status == Status::Idle {
            now.transaction_since = None;
        }
    }

    /// Records that it waits for a row lock, or no longer does.
    pub(crate) fn waits(&self, waits: bool) {
        self.now().waits = waits;
    }

    pub(crate) fn is_called(&self, application: &str) {
        application.clone_into(&mut self.now().application);
    }

    /// Updates the caller, whose rights may have changed.
    pub(crate) fn is_now(&self, caller: &Caller) {
        self.is_admin.store(caller.may(Right::Admin, None), Ordering::Relaxed);
    }

    /// True once the connection was terminated.
    pub(crate) fn is_terminated(&self) -> bool {
        self.is_terminated.load(Ordering::Acquire)
    }

    /// Waits until the connection is terminated.
    pub(crate) async fn terminated(&self) {
        self.over.wait().await;
    }

    fn terminate(&self) {
        self.is_terminated.store(true, Ordering::Release);
        self.canceller.cancel();
        self.over.begin();
    }

    fn is_admin(&self) -> bool {
        self.is_admin.load(Ordering::Relaxed)
    }

    /// True if this connection may see and terminate `other`: an administrator, or the same user.
    fn may(&self, other: &Self) -> bool {
        self.is_admin() || self.process == other.process || {
            !other.is_admin() && !self.who.role.is_empty() && self.who.role == other.who.role
        }
    }

    /// Microseconds since 1970.
    fn micros(&self, at: Instant) -> i64 {
        let behind = at.saturating_duration_since(self.began).as_micros();
        self.who.since.saturating_add(i64::try_from(behind).unwrap_or(i64::MAX))
    }

    fn doing(&self, now: &Now) -> SessionState {
        SessionState {
            client: self.who.peer.map(|peer| (peer.ip().to_canonical().to_string(), peer.port())),
            since: self.who.since,
            transaction_since: now.transaction_since.map(|at| self.micros(at)),
            query_since: now.query_since.map(|at| self.micros(at)),
            state_since: self.micros(now.state_since),
            state: now.state,
            waits: now.waits,
            query: now.query.clone(),
        }
    }

    /// Its activity, as far as `asker` may see it.
    fn activity(&self, asker: &Self) -> SessionInfo {
        let now = self.now();
        SessionInfo {
            number: self.process,
            user: self.who.user.clone(),
            database: self.who.database.clone(),
            application: now.application.clone(),
            doing: asker.may(self).then(|| self.doing(&now)),
        }
    }
}

impl Entered {
    /// The other connections, for its SQL session.
    pub(crate) fn peers(&self) -> Arc<dyn SessionRegistry> {
        Arc::new(Others { backends: self.backends.clone(), own: self.own.clone() })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.backends.all().backends.remove(&self.own.process);
    }
}

/// All connections, as seen by one of them.
struct Others {
    backends: Backends,
    own: Arc<Backend>,
}

impl Others {
    /// Finds connection `number` and checks that this one may `act` on it.
    fn asked(&self, number: i32, [act, done, what]: [&str; 3]) -> Result<Option<Arc<Backend>>, SqlError> {
        let Some(found) = self.backends.get(number) else { return Ok(None) };
        if self.own.may(&found) {
            return Ok(Some(found));
        }
        let message = match found.is_admin() {
            true => format!("must be a superuser to {act} superuser {what}"),
            false => format!(
                "must be a member of the role whose {what} is being {done} or member of pg_signal_backend"
            ),
        };
        let error = SqlError::new(INSUFFICIENT_PRIVILEGE, message);
        Err(error.hint("connect as the same user, or with the right admin on all stores"))
    }
}

impl SessionRegistry for Others {
    fn activity(&self) -> Vec<SessionInfo> {
        let all: Vec<Arc<Backend>> = self.backends.all().backends.values().cloned().collect();
        all.iter().map(|backend| backend.activity(&self.own)).collect()
    }

    fn is_there(&self, number: i32) -> bool {
        self.backends.get(number).is_some()
    }

    fn cancel(&self, number: i32) -> Result<bool, SqlError> {
        let found = self.asked(number, ["cancel", "canceled", "query"])?;
        Ok(found.inspect(|backend| backend.canceller.cancel()).is_some())
    }

    fn terminate(&self, number: i32) -> Result<bool, SqlError> {
        let found = self.asked(number, ["terminate", "terminated", "process"])?;
        Ok(found.inspect(|backend| backend.terminate()).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(role: &str, is_admin: bool) -> Who {
        let (user, database) = (role.to_owned(), "ropewalk".to_owned());
        Who { user: user.clone(), database, peer: None, role: user, is_admin, since: 1_000_000 }
    }

    #[test]
    fn only_the_secret_cancels() {
        let backends = Backends::default();
        let canceller = Canceller::default();
        let entered = backends.enter(canceller.clone(), who("", true)).unwrap();
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

    #[test]
    fn states_follow_each_other() {
        let backends = Backends::default();
        let entered = backends.enter(Canceller::default(), who("ann", false)).unwrap();
        let (peers, query) = (entered.peers(), Arc::<str>::from("SELECT 1"));
        let doing = || peers.activity().remove(0).doing.unwrap();
        assert_eq!((doing().state, doing().query_since, doing().since), ("idle", None, 1_000_000));
        let after = |micros: u64| entered.began + std::time::Duration::from_micros(micros);
        entered.runs(&query, after(5));
        assert_eq!((doing().state, doing().transaction_since), ("active", Some(1_000_005)));
        entered.rests(Status::Open, after(7));
        entered.runs(&query, after(8));
        entered.rests(Status::Failed, after(9));
        let failed = doing();
        assert_eq!(failed.state, "idle in transaction (aborted)");
        assert_eq!(failed.transaction_since, Some(1_000_005));
        assert_eq!((failed.query_since, failed.state_since), (Some(1_000_008), 1_000_009));
        entered.rests(Status::Idle, after(10));
        assert_eq!((doing().state, doing().transaction_since), ("idle", None));
        assert_eq!(&*doing().query, "SELECT 1");
        drop(entered);
        assert_eq!(peers.activity(), []);
    }

    #[test]
    fn user_sees_and_terminates_own_sessions() {
        let backends = Backends::default();
        let enter = |role, is_admin| backends.enter(Canceller::default(), who(role, is_admin)).unwrap();
        let (root, ann, also_ann, bob) =
            (enter("root", true), enter("ann", false), enter("ann", false), enter("bob", false));
        let seen = |by: &Entered| {
            let all = by.peers().activity();
            all.iter().map(|activity| activity.doing.is_some()).collect::<Vec<_>>()
        };
        assert_eq!(seen(&root), [true; 4]);
        assert_eq!(seen(&ann), [false, true, true, false]);
        assert_eq!(ann.peers().cancel(99), Ok(false));
        assert_eq!(ann.peers().terminate(also_ann.process), Ok(true));
        assert!(also_ann.is_terminated() && !ann.is_terminated());
        for (number, message) in [
            (root.process, "must be a superuser to terminate superuser process"),
            (
                bob.process,
                "must be a member of the role whose process is being terminated or member of pg_signal_backend",
            ),
        ] {
            let refused = ann.peers().terminate(number).unwrap_err();
            assert_eq!((refused.state.0, refused.message.as_str()), ("42501", message));
        }
        assert!(!root.is_terminated() && !bob.is_terminated());
        assert_eq!(root.peers().cancel(bob.process), Ok(true));
        // Two anonymous connections are not the same user.
        let (one, other) = (enter("", false), enter("", false));
        assert!(one.peers().cancel(other.process).is_err());
    }

    #[test]
    fn long_text_is_truncated_at_char_boundary() {
        assert_eq!(shown("SELECT 1"), "SELECT 1");
        let long = format!("a{}", "ü".repeat(600));
        assert_eq!(shown(&long).len(), 1023);
        assert_eq!(shown(&long[1..].repeat(2)).len(), 1022);
    }
}
