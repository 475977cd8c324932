//! The end of a phase: all nodes agree. Or the shared log is damaged, and no node that has seen more continues.

use std::sync::Arc;

use ropewalk::cluster::Role;
use ropewalk_log::LogId;
use ropewalk_log::shared::{Entry, EntryIndex, SharedLog as _};

use crate::cluster::member::{Member, Process};
use crate::cluster::world::{LEASE, World};
use crate::events::scenario::{Bug, Check, ensure};

/// Most steps of a node that lags in one turn.
const CATCH_UP_STEPS: u64 = 64;
/// Turns in which a cluster without faults has to agree.
pub(super) const TURNS_MAX: u64 = 4_000;

impl World {
    /// Ends all faults; the nodes come back, one leads, and all agree.
    pub(super) fn settle(&self) -> Check {
        self.heal();
        self.agree("after the last fault")?;
        // The leader accepts a write again.
        let committed = || self.record.lock().counts.commits;
        let before = committed();
        for _ in 0..TURNS_MAX {
            if committed() > before {
                break;
            }
            self.write()?;
            self.turn()?;
        }
        ensure!(committed() > before, "no transfer was committed after the last fault");
        self.agree("after a transfer")
    }

    /// Runs all nodes until one leads and all have everything.
    pub(super) fn agree(&self, when: &str) -> Check {
        self.set_quiet(true);
        let agreed = self.turn_until_agreed(when);
        self.set_quiet(false);
        agreed
    }

    fn turn_until_agreed(&self, when: &str) -> Check {
        for _ in 0..TURNS_MAX {
            self.turn()?;
            if !self.has_agreed() {
                continue;
            }
            for member in self.members() {
                self.compare(member)?;
            }
            return self.compare_hashes();
        }
        let states: Vec<String> = self.members().iter().map(state).collect();
        Err(Bug(format!("the nodes do not agree {when}: {states:?}")))
    }

    /// Each node takes a step.
    pub(super) fn turn(&self) -> Check {
        for member in self.members() {
            self.boot(member)?;
            self.step(member)?;
            self.catch_up(member)?;
            if self.dice.one_in(4) {
                self.report_hashes(member)?;
            }
            if self.dice.one_in(3) {
                self.housekeeping(member)?;
            }
            if self.dice.one_in(8) {
                self.upkeep(member)?;
            }
        }
        self.advance(self.dice.between(1, 200));
        self.check()
    }

    /// A node that reads few bytes at a time reads more often than the leader appends.
    fn catch_up(&self, member: &Member) -> Check {
        for _ in 0..CATCH_UP_STEPS {
            let lags = |process: Arc<Process>| process.node.status().lag_entries > 0;
            if !member.process().is_some_and(lags) {
                break;
            }
            self.step(member)?;
        }
        Ok(())
    }

    fn has_agreed(&self) -> bool {
        let newest = self.record.lock().history.newest_entry();
        let mut leaders = 0;
        for member in self.members() {
            let Some(process) = member.process() else { return false };
            leaders += u64::from(matches!(process.db.role(), Role::Leader { .. }));
            if process.db.engine().place().index != newest {
                return false;
            }
        }
        leaders == 1
    }

    /// The last checks: no damage in any database, and all is there after opening it again.
    pub(super) fn finish(&self) -> Check {
        for member in self.members() {
            if let Some(process) = member.process() {
                crate::runs::restarts::verify(&process.db)?;
            }
        }
        self.check_checkpoints()?;
        for member in self.members() {
            self.end_process(member, self.dice.one_in(2));
            if self.dice.one_in(4) {
                self.lose_disk(member);
            }
        }
        self.agree("after all machines were off")?;
        for member in self.members() {
            if let Some(process) = member.process() {
                crate::runs::restarts::verify(&process.db)?;
            }
        }
        Ok(())
    }

