//! Users, API tokens, and the check of credentials.
//!
//! While there is neither a user nor a token the server is open: every caller may do everything. The first
//! one closes it.
//!
//! Invariants
//! 1. The database is the truth (`records`); the copy in memory is read from it after every commit that wrote
//!    there, wherever the commit was made.
//! 2. No secret is stored, only its verifier. Secrets are compared in constant time.
//! 3. A password was right "recently" only for the same peer, for a minute, and while the user is unchanged.
//!
//! Streams outlive the check at their beginning, so a subscription checks again before it delivers
//! ([`Access::revalidate`]): it ends with its user, its token or its right.

pub(crate) mod browser;
pub(crate) mod manage;
pub(crate) mod scram_exchange;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Instant;

use ropewalk::Database;
use ropewalk::engine::{Keyspace, WatchMark};
use ropewalk::hooks::WatchedKeyspace;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use crate::browser_sessions::BrowserSessions;
use crate::bytes::random;
use crate::caller::{Caller, Identity};
use crate::error::{AuthError, Result};
use crate::newcomer;
use crate::password_cache::{PasswordCache, Shown};
use crate::records::{self, TokenRecord, UserRecord};
use crate::scram::ScramVerifier;
use crate::throttle::{Attempt, Throttle};

/// One error for both causes, so that it does not reveal which users exist.
fn wrong_password() -> AuthError {
    AuthError::Unauthenticated("unknown user or wrong password")
}

/// Credentials of a request.
#[derive(Clone, Copy)]
pub enum Credentials<'a> {
    /// Nothing.
    None,
    /// Name and password of a user.
    Password {
        /// The user.
        user: &'a str,
        /// The password.
        password: &'a str,
    },
    /// An API token.
    Token(&'a str),
}

/// Users, tokens, and the check of credentials. Cheap to clone.
#[derive(Clone)]
pub struct Access(Arc<Shared>);

struct Shared {
    db: Database,
    /// Users and tokens as the database has them; none while their keyspace is not defined.
    stored: WatchedKeyspace,
    insecure: bool,
    logins: Arc<Logins>,
    known: RwLock<(Arc<Known>, Option<WatchMark>)>,
    /// Counts changes of `known`.
    changes: AtomicU64,
    /// Held while users or tokens change.
    changing: Mutex<()>,
    throttle: Throttle,
    passwords: PasswordCache,
    sessions: BrowserSessions,
    /// Replaces the stored secret of salts if the database accepts no writes.
    salt_secret: [u8; 32],
    /// Concurrent password checks: each occupies a processor.
    checks: Semaphore,
}

/// Counts of rejected logins.
#[derive(Default)]
pub struct Logins {
    /// Wrong passwords and unknown tokens.
    pub failed: AtomicU64,
    /// Logins that had to wait.
    pub throttled: AtomicU64,
}

#[derive(Default)]
struct Known {
    users: BTreeMap<String, User>,
    tokens: HashMap<Vec<u8>, Token>,
}

struct User {
    record: UserRecord,
    caller: Caller,
}

struct Token {
    id: String,
    record: TokenRecord,
    caller: Caller,
}

impl Known {
    fn load(db: &Database, keyspace: Option<Keyspace>) -> Result<Self> {
        let (users, tokens) =
            keyspace.map_or_else(|| Ok(Default::default()), |keyspace| records::load(db, keyspace))?;
        let users = users.into_iter().map(|(name, record)| {
            let caller = Caller::new(&name, record.identity(), &record.roles);
            (name, User { record, caller })
        });
        let tokens = tokens.into_iter().map(|(id, record)| {
            let identity = Identity::Token { id: id.as_str().into(), expires_micros: record.expires_micros };
            let caller = Caller::new(&record.name, identity, &record.roles);
            (record.hash.clone(), Token { id, record, caller })
        });
        Ok(Self { users: users.collect(), tokens: tokens.collect() })
    }
}

