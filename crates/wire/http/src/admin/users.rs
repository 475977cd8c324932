//! Users and API tokens: the commands `ropewalk user` and `ropewalk token` over HTTP. All of it needs the
//! right `admin` on every store, except that users may change their own password.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::http::StatusCode;
use axum::response::Response;
use ropewalk_auth::{Needs, Resource, Right, Roles, TokenInfo, UserInfo};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use crate::kit::body::{JsonText, NoBody};
use crate::kit::counted::counted_json;
use crate::kit::encode::time;
use crate::kit::params::{PageParams, Params};
use crate::kit::path::PathRequest;
use crate::kit::problem::{Problem, Result};
use crate::route::Route;

const ADMIN: Needs = Needs::admin(Resource::AllStores);

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::new(ADMIN, routes!(list_users)),
        Route::new(ADMIN, routes!(create_user, drop_user)),
        Route::new(
            Needs::LOGIN.later("for another user than the caller `admin` on all stores"),
            routes!(set_password),
        ),
        Route::new(ADMIN, routes!(grant, revoke)),
        Route::new(ADMIN, routes!(list_tokens, create_token)),
        Route::new(ADMIN, routes!(drop_token)),
    ]
}

/// A right on a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = Right)]
pub(super) enum RightName {
    /// Read events, follow them, see counts and tracking positions.
    Read,
    /// Append events.
    Append,
    /// Everything, creating and deleting the store included. On `*`: users, tokens and the server itself.
    Admin,
}

impl From<RightName> for Right {
    fn from(name: RightName) -> Self {
        match name {
            RightName::Read => Self::Read,
            RightName::Append => Self::Append,
            RightName::Admin => Self::Admin,
        }
    }
}

impl From<Right> for RightName {
    fn from(right: Right) -> Self {
        match right {
            Right::Read => Self::Read,
            Right::Append => Self::Append,
            Right::Admin => Self::Admin,
        }
    }
}

/// Rights by store; `*` means every store.
pub(super) type RolesIn = BTreeMap<String, BTreeSet<RightName>>;

fn roles_in(roles: RolesIn) -> Roles {
    roles.into_iter().map(|(store, rights)| (store, rights.into_iter().map(Right::from).collect())).collect()
}

pub(super) fn roles_out(roles: Roles) -> RolesIn {
    roles
        .into_iter()
        .map(|(store, rights)| (store, rights.into_iter().map(RightName::from).collect()))
        .collect()
}

/// Approximate bytes.
fn bytes(roles: &Roles) -> usize {
    roles.iter().map(|(store, rights)| store.len() + 16 * rights.len()).sum()
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct UserName {
    /// 1 to 255 ASCII letters, digits, or `. _ - @ +`.
    user: String,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct UserRole {
    /// The user.
    user: String,
    /// The store; `*` for every one.
    store: String,
    /// The right.
    #[param(inline)]
    right: RightName,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct TokenId {
    /// The token's id, as listed.
    id: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewUser)]
struct UserIn {
    password: String,
    /// Rights by store; `*` means every store.
    #[serde(default)]
    #[schema(example = json!({"courses": ["read", "append"]}))]
    roles: RolesIn,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewPassword)]
struct PasswordIn {
    password: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewToken)]
struct TokenIn {
    /// Its purpose; logged with each use.
    #[schema(example = "billing")]
    name: String,
    /// Rights by store; `*` means every store.
    #[schema(example = json!({"courses": ["read"]}))]
    roles: RolesIn,
    /// Absent: it does not expire.
    expires_in_seconds: Option<u32>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = User)]
struct UserOut {
    name: String,
    roles: RolesIn,
    /// RFC 3339, UTC.
    created_at: String,
}

impl From<UserInfo> for UserOut {
    fn from(user: UserInfo) -> Self {
        Self { name: user.name, roles: roles_out(user.roles), created_at: time(user.created_micros) }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = Users)]
struct UsersOut {
    users: Vec<UserOut>,
    /// `after` of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = TokenInfo)]
struct TokenOut {
    id: String,
    name: String,
    roles: RolesIn,
    /// RFC 3339, UTC.
    created_at: String,
    /// RFC 3339, UTC; null: never.
    expires_at: Option<String>,
}

impl From<TokenInfo> for TokenOut {
    fn from(token: TokenInfo) -> Self {
        Self {
            id: token.id,
            name: token.name,
            roles: roles_out(token.roles),
            created_at: time(token.created_micros),
            expires_at: token.expires_micros.map(time),
        }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = Tokens)]
struct TokensOut {
    tokens: Vec<TokenOut>,
    /// `after` of the next page; absent on the last page. It is not a name, and the token before it may be dropped
    /// meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = CreatedToken)]
struct CreatedTokenOut {
    /// The token itself. Returned only this once; the server stores only its hash.
    #[schema(example = "rw_…")]
    token: String,
    #[serde(flatten)]
    info: TokenOut,
}

/// The users, by name.
#[utoipa::path(
    get, path = "/v1/users", operation_id = "list_users", tag = "access",
    params(PageParams),
    responses((status = 200, description = "A page of them, without anything of their passwords. It ends after 4 MiB of roles, too.", body = UsersOut)),
)]
async fn list_users(at: PathRequest) -> Result<Response> {
    let page = Params::only_page(at.query.as_deref())?;
    let users = at.app.service.access().users_after(&at.caller, page.after())?.map(Ok::<_, Problem>);
    let (users, next) = page.fill(users, |user| user.name.clone(), |user| bytes(&user.roles))?;
    let users = users.into_iter().map(UserOut::from).collect();
    counted_json(&at.app.service, &UsersOut { users, next })
}

