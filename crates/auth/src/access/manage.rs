//! Creating, changing and dropping users and tokens. Each change is one transaction, durable when it returns.

use std::collections::BTreeSet;
use std::ops::Bound;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ropewalk::Transaction;
use ropewalk::engine::Keyspace;
use ropewalk::hooks::hex;
use sha2::{Digest, Sha256};

use super::Access;
use crate::bytes::random;
use crate::caller::{ALL_STORES, Caller, Right, Roles};
use crate::error::{AuthError, Result};
use crate::records::{self, TokenRecord, UserRecord, token_key, user_key};
use crate::scram::ScramVerifier;

const NAME_BYTES_MAX: usize = 64;
/// Prefix of every token, by which scanners for leaked secrets find them.
const TOKEN_PREFIX: &str = "rw_";

/// A user as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserInfo {
    /// The name.
    pub name: String,
    /// Rights by store.
    pub roles: Roles,
    /// Microseconds since 1970 UTC.
    pub created_micros: i64,
}

/// An API token as listed; the token itself is returned once, when it is created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenInfo {
    /// Identifies the token where it is dropped.
    pub id: String,
    /// The name given by its creator; the caller's name.
    pub name: String,
    /// Rights by store.
    pub roles: Roles,
    /// Microseconds since 1970 UTC.
    pub created_micros: i64,
    /// Microseconds since 1970 UTC; `None`: never.
    pub expires_micros: Option<i64>,
}

impl TokenInfo {
    /// Its place in the list of tokens: sorts as the times of creation do, then as the ids.
    pub fn place(&self) -> String {
        place(self.created_micros, &self.id)
    }
}

fn check_name(kind: &str, name: &str) -> Result<()> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-@+".contains(c);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(allowed) {
        return Err(AuthError::Invalid(format!(
            "a {kind}'s name has 1 to {NAME_BYTES_MAX} ASCII letters, digits, or . _ - @ +"
        )));
    }
    Ok(())
}

fn check_roles(roles: &Roles) -> Result<()> {
    let wrong = |store: &str| store.is_empty() || store.len() > 255 || store.chars().any(char::is_control);
    match roles.keys().find(|store| wrong(store)) {
        Some(_) => Err(AuthError::Invalid("a role names a store of 1 to 255 bytes, or * for all".into())),
        None => Ok(()),
    }
}

/// The verifiers of a password: the usual one, and the one for old clients.
fn verifiers(user: &str, password: &str) -> Result<(ScramVerifier, Option<ScramVerifier>)> {
    Ok((ScramVerifier::new(password)?, Some(ScramVerifier::for_old_clients(user, password)?)))
}

fn no_user(name: &str) -> AuthError {
    AuthError::NotFound(format!("there is no user {name:?}"))
}

impl Access {
    /// The users whose names come after `after`, by name.
    ///
    /// # Errors
    /// [`AuthError::PermissionDenied`].
    pub fn users_after(
        &self,
        caller: &Caller,
        after: Option<&str>,
    ) -> Result<impl Iterator<Item = UserInfo> + use<>> {
        caller.check(Right::Admin, None)?;
        let (known, mut after) = (self.known(), after.map(str::to_owned));
        Ok(std::iter::from_fn(move || {
            let from = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let (name, user) = known.users.range::<str, _>((from, Bound::Unbounded)).next()?;
            after = Some(name.clone());
            let UserRecord { roles, created_micros, .. } = &user.record;
            Some(UserInfo { name: name.clone(), roles: roles.clone(), created_micros: *created_micros })
        }))
    }

    /// The tokens whose [places](TokenInfo::place) come after `after`, oldest first.
    ///
    /// # Errors
    /// [`AuthError::PermissionDenied`].
    pub fn tokens_after(
        &self,
        caller: &Caller,
        after: Option<&str>,
    ) -> Result<impl Iterator<Item = TokenInfo> + use<>> {
        caller.check(Right::Admin, None)?;
        let known = self.known();
        let places = known.tokens.iter().map(|(hash, token)| {
            let place = place(token.record.created_micros, &token.id);
            (place, hash.clone())
        });
        let mut places: Vec<_> =
            places.filter(|(place, _)| after.is_none_or(|after| place.as_str() > after)).collect();
        places.sort_unstable();
        Ok(places.into_iter().filter_map(move |(_, hash)| {
            let token = known.tokens.get(&hash)?;
            Some(token_info(&token.id, &token.record))
        }))
    }

