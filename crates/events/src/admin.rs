//! Creating a store without appending to it.

use std::sync::Arc;

use ropewalk_base::Seq;
use ropewalk_engine::{Durability, ModelId, Operation, Outcome, ReadView, Rejection, Verdict};

use crate::codec::{SectionHead, put_section};
use crate::error::EventsError;
use crate::model::{EVENTS, EventsModel};
use crate::search::STORES_MAX;
use crate::store::EventStore;
use crate::types::NAME_BYTES_MAX;

/// Creates a store; an existing one is left as it is.
struct CreateOperation {
    model: Arc<EventsModel>,
    name: String,
}

impl Operation for CreateOperation {
    fn model(&self) -> ModelId {
        EVENTS
    }

    fn bytes_max(&self) -> usize {
        NAME_BYTES_MAX + 32
    }

    fn validate(&mut self, _latest: ReadView<'_>) -> Result<Verdict, Rejection> {
        if self.model.find(&self.name).is_some() {
            return Ok(Verdict::Done((0, 0)));
        }
        if self.model.next_id() > STORES_MAX {
            let what = "the 2^24 - 1 event stores of this engine";
            return Err(Box::new(EventsError::Exhausted { what }));
        }
        Ok(Verdict::Write)
    }

    fn encode(&mut self, _seq: Seq, _time_micros: i64, out: &mut Vec<u8>) -> Outcome {
        let head = SectionHead {
            store: self.model.next_id(),
            first: 1,
            creates: Some(&self.name),
            tracking: None,
            idempotency: None,
            count: 0,
        };
        put_section(out, &head, &[]);
        (1, 0)
    }
}

impl EventStore {
    /// Creates the store if there is none of its name; durable when it returns. False when it was there.
    ///
    /// # Errors
    /// The engine's.
    pub fn create(&self) -> Result<bool, EventsError> {
        let operation = CreateOperation { model: self.model.clone(), name: self.name().to_owned() };
        let committed = self.engine.commit(vec![Box::new(operation)], Durability::Sync)?;
        Ok(committed.outcomes.first().is_some_and(|outcome| *outcome == (1, 0)))
    }
}
