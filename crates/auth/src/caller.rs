use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::error::{AuthError, Result};
use crate::scram::ScramVerifier;

/// A right on a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Right {
    /// Read events, follow them, see counts and tracking positions.
    Read,
    /// Append events.
    Append,
    /// Everything, creating and deleting the store included. On all stores: users, tokens and the server
    /// itself.
    Admin,
}

impl Right {
    /// The right's name in settings and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Append => "append",
            Self::Admin => "admin",
        }
    }
}

impl FromStr for Right {
    type Err = AuthError;

    fn from_str(name: &str) -> Result<Self> {
        let found = [Self::Read, Self::Append, Self::Admin].into_iter().find(|right| right.as_str() == name);
        found.ok_or_else(|| {
            AuthError::Invalid(format!("unknown right {name:?}; there are read, append, admin"))
        })
    }
}

/// Represents every store, present and future.
pub(crate) const ALL_STORES: &str = "*";

/// Rights by store; `*` is every store.
pub type Roles = BTreeMap<String, BTreeSet<Right>>;

/// How the caller was authenticated, so that it can be checked again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identity {
    /// A process that can open the directory itself: the embedding program, a client of the local socket.
    Trusted,
    /// An anonymous caller, while the server is open.
    Anonymous,
    /// The user of the caller's name, with the password at the login: a user who is created again or gets
    /// another password is another identity.
    User { verifier: Arc<ScramVerifier> },
    /// A token.
    Token { id: Arc<str>, expires_micros: Option<i64> },
}

/// The life of a browser's session, shared with all copies of its caller.
#[derive(Debug)]
pub(crate) struct SessionLife {
    /// Its longest life ends then.
    ends: Instant,
    has_ended: AtomicBool,
}

impl SessionLife {
    pub(crate) fn until(ends: Instant) -> Self {
        Self { ends, has_ended: AtomicBool::new(false) }
    }

    /// Ends it for all copies of its caller.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
    }

    fn has_ended(&self, now: Instant) -> bool {
        now >= self.ends || self.has_ended.load(Ordering::Acquire)
    }
}

/// The caller of an operation, with its rights. Cheap to clone; made by [`crate::Access::authenticate`].
#[derive(Debug, Clone)]
pub struct Caller {
    name: Arc<str>,
    identity: Identity,
    roles: Arc<Roles>,
    /// The session of a caller who was admitted by its cookie: streams end with it.
    session: Option<Arc<SessionLife>>,
}

static ALL_RIGHTS: LazyLock<(Arc<str>, Arc<Roles>)> = LazyLock::new(|| {
    let roles = Roles::from([(ALL_STORES.to_owned(), BTreeSet::from([Right::Admin]))]);
    ("".into(), Arc::new(roles))
});

impl Caller {
    pub(crate) fn new(name: &str, identity: Identity, roles: &Roles) -> Self {
        Self { name: name.into(), identity, roles: Arc::new(roles.clone()), session: None }
    }

    fn with_all_rights(identity: Identity) -> Self {
        let (name, roles) = ALL_RIGHTS.clone();
        Self { name, identity, roles, session: None }
    }

    /// The caller in a session of a browser, or in none.
    pub(crate) fn with_session(self, session: Option<Arc<SessionLife>>) -> Self {
        Self { session, ..self }
    }

    pub(crate) fn session(&self) -> Option<&Arc<SessionLife>> {
        self.session.as_ref()
    }

    /// True for a caller whose session has ended.
    pub(crate) fn session_has_ended(&self, now: Instant) -> bool {
        self.session.as_ref().is_some_and(|session| session.has_ended(now))
    }

    /// A caller without a name who may do everything, even when there are users: for processes that can open
    /// the directory itself.
    pub fn everybody() -> Self {
        Self::with_all_rights(Identity::Trusted)
    }

