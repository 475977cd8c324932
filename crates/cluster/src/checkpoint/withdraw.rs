//! Withdrawn checkpoints: those of a node whose contents were found to differ.
//!
//! ```text
//! withdrawn/NODE-NUMBER: the checkpoints of NODE up to NUMBER have wrong contents
//! ```
//! Every reader of a manifest asks for them, so that no node begins with such a checkpoint, takes blocks from it, or trims
//! the shared log because of it.

use std::collections::BTreeSet;
use std::path::Path;

use ropewalk_base::{from_hex, hex};
use ropewalk_vfs::Env;

use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::manifest::Manifest;
use crate::checkpoint::{Checkpoints, WITHDRAWN, tree};

/// The checkpoints of a node up to a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Withdrawn {
    node: [u8; 16],
    pub(crate) number: u64,
}

impl Withdrawn {
    pub(crate) fn name(&self) -> String {
        format!("{WITHDRAWN}/{}-{:016x}", hex(&self.node), self.number)
    }

    fn parse(name: &str) -> Option<Self> {
        let (node, number) = name.strip_prefix(WITHDRAWN)?.strip_prefix('/')?.split_once('-')?;
        let node = from_hex(node)?.try_into().ok()?;
        Some(Self { node, number: u64::from_str_radix(number, 16).ok()? })
    }

    fn contains(&self, manifest: &Manifest) -> bool {
        manifest.node == self.node && manifest.number <= self.number
    }
}

impl Checkpoints {
    /// Makes the checkpoints of a node unusable, because its contents differ from those of most nodes. The node must not be
    /// making one. Returns the number of the newest checkpoint: later ones of the node are not affected. May be repeated.
    ///
    /// # Errors
    /// [`CheckpointError::Store`].
    pub fn withdraw(&self, node: &[u8; 16]) -> Result<u64, CheckpointError> {
        let number = self.numbers()?.first().copied().unwrap_or(0);
        self.store.create(&Withdrawn { node: *node, number }.name(), b"")?;
        Ok(number)
    }

    /// As [`Checkpoints::withdraw`], if the database in `dir` was found to differ; `None` if it was not.
    ///
    /// # Errors
    /// [`CheckpointError::Store`]; [`CheckpointError::Io`].
    pub fn withdraw_distrusted(
        &self,
        env: &Env,
        dir: &Path,
        node: &[u8; 16],
    ) -> Result<Option<u64>, CheckpointError> {
        let is_distrusted = tree::exists(&*env.vfs, &dir.join(tree::DIFFERS))?;
        is_distrusted.then(|| self.withdraw(node)).transpose()
    }

    /// All that was withdrawn; an entry older than the second newest checkpoint may be missing.
    pub(crate) fn withdrawn(&self) -> Result<BTreeSet<Withdrawn>, CheckpointError> {
        Ok(self.store.list(WITHDRAWN)?.iter().filter_map(|name| Withdrawn::parse(name)).collect())
    }

    /// Rejects a withdrawn manifest.
    pub(crate) fn check_not_withdrawn(&self, manifest: &Manifest) -> Result<(), CheckpointError> {
        if self.withdrawn()?.iter().any(|withdrawn| withdrawn.contains(manifest)) {
            return Err(CheckpointError::Withdrawn { number: manifest.number });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_tells_node_and_number() {
        let withdrawn = Withdrawn { node: [7; 16], number: 258 };
        let name = withdrawn.name();
        assert_eq!(name, format!("withdrawn/{}-0000000000000102", "07".repeat(16)));
        assert_eq!(Withdrawn::parse(&name), Some(withdrawn));
        assert_eq!(Withdrawn::parse(&format!("{name}.0123.new")), None);
    }
}
