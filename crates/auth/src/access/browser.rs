//! Sessions of browsers, checked against the present users and tokens.

use std::time::Instant;

use super::Access;
use crate::browser_sessions::BrowserSession;
use crate::caller::{Caller, Identity};
use crate::error::{AuthError, Result};
use crate::newcomer;

impl Access {
    /// Begins a session of a user or token; returns the cookie, of which only a hash is retained.
    ///
    /// # Errors
    /// [`AuthError::Invalid`] for a caller without credentials, who needs no session.
    pub fn begin_session(&self, caller: &Caller) -> Result<(String, BrowserSession)> {
        match caller.identity() {
            Identity::User { .. } | Identity::Token { .. } => {
                self.0.sessions.begin(caller.clone(), Instant::now())
            }
            Identity::Trusted | Identity::Anonymous => {
                Err(AuthError::Invalid("a session needs the credentials of a user or token".into()))
            }
        }
    }

    /// The session of a cookie, with the caller's rights as they are now.
    ///
    /// `None` when it has ended: by its age, by [`Access::end_session`], or with its user, password or token.
    pub fn session(&self, cookie: &str) -> Option<BrowserSession> {
        let mut session = self.0.sessions.find(cookie, Instant::now())?;
        // No version that access has had: the rights are looked up.
        let mut seen = u64::MAX;
        if self.revalidate(&mut session.caller, &mut seen).is_err() {
            self.0.sessions.end(cookie);
            return None;
        }
        newcomer::admitted();
        Some(session)
    }

    /// Ends the session of a cookie, if there is one.
    pub fn end_session(&self, cookie: &str) {
        self.0.sessions.end(cookie);
    }
}
