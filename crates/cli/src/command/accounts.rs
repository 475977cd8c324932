//! `ropewalk user` and `ropewalk token`: the users and API tokens of a database, in a directory or of a server.

use std::rc::Rc;

use clap::{Args, Subcommand};
use ropewalk_auth::{Access, Caller, Roles, TokenInfo, UserInfo};

use crate::database::context::Context;
use crate::database::place::Place;
use crate::database::remote::Remote;
use crate::database::role::Role;
use crate::output::cell::{Cell, time};
use crate::output::failure::{Exit, Failure, Result};
use crate::output::password;

#[derive(Debug, Subcommand)]
pub(crate) enum User {
    /// Create a user; prompts for the password, or reads it from standard input
    Add {
        /// The user
        name: String,
        /// Right, on all stores or on one: read, append, admin, read:STORE; repeat for more
        #[arg(long = "role", value_name = "RIGHT[:STORE]", value_parser = Role::parse)]
        roles: Vec<Role>,
    },
    /// List the users and their rights
    List,
    /// Drop a user
    Drop {
        /// The user
        name: String,
    },
    /// Change a password; prompts for the new one, or reads it from standard input
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
    #[arg(value_name = "RIGHT[:STORE]", value_parser = Role::parse)]
    role: Role,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Create an API token and print it; it is not shown again
    Add {
        /// Its purpose
        name: String,
        /// Right, on all stores or on one: read, append, admin, read:STORE; repeat for more
        #[arg(long = "role", value_name = "RIGHT[:STORE]", value_parser = Role::parse)]
        roles: Vec<Role>,
        /// Lifetime, such as 90d or 12h [default: unlimited]
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

/// Parses `90d` into seconds.
fn lifetime(text: &str) -> Result<u32, String> {
    let wrong = || format!("{text:?} is not a time such as 90d, 12h, 30m or 60s");
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

/// The roles as they are typed: `admin`, `read:courses`.
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

/// Users and tokens of a database. For a directory, file permissions control access to them.
enum Administration {
    Local { access: Access, caller: Caller, runtime: tokio::runtime::Runtime },
    Remote(Rc<Remote>),
}

impl Administration {
    fn open(context: &Context) -> Result<Self> {
        match context.place()? {
            Place::Remote(remote) => Ok(Self::Remote(remote)),
            Place::Local(db) => {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .build()
                    .map_err(|error| Failure::new(Exit::Io, format!("start: {error}"), ""))?;
                let access = Access::open(db, false)?;
                Ok(Self::Local { access, caller: Caller::everybody(), runtime })
            }
        }
    }

    fn users(&self) -> Result<Vec<UserInfo>> {
        match self {
            Self::Local { access, caller, .. } => Ok(access.users_after(caller, None)?.collect()),
            Self::Remote(remote) => remote.users(),
        }
    }

    fn tokens(&self) -> Result<Vec<TokenInfo>> {
        match self {
            Self::Local { access, caller, .. } => Ok(access.tokens_after(caller, None)?.collect()),
            Self::Remote(remote) => remote.tokens(),
        }
    }

    fn create_user(&self, name: &str, password: &str, roles: Roles) -> Result {
        match self {
            Self::Local { access, caller, runtime, .. } => {
                Ok(runtime.block_on(access.create_user(caller, name, password, roles))?)
            }
            Self::Remote(remote) => remote.create_user(name, password, &roles),
        }
    }

    fn set_password(&self, name: &str, password: &str) -> Result {
        match self {
            Self::Local { access, caller, runtime, .. } => {
                Ok(runtime.block_on(access.set_password(caller, name, password))?)
            }
            Self::Remote(remote) => remote.set_password(name, password),
        }
    }

    fn grant(&self, name: &str, role: &Role) -> Result {
        match self {
            Self::Local { access, caller, runtime, .. } => {
                Ok(runtime.block_on(access.grant(caller, name, &role.store, role.right))?)
            }
            Self::Remote(remote) => remote.grant(name, role),
        }
    }

    fn revoke(&self, name: &str, role: &Role) -> Result {
        match self {
            Self::Local { access, caller, runtime, .. } => {
                Ok(runtime.block_on(access.revoke(caller, name, &role.store, role.right))?)
            }
            Self::Remote(remote) => remote.revoke(name, role),
        }
    }

    fn drop_user(&self, name: &str) -> Result {
        match self {
            Self::Local { access, caller, runtime, .. } => {
                Ok(runtime.block_on(access.drop_user(caller, name))?)
            }
            Self::Remote(remote) => remote.drop_user(name),
        }
    }

    fn create_token(&self, name: &str, roles: Roles, expires: Option<u32>) -> Result<(TokenInfo, String)> {
        match self {
            Self::Local { access, caller, runtime, .. } => {
                let now = jiff::Timestamp::now().as_microsecond();
                let expires = expires.map(|seconds| now.saturating_add(i64::from(seconds) * 1_000_000));
                Ok(runtime.block_on(access.create_token(caller, name, roles, expires))?)
            }
            Self::Remote(remote) => remote.create_token(name, &roles, expires),
        }
    }

    fn drop_token(&self, id: &str) -> Result {
        match self {
            Self::Local { access, caller, runtime, .. } => {
                Ok(runtime.block_on(access.drop_token(caller, id))?)
            }
            Self::Remote(remote) => remote.drop_token(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetime_parser_rejects_zero_and_unknown_units() {
        assert_eq!(lifetime("2m").unwrap(), 120);
        for wrong in ["", "d", "0d", "-1d", "1y", "1", "9999999999999d"] {
            assert!(lifetime(wrong).is_err(), "{wrong}");
        }
    }
}
