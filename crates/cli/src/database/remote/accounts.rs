//! Users and tokens of a server.

use std::collections::{BTreeMap, BTreeSet};

use hyper::Method;
use ropewalk_auth::{Roles, TokenInfo, UserInfo};
use serde::{Deserialize, Serialize};

use super::{NOTHING, Remote, encode};
use crate::database::role::Role;
use crate::output::failure::{Exit, Failure, Result};

type RolesText = BTreeMap<String, BTreeSet<String>>;

#[derive(Serialize)]
struct NewUser<'a> {
    password: &'a str,
    roles: RolesText,
}

#[derive(Serialize)]
struct NewPassword<'a> {
    password: &'a str,
}

#[derive(Serialize)]
struct NewToken<'a> {
    name: &'a str,
    roles: RolesText,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_in_seconds: Option<u32>,
}

#[derive(Deserialize)]
struct User {
    name: String,
    roles: RolesText,
    created_at: String,
}

#[derive(Deserialize)]
struct Token {
    id: String,
    name: String,
    roles: RolesText,
    created_at: String,
    expires_at: Option<String>,
}

#[derive(Deserialize)]
struct Created {
    token: String,
    #[serde(flatten)]
    info: Token,
}

impl Token {
    fn info(self) -> Result<TokenInfo> {
        Ok(TokenInfo {
            id: self.id,
            name: self.name,
            roles: roles_in(self.roles)?,
            created_micros: micros(&self.created_at)?,
            expires_micros: self.expires_at.as_deref().map(micros).transpose()?,
        })
    }
}

fn roles_out(roles: &Roles) -> RolesText {
    let names =
        |rights: &BTreeSet<ropewalk_auth::Right>| rights.iter().map(|r| r.as_str().to_owned()).collect();
    roles.iter().map(|(store, rights)| (store.clone(), names(rights))).collect()
}

fn roles_in(roles: RolesText) -> Result<Roles> {
    let mut read = Roles::new();
    for (store, rights) in roles {
        read.insert(store, rights.iter().map(|right| right.parse()).collect::<Result<_, _>>()?);
    }
    Ok(read)
}

fn micros(time: &str) -> Result<i64> {
    let time: jiff::Timestamp = time
        .parse()
        .map_err(|error| Failure::new(Exit::Internal, format!("the server's time {time:?}: {error}"), ""))?;
    Ok(time.as_microsecond())
}

fn user_path(name: &str, rest: &str) -> String {
    format!("/v1/users/{}{rest}", encode(name))
}

fn role_path(name: &str, role: &Role) -> String {
    user_path(name, &format!("/roles/{}/{}", encode(&role.store), role.right.as_str()))
}

impl Remote {
    pub(crate) fn users(&self) -> Result<Vec<UserInfo>> {
        let users: Vec<User> = self.list("/v1/users?limit=1000")?;
        let info = |user: User| {
            let created_micros = micros(&user.created_at)?;
            Ok(UserInfo { name: user.name, roles: roles_in(user.roles)?, created_micros })
        };
        users.into_iter().map(info).collect()
    }

    pub(crate) fn tokens(&self) -> Result<Vec<TokenInfo>> {
        let tokens: Vec<Token> = self.list("/v1/tokens?limit=1000")?;
        tokens.into_iter().map(Token::info).collect()
    }

    pub(crate) fn create_user(&self, name: &str, password: &str, roles: &Roles) -> Result {
        let body = NewUser { password, roles: roles_out(roles) };
        self.client.act(Method::PUT, &user_path(name, ""), Some(&body))
    }

    pub(crate) fn set_password(&self, name: &str, password: &str) -> Result {
        self.client.act(Method::PUT, &user_path(name, "/password"), Some(&NewPassword { password }))
    }

    pub(crate) fn grant(&self, name: &str, role: &Role) -> Result {
        self.client.act(Method::PUT, &role_path(name, role), NOTHING)
    }

    pub(crate) fn revoke(&self, name: &str, role: &Role) -> Result {
        self.client.act(Method::DELETE, &role_path(name, role), NOTHING)
    }

    pub(crate) fn drop_user(&self, name: &str) -> Result {
        self.client.act(Method::DELETE, &user_path(name, ""), NOTHING)
    }

    pub(crate) fn create_token(
        &self,
        name: &str,
        roles: &Roles,
        expires_in_seconds: Option<u32>,
    ) -> Result<(TokenInfo, String)> {
        let body = NewToken { name, roles: roles_out(roles), expires_in_seconds };
        let created: Created = self.client.ask(Method::POST, "/v1/tokens", Some(&body))?;
        Ok((created.info.info()?, created.token))
    }

    pub(crate) fn drop_token(&self, id: &str) -> Result {
        self.client.act(Method::DELETE, &format!("/v1/tokens/{}", encode(id)), NOTHING)
    }
}