impl Access {
    /// Loads the users and tokens of `db`. `insecure`: callers without credentials may do everything,
    /// although users or tokens exist.
    ///
    /// # Errors
    /// The stored users and tokens cannot be read.
    pub fn open(db: Database, insecure: bool) -> Result<Self> {
        let stored = WatchedKeyspace::new(db.system_keyspace(records::KEYSPACE)?);
        let mark = stored.mark(&db);
        let known = Known::load(&db, stored.to_read(&db))?;
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        Ok(Self(Arc::new(Shared {
            db,
            stored,
            insecure,
            logins: Arc::default(),
            known: RwLock::new((Arc::new(known), mark)),
            changes: AtomicU64::new(0),
            changing: Mutex::new(()),
            throttle: Throttle::default(),
            passwords: PasswordCache::new()?,
            sessions: BrowserSessions::default(),
            salt_secret: random()?,
            checks: Semaphore::new(processors),
        })))
    }

    /// The users and tokens of the newest visible commit.
    fn known(&self) -> Arc<Known> {
        self.refresh();
        self.0.known.read().unwrap_or_else(|held| held.into_inner()).0.clone()
    }

    /// Reads users and tokens again if a commit has changed them, here or elsewhere.
    fn refresh(&self) {
        let mark = self.0.known.read().unwrap_or_else(|held| held.into_inner()).1;
        if !self.0.stored.is_current(&self.0.db, mark)
            && let Err(error) = self.reload()
        {
            tracing::error!(%error, "users and tokens could not be read; those read before stay in force");
        }
    }

