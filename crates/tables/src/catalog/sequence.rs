//! Sequences: numbers that no rollback takes back.
//!
//! ```text
//! in the log    first number not reserved, steps      written by a commit of its own, for a block of numbers at once
//! in memory     next ───▶ reserved                    given out without a write until the block is used up
//! ```
//! Invariant: the commit that reserves a number lies in front of every commit that uses it, so what survives a crash never uses a
//! number twice. Numbers that were reserved and not given out are lost with a crash, as are those of transactions that roll back.
//!
//! How a sequence counts never changes: who alters one makes a new one, under a new number, in its transaction.

use std::collections::HashMap;

use parking_lot::Mutex;
use ropewalk_base::Decoder;
use ropewalk_engine::{CommitError, Durability, Engine, EngineError, Keyspace, KvBatch};

use crate::catalog::sequence_key;
use crate::catalog::tables::Tables;
use crate::error::TablesError;

/// Numbers that are reserved at once.
const BLOCK: i64 = 1024;

/// How a sequence counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    /// The first number.
    pub start: i64,
    /// From one number to the next; not 0.
    pub increment: i64,
    /// The least number.
    pub least: i64,
    /// The greatest number. `i64::MAX` itself is never given out, nor is `i64::MIN`.
    pub greatest: i64,
    /// Behind the last number comes the first one at the other end.
    pub cycles: bool,
}

impl Default for Steps {
    /// 1, 2, 3, …
    fn default() -> Self {
        Self { start: 1, increment: 1, least: 1, greatest: i64::MAX, cycles: false }
    }
}

impl Steps {
    fn is_within(&self, number: i64) -> bool {
        (self.least..=self.greatest).contains(&number)
    }

    /// The first number not reserved when as many as `block` are, from `next` on; `None` when there is no next number.
    fn reserve(&self, next: i64, block: i64) -> Option<i64> {
        let (step, room) = if self.increment > 0 {
            (i128::from(self.increment), i128::from(self.greatest) - i128::from(next))
        } else {
            (-i128::from(self.increment), i128::from(next) - i128::from(self.least))
        };
        if room < 0 {
            return None;
        }
        let count = (room / step + 1).min(i128::from(block));
        let first = |count: i128| i64::try_from(i128::from(next) + count * i128::from(self.increment)).ok();
        // The number behind the last one has to be a number, too.
        first(count).or_else(|| first(count - 1)).filter(|first| *first != next)
    }
}

/// Where a sequence stands.
#[derive(Debug, Clone, Copy)]
struct State {
    steps: Steps,
    next: i64,
    reserved: i64,
    is_called: bool,
}

const CYCLES: u8 = 1;
const CALLED: u8 = 2;

impl State {
    /// A sequence of 1, 2, 3, … is kept as its first number not reserved alone.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = self.reserved.to_le_bytes().to_vec();
        if self.steps != Steps::default() || !self.is_called {
            let Steps { start, increment, least, greatest, cycles } = self.steps;
            for number in [start, increment, least, greatest] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            bytes.push(if cycles { CYCLES } else { 0 } | if self.is_called { CALLED } else { 0 });
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let mut number = || Some(i64::from_le_bytes(decoder.array("number").ok()?));
        let next = number()?;
        let (mut steps, mut is_called) = (Steps::default(), true);
        if bytes.len() > 8 {
            (steps.start, steps.increment) = (number()?, number()?);
            (steps.least, steps.greatest) = (number()?, number()?);
            let flags = decoder.u8("flags").ok().filter(|flags| flags & !(CYCLES | CALLED) == 0)?;
            (steps.cycles, is_called) = (flags & CYCLES != 0, flags & CALLED != 0);
        }
        (decoder.is_empty() && steps.increment != 0).then_some(Self {
            steps,
            next,
            reserved: next,
            is_called,
        })
    }
}

/// The sequences that were used since the database was opened.
#[derive(Default)]
pub(crate) struct Sequences(Mutex<HashMap<u32, State>>);

