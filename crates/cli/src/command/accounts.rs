//! Users and tokens: kept in the database, so they are managed where it is, in files or behind a server.

use std::rc::Rc;

use clap::{Args, Subcommand};
use ropewalk_wire::{Access, Caller, Right, Roles, TokenInfo, UserInfo, WireError};

use crate::database::context::Context;
use crate::database::place::Place;
use crate::database::remote::Remote;
use crate::output::failure::{Exit, Failure, Result};
use crate::output::password;
use crate::output::report::{Cell, time};

/// A right and the store that it is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) right: Right,
    pub(crate) store: String,
}

fn role(text: &str) -> Result<Role, String> {
    let (right, store) = text.split_once(':').unwrap_or((text, "*"));
    let right = right.parse().map_err(|error: WireError| error.message)?;
    if store.is_empty() {
        Err("names no store after the `:`".to_owned())
    } else {
        Ok(Role { right, store: store.to_owned() })
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum User {
    /// Create a user; the password is asked for, or read from standard input
    Add {
        /// The user
        name: String,
        /// Right, on all stores or on one: read, append, admin, read:STORE; repeat for more
        #[arg(long = "role", value_name = "RIGHT[:STORE]", value_parser = role)]
        roles: Vec<Role>,
    },
    /// List the users and their rights
    List,
    /// Drop a user
    Drop {
        /// The user
        name: String,
    },
    /// Change a password; the new one is asked for, or read from standard input
    Passwd {
        /// The user
        name: String,
    },
    /// Give a user a right
    Grant(Change),
    /// Take a right from a user
    Revoke(Change),
}

#[derive(Debug, Args)]
pub(crate) struct Change {
    /// The user
    name: String,
    /// Right, on all stores or on one: read, append, admin, read:STORE
    #[arg(value_name = "RIGHT[:STORE]", value_parser = role)]
    role: Role,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Create an API token and print it, this once
    Add {
        /// What it is for
        name: String,
        /// Right, on all stores or on one: read, append, admin, read:STORE; repeat for more
        #[arg(long = "role", value_name = "RIGHT[:STORE]", value_parser = role)]
        roles: Vec<Role>,
        /// How long it is good for, such as 90d or 12h [default: for ever]
        #[arg(long, value_name = "TIME", value_parser = lifetime)]
        expires: Option<u32>,
    },
    /// List the tokens, without their secrets
    List,
    /// Drop a token
    Drop {
        /// Its id, as listed
        id: String,
    },
}

/// `90d` as seconds.
fn lifetime(text: &str) -> Result<u32, String> {
    let wrong = || format!("{text:?} is no time such as 90d, 12h, 30m or 60s");
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let seconds: u32 = match unit {
        'd' => 86_400,
        'h' => 3600,
        'm' => 60,
        's' => 1,
        _ => return Err(wrong()),
    };
    let number: u32 = text.strip_suffix(unit).and_then(|number| number.parse().ok()).ok_or_else(wrong)?;
    number.checked_mul(seconds).filter(|seconds| *seconds > 0).ok_or_else(wrong)
}

fn roles(list: Vec<Role>) -> Roles {
    let mut roles = Roles::new();
    for Role { right, store } in list {
        roles.entry(store).or_default().insert(right);
    }
    roles
}

/// As they are typed: `admin`, `read:courses`.
fn shown(roles: &Roles) -> Cell {
    let each = roles.iter().flat_map(|(store, rights)| {
        rights.iter().map(move |right| match store.as_str() {
            "*" => right.as_str().to_owned(),
            store => format!("{}:{store}", right.as_str()),
        })
    });
    Cell::List(each.collect())
}

const USER_COLUMNS: &[&str] = &["user", "roles", "created"];
const TOKEN_COLUMNS: &[&str] = &["id", "name", "roles", "created", "expires"];

pub(crate) fn user(context: &Context, user: User) -> Result {
    let access = Administration::open(context)?;
    match user {
        User::Add { name, roles: list } => {
            let password = password::new_password(&name)?;
            access.create_user(&name, &password, roles(list))
        }
        User::List => {
            let mut report = context.report(USER_COLUMNS)?;
            for user in access.users()? {
                report.row(vec![user.name.into(), shown(&user.roles), time(user.created_micros)])?;
            }
            Ok(report.finish()?)
        }
        User::Drop { name } => access.drop_user(&name),
        User::Passwd { name } => {
            let password = password::new_password(&name)?;
            access.set_password(&name, &password)
        }
        User::Grant(Change { name, role }) => access.grant(&name, &role),
        User::Revoke(Change { name, role }) => access.revoke(&name, &role),
    }
}

pub(crate) fn token(context: &Context, token: Token) -> Result {
    let access = Administration::open(context)?;
    match token {
        Token::Add { name, roles: list, expires } => {
            let (info, token) = access.create_token(&name, roles(list), expires)?;
            let expires = info.expires_micros.map_or(Cell::None, time);
            context.print_row(
                &["id", "name", "expires", "token"],
                vec![info.id.into(), info.name.into(), expires, token.into()],
            )
        }
        Token::List => {
            let mut report = context.report(TOKEN_COLUMNS)?;
            for token in access.tokens()? {
                let expires = token.expires_micros.map_or(Cell::None, time);
                let created = time(token.created_micros);
                report.row(vec![
                    token.id.into(),
                    token.name.into(),
                    shown(&token.roles),
                    created,
                    expires,
                ])?;
            }
            Ok(report.finish()?)
        }
        Token::Drop { id } => access.drop_token(&id),
    }
}

/// Users and tokens of a place. In files they belong to whoever can open them.
enum Administration {
    Here { access: Access, caller: Caller, runtime: tokio::runtime::Runtime },
    There(Rc<Remote>),
}

impl Administration {
    fn open(context: &Context) -> Result<Self> {
        match context.place()? {
            Place::There(remote) => Ok(Self::There(remote)),
            Place::Here(db) => {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .build()
                    .map_err(|error| Failure::new(Exit::Io, format!("start: {error}"), ""))?;
                let access = Access::open(db, false)?;
                Ok(Self::Here { access, caller: Caller::everybody(), runtime })
            }
        }
    }

    fn users(&self) -> Result<Vec<UserInfo>> {
        match self {
            Self::Here { access, caller, .. } => Ok(access.users(caller)?),
            Self::There(remote) => remote.users(),
        }
    }

    fn tokens(&self) -> Result<Vec<TokenInfo>> {
        match self {
            Self::Here { access, caller, .. } => Ok(access.tokens(caller)?),
            Self::There(remote) => remote.tokens(),
        }
    }

    fn create_user(&self, name: &str, password: &str, roles: Roles) -> Result {
        match self {
            Self::Here { access, caller, runtime, .. } => {
                Ok(runtime.block_on(access.create_user(caller, name, password, roles))?)
            }
            Self::There(remote) => remote.create_user(name, password, &roles),
        }
    }

    fn set_password(&self, name: &str, password: &str) -> Result {
        match self {
            Self::Here { access, caller, runtime, .. } => {
                Ok(runtime.block_on(access.set_password(caller, name, password))?)
            }
            Self::There(remote) => remote.set_password(name, password),
        }
    }

    fn grant(&self, name: &str, role: &Role) -> Result {
        match self {
            Self::Here { access, caller, runtime, .. } => {
                Ok(runtime.block_on(access.grant(caller, name, &role.store, role.right))?)
            }
            Self::There(remote) => remote.grant(name, role),
        }
    }

    fn revoke(&self, name: &str, role: &Role) -> Result {
        match self {
            Self::Here { access, caller, runtime, .. } => {
                Ok(runtime.block_on(access.revoke(caller, name, &role.store, role.right))?)
            }
            Self::There(remote) => remote.revoke(name, role),
        }
    }

    fn drop_user(&self, name: &str) -> Result {
        match self {
            Self::Here { access, caller, runtime, .. } => {
                Ok(runtime.block_on(access.drop_user(caller, name))?)
            }
            Self::There(remote) => remote.drop_user(name),
        }
    }

    fn create_token(&self, name: &str, roles: Roles, expires: Option<u32>) -> Result<(TokenInfo, String)> {
        match self {
            Self::Here { access, caller, runtime, .. } => {
                let now = jiff::Timestamp::now().as_microsecond();
                let expires = expires.map(|seconds| now.saturating_add(i64::from(seconds) * 1_000_000));
                Ok(runtime.block_on(access.create_token(caller, name, roles, expires))?)
            }
            Self::There(remote) => remote.create_token(name, &roles, expires),
        }
    }

    fn drop_token(&self, id: &str) -> Result {
        match self {
            Self::Here { access, caller, runtime, .. } => {
                Ok(runtime.block_on(access.drop_token(caller, id))?)
            }
            Self::There(remote) => remote.drop_token(id),
        }
    }
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        Self::from_code(error.code.as_str(), error.message, "this process")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_and_lifetimes_are_read() {
        assert_eq!(role("read").unwrap(), Role { right: Right::Read, store: "*".into() });
        assert_eq!(role("append:a:b").unwrap(), Role { right: Right::Append, store: "a:b".into() });
        assert!(role("write").is_err() && role("read:").is_err());
        assert_eq!(lifetime("2m").unwrap(), 120);
        for wrong in ["", "d", "0d", "-1d", "1y", "1", "9999999999999d"] {
            assert!(lifetime(wrong).is_err(), "{wrong}");
        }
    }
}
