//! Sequences: numbers that a rollback does not return.
//!
//! ```text
//! in the log    first number not reserved, steps      written by a separate commit, for a block at once
//! in memory     next ───▶ reserved                    assigned without a write until the block is exhausted
//! ```
//! Invariants
//! 1. The commit that reserves a number precedes every commit that uses it, so no number is used twice, even
//!    after a crash. A crash loses numbers that were reserved but not used; a rollback loses those that its
//!    transaction drew.
//! 2. Memory has a sequence only after this process has drawn from it or set it. A process that only reads,
//!    while another reserves, keeps no position that could repeat numbers once it writes.
//!
//! The steps of a sequence never change: altering one creates a new one, with a new number, in the same
//! transaction.

use std::collections::HashMap;

use parking_lot::Mutex;
use ropewalk_base::Decoder;
use ropewalk_engine::{Durability, Engine, EngineError, Keyspace, KvBatch};

use crate::catalog::sequence_key;
use crate::catalog::tables::Tables;
use crate::error::{Result, TablesError};

/// Numbers reserved at once.
const BLOCK: i64 = 1024;

/// Start, increment and bounds of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceParams {
    /// The first number.
    pub start: i64,
    /// Difference of consecutive numbers; not 0.
    pub increment: i64,
    /// The least number.
    pub least: i64,
    /// The greatest number. `i64::MAX` itself is never assigned, nor is `i64::MIN`.
    pub greatest: i64,
    /// After the last number the sequence restarts at the other end.
    pub cycles: bool,
}

impl Default for SequenceParams {
    /// 1, 2, 3, …
    fn default() -> Self {
        Self { start: 1, increment: 1, least: 1, greatest: i64::MAX, cycles: false }
    }
}

impl SequenceParams {
    fn is_within(&self, number: i64) -> bool {
        (self.least..=self.greatest).contains(&number)
    }

    /// The first number not reserved after reserving up to `block` numbers from `next` on; `None` when there
    /// is no next number.
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
        // The number after the last reserved one has to be a number, too.
        let first = first(count).or_else(|| first(count - 1)).filter(|first| *first != next);
        debug_assert!(
            first.is_none_or(|first| (first > next) == (self.increment > 0)),
            "{first:?} follows {next} in steps of {}",
            self.increment
        );
        first
    }
}

/// State of a sequence.
#[derive(Debug, Clone, Copy)]
struct State {
    steps: SequenceParams,
    next: i64,
    reserved: i64,
    is_called: bool,
}

const CYCLES: u8 = 1;
const CALLED: u8 = 2;

