//! SCRAM: the stored verifier of a password, and its check.
//!
//! ```text
//! SaltedPassword = PBKDF2-HMAC(password, salt, iterations)
//! ClientKey = HMAC(SaltedPassword, "Client Key")     StoredKey = H(ClientKey)     ServerKey = HMAC(SaltedPassword, "Server Key")
//! ```
//! H is SHA-256. A second verifier with SHA-1 is stored for old MongoDB clients, which support no other
//! mechanism; their password input is the MD5 of `user:mongo:password`. It is used for nothing else, and
//! clients with a choice use SHA-256.
//!
//! Stored are salt, iterations, StoredKey and ServerKey: enough to check a password sent in clear (HTTP Basic
//! over TLS) and to take part in the exchange of protocols that never send it; not enough to log in
//! elsewhere.
//!
//! Passwords are 1 to 256 printable ASCII characters. For these SASLprep is the identity, so that every
//! client derives the same key whether it implements SASLprep or not.
//! Source: RFC 5802, RFC 7677.

use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use ropewalk::hooks::hex;
use serde::{Deserialize, Serialize};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::bytes::random;
use crate::error::{AuthError, Result};

/// Iterations for new passwords: MongoDB's default, well above RFC 7677's least (4,096); about 3 ms.
const ITERATIONS: u32 = 15_000;
/// MongoDB's iterations for the mechanism with SHA-1.
const SHA1_ITERATIONS: u32 = 10_000;
const SHA1_SALT_BYTES: usize = 16;
const PASSWORD_BYTES_MAX: usize = 256;
/// MongoDB's; some of its clients accept no other length for this mechanism.
const SALT_BYTES: usize = 28;

/// Stored verifier of a password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScramVerifier {
    /// Random.
    #[serde(with = "crate::bytes")]
    pub salt: Vec<u8>,
    /// Rounds of PBKDF2.
    pub iterations: u32,
    /// Hash of the client key.
    #[serde(with = "crate::bytes")]
    pub stored_key: Vec<u8>,
    /// Key with which the server proves its identity.
    #[serde(with = "crate::bytes")]
    pub server_key: Vec<u8>,
}

/// The hash of a mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha256,
    Sha1,
}

fn mac<M: Mac + KeyInit>(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

impl Hash {
    fn hmac(self, key: &[u8], message: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => mac::<Hmac<Sha256>>(key, message),
            Self::Sha1 => mac::<Hmac<Sha1>>(key, message),
        }
    }

    fn digest(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
            Self::Sha1 => Sha1::digest(bytes).to_vec(),
        }
    }

    fn salted(self, password: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
        match self {
            Self::Sha256 => {
                let mut salted = [0; 32];
                pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, iterations, &mut salted);
                salted.to_vec()
            }
            Self::Sha1 => {
                let mut salted = [0; 20];
                pbkdf2::pbkdf2_hmac::<Sha1>(password, salt, iterations, &mut salted);
                salted.to_vec()
            }
        }
    }
}

impl ScramVerifier {
    /// Derives the verifier of a new password. Costs milliseconds.
    ///
    /// # Errors
    /// A password that is empty, too long, or not printable ASCII.
    pub(crate) fn new(password: &str) -> Result<Self> {
        let printable = password.bytes().all(|b| (b' '..=b'~').contains(&b));
        if password.is_empty() || password.len() > PASSWORD_BYTES_MAX || !printable {
            let message = format!("a password has 1 to {PASSWORD_BYTES_MAX} printable ASCII characters");
            return Err(AuthError::Invalid(message));
        }
        let salt: [u8; SALT_BYTES] = random()?;
        Ok(Self::derive(Hash::Sha256, password, &salt, ITERATIONS))
    }

    /// The verifier for old MongoDB clients, for a password that [`ScramVerifier::new`] accepted.
    ///
    /// # Errors
    /// No randomness.
    pub(crate) fn for_old_clients(user: &str, password: &str) -> Result<Self> {
        let salt: [u8; SHA1_SALT_BYTES] = random()?;
        let digest = Md5::digest(format!("{user}:mongo:{password}").as_bytes());
        Ok(Self::derive(Hash::Sha1, &hex(digest.as_slice()), &salt, SHA1_ITERATIONS))
    }

    fn derive(hash: Hash, password: &str, salt: &[u8], iterations: u32) -> Self {
        let salted = hash.salted(password.as_bytes(), salt, iterations);
        Self {
            salt: salt.to_vec(),
            iterations,
            stored_key: hash.digest(&hash.hmac(&salted, b"Client Key")),
            server_key: hash.hmac(&salted, b"Server Key"),
        }
    }

    /// A verifier that no password matches, which costs as much to check as a real one, so that neither
    /// result nor time reveals whether a user exists.
    pub(crate) fn nobody() -> Self {
        Self {
            salt: vec![0; SALT_BYTES],
            iterations: ITERATIONS,
            stored_key: Vec::new(),
            server_key: Vec::new(),
        }
    }

