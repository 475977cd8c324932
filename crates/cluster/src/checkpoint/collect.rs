//! Deletes what no checkpoint needs.

use std::collections::HashSet;

use crate::checkpoint::Checkpoints;
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::manifest::{BLOCKS, Block, CHECKPOINTS, Manifest};
use crate::checkpoint::withdraw::Withdrawn;

impl Checkpoints {
    /// Deletes the manifests before the two newest checkpoints, and the blocks up to checkpoint `number` that those do not need;
    /// returns how many objects. `number` is the newest checkpoint; when another one is newer, its node does this.
    ///
    /// # Errors
    /// [`CheckpointError::Store`].
    pub fn collect(&self, number: u64) -> Result<u64, CheckpointError> {
        let found = self.list()?;
        // One that cannot be read, or that the list does not show, may need any block.
        let kept = found.iter().map(|found| found.manifest.as_ref().ok()).collect::<Option<Vec<_>>>();
        let is_newest = found.first().is_some_and(|found| found.number == number);
        let is_whole = found.len() == 2 || number == 1;
        let Some(kept) = kept.filter(|_| is_newest && is_whole) else { return Ok(0) };
        let oldest = kept.last().map_or(number, |manifest| manifest.number);
        let mut unneeded = Vec::new();
        for name in self.store.list(CHECKPOINTS)? {
            let is_old = |(of, is_leftover)| of < oldest || is_leftover && of <= number;
            if Manifest::parse(&name).is_some_and(is_old) {
                unneeded.push(name);
            }
        }
        let needed: HashSet<&Block> = kept.iter().flat_map(|manifest| manifest.blocks()).collect();
        for name in self.store.list(BLOCKS)? {
            let is_unneeded = Block::parse(&name).is_some_and(|(of, block)| {
                of <= number && block.is_none_or(|block| !needed.contains(&block))
            });
            if is_unneeded {
                unneeded.push(name);
            }
        }
        let withdrawn = self.withdrawn()?;
        unneeded.extend(withdrawn.iter().filter(|of| of.number < oldest).map(Withdrawn::name));
        for name in &unneeded {
            self.store.delete(name)?;
        }
        Ok(unneeded.len() as u64)
    }
}
