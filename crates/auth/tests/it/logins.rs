//! Roles and logins of tests.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ropewalk_auth::{Access, AuthError, Caller, Credentials, Right, Roles};

pub(crate) fn roles(store: &str, rights: &[Right]) -> Roles {
    Roles::from([(store.to_owned(), rights.iter().copied().collect::<BTreeSet<_>>())])
}

pub(crate) async fn login(access: &Access, user: &str, password: &str) -> Result<Caller, AuthError> {
    let peer = Some(IpAddr::from([127, 0, 0, 1]));
    access.authenticate(Credentials::Password { user, password }, peer).await
}
