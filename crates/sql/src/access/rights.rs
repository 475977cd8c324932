//! Rights, and the caller of a session with its rights.

use std::sync::{Arc, PoisonError, RwLock};

use ropewalk::documents::Caller;

use crate::error::{Result, SqlError, state};

/// Rights on all stores: needed by a statement, or granted to a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rights {
    /// To read rows, documents, events, metrics and catalogs.
    pub read: bool,
    /// To change rows and sequences, to append, to lock.
    pub append: bool,
    /// To change definitions; includes the other two.
    pub admin: bool,
}

impl Rights {
    /// No right.
    pub const NONE: Self = Self { read: false, append: false, admin: false };
    /// The right to read alone.
    pub const READ: Self = Self { read: true, ..Self::NONE };
    /// The right to append alone.
    pub const APPEND: Self = Self { append: true, ..Self::NONE };
    /// The rights to read and to append.
    pub const READ_APPEND: Self = Self { append: true, ..Self::READ };
    /// Every right.
    pub const ADMIN: Self = Self { admin: true, ..Self::READ_APPEND };

    /// Rejects a statement that needs more than these rights.
    ///
    /// # Errors
    /// 42501.
    fn check(self, needed: Self) -> Result<()> {
        let missing = [
            (needed.admin && !self.admin, "admin"),
            (needed.read && !self.read && !self.admin, "read"),
            (needed.append && !self.append && !self.admin, "append"),
        ];
        match missing.iter().find(|(is_missing, _)| *is_missing) {
            None => Ok(()),
            Some((_, right)) => Err(SqlError::new(
                state::INSUFFICIENT_PRIVILEGE,
                format!("permission denied: the statement needs the right \"{right}\" on all stores"),
            )
            .hint("grant the right to the user, or connect as another user")),
        }
    }
}

/// The caller of a session, shared with its plans, so that changed rights apply to them, too.
#[derive(Debug, Clone)]
pub(crate) struct Acting(Arc<RwLock<(Rights, Option<Caller>)>>);

impl Default for Acting {
    fn default() -> Self {
        Self(Arc::new(RwLock::new((Rights::ADMIN, None))))
    }
}

impl Acting {
    /// Replaces the rights and the caller.
    pub(crate) fn set(&self, rights: Rights, caller: Option<Caller>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = (rights, caller);
    }

    pub(crate) fn rights(&self) -> Rights {
        self.0.read().unwrap_or_else(PoisonError::into_inner).0
    }

    /// Rejects a statement that the caller has no right to run.
    ///
    /// # Errors
    /// 42501.
    pub(crate) fn check(&self, needed: Rights) -> Result<()> {
        self.rights().check(needed)
    }

    /// The caller to which the rules of collections apply; `None` if they do not apply.
    pub(crate) fn caller(&self) -> Option<Caller> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).1.clone()
    }
}
