//! Random commands on a forgetful disk, compared to a plain list of commits.
//!
//! After every command the list defines what the log must contain: everything that a barrier covered, nothing
//! that was not appended, and never a gap.

use proptest::prelude::*;
use ropewalk_base::{Lsn, Seq};
use ropewalk_log::{CommitLog, LogError, LogReader, Record};

use crate::disk::Disk;
use crate::help::*;

#[derive(Debug, Clone)]
enum Command {
    /// This many commits of this length.
    Append(usize, usize),
    Flush,
    Barrier,
    /// The process ends, the machine keeps running.
    Restart,
    /// The machine ends; unsynced sectors survive with this chance of 256.
    PowerCut(u64, u64),
    /// A checkpoint after this part (of 256) of the durable commits; everything before it is trimmed.
    Checkpoint(usize),
    PrepareSpare,
    /// The nth changing disk operation from here on fails.
    Fail(u32),
    ReadOn,
}

fn commands() -> impl Strategy<Value = Vec<Command>> {
    let length =
        prop_oneof![6 => 0..200_usize, 2 => 200..3000_usize, 1 => 3000..40_000_usize, 3 => Just(24_usize)];
    let keep = prop_oneof![Just(0), Just(128), Just(230), Just(256)];
    let command = prop_oneof![
        10 => (1..5_usize, length).prop_map(|(count, length)| Command::Append(count, length)),
        4 => Just(Command::Flush),
        4 => Just(Command::Barrier),
        2 => Just(Command::Restart),
        3 => (any::<u64>(), keep).prop_map(|(seed, keep)| Command::PowerCut(seed, keep)),
        2 => (0..=256_usize).prop_map(Command::Checkpoint),
        1 => Just(Command::PrepareSpare),
        1 => (0..12_u32).prop_map(Command::Fail),
        3 => Just(Command::ReadOn),
    ];
    prop::collection::vec(command, 1..60)
}

struct World {
    disk: Disk,
    opened: Opened,
    /// Every commit of the log: payload and end address.
    commits: Vec<(Vec<u8>, Lsn)>,
    flushed: usize,
    durable: usize,
    checkpoint: usize,
    failed: bool,
    reader: Box<dyn LogReader>,
    read: usize,
}

impl World {
    fn new() -> Self {
        let disk = Disk::default();
        let opened = open(&disk.env());
        let reader = opened.log.read(Lsn(0)).unwrap();
        let (commits, failed) = (vec![], false);
        Self { disk, opened, commits, flushed: 0, durable: 0, checkpoint: 0, failed, reader, read: 0 }
    }

    fn address(&self, commits: usize) -> Lsn {
        commits.checked_sub(1).map_or(Lsn(0), |last| self.commits[last].1)
    }

    fn run(&mut self, command: &Command) {
        match *command {
            Command::Append(count, length) => self.append(count, length),
            Command::Flush => {
                let result = self.opened.log.flush();
                self.check(result, |world| world.flushed = world.commits.len());
            }
            Command::Barrier => {
                let result = self.opened.log.barrier();
                self.check(result, |world| {
                    world.flushed = world.commits.len();
                    world.durable = world.flushed;
                });
            }
            Command::Restart => self.reopen(self.disk.clone(), false),
            Command::PowerCut(seed, keep) => self.reopen(self.disk.crash(seed, keep), true),
            Command::Checkpoint(part) => self.checkpoint(part),
            // It may fail, and the log continues to work.
            Command::PrepareSpare => drop(self.opened.log.prepare_spare()),
            Command::Fail(n) => self.disk.fail_in(n),
            Command::ReadOn => self.read_on(),
        }
    }