    /// The same for one mechanism, with a salt derived from the name and the mechanism.
    pub(crate) fn of_unknown(hash: Hash, secret: &[u8], user: &str) -> Self {
        let (mechanism, bytes, iterations) = match hash {
            Hash::Sha256 => ("SCRAM-SHA-256", SALT_BYTES, ITERATIONS),
            Hash::Sha1 => ("SCRAM-SHA-1", SHA1_SALT_BYTES, SHA1_ITERATIONS),
        };
        let mut salt = Hash::Sha256.hmac(secret, format!("{mechanism}\0{user}").as_bytes());
        salt.truncate(bytes);
        Self { salt, iterations, ..Self::nobody() }
    }

    /// True for the right password. Costs milliseconds.
    pub(crate) fn matches(&self, password: &str) -> bool {
        if password.len() > PASSWORD_BYTES_MAX {
            return false;
        }
        let derived = Self::derive(Hash::Sha256, password, &self.salt, self.iterations);
        derived.stored_key.ct_eq(&self.stored_key).into()
    }

    /// True when `proof` proves that the client knows the password (`ClientProof` of the exchange whose
    /// messages are `auth_message`).
    pub(crate) fn accepts(&self, hash: Hash, auth_message: &[u8], proof: &[u8]) -> bool {
        let signature = hash.hmac(&self.stored_key, auth_message);
        if proof.len() != signature.len() {
            return false;
        }
        let client_key: Vec<u8> = proof.iter().zip(signature).map(|(p, s)| p ^ s).collect();
        hash.digest(&client_key).ct_eq(&self.stored_key).into()
    }

    /// The server's proof (`ServerSignature`).
    pub(crate) fn signature(&self, hash: Hash, auth_message: &[u8]) -> Vec<u8> {
        hash.hmac(&self.server_key, auth_message)
    }
}

impl std::fmt::Debug for ScramVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScramVerifier").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

/// A client's two keys: its own, and the one with which it checks the server.
#[cfg(test)]
pub(crate) fn client_keys(hash: Hash, password: &str, salt: &[u8], iterations: u32) -> (Vec<u8>, Vec<u8>) {
    let salted = hash.salted(password.as_bytes(), salt, iterations);
    (hash.hmac(&salted, b"Client Key"), hash.hmac(&salted, b"Server Key"))
}

/// The client's proof.
#[cfg(test)]
pub(crate) fn client_proof(hash: Hash, client_key: &[u8], messages: &[u8]) -> Vec<u8> {
    let signature = hash.hmac(&hash.digest(client_key), messages);
    client_key.iter().zip(signature).map(|(key, sign)| key ^ sign).collect()
}

#[cfg(test)]
pub(crate) fn sign(hash: Hash, key: &[u8], messages: &[u8]) -> Vec<u8> {
    hash.hmac(key, messages)
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[test]
    fn rfc_7677_exchange_is_verified() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = ScramVerifier::derive(Hash::Sha256, "pencil", &salt, 4096);
        let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let messages = format!(
            "n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}"
        );
        let proof = STANDARD.decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=").unwrap();
        assert!(verifier.accepts(Hash::Sha256, messages.as_bytes(), &proof));
        assert!(!verifier.accepts(Hash::Sha256, b"n=other", &proof));
        let signature = STANDARD.encode(verifier.signature(Hash::Sha256, messages.as_bytes()));
        assert_eq!(signature, "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        assert!(verifier.matches("pencil") && !verifier.matches("pencils"));
        assert!(!verifier.accepts(Hash::Sha256, messages.as_bytes(), b"short"));
    }

    #[test]
    fn rfc_5802_exchange_is_verified() {
        let salt = STANDARD.decode("QSXCR+Q6sek8bf92").unwrap();
        let verifier = ScramVerifier::derive(Hash::Sha1, "pencil", &salt, 4096);
        let nonce = "fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j";
        let messages =
            format!("n=user,r=fyko+d2lbbFgONRv9qkxdawL,r={nonce},s=QSXCR+Q6sek8bf92,i=4096,c=biws,r={nonce}");
        let proof = STANDARD.decode("v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=").unwrap();
        assert!(verifier.accepts(Hash::Sha1, messages.as_bytes(), &proof));
        assert!(!verifier.accepts(Hash::Sha256, messages.as_bytes(), &proof));
        let signature = STANDARD.encode(verifier.signature(Hash::Sha1, messages.as_bytes()));
        assert_eq!(signature, "rmF9pqV8S7suAoZWja4dJRkFsKQ=");
    }

    #[test]
    fn salts_differ_and_no_password_matches_unknown_user() {
        let (a, b) = (ScramVerifier::new("same").unwrap(), ScramVerifier::new("same").unwrap());
        assert_ne!(a.stored_key, b.stored_key);
        assert!(a.matches("same") && b.matches("same"));
        assert!(!ScramVerifier::nobody().matches(""));
        assert!(!format!("{a:?}").contains("key"));
    }

    #[test]
    fn passwords_outside_printable_ascii_are_rejected() {
        for password in ["", "pässword", "tab\t", &"x".repeat(257)] {
            assert!(matches!(ScramVerifier::new(password), Err(AuthError::Invalid(_))));
        }
    }
}