    /// Creates a user.
    ///
    /// # Errors
    /// [`AuthError::AlreadyExists`]; a name or password that is not allowed.
    pub async fn create_user(&self, caller: &Caller, name: &str, password: &str, roles: Roles) -> Result<()> {
        caller.check(Right::Admin, None)?;
        check_name("user", name)?;
        check_roles(&roles)?;
        let (name, password) = (name.to_owned(), password.to_owned());
        self.change(move |this, tx| {
            let key = user_key(&name);
            if tx.get(this.keyspace()?, &key)?.is_some() {
                return Err(AuthError::AlreadyExists(format!("there is a user {name:?} already")));
            }
            let (scram, scram_sha1) = verifiers(&name, &password)?;
            let record = UserRecord { scram, scram_sha1, roles, created_micros: this.now_micros() };
            tx.put(this.keyspace()?, &key, &records::encode(&record));
            Ok(())
        })
        .await
    }

    /// Sets a user's password. A user may change their own.
    ///
    /// # Errors
    /// [`AuthError::NotFound`]; a password that is not allowed.
    pub async fn set_password(&self, caller: &Caller, name: &str, password: &str) -> Result<()> {
        if !caller.is_user(name) {
            caller.check(Right::Admin, None)?;
        }
        let password = password.to_owned();
        self.change_user(name, move |name, record| {
            (record.scram, record.scram_sha1) = verifiers(name, &password)?;
            Ok(())
        })
        .await
    }

    /// Changes a user's roles and, if one is given, the password, atomically.
    ///
    /// # Errors
    /// [`AuthError::NotFound`]; a password or a role that is not allowed.
    pub async fn update_user(
        &self,
        caller: &Caller,
        name: &str,
        password: Option<&str>,
        change: impl FnOnce(&mut Roles) + Send + 'static,
    ) -> Result<()> {
        caller.check(Right::Admin, None)?;
        let password = password.map(str::to_owned);
        self.change_user(name, move |name, record| {
            change(&mut record.roles);
            record.roles.retain(|_, rights| !rights.is_empty());
            check_roles(&record.roles)?;
            if let Some(password) = password {
                (record.scram, record.scram_sha1) = verifiers(name, &password)?;
            }
            Ok(())
        })
        .await
    }

    /// Gives a user a right on a store (`*`: on all).
    ///
    /// # Errors
    /// [`AuthError::NotFound`].
    pub async fn grant(&self, caller: &Caller, name: &str, store: &str, right: Right) -> Result<()> {
        caller.check(Right::Admin, None)?;
        check_roles(&Roles::from([(store.to_owned(), BTreeSet::from([right]))]))?;
        let store = store.to_owned();
        self.change_user(name, move |_, record| {
            record.roles.entry(store).or_default().insert(right);
            Ok(())
        })
        .await
    }

    /// Takes a right on a store from a user.
    ///
    /// # Errors
    /// [`AuthError::NotFound`] when there is no such user, or the user does not have the right.
    pub async fn revoke(&self, caller: &Caller, name: &str, store: &str, right: Right) -> Result<()> {
        caller.check(Right::Admin, None)?;
        let store = store.to_owned();
        self.change_user(name, move |name, record| {
            let held = record.roles.get_mut(&store).is_some_and(|rights| rights.remove(&right));
            record.roles.retain(|_, rights| !rights.is_empty());
            let message = || format!("user {name:?} has no right {:?} on {store:?}", right.as_str());
            if held { Ok(()) } else { Err(AuthError::NotFound(message())) }
        })
        .await
    }

    /// Drops a user.
    ///
    /// # Errors
    /// [`AuthError::NotFound`].
    pub async fn drop_user(&self, caller: &Caller, name: &str) -> Result<()> {
        caller.check(Right::Admin, None)?;
        self.delete(user_key(name), no_user(name)).await
    }

