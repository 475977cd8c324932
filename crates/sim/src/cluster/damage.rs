//! The end of a phase: all nodes agree. Or the shared log is damaged, and no node that has seen more continues.

use ropewalk::cluster::Role;
use ropewalk_log::LogId;
use ropewalk_log::shared::{EntryIndex, SharedLog as _};

use crate::cluster::member::Member;
use crate::cluster::world::{LEASE, World};
use crate::events::scenario::{Bug, Check, ensure};

/// Turns in which a cluster without faults has to agree.
const TURNS_MAX: u64 = 4_000;

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
    fn agree(&self, when: &str) -> Check {
        for _ in 0..TURNS_MAX {
            self.turn()?;
            if !self.has_agreed() {
                continue;
            }
            for member in self.members() {
                self.compare(member)?;
            }
            return Ok(());
        }
        let states: Vec<String> = self.members().iter().map(state).collect();
        Err(Bug(format!("the nodes do not agree {when}: {states:?}")))
    }

    /// Each node takes a step.
    fn turn(&self) -> Check {
        for member in self.members() {
            self.boot(member)?;
            self.step(member)?;
            if self.dice.one_in(3) {
                self.housekeeping(member)?;
            }
        }
        self.advance(self.dice.between(1, 200));
        self.check()
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
        for member in self.members() {
            self.end_process(member, self.dice.one_in(2));
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
        if self.dice.one_in(2) {
            self.end_process(self.any_member(), self.dice.one_in(2));
            for _ in 0..self.dice.below(40) {
                self.write()?;
                self.step(self.any_member())?;
                self.check()?;
            }
        }
        let newest = self.log.newest().0;
        let (oldest_bad, what) = match self.dice.below(4) {
            0 | 1 => {
                let lost = self.dice.between(1, newest.min(12));
                self.log.lose_newest(usize::try_from(lost).unwrap_or(0));
                (newest - lost + 1, "lost its end")
            }
            2 => {
                let mut id = [0; 16];
                id.copy_from_slice(&self.dice.bytes(16));
                self.log.create_again(LogId(id));
                (1, "was created again")
            }
            _ => {
                let index = self.dice.between(newest.saturating_sub(6).max(1), newest);
                match self.dice.one_in(2) {
                    true => self.log.lose_entry(EntryIndex(index)),
                    false => self.flip(EntryIndex(index))?,
                }
                (index, "lost an entry")
            }
        };
        self.note(format!("the shared log {what}: entry {oldest_bad} of {newest}"));
        let left = self.record.lock().history.damaged_from(EntryIndex(oldest_bad));
        let is_shorter = what != "lost an entry";
        let doomed: Vec<bool> = self
            .members()
            .iter()
            .map(|member| member.process().is_some_and(|process| is_shorter && process.db.seq().0 > left))
            .collect();
        self.run_damaged(&doomed)?;
        for (member, is_doomed) in self.members().iter().zip(&doomed) {
            let has_ended = member.trouble.lock().ended.is_some();
            ensure!(
                has_ended || !is_doomed,
                "the shared log {what}, and node {} continues: {}",
                member.number,
                state(member)
            );
        }
        Ok(())
    }

    /// Runs the nodes long enough for each to notice.
    fn run_damaged(&self, doomed: &[bool]) -> Check {
        let turns = LEASE.as_millis() as u64 / 10;
        for _ in 0..turns {
            for (member, is_doomed) in self.members().iter().zip(doomed) {
                let before = member.process().map(|process| process.db.seq());
                self.turn_of(member)?;
                let after = member.process().map(|process| process.db.seq());
                let commits = before.zip(after).is_some_and(|(before, after)| after > before);
                ensure!(
                    !is_doomed || !commits,
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

    fn flip(&self, index: EntryIndex) -> Check {
        let before = EntryIndex(index.0 - 1);
        let entries = self.log.read(before, 1, std::time::Duration::ZERO);
        let entry = entries.ok().and_then(|mut entries| entries.pop());
        let mut bytes = entry.ok_or_else(|| Bug(format!("no entry {index}")))?.bytes;
        let at = self.dice.index(bytes.len());
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << self.dice.below(8);
        }
        self.log.replace_entry(index, &bytes);
        Ok(())
    }
}

/// A machine, for a message.
fn state(member: &Member) -> String {
    let trouble = member.trouble.lock();
    match (member.process(), &trouble.ended) {
        (Some(process), _) => {
            let place = process.db.engine().place();
            format!("{:?} at entry {}, commit {}", process.db.role(), place.index, process.db.seq())
        }
        (None, Some(end)) => format!("ended: {end}"),
        (None, None) => "down".to_owned(),
    }
}