    /// Reads users and tokens again, unless another thread has done it meanwhile.
    fn reload(&self) -> Result<()> {
        let mut loaded = self.0.known.write().unwrap_or_else(|held| held.into_inner());
        let Shared { db, stored, .. } = &*self.0;
        if !stored.is_current(db, loaded.1) {
            let mark = stored.mark(db);
            *loaded = (Arc::new(Known::load(db, stored.to_read(db))?), mark);
            self.0.changes.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    /// Counts of rejected logins since [`Access::open`].
    pub fn logins(&self) -> &Arc<Logins> {
        &self.0.logins
    }

    /// True while there is neither a user nor a token.
    pub fn is_open(&self) -> bool {
        let known = self.known();
        known.users.is_empty() && known.tokens.is_empty()
    }

    /// True while callers without credentials may do everything.
    pub fn admits_anonymous(&self) -> bool {
        self.0.insecure || self.is_open()
    }

    /// Authenticates a caller. `peer` is the address at the other end of the connection, never one from a
    /// header.
    ///
    /// # Errors
    /// [`AuthError::Unauthenticated`]; [`AuthError::Throttled`] after too many wrong passwords.
    pub async fn authenticate(&self, credentials: Credentials<'_>, peer: Option<IpAddr>) -> Result<Caller> {
        let admitted = self.admit(credentials, peer).await;
        if admitted.is_ok() {
            newcomer::admitted();
        }
        admitted
    }

    async fn admit(&self, credentials: Credentials<'_>, peer: Option<IpAddr>) -> Result<Caller> {
        let known = self.known();
        if known.users.is_empty() && known.tokens.is_empty() {
            return Ok(Caller::anonymous());
        }
        match credentials {
            Credentials::None if self.0.insecure => Ok(Caller::anonymous()),
            Credentials::None => Err(AuthError::Unauthenticated("credentials are needed")),
            Credentials::Token(token) => self.check_token(&known, token),
            Credentials::Password { user, password } => self.check_password(user, password, peer).await,
        }
    }

    fn check_token(&self, known: &Known, token: &str) -> Result<Caller> {
        // A client that can choose the hash for the look-up knows the token, so its time reveals nothing.
        let found = known.tokens.get(Sha256::digest(token.as_bytes()).as_slice());
        let found = found.ok_or_else(|| {
            self.0.logins.failed.fetch_add(1, Ordering::Relaxed);
            AuthError::Unauthenticated("unknown token")
        })?;
        self.not_expired(found.record.expires_micros)?;
        Ok(found.caller.clone())
    }

    fn not_expired(&self, expires_micros: Option<i64>) -> Result<()> {
        if expires_micros.is_some_and(|expires| expires <= self.now_micros()) {
            return Err(AuthError::Unauthenticated("the token has expired"));
        }
        Ok(())
    }

    /// Checks again a caller who was admitted when the count of changes was `seen`; brings both up to date.
    /// A few atomic loads when nothing changed.
    ///
    /// # Errors
    /// [`AuthError::Unauthenticated`] when the user or token is gone, the password has changed, the session of
    /// the browser has ended, or the server is no longer open.
    pub fn revalidate(&self, caller: &mut Caller, seen: &mut u64) -> Result<()> {
        if let Identity::Token { expires_micros, .. } = caller.identity() {
            self.not_expired(*expires_micros)?;
        }
        if caller.session_has_ended(Instant::now()) {
            return Err(AuthError::Unauthenticated("the session has ended"));
        }
        self.refresh();
        let changes = self.0.changes.load(Ordering::Acquire);
        if changes == *seen {
            return Ok(());
        }
        let known = self.known();
        let open = self.0.insecure || known.users.is_empty() && known.tokens.is_empty();
        let now = match caller.identity() {
            Identity::Trusted => Some(caller.clone()),
            Identity::Anonymous => open.then(|| caller.clone()),
            Identity::User { .. } => {
                let user = known.users.get(caller.name()).map(|user| &user.caller);
                user.filter(|user| user.identity() == caller.identity()).cloned()
            }
            Identity::Token { id, .. } => {
                known.tokens.values().find(|token| *token.id == **id).map(|token| token.caller.clone())
            }
        };
        let now = now.ok_or(AuthError::Unauthenticated("the credentials were withdrawn"))?;
        *caller = now.with_session(caller.session().cloned());
        *seen = changes;
        Ok(())
    }

    async fn check_password(&self, user: &str, password: &str, peer: Option<IpAddr>) -> Result<Caller> {
        let shown = self.0.passwords.key(user, password, peer);
        if let Some(caller) = self.recently_right(user, &shown) {
            return Ok(caller);
        }
        // Boxed: a request has bytes for this future as long as it runs, and rarely needs it.
        Box::pin(self.verify_password(user, password, shown, peer)).await
    }

    async fn verify_password(
        &self,
        user: &str,
        password: &str,
        shown: Shown,
        peer: Option<IpAddr>,
    ) -> Result<Caller> {
        let attempt = Attempt::new(user, peer);
        self.not_throttled(&attempt)?;
        let _turn = self.0.checks.acquire().await.ok();
        // Meanwhile another request may have checked the same password, or found it wrong.
        if let Some(caller) = self.recently_right(user, &shown) {
            return Ok(caller);
        }
        self.not_throttled(&attempt)?;
        let known = self.known();
        let found = known.users.get(user);
        let verifier = found.map_or_else(ScramVerifier::nobody, |user| user.record.scram.clone());
        let (checked, password) = (verifier.clone(), password.to_owned());
        let right = tokio::task::spawn_blocking(move || checked.matches(&password)).await?;
        match found.filter(|_| right) {
            Some(user) => {
                self.0.throttle.succeeded(&attempt, Instant::now());
                self.0.passwords.remember(shown, &verifier, Instant::now());
                Ok(user.caller.clone())
            }
            None => {
                self.0.throttle.failed(&attempt, Instant::now());
                self.0.logins.failed.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(user, ?peer, "wrong user or password");
                Err(wrong_password())
            }
        }
    }

    fn recently_right(&self, user: &str, shown: &Shown) -> Option<Caller> {
        let known = self.known();
        let found = known.users.get(user)?;
        self.0.passwords.knows(shown, &found.record.scram, Instant::now()).then(|| found.caller.clone())
    }

    fn not_throttled(&self, attempt: &Attempt) -> Result<()> {
        match self.0.throttle.pause(attempt, Instant::now()) {
            Some(pause) => {
                self.0.logins.throttled.fetch_add(1, Ordering::Relaxed);
                Err(AuthError::Throttled { pause })
            }
            None => Ok(()),
        }
    }

    fn now_micros(&self) -> i64 {
        self.0.db.engine().env().clock.wall_micros()
    }
}
