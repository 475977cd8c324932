//! Validity of definitions that a model caches, such as schemas.

use std::sync::atomic::{AtomicU64, Ordering};

use ropewalk_base::Seq;

use crate::model::Apply;
use crate::model::version::ReadView;

/// The newest commit that changed a definition of a model, pending commits included.
#[derive(Debug, Default)]
pub struct LastDefinition(AtomicU64);

impl LastDefinition {
    /// Its number.
    #[inline]
    pub fn seq(&self) -> Seq {
        Seq(self.0.load(Ordering::Acquire))
    }

    /// Records that the commit changes a definition.
    pub fn changed(&self, apply: &Apply<'_>) {
        let before = self.0.swap(apply.seq.0, Ordering::AcqRel);
        debug_assert!(before <= apply.seq.0, "commits are applied in their order");
    }

    /// True when a definition that was loaded at `at` is the one that `read` sees.
    #[inline]
    pub fn is_current(&self, at: Seq, read: ReadView<'_>) -> bool {
        let last = self.seq();
        last <= at && last <= read.at() || at == read.at()
    }
}
