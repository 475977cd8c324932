//! Cache of recently verified passwords, so that Basic authentication does not cost milliseconds for each
//! request.

use core::time::Duration;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::bytes::random;
use crate::error::Result;
use crate::scram::ScramVerifier;

const REMEMBERED_FOR: Duration = Duration::from_secs(60);
const ENTRIES_MAX: usize = 1_024;

/// User, password and peer, hashed with a key that only this process has.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Shown([u8; 32]);

struct Entry {
    /// The verifier that the password matched; a different one means that the user has changed since.
    stored_key: Vec<u8>,
    until: Instant,
}

pub(crate) struct PasswordCache {
    secret: [u8; 32],
    entries: Mutex<HashMap<Shown, Entry>>,
}

impl PasswordCache {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { secret: random()?, entries: Mutex::default() })
    }

    pub(crate) fn key(&self, user: &str, password: &str, peer: Option<IpAddr>) -> Shown {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.secret).expect("HMAC takes keys of any length");
        // Lengths separate the parts.
        mac.update(&(user.len() as u64).to_le_bytes());
        mac.update(user.as_bytes());
        mac.update(&(password.len() as u64).to_le_bytes());
        mac.update(password.as_bytes());
        if let Some(peer) = peer {
            mac.update(peer.to_string().as_bytes());
        }
        Shown(mac.finalize().into_bytes().into())
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<Shown, Entry>> {
        self.entries.lock().unwrap_or_else(|held| held.into_inner())
    }

    pub(crate) fn remember(&self, shown: Shown, verifier: &ScramVerifier, now: Instant) {
        let mut entries = self.entries();
        if entries.len() >= ENTRIES_MAX {
            entries.retain(|_, entry| entry.until > now);
        }
        if entries.len() >= ENTRIES_MAX {
            entries.clear();
        }
        let entry = Entry { stored_key: verifier.stored_key.clone(), until: now + REMEMBERED_FOR };
        entries.insert(shown, entry);
    }

    pub(crate) fn knows(&self, shown: &Shown, verifier: &ScramVerifier, now: Instant) -> bool {
        let entries = self.entries();
        let Some(entry) = entries.get(shown).filter(|entry| entry.until > now) else { return false };
        entry.stored_key.ct_eq(&verifier.stored_key).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verified_password_is_cached_for_a_minute_per_peer_and_user() {
        let (cache, now) = (PasswordCache::new().unwrap(), Instant::now());
        let verifier = |key: u8| ScramVerifier { stored_key: vec![key; 32], ..ScramVerifier::nobody() };
        let home = Some(IpAddr::from([127, 0, 0, 1]));
        let shown = cache.key("ann", "secret", home);
        cache.remember(shown.clone(), &verifier(1), now);
        assert!(cache.knows(&shown, &verifier(1), now));
        assert!(!cache.knows(&shown, &verifier(2), now));
        assert!(!cache.knows(&shown, &verifier(1), now + REMEMBERED_FOR));
        for other in [cache.key("ann", "secret", None), cache.key("anns", "ecret", home)] {
            assert!(!cache.knows(&other, &verifier(1), now));
        }
        for i in 0..2 * ENTRIES_MAX {
            cache.remember(cache.key(&i.to_string(), "", None), &verifier(1), now);
        }
        assert!(cache.entries().len() <= ENTRIES_MAX);
    }
}
