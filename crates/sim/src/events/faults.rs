//! Faults and their times.

use ropewalk_vfs::{DiskOp, Faults};

use crate::events::scenario::{Check, End, World};

/// The fault of one boot.
#[derive(Debug, Clone, Copy)]
enum Trouble {
    None,
    /// The power fails in the middle of some call.
    PowerCutInside,
    /// The process ends during some call; state that the next one finds may not be durable yet.
    KillInside,
    /// As before, in the middle of a call of one kind, of which there are few.
    KillInsideOf(DiskOp),
    /// Reads return Ok with a bit wrong.
    LyingReads,
    /// The process may open few more files for a while.
    FewDescriptors,
    /// One call of the disk fails.
    OneFault(DiskOp),
    /// Many calls fail.
    ManyFaults,
    ReadFaults,
    /// The disk is nearly full for a while.
    DiskFull,
    /// As before, and overwriting needs space, too.
    DiskFullForOverwrites,
}

const TROUBLES: [(u64, Trouble); 21] = [
    (3, Trouble::None),
    (10, Trouble::PowerCutInside),
    (4, Trouble::KillInside),
    (2, Trouble::KillInsideOf(DiskOp::SyncDir)),
    (1, Trouble::KillInsideOf(DiskOp::Rename)),
    (1, Trouble::KillInsideOf(DiskOp::Remove)),
    (1, Trouble::KillInsideOf(DiskOp::Sync)),
    (3, Trouble::LyingReads),
    (2, Trouble::FewDescriptors),
    (2, Trouble::OneFault(DiskOp::Write)),
    (3, Trouble::OneFault(DiskOp::Sync)),
    (1, Trouble::OneFault(DiskOp::SyncDir)),
    (1, Trouble::OneFault(DiskOp::Create)),
    (1, Trouble::OneFault(DiskOp::Rename)),
    (1, Trouble::OneFault(DiskOp::Remove)),
    (1, Trouble::OneFault(DiskOp::SetLen)),
    (1, Trouble::OneFault(DiskOp::Read)),
    (1, Trouble::ManyFaults),
    (2, Trouble::ReadFaults),
    (3, Trouble::DiskFull),
    (2, Trouble::DiskFullForOverwrites),
];

impl World {
    /// One boot with one kind of fault, `steps` long at most; ends with the next boot.
    pub(crate) fn troubled_boot(&mut self, steps: u64, lie: bool) -> Check {
        let trouble = self.dice.weighted(&TROUBLES);
        self.note(format!("trouble: {trouble:?}"));
        if lie {
            self.vfs.lie_about_sync(self.dice.below(12));
        }
        self.prepare(trouble);
        if self.dice.one_in(3) {
            self.hold_relic();
        }
        self.act_under_trouble(steps)?;
        self.compare_relic()?;
        let is_killed = matches!(trouble, Trouble::KillInside | Trouble::KillInsideOf(_));
        let end = match self.vfs.is_off() {
            true if is_killed => End::Kill,
            true => End::PowerCut,
            false => self.dice.weighted(&[(3, End::PowerCut), (2, End::Kill), (1, End::Close)]),
        };
        let rough = !matches!(trouble, Trouble::None | Trouble::ReadFaults) || self.dice.one_in(2);
        // With random faults the database might never open; planned ones may hit the next open.
        self.heal();
        self.restart(end, rough)?;
        if is_killed && self.dice.one_in(2) {
            // Commits found by the opening after a kill must survive, even if the power fails at once.
            self.restart(End::PowerCut, rough)?;
        }
        Ok(())
    }

    fn prepare(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::None => {}
            Trouble::PowerCutInside | Trouble::KillInside => {
                self.vfs.crash_at(self.vfs.operations() + self.dice.between(1, 150));
            }
            Trouble::KillInsideOf(op) => {
                self.vfs.crash_at_call(op, self.dice.below(if op == DiskOp::Sync { 40 } else { 8 }));
            }
            Trouble::LyingReads => {
                let lie = self.dice.between(5, 100) as u32;
                self.vfs.set_faults(Faults { lie, ..Faults::default() });
                self.lies = true;
            }
            Trouble::FewDescriptors => {
                self.vfs.set_descriptors(Some(self.vfs.open_files() + self.dice.below(4) as usize));
                self.full = true;
            }
            Trouble::OneFault(op) => {
                self.sync_failed = op == DiskOp::Sync;
                let often = matches!(op, DiskOp::Write | DiskOp::Sync | DiskOp::Read);
                self.vfs.fail(op, self.dice.below(if often { 40 } else { 6 }));
            }
            Trouble::ManyFaults => {
                self.sync_failed = true;
                // No failing reads at the same time: a failed validation in a group that fails as a whole
                // leaves no trace, and the oracle could not tell which of its members are in doubt.
                let rate = |n| self.dice.between(10, n) as u32;
                self.vfs.set_faults(Faults {
                    write: rate(200),
                    sync: rate(100),
                    name: rate(40),
                    ..Faults::default()
                });
            }
            Trouble::ReadFaults => {
                let read = self.dice.between(5, 100) as u32;
                self.vfs.set_faults(Faults { read, ..Faults::default() });
            }
            Trouble::DiskFull | Trouble::DiskFullForOverwrites => {
                self.vfs.set_copies_on_write(matches!(trouble, Trouble::DiskFullForOverwrites));
                self.vfs.set_space(Some(self.vfs.used() + self.dice.below(64 << 10)));
                self.full = true;
            }
        }
    }

    fn act_under_trouble(&mut self, steps: u64) -> Check {
        let mut after_stop = self.dice.below(6);
        for step in 0..steps {
            self.step()?;
            if self.vfs.is_off() {
                break;
            }
            if self.stopped() {
                // A stopped engine refuses writes and still serves readers; check that for a few steps.
                if after_stop == 0 {
                    break;
                }
                after_stop -= 1;
            }
            if self.full && step > steps / 2 {
                self.note("space is free again");
                self.heal();
            }
        }
        Ok(())
    }
}