/// Creates a user.
///
/// With the first user or token the server closes: from then on every request needs credentials.
#[utoipa::path(
    put, path = "/v1/users/{user}", operation_id = "create_user", tag = "access",
    params(UserName),
    request_body = UserIn,
    responses(
        (status = 201, description = "Created."),
        (status = 409, description = "There is a user of this name: `already_exists`."),
    ),
)]
async fn create_user(at: PathRequest<UserName>, body: JsonText) -> Result<StatusCode> {
    let UserIn { password, roles } = body.json().await?;
    let access = at.app.service.access();
    access.create_user(&at.caller, &at.names.user, &password, roles_in(roles)).await?;
    Ok(StatusCode::CREATED)
}

/// Drops a user.
#[utoipa::path(
    delete, path = "/v1/users/{user}", operation_id = "drop_user", tag = "access",
    params(UserName),
    responses((status = 204, description = "Dropped.")),
)]
async fn drop_user(at: PathRequest<UserName>, NoBody: NoBody) -> Result<StatusCode> {
    at.app.service.access().drop_user(&at.caller, &at.names.user).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Sets a user's password. Users may change their own.
#[utoipa::path(
    put, path = "/v1/users/{user}/password", operation_id = "set_password", tag = "access",
    params(UserName),
    request_body = PasswordIn,
    responses((status = 204, description = "The old password is no longer valid.")),
)]
async fn set_password(at: PathRequest<UserName>, body: JsonText) -> Result<StatusCode> {
    let PasswordIn { password } = body.json().await?;
    at.app.service.access().set_password(&at.caller, &at.names.user, &password).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Gives a user a right on a store.
#[utoipa::path(
    put, path = "/v1/users/{user}/roles/{store}/{right}", operation_id = "grant", tag = "access",
    params(UserRole),
    responses((status = 204, description = "The user has the right.")),
)]
async fn grant(at: PathRequest<UserRole>, NoBody: NoBody) -> Result<StatusCode> {
    let UserRole { user, store, right } = at.names;
    at.app.service.access().grant(&at.caller, &user, &store, right.into()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Takes a right on a store from a user.
#[utoipa::path(
    delete, path = "/v1/users/{user}/roles/{store}/{right}", operation_id = "revoke", tag = "access",
    params(UserRole),
    responses((status = 204, description = "The user no longer has the right.")),
)]
async fn revoke(at: PathRequest<UserRole>, NoBody: NoBody) -> Result<StatusCode> {
    let UserRole { user, store, right } = at.names;
    at.app.service.access().revoke(&at.caller, &user, &store, right.into()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The API tokens, oldest first, without the tokens themselves, which are not stored.
#[utoipa::path(
    get, path = "/v1/tokens", operation_id = "list_tokens", tag = "access",
    params(PageParams),
    responses((status = 200, description = "A page of them: names, rights and times. It ends after 4 MiB of roles, too.", body = TokensOut)),
)]
async fn list_tokens(at: PathRequest) -> Result<Response> {
    let page = Params::only_page(at.query.as_deref())?;
    let tokens = at.app.service.access().tokens_after(&at.caller, page.after())?.map(Ok::<_, Problem>);
    let (tokens, next) = page.fill(tokens, TokenInfo::place, |token| bytes(&token.roles))?;
    let tokens = tokens.into_iter().map(TokenOut::from).collect();
    counted_json(&at.app.service, &TokensOut { tokens, next })
}

/// Creates an API token, which is returned in this response and never again.
#[utoipa::path(
    post, path = "/v1/tokens", operation_id = "create_token", tag = "access",
    request_body = TokenIn,
    responses((status = 201, description = "Created.", body = CreatedTokenOut)),
)]
async fn create_token(at: PathRequest, body: JsonText) -> Result<(StatusCode, Json<CreatedTokenOut>)> {
    let given: TokenIn = body.json().await?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64);
    let expires = given.expires_in_seconds.map(|seconds| now + i64::from(seconds) * 1_000_000);
    let access = at.app.service.access();
    let (info, token) = access.create_token(&at.caller, &given.name, roles_in(given.roles), expires).await?;
    Ok((StatusCode::CREATED, Json(CreatedTokenOut { token, info: info.into() })))
}

/// Drops an API token.
#[utoipa::path(
    delete, path = "/v1/tokens/{id}", operation_id = "drop_token", tag = "access",
    params(TokenId),
    responses((status = 204, description = "It is no longer valid.")),
)]
async fn drop_token(at: PathRequest<TokenId>, NoBody: NoBody) -> Result<StatusCode> {
    at.app.service.access().drop_token(&at.caller, &at.names.id).await?;
    Ok(StatusCode::NO_CONTENT)
}
