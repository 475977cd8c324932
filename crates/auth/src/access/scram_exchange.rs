//! The server's half of the SCRAM exchange, for protocols whose clients never send a password.
//!
//! ```text
//! client: n,,n=user,r=CNONCE                       server: r=CNONCE+SNONCE,s=SALT,i=ROUNDS
//! client: c=biws,r=CNONCE+SNONCE,p=PROOF           server: v=SIGNATURE            or an error
//! ```
//! An unknown user gets a salt, too, one for each mechanism, derived from a secret in the database. Like the
//! salt of a user it survives restarts, so that salts do not reveal which users exist. Failures count like
//! wrong passwords. No channel binding, no authorization identity.
//! Source: RFC 5802, sections 5 and 7.

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Access, User, wrong_password};
use crate::bytes::random;
use crate::caller::Caller;
use crate::error::{AuthError, Result};
use crate::newcomer;
use crate::scram::{Hash, ScramVerifier};
use crate::throttle::Attempt;

/// Longest message of an exchange, bytes: names and nonces are short.
const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// Location of the secret: apart from users and tokens, whose keyspace holds nothing else.
const SECRET_KEYSPACE: &str = "sys.scram";
const SECRET_KEY: &[u8] = b"salts of unknown users";

/// An exchange that waits for the client's proof.
pub struct ScramExchange {
    user: String,
    peer: Option<IpAddr>,
    hash: Hash,
    verifier: ScramVerifier,
    nonce: String,
    /// Both first messages, without the client's header.
    messages: String,
    header: String,
}

fn malformed() -> AuthError {
    AuthError::Invalid("invalid message of a SCRAM exchange".into())
}

/// Decodes a user's name in a message: `=2C` is a comma, `=3D` an equals sign.
fn decode_name(encoded: &str) -> Result<String> {
    let mut parts = encoded.split('=');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (sign, rest) = match (part.strip_prefix("2C"), part.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (_, Some(rest)) => ('=', rest),
            _ => return Err(malformed()),
        };
        name.push(sign);
        name.push_str(rest);
    }
    Ok(name)
}

impl Access {
    /// Begins an exchange with the client's first message; returns the server's.
    ///
    /// # Errors
    /// [`AuthError::Invalid`] for an invalid message; [`AuthError::Throttled`] after too many wrong passwords.
    pub fn begin_scram(&self, first: &str, peer: Option<IpAddr>) -> Result<(ScramExchange, String)> {
        self.begin(Hash::Sha256, None, first, peer)
    }

    /// As [`Access::begin_scram`], where the protocol has already named the user; the name in the message is
    /// ignored.
    ///
    /// # Errors
    /// As [`Access::begin_scram`].
    pub fn begin_scram_of(
        &self,
        user: &str,
        first: &str,
        peer: Option<IpAddr>,
    ) -> Result<(ScramExchange, String)> {
        self.begin(Hash::Sha256, Some(user), first, peer)
    }

    /// As [`Access::begin_scram`], for MongoDB clients that only support SCRAM-SHA-1. A user whose password
    /// was set before there was a verifier for it is treated as unknown.
    ///
    /// # Errors
    /// As [`Access::begin_scram`].
    pub fn begin_scram_sha1(&self, first: &str, peer: Option<IpAddr>) -> Result<(ScramExchange, String)> {
        self.begin(Hash::Sha1, None, first, peer)
    }

    fn begin(
        &self,
        hash: Hash,
        known: Option<&str>,
        first: &str,
        peer: Option<IpAddr>,
    ) -> Result<(ScramExchange, String)> {
        if first.len() > MESSAGE_BYTES_MAX {
            return Err(malformed());
        }
        let bare = first.strip_prefix("n,,").or_else(|| first.strip_prefix("y,,")).ok_or_else(malformed)?;
        let header = first.get(..first.len() - bare.len()).unwrap_or_default().to_owned();
        let (name, nonce) = bare.split_once(",r=").ok_or_else(malformed)?;
        let named = name.strip_prefix("n=").ok_or_else(malformed)?;
        let user = known.map_or_else(|| decode_name(named), |user| Ok(user.to_owned()))?;
        // Extensions after the nonce are not supported, and none is optional.
        if nonce.is_empty() || nonce.contains(',') {
            return Err(malformed());
        }
        self.not_throttled(&Attempt::new(&user, peer))?;
        let kept = self.known().users.get(&user).and_then(|user| user.record.verifier(hash).cloned());
        // Computed for every user, so that the time does not reveal unknown names.
        let unknown = ScramVerifier::of_unknown(hash, &self.salt_secret(), &user);
        let verifier = kept.unwrap_or(unknown);
        let nonce = format!("{nonce}{}", STANDARD.encode(random::<18>()?));
        let answer = format!("r={nonce},s={},i={}", STANDARD.encode(&verifier.salt), verifier.iterations);
        let messages = format!("{bare},{answer}");
        Ok((ScramExchange { user, peer, hash, verifier, nonce, messages, header }, answer))
    }

