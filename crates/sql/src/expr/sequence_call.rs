//! nextval, currval, setval, lastval and last_event_position: calls, and the numbers that a session drew.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ropewalk::tables::{Tables, TablesError, Value};
use ropewalk::transaction::Committed;

use crate::error::{Result, SqlError, state};

/// The numbers that a session drew, for currval and lastval.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    last: Option<u32>,
    given: HashMap<u32, i64>,
    /// Position of the last event appended by the session.
    event: Option<i64>,
}

/// [`Numbers`] shared by a session and its plans.
#[derive(Debug, Clone, Default)]
pub(crate) struct Given(Arc<Mutex<Numbers>>);

impl Given {
    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        // The data is consistent after every step, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a number drawn from a sequence.
    pub(crate) fn note(&self, sequence: u32, number: i64) {
        let mut numbers = self.numbers();
        numbers.last = Some(sequence);
        numbers.given.insert(sequence, number);
    }

    /// Records the events of a commit; `None` for a commit without writes.
    pub(crate) fn note_events(&self, committed: Option<&Committed>) {
        let appended = committed.map_or(&[][..], |committed| &committed.appended);
        let last = appended.iter().rev().map(|events| events.last.0).find(|last| *last > 0);
        if let Some(last) = last {
            self.numbers().event = i64::try_from(last).ok();
        }
    }

    /// Clears it, for DISCARD.
    pub(crate) fn forget(&self) {
        *self.numbers() = Numbers::default();
    }
}

/// Operation on a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    Next,
    Current,
    Set,
    Last,
    /// The position of the last appended event.
    Event,
}

/// A bound call.
#[derive(Clone)]
pub(crate) struct SequenceCall {
    pub(crate) asks: Asks,
    /// Empty for lastval and last_event_position.
    pub(crate) name: String,
    pub(crate) number: u32,
    pub(crate) tables: Tables,
    pub(crate) given: Given,
}

impl std::fmt::Debug for SequenceCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {}", self.asks, self.number)
    }
}

impl PartialEq for SequenceCall {
    fn eq(&self, other: &Self) -> bool {
        (self.asks, self.number) == (other.asks, other.number)
    }
}

impl SequenceCall {
    pub(crate) fn call(&self, arguments: &[Value<'_>]) -> Result<Value<'static>> {
        let undefined = |what: &str| {
            let message = format!("{what} is not yet defined in this session");
            SqlError::new(state::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        };
        let name = &self.name;
        Ok(Value::Int8(match self.asks {
            Asks::Next => {
                let number = self.tables.next_number(self.number).map_err(|error| match error {
                    TablesError::Exhausted { .. } => {
                        let message = match self.tables.sequence(self.number) {
                            Ok((steps, ..)) if steps.increment < 0 => {
                                format!(
                                    "nextval: reached minimum value of sequence \"{name}\" ({})",
                                    steps.least
                                )
                            }
                            Ok((steps, ..)) => format!(
                                "nextval: reached maximum value of sequence \"{name}\" ({})",
                                steps.greatest
                            ),
                            Err(error) => return error.into(),
                        };
                        SqlError::new(state::SEQUENCE_LIMIT_EXCEEDED, message)
                    }
                    other => other.into(),
                })?;
                self.given.note(self.number, number);
                number
            }
            Asks::Current => {
                let number = self.given.numbers().given.get(&self.number).copied();
                number.ok_or_else(|| undefined(&format!("currval of sequence \"{name}\"")))?
            }
            Asks::Last => {
                let numbers = self.given.numbers();
                let last = numbers.last.and_then(|last| numbers.given.get(&last)).copied();
                last.ok_or_else(|| undefined("lastval"))?
            }
            Asks::Event => {
                let event = self.given.numbers().event;
                event.ok_or_else(|| undefined("last_event_position"))?
            }
            Asks::Set => {
                let (Some(Value::Int8(number)), is_called) = (arguments.first(), arguments.get(1)) else {
                    return Ok(Value::Null);
                };
                let is_called = match is_called {
                    None => true,
                    Some(Value::Bool(is_called)) => *is_called,
                    Some(_) => return Ok(Value::Null),
                };
                self.tables.set_number(self.number, *number, is_called).map_err(|error| match error {
                    TablesError::OutOfBounds { number, least, greatest } => {
                        let message = format!(
                            "setval: value {number} is out of bounds for sequence \"{name}\" ({least}..{greatest})"
                        );
                        SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, message)
                    }
                    other => other.into(),
                })?;
                if is_called {
                    self.given.numbers().given.insert(self.number, *number);
                }
                *number
            }
        }))
    }
}
