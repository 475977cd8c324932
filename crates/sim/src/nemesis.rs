//! What goes wrong, and when.

use ropewalk_vfs::{DiskOp, Faults};

use crate::world::{Check, End, World};

/// The trouble of one boot.
#[derive(Debug, Clone, Copy)]
enum Trouble {
    None,
    /// The power fails in the middle of some call.
    PowerCutInside,
    /// One call of the disk fails.
    OneFault(DiskOp),
    /// Many calls fail.
    ManyFaults,
    ReadFaults,
    /// The disk is nearly full for a while.
    DiskFull,
}

const TROUBLES: [(u64, Trouble); 13] = [
    (3, Trouble::None),
    (10, Trouble::PowerCutInside),
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
];

impl World {
    /// One boot under one kind of trouble, `steps` long at most; ends with the next boot.
    pub(crate) fn troubled_boot(&mut self, steps: u64, lie: bool) -> Check {
        let trouble = self.dice.weighted(&TROUBLES);
        self.note(format!("trouble: {trouble:?}"));
        if lie {
            self.vfs.lie_about_sync(self.dice.below(12));
        }
        match trouble {
            Trouble::None => {}
            Trouble::PowerCutInside => self.vfs.crash_at(self.vfs.operations() + self.dice.between(1, 150)),
            Trouble::OneFault(op) => {
                self.sync_failed = op == DiskOp::Sync;
                let often = matches!(op, DiskOp::Write | DiskOp::Sync | DiskOp::Read);
                self.vfs.fail(op, self.dice.below(if often { 40 } else { 6 }));
            }
            Trouble::ManyFaults => {
                self.sync_failed = true;
                // No failing reads beside: a failed validation in a group that fails as a whole leaves no trace, and the
                // oracle could not tell which of its members are in doubt.
                let rate = |n| self.dice.between(10, n) as u32;
                self.vfs.set_faults(Faults { read: 0, write: rate(200), sync: rate(100), name: rate(40) });
            }
            Trouble::ReadFaults => {
                let read = self.dice.between(5, 100) as u32;
                self.vfs.set_faults(Faults { read, ..Faults::default() });
            }
            Trouble::DiskFull => {
                self.vfs.set_space(Some(self.vfs.used() + self.dice.below(64 << 10)));
                self.full = true;
            }
        }
        let mut after_stop = self.dice.below(6);
        for step in 0..steps {
            self.step()?;
            if self.vfs.is_off() {
                break;
            }
            if self.stopped() {
                // A stopped engine refuses writes and still answers readers; look at that for a few steps.
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
        let end = match trouble {
            _ if self.vfs.is_off() => End::PowerCut,
            _ => self.dice.weighted(&[(3, End::PowerCut), (2, End::Kill), (1, End::Close)]),
        };
        let rough = !matches!(trouble, Trouble::None | Trouble::ReadFaults) || self.dice.one_in(2);
        // Faults at random would let nobody ever open the database; planned ones may meet the next open.
        self.heal();
        self.restart(end, rough)
    }
}
