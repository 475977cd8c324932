//! Hashes of contents: reports of followers, and nodes that agree have equal ones.

use std::collections::BTreeMap;

use ropewalk::Error;
use ropewalk::cluster::Role;
use ropewalk_base::ContentHash;

use crate::cluster::member::{Member, Network};
use crate::cluster::world::World;
use crate::events::scenario::{Check, ensure};

/// Bytes of the slices that the checks hash.
const SLICE_BYTES: u64 = 5_000;

impl World {
    /// A follower reports its hashes to the node that it takes for the leader.
    pub(super) fn report_hashes(&self, member: &Member) -> Check {
        if self.now() < member.trouble.lock().paused_until {
            return Ok(());
        }
        let Some(used) = member.begin() else { return Ok(()) };
        let Role::Follower { leader: Some(address) } = used.process.db.role() else { return Ok(()) };
        let leader = self.members().iter().find(|other| address == format!("node-{}", other.number));
        let Some(leader) = leader.filter(|leader| leader.number != member.number) else { return Ok(()) };
        let is_cut = [member, leader].iter().any(|of| self.network(of.number) != Network::Up);
        let is_lost = self.is_troubled() && self.dice.one_in(5);
        let report = used.process.node.hash_report();
        if let Some(leader) = leader.begin().filter(|_| !is_cut && !is_lost) {
            leader.process.node.take_hashes(member.name, report);
        }
        Ok(())
    }

    /// Nodes at equal commits have equal hashes, of effects and of all contents.
    pub(super) fn compare_hashes(&self) -> Check {
        let mut contents: BTreeMap<u64, (usize, ContentHash)> = BTreeMap::new();
        let mut effects: BTreeMap<(u64, u64), (usize, ContentHash)> = BTreeMap::new();
        for member in self.members() {
            let Some(used) = member.begin().filter(|_| !member.trouble.lock().differs) else { continue };
            let (number, db) = (member.number, &used.process.db);
            let snapshot = db.snapshot();
            let (seq, mut hash, mut start) = (snapshot.seq().0, ContentHash::default(), Vec::new());
            loop {
                match db.engine().hash_slice(snapshot.engine(), &start, SLICE_BYTES) {
                    Ok(slice) => {
                        hash = hash.plus(slice.hash);
                        match slice.next {
                            Some(next) => start = next,
                            None => break,
                        }
                    }
                    Err(error) => return self.excuse(member, &used.process, "hash", &Error::Engine(error)),
                }
            }
            let (other, known) = *contents.entry(seq).or_insert((number, hash));
            ensure!(
                known == hash,
                "contents at commit {seq}: {hash} on node {number}, {known} on node {other}"
            );
            let marks = db.engine().hash_marks();
            for (seq, hash) in marks.marks.iter().filter(|_| marks.origin != 0) {
                let (other, known) = *effects.entry((marks.origin, seq.0)).or_insert((number, *hash));
                ensure!(
                    known == *hash,
                    "effects up to commit {seq}: {hash} on node {number}, {known} on node {other}"
                );
            }
        }
        Ok(())
    }
}