    /// The secret from which salts of unknown users are derived; a temporary one if the database accepts no
    /// writes.
    fn salt_secret(&self) -> Vec<u8> {
        self.stored_secret().unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot store the salt secret; salts of unknown users will change on restart");
            self.0.salt_secret.to_vec()
        })
    }

    fn stored_secret(&self) -> Result<Vec<u8>> {
        let stored = self.0.db.system_keyspace(SECRET_KEYSPACE)?;
        let Some(keyspace) = stored.to_read(&self.0.db) else { return Ok(self.0.salt_secret.to_vec()) };
        if let Some(secret) = self.0.db.snapshot().get(keyspace, SECRET_KEY)? {
            return Ok(secret.to_vec());
        }
        // A follower has that of its leader from the first exchange there on.
        if !self.0.db.leads() {
            return Ok(self.0.salt_secret.to_vec());
        }
        let _changing = self.0.changing.lock().unwrap_or_else(|held| held.into_inner());
        let mut tx = self.0.db.begin();
        if let Some(secret) = tx.get(keyspace, SECRET_KEY)? {
            return Ok(secret);
        }
        let secret: [u8; 32] = random()?;
        tx.put(keyspace, SECRET_KEY, &secret);
        tx.commit()?;
        Ok(secret.to_vec())
    }

    /// Ends an exchange with the client's last message; returns the caller and the server's last message.
    ///
    /// # Errors
    /// [`AuthError::Unauthenticated`]; [`AuthError::Invalid`] for an invalid message.
    pub fn end_scram(&self, exchange: ScramExchange, last: &str) -> Result<(Caller, String)> {
        let attempt = Attempt::new(&exchange.user, exchange.peer);
        self.not_throttled(&attempt)?;
        if last.len() > MESSAGE_BYTES_MAX {
            return Err(malformed());
        }
        let (without_proof, proof) = last.rsplit_once(",p=").ok_or_else(malformed)?;
        let expected = format!("c={},r={}", STANDARD.encode(&exchange.header), exchange.nonce);
        let proof = STANDARD.decode(proof).map_err(|_| malformed())?;
        let messages = format!("{},{without_proof}", exchange.messages);
        let right = without_proof == expected
            && exchange.verifier.accepts(exchange.hash, messages.as_bytes(), &proof);
        let known = self.known();
        // The password may have changed since the exchange began.
        let same = |user: &&User| user.record.verifier(exchange.hash) == Some(&exchange.verifier);
        let found = known.users.get(&exchange.user).filter(same);
        match found.filter(|_| right) {
            Some(user) => {
                self.0.throttle.succeeded(&attempt, Instant::now());
                newcomer::admitted();
                let signature = exchange.verifier.signature(exchange.hash, messages.as_bytes());
                Ok((user.caller.clone(), format!("v={}", STANDARD.encode(signature))))
            }
            None => {
                self.0.throttle.failed(&attempt, Instant::now());
                self.0.logins.failed.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(user = exchange.user, peer = ?exchange.peer, "wrong user or password");
                Err(wrong_password())
            }
        }
    }
}

impl ScramExchange {
    /// The user who logs in.
    pub fn user(&self) -> &str {
        &self.user
    }
}

#[cfg(test)]
mod tests {
    use ropewalk::Database;

    use super::*;
    use crate::caller::Roles;
    use crate::scram::{client_keys, client_proof, sign};

    fn is_wrong_password(result: Result<(Caller, String)>) -> bool {
        let error = result.map(|_| ()).unwrap_err();
        matches!(error, AuthError::Unauthenticated("unknown user or wrong password"))
    }

    /// A client's last message.
    fn proof(hash: Hash, password: &str, bare: &str, answer: &str) -> (String, String) {
        let field = |name: &str| answer.split(',').find_map(|part| part.strip_prefix(name)).unwrap();
        let salt = STANDARD.decode(field("s=")).unwrap();
        let last = format!("c=biws,r={}", field("r="));
        let messages = format!("{bare},{answer},{last}");
        let keys = client_keys(hash, password, &salt, field("i=").parse().unwrap());
        let proof = client_proof(hash, &keys.0, messages.as_bytes());
        let signature = STANDARD.encode(sign(hash, &keys.1, messages.as_bytes()));
        (format!("{last},p={}", STANDARD.encode(proof)), format!("v={signature}"))
    }

