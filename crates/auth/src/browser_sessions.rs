//! Sessions of browsers: a cookie that replaces the credentials of each request.
//!
//! ```text
//! login ─▶ Caller ─▶ begin ─▶ cookie, write token       cookie ─▶ SHA-256 ─▶ session ─▶ Caller, checked again
//! ```
//! Invariants
//! 1. Memory holds hashes of cookies, not cookies. Sessions are not stored: a restart ends all of them.
//! 2. The number of sessions is bounded, of all callers and of one. The session that was idle for longest
//!    makes room for a new one.
//! 3. A caller carries the life of its session, so a stream that the session began ends with it.
//! 4. A request that changes something carries the write token. It proves that the console has sent the
//!    request: a browser adds the cookie to any request, but only the console's script knows the token.

use core::time::Duration;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::bytes::random;
use crate::caller::{Caller, SessionLife};
use crate::error::Result;

/// A session ends after this time without a request: a working day.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(8 * 3_600);
/// Longest life of a session, used or not.
pub(crate) const AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Sessions of all callers; each takes about 300 bytes.
const SESSIONS_MAX: usize = 1_024;
/// Sessions of one user or token, those before a change of the password included.
const CALLER_SESSIONS_MAX: usize = 32;

/// A session that was found by its cookie.
#[derive(Clone)]
pub struct BrowserSession {
    pub(crate) caller: Caller,
    write_token: Arc<str>,
}

impl BrowserSession {
    /// The caller who logged in.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The token that requests which change something must carry.
    pub fn write_token(&self) -> &str {
        &self.write_token
    }

    /// True for the write token of this session. Compares in constant time.
    pub fn permits_write(&self, token: &str) -> bool {
        self.write_token.as_bytes().ct_eq(token.as_bytes()).into()
    }
}

struct Entry {
    session: BrowserSession,
    begun: Instant,
    used: Instant,
}

impl Entry {
    fn has_ended(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.used) >= IDLE_MAX
            || now.saturating_duration_since(self.begun) >= AGE_MAX
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(life) = self.session.caller.session() {
            life.end();
        }
    }
}

/// SHA-256 of a cookie.
type CookieHash = [u8; 32];

fn hash(cookie: &str) -> CookieHash {
    Sha256::digest(cookie.as_bytes()).into()
}

/// All sessions.
#[derive(Default)]
pub(crate) struct BrowserSessions(Mutex<HashMap<CookieHash, Entry>>);

impl BrowserSessions {
    fn entries(&self) -> MutexGuard<'_, HashMap<CookieHash, Entry>> {
        self.0.lock().unwrap_or_else(|held| held.into_inner())
    }

    /// Begins a session of `caller`; returns its cookie.
    pub(crate) fn begin(&self, caller: Caller, now: Instant) -> Result<(String, BrowserSession)> {
        let cookie = URL_SAFE_NO_PAD.encode(random::<32>()?);
        let write_token = URL_SAFE_NO_PAD.encode(random::<32>()?);
        let caller = caller.with_session(Some(Arc::new(SessionLife::until(now + AGE_MAX))));
        let principal = caller.principal();
        let mut entries = self.entries();
        entries.retain(|_, entry| !entry.has_ended(now));
        let is_own = |entry: &Entry| entry.session.caller.principal() == principal;
        if entries.values().filter(|&entry| is_own(entry)).count() >= CALLER_SESSIONS_MAX {
            drop_idlest(&mut entries, is_own);
        }
        if entries.len() >= SESSIONS_MAX {
            drop_idlest(&mut entries, |_| true);
        }
        let session = BrowserSession { caller, write_token: write_token.into() };
        entries.insert(hash(&cookie), Entry { session: session.clone(), begun: now, used: now });
        Ok((cookie, session))
    }

    /// The session of a cookie, marked as used.
    pub(crate) fn find(&self, cookie: &str, now: Instant) -> Option<BrowserSession> {
        let mut entries = self.entries();
        let key = hash(cookie);
        let entry = entries.get_mut(&key)?;
        if entry.has_ended(now) {
            entries.remove(&key);
            return None;
        }
        entry.used = now;
        Some(entry.session.clone())
    }

    /// Ends the session of a cookie, if there is one.
    pub(crate) fn end(&self, cookie: &str) {
        self.entries().remove(&hash(cookie));
    }
}