    /// Damages the shared log. Each node that has seen what it lost stops; the others agree.
    pub(super) fn damage_log(&self) -> Check {
        // Some nodes have seen less than others.
        let mut is_off = None;
        if self.dice.one_in(2) {
            let member = self.any_member();
            self.end_process(member, self.dice.one_in(2));
            is_off = Some(member.number);
            for _ in 0..self.dice.below(40) {
                self.write()?;
                self.step(self.any_member())?;
                self.check()?;
            }
        }
        let (newest, oldest) = (self.log.newest().0, self.oldest_entry()?.0);
        let (oldest_bad, what) = match self.dice.below(5) {
            0 | 1 => {
                let lost = self.dice.between(1, (newest + 1 - oldest).min(12));
                self.log.lose_newest(usize::try_from(lost).unwrap_or(0));
                (newest - lost + 1, "lost its end")
            }
            2 => {
                let mut id = [0; 16];
                id.copy_from_slice(&self.dice.bytes(16));
                self.log.create_again(LogId(id));
                (1, "was created again")
            }
            3 if newest > oldest => {
                let index = self.dice.between(newest.saturating_sub(6).max(oldest), newest - 1);
                self.forge(EntryIndex(index))?;
                (index, "has another entry")
            }
            _ => {
                let index = self.dice.between(newest.saturating_sub(6).max(oldest), newest);
                match self.dice.one_in(2) {
                    true => self.log.lose_entry(EntryIndex(index)),
                    false => self.flip(EntryIndex(index))?,
                }
                (index, "lost an entry")
            }
        };
        self.note(format!("the shared log {what}: entry {oldest_bad} of {newest}"));
        let is_shorter = matches!(what, "lost its end" | "was created again");
        self.record.lock().history.damaged_from(EntryIndex(oldest_bad), is_shorter);
        for member in self.members() {
            if let Some(process) = member.process() {
                self.opened(member, process.incarnation, &process.db);
            }
        }
        self.run_damaged(is_off)?;
        for member in self.members() {
            let has_ended = member.trouble.lock().ended.is_some();
            ensure!(
                has_ended || !self.holds_lost(member),
                "the shared log {what}, and node {} continues: {}",
                member.number,
                state(member)
            );
        }
        Ok(())
    }

    fn holds_lost(&self, member: &Member) -> bool {
        self.record.lock().history.holds_lost(member.number)
    }

    /// Runs the nodes long enough for each to notice. A node that is off comes back when others may have written as many entries
    /// as were lost.
    fn run_damaged(&self, is_off: Option<usize>) -> Check {
        let turns = LEASE.as_millis() as u64 / 10;
        let back = self.dice.below(turns / 2);
        for turn in 0..turns {
            for member in self.members() {
                if turn < back && is_off == Some(member.number) {
                    continue;
                }
                let before = member.process().map(|process| process.db.seq());
                self.turn_of(member)?;
                let after = member.process().map(|process| process.db.seq());
                let commits = before.zip(after).is_some_and(|(before, after)| after > before);
                ensure!(
                    !commits || !self.holds_lost(member),
                    "node {} commits on a log that has lost what it has",
                    member.number
                );
            }
            self.advance(self.dice.between(1, 200));
        }
        Ok(())
    }

    fn turn_of(&self, member: &Member) -> Check {
        self.boot(member)?;
        self.step(member)?;
        if self.dice.one_in(4) {
            self.write()?;
        }
        if self.dice.one_in(4) {
            self.compare(member)?;
        }
        self.check()
    }

    /// The bytes of an entry.
    fn entry(&self, index: EntryIndex) -> Check<Vec<u8>> {
        let before = EntryIndex(index.0 - 1);
        let entries = self.log.read(before, 1, std::time::Duration::ZERO);
        let entry = entries.ok().and_then(|mut entries| entries.pop());
        Ok(entry.ok_or_else(|| Bug(format!("no entry {index}")))?.bytes)
    }

    /// Replaces an entry by a valid one, which only the next entry shows to be wrong.
    fn forge(&self, index: EntryIndex) -> Check {
        let bytes = self.entry(index)?;
        let mut entry = Entry::decode(&bytes).map_err(|error| Bug(error.to_string()))?;
        entry.time_micros ^= 1;
        let mut forged = Vec::new();
        entry.encode(&mut forged);
        self.log.replace_entry(index, &forged);
        Ok(())
    }

    fn flip(&self, index: EntryIndex) -> Check {
        let mut bytes = self.entry(index)?;
        let at = self.dice.index(bytes.len());
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << self.dice.below(8);
        }
        self.log.replace_entry(index, &bytes);
        Ok(())
    }
}

/// A machine, for a message.
pub(super) fn state(member: &Member) -> String {
    let trouble = member.trouble.lock();
    match (member.process(), &trouble.ended) {
        (Some(process), _) => {
            let place = process.db.engine().place();
            let (role, seq, status) = (process.db.role(), process.db.seq(), process.node.status());
            format!(
                "{role:?} at entry {}, commit {seq}, lag {}; {}; {:?}, last {:?}, {:?}",
                place.index,
                status.lag_entries,
                process.node.hash_report(),
                status.hashes.pass,
                status.hashes.last_pass,
                status.hashes.failed,
            )
        }
        (None, Some(end)) => format!("ended: {end}"),
        (None, None) => "down".to_owned(),
    }
}