impl Sequences {
    /// Does something with a sequence, and writes down what it changed that has to last.
    fn with<R>(
        &self,
        engine: &Engine,
        catalog: Keyspace,
        sequence: u32,
        change: impl FnOnce(&mut State) -> Result<(R, bool), TablesError>,
    ) -> Result<R, TablesError> {
        let mut sequences = self.0.lock();
        let key = sequence_key(sequence);
        let mut state = match sequences.get(&sequence) {
            Some(state) => *state,
            None => {
                let snapshot = engine.snapshot();
                let fresh = State { steps: Steps::default(), next: 1, reserved: 1, is_called: false };
                let stored = snapshot.read().get(catalog, &key)?;
                stored.map_or(Some(fresh), |bytes| State::decode(&bytes)).ok_or_else(|| {
                    TablesError::Damaged {
                        place: format!("sequence {sequence}"),
                        what: "a number, or a number and how to count".into(),
                    }
                })?
            }
        };
        let (result, has_to_last) = change(&mut state)?;
        if has_to_last {
            let mut batch = KvBatch::new();
            batch.put(catalog, &key, &state.encode());
            engine.commit(vec![Box::new(batch)], Durability::Buffered).map_err(|error| match error {
                CommitError::Engine(error) => error,
                CommitError::Rejected(reason) => EngineError::Stopped { cause: reason.to_string().into() },
            })?;
        }
        sequences.insert(sequence, state);
        Ok(result)
    }

    /// The next number.
    pub(crate) fn next(
        &self,
        engine: &Engine,
        catalog: Keyspace,
        sequence: u32,
        block: i64,
    ) -> Result<i64, TablesError> {
        self.with(engine, catalog, sequence, |state| {
            let steps = state.steps;
            let must_reserve = state.next == state.reserved;
            if must_reserve {
                if !steps.is_within(state.next) && steps.cycles && state.is_called {
                    state.next = if steps.increment > 0 { steps.least } else { steps.greatest };
                }
                state.reserved =
                    steps.reserve(state.next, block).ok_or(TablesError::Exhausted { sequence })?;
            }
            let number = state.next;
            // Within what is reserved, which is a number.
            state.next = number.saturating_add(steps.increment);
            state.is_called = true;
            Ok((number, must_reserve))
        })
    }
}

impl Tables {
    fn with_sequence<R>(
        &self,
        sequence: u32,
        change: impl FnOnce(&mut State) -> Result<(R, bool), TablesError>,
    ) -> Result<R, TablesError> {
        self.model.sequences.with(&self.engine, self.model.spaces().catalog, sequence, change)
    }

    /// A new sequence, by its number. It is there at once: a transaction that rolls back leaves some forty bytes behind.
    ///
    /// # Errors
    /// Those of a write.
    pub fn new_sequence(&self, steps: Steps) -> Result<u32, TablesError> {
        let sequence = self.model.new_object(&self.engine)?;
        let state = State { steps, next: steps.start, reserved: steps.start, is_called: false };
        self.with_sequence(sequence, |slot| {
            *slot = state;
            Ok(((), true))
        })?;
        Ok(sequence)
    }

    /// The next number of a sequence, which nobody else gets. Cost: a write for every 1024 numbers.
    ///
    /// # Errors
    /// [`TablesError::Exhausted`].
    pub fn next_number(&self, sequence: u32) -> Result<i64, TablesError> {
        self.model.sequences.next(&self.engine, self.model.spaces().catalog, sequence, BLOCK)
    }

    /// Makes `number` the last one given out, or, unless `is_called`, the next one.
    ///
    /// # Errors
    /// [`TablesError::OutOfBounds`].
    pub fn set_number(&self, sequence: u32, number: i64, is_called: bool) -> Result<(), TablesError> {
        self.with_sequence(sequence, |state| {
            let Steps { least, greatest, increment, .. } = state.steps;
            if !state.steps.is_within(number) {
                return Err(TablesError::OutOfBounds { number, least, greatest });
            }
            let next = if is_called { number.checked_add(increment) } else { Some(number) };
            let next = next.ok_or(TablesError::OutOfBounds { number, least, greatest })?;
            (state.next, state.reserved, state.is_called) = (next, next, is_called);
            Ok(((), true))
        })
    }

    /// How a sequence counts; its last number, and whether that was given out or is the next.
    ///
    /// After a crash the last number may be one of those that were reserved and lost.
    ///
    /// # Errors
    /// Those of a read.
    pub fn sequence(&self, sequence: u32) -> Result<(Steps, i64, bool), TablesError> {
        self.with_sequence(sequence, |state| {
            let last =
                if state.is_called { state.next.saturating_sub(state.steps.increment) } else { state.next };
            Ok(((state.steps, last, state.is_called), false))
        })
    }
}
