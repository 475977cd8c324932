//! Who may do what.

mod caller;

use std::net::IpAddr;

pub use caller::{Caller, Right};

use crate::error::{Code, WireError};

/// What a client shows to say who it is.
#[derive(Clone, Copy)]
pub enum Credentials<'a> {
    /// Nothing.
    None,
    /// Name and password of a user.
    Password {
        /// The user.
        user: &'a str,
        /// The password.
        password: &'a str,
    },
    /// An API token.
    Token(&'a str),
}

/// Users, tokens, and the check of credentials.
#[derive(Default)]
pub struct Access {}

impl Access {
    /// Who the caller is. While there is neither a user nor a token, everybody may do everything.
    ///
    /// # Errors
    /// [`Code::Unauthenticated`].
    pub async fn authenticate(
        &self,
        credentials: Credentials<'_>,
        _peer: Option<IpAddr>,
    ) -> Result<Caller, WireError> {
        match credentials {
            Credentials::None => Ok(Caller::everybody()),
            Credentials::Password { .. } | Credentials::Token(_) => {
                Err(WireError::new(Code::Unauthenticated, "unknown user, wrong password, or unknown token"))
            }
        }
    }
}