    async fn access() -> Access {
        let access = Access::open(Database::in_memory().unwrap(), false).unwrap();
        let all = Caller::everybody();
        access.create_user(&all, "ann", "secret", Roles::new()).await.unwrap();
        access
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn correct_password_authenticates_client_and_server() {
        let access = access().await;
        let (exchange, answer) = access.begin_scram("n,,n=ann,r=abc", None).unwrap();
        assert!(answer.starts_with("r=abc"), "{answer}");
        let (last, expected) = proof(Hash::Sha256, "secret", "n=ann,r=abc", &answer);
        let (caller, verdict) = access.end_scram(exchange, &last).unwrap();
        assert_eq!((caller.name(), verdict), ("ann", expected));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn old_clients_authenticate_with_their_password_digest() {
        let access = access().await;
        let begin = |user: &str| access.begin_scram_sha1(&format!("n,,n={user},r=abc"), None).unwrap();
        let (exchange, answer) = begin("ann");
        assert!(answer.ends_with(",i=10000"), "{answer}");
        // The MD5 of `ann:mongo:secret`.
        let digest = "39a09bceee1e7b000a9db14ee09879e5";
        let (last, expected) = proof(Hash::Sha1, digest, "n=ann,r=abc", &answer);
        let (caller, verdict) = access.end_scram(exchange, &last).unwrap();
        assert_eq!((caller.name(), verdict), ("ann", expected));
        for (user, digest) in [("ann", "secret"), ("nobody", digest)] {
            let (exchange, answer) = begin(user);
            let (last, _) = proof(Hash::Sha1, digest, &format!("n={user},r=abc"), &answer);
            assert!(is_wrong_password(access.end_scram(exchange, &last)));
        }
        let (exchange, answer) = access.begin_scram("n,,n=ann,r=abc", None).unwrap();
        let (last, _) = proof(Hash::Sha1, digest, "n=ann,r=abc", &answer);
        assert!(access.end_scram(exchange, &last).is_err());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wrong_password_and_unknown_user_look_alike() {
        let access = access().await;
        for (user, password) in [("ann", "wrong"), ("nobody", "secret")] {
            let bare = format!("n={user},r=abc");
            let (exchange, answer) = access.begin_scram(&format!("n,,{bare}"), None).unwrap();
            let (last, _) = proof(Hash::Sha256, password, &bare, &answer);
            assert!(is_wrong_password(access.end_scram(exchange, &last)));
        }
        let salt = |user: &str| {
            let (_, answer) = access.begin_scram(&format!("n,,n={user},r=x"), None).unwrap();
            answer.split(',').nth(1).unwrap().to_owned()
        };
        assert_eq!(salt("nobody"), salt("nobody"));
        assert_ne!(salt("nobody"), salt("nobody2"));
        assert_eq!(salt("nobody").len(), salt("ann").len());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn m7_salts_of_unknown_users_look_like_those_of_users() {
        let salts = |access: &Access| {
            let salt = |(_, answer): (ScramExchange, String)| {
                let encoded = answer.split(",s=").nth(1).unwrap().split(',').next().unwrap().to_owned();
                STANDARD.decode(encoded).unwrap()
            };
            let sha256 = salt(access.begin_scram("n,,n=nobody,r=abc", None).unwrap());
            let sha1 = salt(access.begin_scram_sha1("n,,n=nobody,r=abc", None).unwrap());
            assert_ne!(sha256[..sha1.len()], sha1[..], "one salt must not be the beginning of the other");
            (sha256, sha1)
        };
        let db = Database::in_memory().unwrap();
        let access = Access::open(db.clone(), false).unwrap();
        access.create_user(&Caller::everybody(), "ann", "secret", Roles::new()).await.unwrap();
        let before = salts(&access);
        // As in the next process, which has other secrets.
        let access = Access::open(db, false).unwrap();
        assert_eq!(salts(&access), before);
    }

    #[test]
    fn commas_and_equals_signs_in_names_are_escaped() {
        for (encoded, name) in
            [("ann", Some("ann")), ("a=3Db=2Cc", Some("a=b,c")), ("a=", None), ("=2c", None)]
        {
            assert_eq!(decode_name(encoded).ok().as_deref(), name);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn invalid_messages_are_rejected() {
        let access = access().await;
        for first in [
            "",
            "n,,",
            "n,,n=a",
            "n,,n=a,r=",
            "p=tls-unique,,n=a,r=x",
            "n,a=b,n=c,r=x",
            "n,,n=a=,r=x",
            "n,,n=a,r=x,e=1",
        ] {
            assert!(access.begin_scram(first, None).is_err(), "{first}");
        }
        for last in ["", "c=biws", "c=biws,r=x,p=!", "c=biws,r=x,p=AAAA"] {
            let (exchange, _) = access.begin_scram("n,,n=ann,r=x", None).unwrap();
            assert!(access.end_scram(exchange, last).is_err(), "{last}");
        }
    }
}
