//! Rows of the authorisation matrix: which rights on which object an operation of a protocol needs.
//!
//! ```text
//! request ─▶ row of its operation ─▶ Service::authorize(caller, needs, store) ─▶ body, handler ─▶ checks of finer objects
//!               └─ none: not served
//! ```
//! Each protocol builds its dispatch from its rows, and exports them as [`Operation`]s. The tests of rights
//! and `docs/rights.md` are generated from these.

use core::fmt;

use crate::caller::{Caller, Right};
use crate::error::Result;

/// The object of an operation, as far as it is known before the body is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Nothing of the database. Callers without credentials are served.
    Public,
    /// Nothing, or only data of the caller. A login suffices.
    Caller,
    /// The store, or the database of documents, whose name is this part of the path.
    Path(&'static str),
    /// The store that the header `x-store` names; without the header, the default store.
    Header,
    /// The store that the message names. Until it is decoded, the rights on any store suffice.
    Message,
    /// The database of documents that the command names.
    Database,
    /// The store that this setting of the server names.
    Setting(&'static str),
    /// All stores, present and future.
    AllStores,
}

impl Resource {
    /// True for a single store or database.
    pub fn is_store(self) -> bool {
        !matches!(self, Self::Public | Self::Caller | Self::AllStores)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Public | Self::Caller => f.write_str("–"),
            Self::Path(name) => write!(f, "`{{{name}}}` of the path"),
            Self::Header => f.write_str("store of the header `x-store`, else the default store"),
            Self::Message => f.write_str("store of the message"),
            Self::Database => f.write_str("database of the command"),
            Self::Setting(name) => write!(f, "store of the setting `{name}`"),
            Self::AllStores => f.write_str("all stores"),
        }
    }
}

/// The rights that an operation needs on its object: all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// The rights. `admin` includes the others.
    pub rights: &'static [Right],
    /// Object of the rights.
    pub resource: Resource,
    /// Note on rights that are checked later, once the request is decoded; may be empty.
    pub later: &'static str,
}

impl Needs {
    /// No credentials.
    pub const PUBLIC: Self = Self::new(&[], Resource::Public);
    /// A login without any right.
    pub const LOGIN: Self = Self::new(&[], Resource::Caller);

    const fn new(rights: &'static [Right], resource: Resource) -> Self {
        Self { rights, resource, later: "" }
    }

    /// The right to read.
    pub const fn read(resource: Resource) -> Self {
        Self::new(&[Right::Read], resource)
    }

    /// The right to append.
    pub const fn append(resource: Resource) -> Self {
        Self::new(&[Right::Append], resource)
    }

    /// The rights to read and to append.
    pub const fn read_and_append(resource: Resource) -> Self {
        Self::new(&[Right::Read, Right::Append], resource)
    }

    /// The right to administer.
    pub const fn admin(resource: Resource) -> Self {
        Self::new(&[Right::Admin], resource)
    }

    /// The same, with a note on what is checked once the request is decoded.
    pub const fn later(self, later: &'static str) -> Self {
        Self { later, ..self }
    }

    /// Rejects a caller without the rights on the object. `store`: its name, where the object is a single
    /// store; without a name, the rights are needed on all stores.
    ///
    /// # Errors
    /// [`crate::AuthError::PermissionDenied`].
    pub fn check(self, caller: &Caller, store: Option<&str>) -> Result<()> {
        self.rights.iter().try_for_each(|right| match self.resource {
            Resource::Public | Resource::Caller => Ok(()),
            Resource::Message => caller.check_somewhere(*right),
            Resource::AllStores => caller.check(*right, None),
            Resource::Path(_) | Resource::Header | Resource::Database | Resource::Setting(_) => {
                caller.check(*right, store)
            }
        })
    }
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rights.is_empty() {
            return f.write_str(if self.resource == Resource::Public { "none" } else { "login" });
        }
        for (number, right) in self.rights.iter().enumerate() {
            let separator = if number > 0 { ", " } else { "" };
            write!(f, "{separator}`{}`", right.as_str())?;
        }
        Ok(())
    }
}

/// An operation of a protocol with its rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Its name in the protocol: a method and a path, a call, a command, a kind of statement.
    pub name: String,
    /// The rights and their object.
    pub needs: Needs,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::caller::{Identity, Roles};

    #[test]
    fn needs_check_passes_exactly_with_every_right_on_the_object() {
        let caller = |store: &str, rights: &[Right]| {
            let roles = Roles::from([(store.to_owned(), BTreeSet::from_iter(rights.iter().copied()))]);
            Caller::new("ann", Identity::Anonymous, &roles)
        };
        let both = [Right::Read, Right::Append];
        let is_allowed = |needs: Needs, caller: &Caller| needs.check(caller, Some("a")).is_ok();
        for (needs, store, rights, allowed) in [
            (Needs::LOGIN, "b", &[][..], true),
            (Needs::read(Resource::Header), "a", &[Right::Read], true),
            (Needs::read(Resource::Header), "a", &[Right::Append], false),
            (Needs::read(Resource::Header), "b", &[Right::Read], false),
            (Needs::read_and_append(Resource::Path("store")), "a", &[Right::Read], false),
            (Needs::read_and_append(Resource::Path("store")), "a", &[Right::Append], false),
            (Needs::read_and_append(Resource::Path("store")), "a", &both, true),
            (Needs::read_and_append(Resource::Path("store")), "a", &[Right::Admin], true),
            (Needs::append(Resource::Message), "b", &[Right::Append], true),
            (Needs::append(Resource::Message), "b", &[Right::Read], false),
            (Needs::append(Resource::Message), "b", &[], false),
            (Needs::admin(Resource::AllStores), "a", &[Right::Admin], false),
            (Needs::admin(Resource::AllStores), "*", &[Right::Admin], true),
        ] {
            assert_eq!(is_allowed(needs, &caller(store, rights)), allowed, "{needs:?} {store} {rights:?}");
        }
        // A missing name requires the right on all stores.
        assert!(Needs::read(Resource::Header).check(&caller("a", &both), None).is_err());
    }
}