/// Drops the session that had no request for longest, among those that `may_go`.
fn drop_idlest(entries: &mut HashMap<CookieHash, Entry>, may_go: impl Fn(&Entry) -> bool) {
    let candidates = entries.iter().filter(|(_, entry)| may_go(entry));
    let idlest = candidates.min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key);
    if let Some(key) = idlest {
        entries.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::{Identity, Roles};
    use crate::scram::ScramVerifier;

    fn caller(name: &str) -> Caller {
        let identity = Identity::Token { id: name.into(), expires_micros: None };
        Caller::new(name, identity, &Roles::new())
    }

    #[test]
    fn session_is_found_by_its_cookie_until_it_ends() {
        let (sessions, now) = (BrowserSessions::default(), Instant::now());
        let (cookie, session) = sessions.begin(caller("ann"), now).unwrap();
        assert_eq!(sessions.find(&cookie, now).unwrap().caller().name(), "ann");
        assert!(session.permits_write(session.write_token()));
        assert!(!session.permits_write("") && !session.permits_write(&cookie));
        assert!(sessions.find("", now).is_none() && sessions.find(session.write_token(), now).is_none());
        sessions.end(&cookie);
        assert!(sessions.find(&cookie, now).is_none());
    }

    #[test]
    fn session_ends_when_it_is_idle_or_old() {
        let (sessions, begun) = (BrowserSessions::default(), Instant::now());
        let (cookie, _) = sessions.begin(caller("ann"), begun).unwrap();
        let step = IDLE_MAX - Duration::from_secs(1);
        let mut now = begun;
        while now + step < begun + AGE_MAX {
            now += step;
            assert!(sessions.find(&cookie, now).is_some());
        }
        assert!(sessions.find(&cookie, now + step).is_none());
        let (cookie, _) = sessions.begin(caller("ann"), begun).unwrap();
        assert!(sessions.find(&cookie, begun + IDLE_MAX).is_none());
    }

    #[test]
    fn sessions_of_a_user_before_a_new_password_make_room_first() {
        let (sessions, now) = (BrowserSessions::default(), Instant::now());
        let (other, _) = sessions.begin(caller("bob"), now).unwrap();
        for n in 0..SESSIONS_MAX {
            let verifier = ScramVerifier { iterations: n as u32, ..ScramVerifier::nobody() };
            let identity = Identity::User { verifier: Arc::new(verifier) };
            sessions.begin(Caller::new("ann", identity, &Roles::new()), now).unwrap();
        }
        assert_eq!(sessions.entries().len(), CALLER_SESSIONS_MAX + 1);
        assert!(sessions.find(&other, now).is_some());
    }

    #[test]
    fn caller_of_a_session_notices_its_end() {
        let (sessions, now) = (BrowserSessions::default(), Instant::now());
        let (cookie, session) = sessions.begin(caller("ann"), now).unwrap();
        let copies = [session.caller().clone(), sessions.find(&cookie, now).unwrap().caller().clone()];
        assert!(copies.iter().all(|copy| !copy.session_has_ended(now)));
        assert!(copies.iter().all(|copy| copy.session_has_ended(now + AGE_MAX)));
        sessions.end(&cookie);
        assert!(copies.iter().all(|copy| copy.session_has_ended(now)));
        assert!(!caller("ann").session_has_ended(now + AGE_MAX));
    }

    #[test]
    fn sessions_are_bounded_and_the_idlest_makes_room() {
        let (sessions, now) = (BrowserSessions::default(), Instant::now());
        let at = |n: usize| now + Duration::from_millis(n as u64);
        let (other, _) = sessions.begin(caller("bob"), now).unwrap();
        let begun: Vec<String> =
            (0..=CALLER_SESSIONS_MAX).map(|n| sessions.begin(caller("ann"), at(n)).unwrap().0).collect();
        let last = at(CALLER_SESSIONS_MAX);
        assert!(sessions.find(&begun[0], last).is_none());
        assert!(sessions.find(&begun[1], last).is_some() && sessions.find(&other, last).is_some());
        for n in 0..SESSIONS_MAX + 10 {
            sessions.begin(caller(&format!("user {n}")), last + Duration::from_millis(n as u64)).unwrap();
        }
        assert_eq!(sessions.entries().len(), SESSIONS_MAX);
    }
}