    /// The same, only while the server is open.
    pub(crate) fn anonymous() -> Self {
        Self::with_all_rights(Identity::Anonymous)
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The user's or token's name; empty for an anonymous caller.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The caller's rights by store.
    pub fn roles(&self) -> &Roles {
        &self.roles
    }

    /// True when both are the same login: the same user with the same password, the same token, or both
    /// anonymous. A user and a token of one name differ, and so does a user who was created again.
    pub fn is_same(&self, other: &Self) -> bool {
        self.name == other.name && self.identity == other.identity
    }

    /// Names the caller among users, tokens and anonymous callers, also after a change of the password.
    pub fn principal(&self) -> String {
        match &self.identity {
            Identity::Trusted => "process".to_owned(),
            Identity::Anonymous => "anonymous".to_owned(),
            Identity::User { .. } => format!("user {}", self.name),
            Identity::Token { id, .. } => format!("token {id}"),
        }
    }

    /// True for the user `name`; a token of the same name is not that user.
    pub(crate) fn is_user(&self, name: &str) -> bool {
        matches!(self.identity, Identity::User { .. }) && *self.name == *name
    }

    /// True when the caller has `right` on `store`, or with `None` on every store.
    pub fn may(&self, right: Right, store: Option<&str>) -> bool {
        let has = |store: &str| {
            self.roles
                .get(store)
                .is_some_and(|rights| rights.iter().any(|held| *held == right || *held == Right::Admin))
        };
        has(ALL_STORES) || store.is_some_and(has)
    }

    /// True when the caller has a right on some store.
    pub fn has_any_right(&self) -> bool {
        self.roles.values().any(|rights| !rights.is_empty())
    }

    /// Rejects a caller who has `right` on no store at all.
    ///
    /// # Errors
    /// [`AuthError::PermissionDenied`].
    pub(crate) fn check_somewhere(&self, right: Right) -> Result<()> {
        if self.roles.values().any(|rights| rights.contains(&right) || rights.contains(&Right::Admin)) {
            return Ok(());
        }
        let message = format!("{:?} lacks the right {:?} on any store", self.name, right.as_str());
        Err(AuthError::PermissionDenied(message))
    }

    /// Rejects an operation for which the caller lacks the right.
    ///
    /// # Errors
    /// [`AuthError::PermissionDenied`].
    pub fn check(&self, right: Right, store: Option<&str>) -> Result<()> {
        if self.may(right, store) {
            return Ok(());
        }
        let place = store.map_or("all stores".to_owned(), |store| format!("store {store:?}"));
        let who = if self.name.is_empty() { "nobody" } else { &self.name };
        let message = format!("{who} lacks the right {:?} on {place}", right.as_str());
        Err(AuthError::PermissionDenied(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(roles: &[(&str, Right)]) -> Caller {
        let mut all = Roles::new();
        for (store, right) in roles {
            all.entry((*store).to_owned()).or_default().insert(*right);
        }
        Caller::new("ann", Identity::User { verifier: Arc::new(ScramVerifier::nobody()) }, &all)
    }

    #[test]
    fn rights_are_per_store_and_admin_is_all_of_them() {
        let ann = caller(&[("a", Right::Read), ("b", Right::Admin)]);
        assert!(ann.may(Right::Read, Some("a")) && !ann.may(Right::Append, Some("a")));
        assert!(ann.may(Right::Append, Some("b")) && ann.may(Right::Read, Some("b")));
        assert!(!ann.may(Right::Read, None) && !ann.may(Right::Read, Some("c")));
        let refused = ann.check(Right::Append, Some("a")).unwrap_err();
        assert!(matches!(refused, AuthError::PermissionDenied(_)));
        assert_eq!(refused.to_string(), "ann lacks the right \"append\" on store \"a\"");
    }

    #[test]
    fn star_grants_rights_on_every_store() {
        let all = caller(&[("*", Right::Append)]);
        assert!(all.may(Right::Append, Some("x")) && all.may(Right::Append, None));
        assert!(!all.may(Right::Read, Some("x")) && !all.may(Right::Admin, None));
        assert!(Caller::everybody().may(Right::Admin, None));
    }
}
