//! SCRAM-SHA-256: what the server keeps of a password, and how it checks one.
//!
//! ```text
//! SaltedPassword = PBKDF2-HMAC-SHA-256(password, salt, iterations)
//! ClientKey = HMAC(SaltedPassword, "Client Key")     StoredKey = SHA-256(ClientKey)     ServerKey = HMAC(SaltedPassword, "Server Key")
//! ```
//! Kept are salt, iterations, StoredKey and ServerKey: enough to check a password sent in clear (HTTP Basic over TLS) and
//! to take part in the exchange of protocols that never send it; not enough to log in elsewhere.
//!
//! Passwords are 1 to 256 printable ASCII characters. For these SASLprep is the identity, so that every client derives
//! the same key whether it implements SASLprep or not.
//! Source: RFC 5802, RFC 7677.

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::error::WireError;

use super::base64_bytes;

/// What new passwords cost: MongoDB's default, well above RFC 7677's least (4,096); about 3 ms.
const ITERATIONS: u32 = 15_000;
const PASSWORD_BYTES_MAX: usize = 256;
/// MongoDB's; some of its clients take no other length for this mechanism.
pub(super) const SALT_BYTES: usize = 28;

/// What is kept of a password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScramVerifier {
    /// Random.
    #[serde(with = "base64_bytes")]
    pub salt: Vec<u8>,
    /// Rounds of PBKDF2.
    pub iterations: u32,
    /// SHA-256 of the client key.
    #[serde(with = "base64_bytes")]
    pub stored_key: Vec<u8>,
    /// What the server proves itself with.
    #[serde(with = "base64_bytes")]
    pub server_key: Vec<u8>,
}

fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(message);
    mac.finalize().into_bytes().into()
}

impl ScramVerifier {
    /// Derives the verifier of a new password. Costs milliseconds.
    ///
    /// # Errors
    /// A password that is empty, too long, or not printable ASCII.
    pub(crate) fn new(password: &str) -> Result<Self, WireError> {
        let printable = password.bytes().all(|b| (b' '..=b'~').contains(&b));
        if password.is_empty() || password.len() > PASSWORD_BYTES_MAX || !printable {
            return Err(WireError::invalid(format!(
                "a password has 1 to {PASSWORD_BYTES_MAX} printable ASCII characters"
            )));
        }
        let salt: [u8; SALT_BYTES] = super::random()?;
        Ok(Self::derive(password, &salt, ITERATIONS))
    }

    fn derive(password: &str, salt: &[u8], iterations: u32) -> Self {
        let mut salted = [0; 32];
        pbkdf2::pbkdf2_hmac::<Sha256>(password.as_bytes(), salt, iterations, &mut salted);
        Self {
            salt: salt.to_vec(),
            iterations,
            stored_key: Sha256::digest(hmac(&salted, b"Client Key")).to_vec(),
            server_key: hmac(&salted, b"Server Key").to_vec(),
        }
    }

    /// A verifier that no password matches, which costs as much to check as a real one: whether a user exists shows in
    /// nothing, not even in time.
    pub(crate) fn nobody() -> Self {
        Self {
            salt: vec![0; SALT_BYTES],
            iterations: ITERATIONS,
            stored_key: Vec::new(),
            server_key: Vec::new(),
        }
    }

    /// True for the right password. Costs milliseconds.
    pub(crate) fn matches(&self, password: &str) -> bool {
        if password.len() > PASSWORD_BYTES_MAX {
            return false;
        }
        let derived = Self::derive(password, &self.salt, self.iterations);
        derived.stored_key.ct_eq(&self.stored_key).into()
    }

    /// True when `proof` shows that the client knows the password (`ClientProof` of the exchange whose messages are
    /// `auth_message`).
    pub fn accepts(&self, auth_message: &[u8], proof: &[u8]) -> bool {
        let signature = hmac(&self.stored_key, auth_message);
        if proof.len() != signature.len() {
            return false;
        }
        let client_key: Vec<u8> = proof.iter().zip(signature).map(|(p, s)| p ^ s).collect();
        Sha256::digest(client_key).ct_eq(&self.stored_key).into()
    }

    /// What the server sends to prove itself (`ServerSignature`).
    pub fn signature(&self, auth_message: &[u8]) -> [u8; 32] {
        hmac(&self.server_key, auth_message)
    }
}

impl std::fmt::Debug for ScramVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScramVerifier").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

/// A client's two keys: its own, and what it checks the server by.
#[cfg(test)]
pub(super) fn client_keys(password: &str, salt: &[u8], iterations: u32) -> ([u8; 32], [u8; 32]) {
    let mut salted = [0; 32];
    pbkdf2::pbkdf2_hmac::<Sha256>(password.as_bytes(), salt, iterations, &mut salted);
    (hmac(&salted, b"Client Key"), hmac(&salted, b"Server Key"))
}

/// What a client shows.
#[cfg(test)]
pub(super) fn client_proof(client_key: &[u8; 32], messages: &[u8]) -> Vec<u8> {
    let signature = hmac(&Sha256::digest(client_key), messages);
    client_key.iter().zip(signature).map(|(key, sign)| key ^ sign).collect()
}

#[cfg(test)]
pub(super) fn sign(key: &[u8; 32], messages: &[u8]) -> [u8; 32] {
    hmac(key, messages)
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[test]
    fn the_exchange_of_rfc_7677() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = ScramVerifier::derive("pencil", &salt, 4096);
        let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let messages = format!(
            "n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}"
        );
        let proof = STANDARD.decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=").unwrap();
        assert!(verifier.accepts(messages.as_bytes(), &proof));
        assert!(!verifier.accepts(b"n=other", &proof) && !verifier.accepts(messages.as_bytes(), b"short"));
        let signature = STANDARD.encode(verifier.signature(messages.as_bytes()));
        assert_eq!(signature, "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        assert!(verifier.matches("pencil") && !verifier.matches("pencils"));
    }

    #[test]
    fn salts_differ_and_nobody_has_no_password() {
        let (a, b) = (ScramVerifier::new("same").unwrap(), ScramVerifier::new("same").unwrap());
        assert_ne!(a.stored_key, b.stored_key);
        assert!(a.matches("same") && b.matches("same"));
        assert!(!ScramVerifier::nobody().matches(""));
        assert!(!format!("{a:?}").contains("key"));
    }

    #[test]
    fn passwords_that_clients_would_prepare_differently_are_refused() {
        for password in ["", "pässword", "tab\t", &"x".repeat(257)] {
            assert_eq!(ScramVerifier::new(password).unwrap_err().code, crate::Code::InvalidArgument);
        }
    }
}
