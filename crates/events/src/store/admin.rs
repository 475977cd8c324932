//! Creating and deleting stores. Each is one commit.
//!
//! A deleted store's number is never reused. So new readers, which cannot know the number, need no filter,
//! and readers with an older snapshot still see its events. Names, idempotency keys and tracking positions
//! are removed by the commit; events and postings by the next flush and merge: a range tombstone over each.
//!
//! An append that was prepared before the deletion and sequenced after it is rejected
//! ([`EventsError::UnknownStore`]), because the store on which it was decided is gone; one that is prepared
//! afterwards creates a new store at position 1.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropewalk_base::Seq;
use ropewalk_engine::{Durability, ModelId, Operation, Outcome, ReadView, Rejection, Verdict};

use crate::error::{EventsError, Result};
use crate::event::codec::{STORES_MAX, SectionHead, put_deletion, put_section};
use crate::event::types::NAME_BYTES_MAX;
use crate::model::{EVENTS, EventsModel};
use crate::store::EventStore;

/// The outcome of an operation that wrote something.
const DONE: Outcome = (1, 0);

/// Creates a store; an existing one is unchanged.
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
        DONE
    }
}

/// Deletes a store, if it exists.
struct DeleteOperation {
    model: Arc<EventsModel>,
    name: String,
}

impl Operation for DeleteOperation {
    fn model(&self) -> ModelId {
        EVENTS
    }

    fn bytes_max(&self) -> usize {
        32
    }

    fn validate(&mut self, _latest: ReadView<'_>) -> Result<Verdict, Rejection> {
        let found = self.model.find(&self.name);
        Ok(found.map_or(Verdict::Done((0, 0)), |_| Verdict::Write))
    }

    fn encode(&mut self, _seq: Seq, _time_micros: i64, out: &mut Vec<u8>) -> Outcome {
        let state = self.model.find(&self.name).expect("validated by the same turn of the sequencer");
        put_deletion(out, state.id, state.sequenced.load(Ordering::Acquire));
        DONE
    }
}

impl EventStore {
    /// Creates the store unless it exists; durable when it returns. False when it existed.
    ///
    /// # Errors
    /// The engine's.
    pub fn create(&self) -> Result<bool> {
        self.run(Box::new(CreateOperation { model: self.model.clone(), name: self.name().to_owned() }))
    }

    /// Deletes the store with all its events; durable when it returns. False when it did not exist.
    ///
    /// Readers that were opened before still see it. Concurrent appends are sequenced before it or rejected
    /// ([`EventsError::UnknownStore`]). Cost: one small commit; the space is reclaimed by later merges.
    ///
    /// # Errors
    /// The engine's.
    pub fn delete(&self) -> Result<bool> {
        self.run(Box::new(DeleteOperation { model: self.model.clone(), name: self.name().to_owned() }))
    }

    fn run(&self, operation: Box<dyn Operation>) -> Result<bool> {
        let committed = self.engine.commit(vec![operation], Durability::Sync)?;
        Ok(committed.outcomes.first() == Some(&DONE))
    }
}