impl State {
    /// A sequence of 1, 2, 3, … is stored as its first number not reserved.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = self.reserved.to_le_bytes().to_vec();
        if self.steps != SequenceParams::default() || !self.is_called {
            let SequenceParams { start, increment, least, greatest, cycles } = self.steps;
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
        let (mut steps, mut is_called) = (SequenceParams::default(), true);
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

/// The sequences used since the database was opened, or since [`Tables::forget_reserved_numbers`].
#[derive(Default)]
pub(crate) struct Sequences(Mutex<HashMap<u32, State>>);

impl Sequences {
    /// A sequence as the newest visible commit stores it.
    fn stored(engine: &Engine, catalog: Keyspace, sequence: u32) -> Result<State> {
        let snapshot = engine.snapshot();
        let fresh = State { steps: SequenceParams::default(), next: 1, reserved: 1, is_called: false };
        let stored = snapshot.read().get(catalog, &sequence_key(sequence))?;
        stored.map_or(Some(fresh), |bytes| State::decode(&bytes)).ok_or_else(|| TablesError::Damaged {
            place: format!("sequence {sequence}"),
            what: "a number, or a number and how to count".into(),
        })
    }

    /// The state of a sequence, which stays out of memory if it was not used.
    fn state(&self, engine: &Engine, catalog: Keyspace, sequence: u32) -> Result<State> {
        let used = self.0.lock().get(&sequence).copied();
        used.map_or_else(|| Self::stored(engine, catalog, sequence), Ok)
    }

    /// Runs `change` on a sequence, and stores the new state if `change` returns true.
    fn with<R>(
        &self,
        engine: &Engine,
        catalog: Keyspace,
        sequence: u32,
        change: impl FnOnce(&mut State) -> Result<(R, bool)>,
    ) -> Result<R> {
        let mut sequences = self.0.lock();
        let mut state = match sequences.get(&sequence) {
            Some(state) => *state,
            None => Self::stored(engine, catalog, sequence)?,
        };
        let (result, has_to_last) = change(&mut state)?;
        if has_to_last {
            let mut batch = KvBatch::new();
            batch.put(catalog, &sequence_key(sequence), &state.encode());
            engine.commit(vec![Box::new(batch)], Durability::Buffered).map_err(EngineError::from)?;
        }
        sequences.insert(sequence, state);
        Ok(result)
    }

    /// Draws the next number.
    pub(crate) fn next(&self, engine: &Engine, catalog: Keyspace, sequence: u32, block: i64) -> Result<i64> {
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
            assert!(
                number != state.reserved && (number < state.reserved) == (steps.increment > 0),
                "number {number} is reserved, up to {}",
                state.reserved
            );
            // Within the reserved block, so the sum does not overflow.
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
        change: impl FnOnce(&mut State) -> Result<(R, bool)>,
    ) -> Result<R> {
        self.model.sequences.with(&self.engine, self.model.spaces().catalog, sequence, change)
    }

    /// Creates a sequence; returns its number. It exists at once: a rollback does not remove it and leaves
    /// some forty bytes.
    ///
    /// # Errors
    /// Those of a write.
    pub fn new_sequence(&self, steps: SequenceParams) -> Result<u32> {
        let sequence = self.model.new_object(&self.engine)?;
        let state = State { steps, next: steps.start, reserved: steps.start, is_called: false };
        self.with_sequence(sequence, |slot| {
            *slot = state;
            Ok(((), true))
        })?;
        Ok(sequence)
    }

    /// Draws the next number of a sequence, unique to the caller. Cost: a write for every 1024 numbers.
    ///
    /// # Errors
    /// [`TablesError::Exhausted`].
    pub fn next_number(&self, sequence: u32) -> Result<i64> {
        self.model.sequences.next(&self.engine, self.model.spaces().catalog, sequence, BLOCK)
    }

    /// Sets the last number drawn, or, unless `is_called`, the next one to draw.
    ///
    /// # Errors
    /// [`TablesError::OutOfBounds`].
    pub fn set_number(&self, sequence: u32, number: i64, is_called: bool) -> Result<()> {
        self.with_sequence(sequence, |state| {
            let SequenceParams { least, greatest, increment, .. } = state.steps;
            if !state.steps.is_within(number) {
                return Err(TablesError::OutOfBounds { number, least, greatest });
            }
            let next = if is_called { number.checked_add(increment) } else { Some(number) };
            let next = next.ok_or(TablesError::OutOfBounds { number, least, greatest })?;
            (state.next, state.reserved, state.is_called) = (next, next, is_called);
            Ok(((), true))
        })
    }

    /// The steps of a sequence; its last number, and whether that was drawn or is the next one to draw.
    ///
    /// After a crash the last number may be one that was reserved and lost.
    ///
    /// # Errors
    /// Those of a read.
    pub fn sequence(&self, sequence: u32) -> Result<(SequenceParams, i64, bool)> {
        let catalog = self.model.spaces().catalog;
        let state = self.model.sequences.state(&self.engine, catalog, sequence)?;
        // Only a damaged state has no number before the next one.
        let last =
            if state.is_called { state.next.saturating_sub(state.steps.increment) } else { state.next };
        Ok((state.steps, last, state.is_called))
    }

    /// Forgets which numbers of sequences, tables and objects are reserved and not used; the next ones are read
    /// from the database. To be called before writing to a database that another process has written to: it
    /// may have reserved more.
    pub fn forget_reserved_numbers(&self) {
        self.model.sequences.0.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use ropewalk_engine::EngineOptions;
    use ropewalk_vfs::Env;

    use super::*;
    use crate::catalog::tables::TablesModel;

    fn tables() -> Tables {
        let (env, model) = (Env::memory(), Arc::new(TablesModel::default()));
        let options = EngineOptions::default();
        let engine = Engine::open(&env, Path::new("/db"), options, vec![model.clone()]).unwrap();
        Tables::new(Arc::new(engine), model)
    }

    /// Draws as another process does whose commits arrive here: with the stored state, but another memory.
    fn draw_elsewhere(tables: &Tables, elsewhere: &Sequences, sequence: u32) -> i64 {
        elsewhere.next(&tables.engine, tables.model.spaces().catalog, sequence, BLOCK).unwrap()
    }

    #[test]
    fn sequence_that_was_only_read_continues_after_numbers_drawn_elsewhere() {
        let (tables, elsewhere) = (tables(), Sequences::default());
        let sequence = tables.new_sequence(SequenceParams::default()).unwrap();
        tables.forget_reserved_numbers();
        assert_eq!(tables.sequence(sequence).unwrap().1, 1);
        let drawn: Vec<i64> = (0..3).map(|_| draw_elsewhere(&tables, &elsewhere, sequence)).collect();
        assert_eq!(drawn, [1, 2, 3]);
        assert_eq!(tables.sequence(sequence).unwrap().1, BLOCK, "everything is reserved up to here");
        assert_eq!(tables.next_number(sequence).unwrap(), BLOCK + 1);
        assert_eq!(tables.sequence(sequence).unwrap().1, BLOCK + 1);
    }

    #[test]
    fn forgotten_numbers_are_not_drawn_after_others_were_reserved_elsewhere() {
        let (tables, elsewhere) = (tables(), Sequences::default());
        let sequence = tables.new_sequence(SequenceParams::default()).unwrap();
        assert_eq!(tables.next_number(sequence).unwrap(), 1);
        assert_eq!(draw_elsewhere(&tables, &elsewhere, sequence), BLOCK + 1);
        tables.forget_reserved_numbers();
        assert_eq!(tables.next_number(sequence).unwrap(), 2 * BLOCK + 1);
        // Numbers of tables and objects come from a sequence, too.
        let object = tables.model.new_object(&tables.engine).unwrap();
        tables.forget_reserved_numbers();
        assert!(tables.model.new_object(&tables.engine).unwrap() >= object + 63);
    }
}
