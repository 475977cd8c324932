//! Users and tokens as they are stored: JSON under `u` and the name, `t` and the id, in keyspace
//! `sys.access`. Changing them is an ordinary transaction, so they are durable, and part of every backup of
//! the database.

use std::sync::Arc;

use ropewalk::engine::Keyspace;
use ropewalk::{Database, Transaction};
use serde::{Deserialize, Serialize};

use crate::error::{Code, WireError};

use super::base64_bytes;
use super::caller::{Identity, Roles};
use super::scram::{Hash, ScramVerifier};

pub(super) const KEYSPACE: &str = "sys.access";

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UserRecord {
    pub(super) scram: ScramVerifier,
    /// For old MongoDB clients; absent for passwords that were set before this field existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) scram_sha1: Option<ScramVerifier>,
    pub(super) roles: Roles,
    pub(super) created_micros: i64,
}

impl UserRecord {
    /// The identity of a session opened with the password.
    pub(super) fn identity(&self) -> Identity {
        Identity::User { verifier: Arc::new(self.scram.clone()) }
    }

    /// The verifier for the mechanism with that hash.
    pub(super) fn verifier(&self, hash: Hash) -> Option<&ScramVerifier> {
        match hash {
            Hash::Sha256 => Some(&self.scram),
            Hash::Sha1 => self.scram_sha1.as_ref(),
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenRecord {
    pub(super) name: String,
    /// SHA-256 of the token. The token has 256 random bits, so a slow hash would add nothing.
    #[serde(with = "base64_bytes")]
    pub(super) hash: Vec<u8>,
    pub(super) roles: Roles,
    pub(super) created_micros: i64,
    pub(super) expires_micros: Option<i64>,
}

pub(super) fn user_key(name: &str) -> Vec<u8> {
    format!("u{name}").into_bytes()
}

pub(super) fn token_key(id: &str) -> Vec<u8> {
    format!("t{id}").into_bytes()
}

pub(super) fn encode<T: Serialize>(record: &T) -> Result<Vec<u8>, WireError> {
    serde_json::to_vec(record).map_err(|error| WireError::ours(Code::Internal, &error))
}

pub(super) fn decode<'a, T: Deserialize<'a>>(key: &[u8], value: &'a [u8]) -> Result<T, WireError> {
    serde_json::from_slice(value).map_err(|error| {
        let place = format!("keyspace {KEYSPACE}, key {:?}: {error}", String::from_utf8_lossy(key));
        WireError::ours(Code::Corrupt, &place)
    })
}

/// All users and all tokens, with their names and ids.
pub(super) type Everything = (Vec<(String, UserRecord)>, Vec<(String, TokenRecord)>);

pub(super) fn load(db: &Database, keyspace: Keyspace) -> Result<Everything, WireError> {
    load_in(&mut db.begin(), keyspace)
}

/// As [`load`], in the transaction `tx`.
pub(super) fn load_in(tx: &mut Transaction, keyspace: Keyspace) -> Result<Everything, WireError> {
    let (mut users, mut tokens) = Everything::default();
    for (key, value) in tx.range(keyspace, b"", None, usize::MAX)? {
        let text = std::str::from_utf8(&key).unwrap_or_default();
        if let Some(name) = text.strip_prefix('u') {
            users.push((name.to_owned(), decode(&key, &value)?));
        } else if let Some(id) = text.strip_prefix('t') {
            tokens.push((id.to_owned(), decode(&key, &value)?));
        } else {
            let place =
                format!("keyspace {KEYSPACE} holds an unknown key {:?}", String::from_utf8_lossy(&key));
            return Err(WireError::ours(Code::Corrupt, &place));
        }
    }
    Ok((users, tokens))
}
