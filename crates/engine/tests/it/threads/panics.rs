//! A model that panics at one step of one commit: nothing of that commit is visible, every waiter gets a
//! result, the engine stops, and reopening finds the acknowledged commits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ropewalk_base::sync::hint_switch;
use ropewalk_base::{DecodeError, Seq};
use ropewalk_engine::{
    Apply, Background, CommitError, Durability, Engine, EngineError, EngineOptions, KvBatch, Model, ModelId,
    Operation, Outcome, ReadView, Rejection, Verdict,
};
use ropewalk_store::Store;
use ropewalk_vfs::{FaultyVfs, Random, SeededRandom};
use shuttle::thread;

use super::disk;
use super::history::{Fate, History, Places, key, places, value};

const TRAP: ModelId = ModelId(200);
const WRITERS: u8 = 3;
const COMMITS: u16 = 4;

/// Where the trap is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Validate,
    Encode,
    Apply,
    /// No panic: the section that the operation writes does not decode.
    Undecodable,
}

const STEPS: [Step; 4] = [Step::Validate, Step::Encode, Step::Apply, Step::Undecodable];

/// A model whose sections are one byte: whether applying it panics or fails.
struct TrapModel {
    /// Only the first life has traps; the record must not be there in the second.
    is_armed: AtomicBool,
}

struct Trap(Option<Step>);

impl Trap {
    fn spring(&self, step: Step) {
        assert!(self.0 != Some(step), "trap at {step:?}");
    }
}

impl Operation for Trap {
    fn model(&self) -> ModelId {
        TRAP
    }
    fn bytes_max(&self) -> usize {
        1
    }
    fn validate(&mut self, _latest: ReadView<'_>) -> Result<Verdict, Rejection> {
        self.spring(Step::Validate);
        Ok(Verdict::Write)
    }
    fn encode(&mut self, _seq: Seq, _time_micros: i64, out: &mut Vec<u8>) -> Outcome {
        self.spring(Step::Encode);
        out.push(match self.0 {
            Some(Step::Apply) => 1,
            Some(Step::Undecodable) => 2,
            _ => 0,
        });
        (0, 0)
    }
}

impl Model for TrapModel {
    fn id(&self) -> ModelId {
        TRAP
    }
    fn name(&self) -> &'static str {
        "trap"
    }
    fn open(&self, _store: &Store) -> Result<(), EngineError> {
        Ok(())
    }
    fn apply(&self, _apply: &Apply<'_>, section: &[u8]) -> Result<(), DecodeError> {
        hint_switch();
        match section {
            [1] if self.is_armed.load(Ordering::SeqCst) => panic!("trap at Apply"),
            [0] => Ok(()),
            _ => Err(DecodeError { what: "zero", offset: 0 }),
        }
    }
    fn verify(&self, _read: ReadView<'_>) -> Result<Vec<String>, EngineError> {
        Ok(Vec::new())
    }
}

fn open(disk: &FaultyVfs, seed: u64, is_armed: bool) -> Engine {
    let background = if seed.is_multiple_of(2) { Background::Threads } else { Background::Manual };
    let options = EngineOptions { memory_budget: 64 << 10, background, ..EngineOptions::default() };
    let trap = TrapModel { is_armed: AtomicBool::new(is_armed) };
    Engine::open(&disk::process(disk, seed), Path::new("/db"), options, vec![Arc::new(trap)])
        .expect("it opens: the log holds accepted commits only")
}

/// Half of the commit before the trap, half after it.
fn operations(places: Places, name: (u8, u16), trap: Trap) -> Vec<Box<dyn Operation>> {
    let (mut before, mut after) = (KvBatch::new(), KvBatch::new());
    before.put(places.large, &key(name), &value(name, 1000));
    after.put(places.small, &key(name), &key(name));
    vec![Box::new(before), Box::new(trap), Box::new(after)]
}

/// Commits until the engine stops. Catches a panic of this thread's commit, or of one that it leads.
fn write(engine: &Engine, places: Places, history: &History, (seed, writer): (u64, u8), step: Step) {
    let dice = SeededRandom::new(seed * 10 + u64::from(writer));
    for number in 0..COMMITS {
        let name = (writer, number);
        let springs = writer == 0 && number == (dice.next_u64() % u64::from(COMMITS)) as u16;
        let operations = operations(places, name, Trap(springs.then_some(step)));
        history.begin(name, 1000, false);
        let durability =
            if dice.next_u64().is_multiple_of(2) { Durability::Sync } else { Durability::Buffered };
        let submits = dice.next_u64().is_multiple_of(3);
        let result = catch_unwind(AssertUnwindSafe(|| match submits {
            true => engine.submit(operations, durability)?.wait(),
            false => engine.commit(operations, durability),
        }));
        match result {
            Ok(Ok(done)) => {
                assert!(!springs, "a commit with a trap at {step:?} is acknowledged");
                history.end(name, Fate::Acknowledged(done.seq, durability));
            }
            Ok(Err(CommitError::Engine(EngineError::Stopped { .. }))) => return,
            Ok(Err(error)) => panic!("a typed stop is expected: {error}"),
            Err(_) => assert!(engine.stopped().is_some(), "after a panic the engine takes no commits"),
        }
        if springs {
            assert!(engine.stopped().is_some(), "the engine has stopped after a trap at {step:?}");
        }
    }
}

pub(super) fn run(seed: u64) {
    let step = *STEPS.iter().cycle().nth((seed / 4 % 4) as usize).expect("it goes round");
    let disk = FaultyVfs::new(seed);
    let engine = Arc::new(open(&disk, seed, true));
    let places = places(&engine).expect("keyspaces can be made");
    let history = Arc::new(History::default());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (engine, history) = (engine.clone(), history.clone());
            thread::spawn(move || write(&engine, places, &history, (seed, writer), step))
        })
        .collect();
    for _ in 0..3 {
        let snapshot = engine.snapshot();
        history.check(snapshot.read(), places, snapshot.seq(), "while a model panics").unwrap();
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    let snapshot = engine.snapshot();
    history.check(snapshot.read(), places, snapshot.seq(), "after a model has panicked").unwrap();
    drop(snapshot);
    disk.kill();
    let _ = engine.close();
    drop(engine);
    let reopened = open(&disk, seed, false);
    let (found, floor) = (reopened.seq(), history.written());
    assert!(found >= floor, "commit {floor:?} was acknowledged, the database reopened at {found:?}");
    history.check(reopened.snapshot().read(), places, found, "after reopening").unwrap();
}
