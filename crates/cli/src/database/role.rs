//! A right on a store, as typed in `RIGHT[:STORE]`.

use ropewalk_auth::{AuthError, Right};

/// A right and the store that it applies to; `*` is all stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) right: Right,
    pub(crate) store: String,
}

impl Role {
    /// Parses `RIGHT` or `RIGHT:STORE`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (right, store) = text.split_once(':').unwrap_or((text, "*"));
        let right = right.parse().map_err(|error: AuthError| error.to_string())?;
        if store.is_empty() {
            Err("names no store after the `:`".to_owned())
        } else {
            Ok(Self { right, store: store.to_owned() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_parser_rejects_unknown_rights_and_empty_stores() {
        assert_eq!(Role::parse("read").unwrap(), Role { right: Right::Read, store: "*".into() });
        assert_eq!(Role::parse("append:a:b").unwrap(), Role { right: Right::Append, store: "a:b".into() });
        assert!(Role::parse("write").is_err() && Role::parse("read:").is_err());
    }
}