    /// Creates an API token, which is returned here and never again.
    ///
    /// # Errors
    /// A name that is not allowed; an expiry that is past.
    pub async fn create_token(
        &self,
        caller: &Caller,
        name: &str,
        roles: Roles,
        expires_micros: Option<i64>,
    ) -> Result<(TokenInfo, String)> {
        caller.check(Right::Admin, None)?;
        check_name("token", name)?;
        check_roles(&roles)?;
        let created_micros = self.now_micros();
        if expires_micros.is_some_and(|expires| expires <= created_micros) {
            return Err(AuthError::Invalid("the token would have expired already".into()));
        }
        let id = hex(&random::<6>()?);
        let token = format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(random::<32>()?));
        let hash = Sha256::digest(token.as_bytes()).to_vec();
        let record = TokenRecord { name: name.to_owned(), hash, roles, created_micros, expires_micros };
        let info = token_info(&id, &record);
        self.change(move |this, tx| {
            tx.put(this.keyspace()?, &token_key(&id), &records::encode(&record));
            Ok(())
        })
        .await?;
        Ok((info, token))
    }

    /// Drops a token.
    ///
    /// # Errors
    /// [`AuthError::NotFound`].
    pub async fn drop_token(&self, caller: &Caller, id: &str) -> Result<()> {
        caller.check(Right::Admin, None)?;
        self.delete(token_key(id), AuthError::NotFound(format!("there is no token {id:?}"))).await
    }

    /// Deletes a record; the error is `missing` when it does not exist.
    async fn delete(&self, key: Vec<u8>, missing: AuthError) -> Result<()> {
        self.change(move |this, tx| {
            tx.get(this.keyspace()?, &key)?.ok_or(missing)?;
            tx.delete(this.keyspace()?, &key);
            Ok(())
        })
        .await
    }

    async fn change_user(
        &self,
        name: &str,
        change: impl FnOnce(&str, &mut UserRecord) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let name = name.to_owned();
        self.change(move |this, tx| {
            let key = user_key(&name);
            let stored = tx.get(this.keyspace()?, &key)?.ok_or_else(|| no_user(&name))?;
            let mut record: UserRecord = records::decode(&key, &stored)?;
            change(&name, &mut record)?;
            tx.put(this.keyspace()?, &key, &records::encode(&record));
            Ok(())
        })
        .await
    }

    /// Rejects a change that drops the last credential, which would open the server to every caller, or the
    /// last administrator. `tx` holds the change.
    fn keep_administrator(&self, tx: &mut Transaction) -> Result<()> {
        let refuse = |what: &str| {
            let message = format!("this would remove the last {what}; create another administrator first");
            Err(AuthError::Invalid(message))
        };
        let known = self.known();
        let (users, tokens) = records::load_in(tx, self.keyspace()?)?;
        let was_closed = !known.users.is_empty() || !known.tokens.is_empty();
        if was_closed && users.is_empty() && tokens.is_empty() {
            return refuse("user or token");
        }
        let now = self.now_micros();
        let token_administers = |token: &TokenRecord| {
            is_administrator(&token.roles) && token.expires_micros.is_none_or(|expires| expires > now)
        };
        let before = known.users.values().any(|user| is_administrator(&user.record.roles))
            || known.tokens.values().any(|token| token_administers(&token.record));
        let after = users.iter().any(|(_, user)| is_administrator(&user.roles))
            || tokens.iter().any(|(_, token)| token_administers(token));
        if before && !after {
            return refuse("administrator");
        }
        Ok(())
    }

    /// The keyspace of users and tokens, for a transaction that changes them.
    fn keyspace(&self) -> Result<Keyspace> {
        Ok(self.0.stored.to_write(&self.0.db)?)
    }

    /// Runs `change` in a transaction, commits, and reads everything again, all off the async threads.
    async fn change(
        &self,
        change: impl FnOnce(&Self, &mut Transaction) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let this = self.clone();
        let changed = tokio::task::spawn_blocking(move || {
            let _changing = this.0.changing.lock().unwrap_or_else(|held| held.into_inner());
            // Before the transaction takes its snapshot.
            this.keyspace()?;
            let mut tx = this.0.db.begin();
            change(&this, &mut tx)?;
            this.keep_administrator(&mut tx)?;
            tx.commit()?;
            this.reload()
        });
        changed.await?
    }
}

/// True when a caller with these roles administers the entire server.
fn is_administrator(roles: &Roles) -> bool {
    roles.get(ALL_STORES).is_some_and(|rights| rights.contains(&Right::Admin))
}

fn place(created_micros: i64, id: &str) -> String {
    format!("{:020}.{id}", created_micros.max(0))
}

fn token_info(id: &str, record: &TokenRecord) -> TokenInfo {
    TokenInfo {
        id: id.to_owned(),
        name: record.name.clone(),
        roles: record.roles.clone(),
        created_micros: record.created_micros,
        expires_micros: record.expires_micros,
    }
}
