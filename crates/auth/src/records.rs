//! Users and tokens as they are stored: JSON under `u` and the name, `t` and the id, in keyspace
//! `sys.access`. Changing them is an ordinary transaction, so they are durable, and part of every backup of
//! the database.

use std::sync::Arc;

use ropewalk::engine::Keyspace;
use ropewalk::{Database, Transaction};
use serde::{Deserialize, Serialize};

use crate::caller::{Identity, Roles};
use crate::error::{AuthError, Result};
use crate::scram::{Hash, ScramVerifier};

pub(crate) const KEYSPACE: &str = "sys.access";

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserRecord {
    pub(crate) scram: ScramVerifier,
    /// For old MongoDB clients; absent for passwords that were set before this field existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scram_sha1: Option<ScramVerifier>,
    pub(crate) roles: Roles,
    pub(crate) created_micros: i64,
}

impl UserRecord {
    /// The identity of a session opened with the password.
    pub(crate) fn identity(&self) -> Identity {
        Identity::User { verifier: Arc::new(self.scram.clone()) }
    }

    /// The verifier for the mechanism with that hash.
    pub(crate) fn verifier(&self, hash: Hash) -> Option<&ScramVerifier> {
        match hash {
            Hash::Sha256 => Some(&self.scram),
            Hash::Sha1 => self.scram_sha1.as_ref(),
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenRecord {
    pub(crate) name: String,
    /// SHA-256 of the token. The token has 256 random bits, so a slow hash would add nothing.
    #[serde(with = "crate::bytes")]
    pub(crate) hash: Vec<u8>,
    pub(crate) roles: Roles,
    pub(crate) created_micros: i64,
    pub(crate) expires_micros: Option<i64>,
}

pub(crate) fn user_key(name: &str) -> Vec<u8> {
    format!("u{name}").into_bytes()
}

pub(crate) fn token_key(id: &str) -> Vec<u8> {
    format!("t{id}").into_bytes()
}

pub(crate) fn encode<T: Serialize>(record: &T) -> Vec<u8> {
    serde_json::to_vec(record).expect("the names of fields are strings, and a Vec takes every write")
}

pub(crate) fn decode<'a, T: Deserialize<'a>>(key: &[u8], value: &'a [u8]) -> Result<T> {
    serde_json::from_slice(value).map_err(|error| damaged(key, &error.to_string()))
}

fn damaged(key: &[u8], what: &str) -> AuthError {
    AuthError::Damaged(format!("keyspace {KEYSPACE}, key {:?}: {what}", String::from_utf8_lossy(key)))
}

/// All users and all tokens, with their names and ids.
pub(crate) type Everything = (Vec<(String, UserRecord)>, Vec<(String, TokenRecord)>);

pub(crate) fn load(db: &Database, keyspace: Keyspace) -> Result<Everything> {
    load_in(&mut db.begin(), keyspace)
}

/// As [`load`], in the transaction `tx`.
pub(crate) fn load_in(tx: &mut Transaction, keyspace: Keyspace) -> Result<Everything> {
    let (mut users, mut tokens) = Everything::default();
    for (key, value) in tx.range(keyspace, b"", None, usize::MAX)? {
        let text = std::str::from_utf8(&key).unwrap_or_default();
        if let Some(name) = text.strip_prefix('u') {
            users.push((name.to_owned(), decode(&key, &value)?));
        } else if let Some(id) = text.strip_prefix('t') {
            tokens.push((id.to_owned(), decode(&key, &value)?));
        } else {
            return Err(damaged(&key, "neither a user nor a token"));
        }
    }
    Ok((users, tokens))
}