    fn append(&mut self, count: usize, length: usize) {
        let first = self.commits.len() as u64 + 1;
        // Payloads of one seq differ between attempts, so that a ghost would show.
        let salt = self.opened.recovery.bytes;
        let payloads: Vec<_> = (first..first + count as u64).map(|seq| payload(seq + salt, length)).collect();
        let records: Vec<_> =
            (first..).zip(&payloads).map(|(seq, payload)| Record { seq: Seq(seq), payload }).collect();
        let tail = self.address(self.commits.len());
        match self.opened.log.append(&records, tail) {
            Ok(tail) => {
                let mut at = self.address(self.commits.len()).0;
                for payload in payloads {
                    at += (32 + payload.len() as u64).next_multiple_of(8);
                    self.commits.push((payload, Lsn(at)));
                }
                assert_eq!(tail, Lsn(at));
            }
            Err(LogError::Stopped { .. }) => assert!(self.failed),
            Err(error) => panic!("{error}"),
        }
    }

    fn check(&mut self, result: Result<Lsn, LogError>, done: impl FnOnce(&mut Self)) {
        match result {
            Ok(_) => {
                assert!(!self.failed, "a log that stopped stays stopped");
                done(self);
            }
            Err(LogError::Io { .. } | LogError::Stopped { .. }) => self.failed = true,
            Err(error) => panic!("{error}"),
        }
    }

    fn checkpoint(&mut self, part: usize) {
        self.checkpoint = self.checkpoint.max(self.durable * part / 256);
        let upto = self.address(self.checkpoint);
        match self.opened.log.trim(upto) {
            Ok(()) => assert!(self.opened.log.oldest() <= upto),
            Err(LogError::Stopped { .. }) => assert!(self.failed),
            Err(LogError::Io { op, .. }) => self.failed |= op == "sync directory",
            Err(error) => panic!("{error}"),
        }
    }

    fn read_on(&mut self) {
        loop {
            match self.reader.next() {
                Ok(Some(found)) => {
                    assert_eq!(found.seq, Seq(self.read as u64 + 1));
                    let (payload, next) = &self.commits[self.read];
                    assert!((found.payload, found.next) == (payload, *next));
                    self.read += 1;
                }
                Ok(None) => break,
                Err(LogError::Trimmed { oldest }) => {
                    assert!(oldest > self.address(self.read));
                    self.read = self.commits.partition_point(|(_, next)| *next <= oldest);
                    self.reader = self.opened.log.read(oldest).unwrap();
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(self.read >= self.flushed);
    }

    fn reopen(&mut self, disk: Disk, power_cut: bool) {
        let (from, seq) = (self.address(self.checkpoint), Seq(self.checkpoint as u64));
        self.opened = match open_from(&disk.env(), &dir(), from, seq) {
            Err(LogError::Io { .. }) if !disk.disarm() => open_from(&disk.env(), &dir(), from, seq).unwrap(),
            opened => opened.unwrap(),
        };
        let replayed = &self.opened.replayed;
        let total = self.checkpoint + replayed.len();
        assert!(self.durable <= total && total <= self.commits.len(), "{} {total}", self.durable);
        if !power_cut && !self.failed {
            assert_eq!(total, self.flushed, "the operating system keeps what it was given");
        }
        for (index, (seq, payload)) in (self.checkpoint..).zip(replayed) {
            assert_eq!(
                (*seq, payload),
                (index as u64 + 1, &self.commits[index].0),
                "of {}..{}",
                self.durable,
                self.flushed
            );
        }
        self.commits.truncate(total);
        (self.flushed, self.durable, self.failed, self.disk) = (total, total, false, disk);
        let oldest = self.opened.log.oldest();
        self.reader = self.opened.log.read(oldest).unwrap();
        self.read = self.commits.partition_point(|(_, next)| *next <= oldest);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]
    #[test]
    fn log_equals_the_model_list(commands in commands()) {
        let mut world = World::new();
        for command in &commands {
            world.run(command);
        }
        world.reopen(world.disk.crash(7, 128), true);
        world.read_on();
        prop_assert_eq!(world.read, world.commits.len());
    }
}
