//! Appending: the options of an append, and its validation in the commit order.

pub(crate) mod conditions;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropewalk_base::{Decoder, Position, Seq, hash64, put_bytes};
use ropewalk_engine::{Durability, ModelId, Operation, Outcome, ReadView, Rejection, Verdict};
use uuid::Uuid;

use crate::append::conditions::Conditions;
use crate::error::{EventsError, Result};
use crate::event::codec::{BodyRef, POSITION_MAX, STORES_MAX, SectionHead, put_body, put_section};
use crate::event::types::{AppendCondition, Event, NAME_BYTES_MAX, ReadOptions, Tracking};
use crate::index::search::StoreRead;
use crate::model::{EVENTS, EventsModel, MetaKey, StoreState};
use crate::read::Scan;

/// Options of an append.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AppendOptions {
    /// All must hold, each with a separate `after`.
    pub conditions: Vec<AppendCondition>,
    /// Stored with the events; must rise per source. An append that has it needs no events.
    pub tracking: Option<Tracking>,
    /// Detects a retry by the events' ids: if a condition fails, and the first events that it finds are
    /// exactly those of the append, by id and in order, nothing is written and their positions are returned.
    pub repeat_by_id: bool,
    /// A second append with the same key and the same events writes nothing and returns the positions of the
    /// first. 1 to 255 bytes, per store.
    pub idempotency_key: Option<String>,
    /// When the append is acknowledged.
    pub durability: Durability,
}

impl AppendOptions {
    /// One condition.
    pub fn condition(condition: AppendCondition) -> Self {
        Self { conditions: vec![condition], ..Self::default() }
    }
}

/// Positions of the appended events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Position of the first event; zero when there was none.
    pub first: Position,
    /// Position of the last event; zero when there was none.
    pub last: Position,
    /// The commit.
    pub seq: Seq,
}

pub(crate) fn check_name(kind: &'static str, name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(EventsError::InvalidName { kind, name: name.chars().take(64).collect() });
    }
    Ok(())
}

fn put_bodies(events: &[Event], tracking: Option<&Tracking>) -> Vec<u8> {
    let mut bodies = Vec::with_capacity(events.iter().map(|e| e.data.len() + 64).sum());
    let mut body = Vec::new();
    for event in events {
        body.clear();
        put_body(&mut body, event, tracking);
        put_bytes(&mut bodies, &body);
    }
    bodies
}

/// Rejects conditions that an append with an idempotency key cannot have.
fn check_with_key(conditions: &Conditions) -> Result<()> {
    if conditions.has_prefixes() {
        // With a key only the sequencer can decide, and it must not scan every event of a store.
        let what = "a condition with prefixes cannot go with an idempotency key".to_owned();
        return Err(EventsError::InvalidQuery { what });
    }
    Ok(())
}

/// An append without events has no positions.
fn outcome(first: u64, last: u64) -> Outcome {
    if last < first { (0, 0) } else { (first, last) }
}

/// An append, checked and encoded by the caller's thread, on its way to the sequencer.
pub struct AppendOperation {
    model: Arc<EventsModel>,
    store: String,
    /// The store, once known; an append to a new name creates it.
    state: Option<Arc<StoreState>>,
    bodies: Vec<u8>,
    count: usize,
    conditions: Conditions,
    tracking: Option<Tracking>,
    idempotency: Option<(String, u64)>,
    /// The events' ids, if retries are detected by them and all events have one.
    ids: Option<Vec<Uuid>>,
    /// The earlier append that this one repeats.
    repeats: Option<Outcome>,
}

impl AppendOperation {
    /// Checks and encodes.
    pub(crate) fn new(
        model: Arc<EventsModel>,
        store: &str,
        events: &[Event],
        options: AppendOptions,
    ) -> Result<Self> {
        if events.is_empty() && options.tracking.is_none() {
            return Err(EventsError::EmptyAppend);
        }
        check_name("event store", store)?;
        for (ordinal, event) in events.iter().enumerate() {
            event.check(ordinal)?;
        }
        let bodies = put_bodies(events, options.tracking.as_ref());
        let conditions = Conditions::new(options.conditions)?;
        if let Some(tracking) = &options.tracking {
            check_name("tracking source", &tracking.source)?;
        }
        let idempotency = match options.idempotency_key {
            Some(key) => {
                check_name("idempotency key", &key)?;
                check_with_key(&conditions)?;
                // Over the events alone: a retry may have other tracking.
                let plain = options.tracking.is_some().then(|| put_bodies(events, None));
                Some((key, hash64(plain.as_ref().unwrap_or(&bodies))))
            }
            None => None,
        };
        let ids =
            options.repeat_by_id.then(|| events.iter().map(|event| event.id).collect::<Option<Vec<_>>>());
        let state = model.find(store);
        Ok(Self {
            state,
            model,
            store: store.to_owned(),
            bodies,
            count: events.len(),
            conditions,
            tracking: options.tracking,
            idempotency,
            ids: ids.flatten().filter(|ids| !ids.is_empty()),
            repeats: None,
        })
    }

    /// Adds conditions to an append that was prepared without them, and looks its store up again.
    pub(crate) fn complete(&mut self, conditions: Vec<AppendCondition>) -> Result<()> {
        self.conditions = Conditions::new(conditions)?;
        if self.idempotency.is_some() {
            check_with_key(&self.conditions)?;
        }
        self.state = self.model.find(&self.store);
        Ok(())
    }

    /// The events, in order, read in place.
    pub fn events(&self) -> impl Iterator<Item = BodyRef<'_>> {
        let mut bodies = Decoder::new(&self.bodies);
        (0..self.count).map(move |_| {
            let body = bodies.bytes("event").and_then(BodyRef::decode);
            body.expect("an encoded event decodes")
        })
    }

    /// Number of events.
    pub fn event_count(&self) -> usize {
        self.count
    }

    /// The upstream source and position to store with the events.
    pub fn tracking(&self) -> Option<&Tracking> {
        self.tracking.as_ref()
    }

    /// True if a repetition is detected by a key.
    pub fn has_idempotency_key(&self) -> bool {
        self.idempotency.is_some()
    }

    pub(crate) fn has_conditions(&self) -> bool {
        !self.conditions.is_empty()
    }

    /// Checks the conditions against the visible events, outside the sequencer, which then only checks the
    /// events since. A conflict found here is final: that event is durable and will not go away.
    pub(crate) fn check_ahead(&mut self, visible: ReadView<'_>) -> Result<()> {
        let Some(state) = &self.state else { return Ok(()) };
        if self.conditions.is_empty() || self.idempotency.is_some() {
            // An idempotent retry matches its own events; only the sequencer can distinguish it from a
            // conflict.
            return Ok(());
        }
        let read = StoreRead::new(visible, self.model.place(state.id));
        let head = read.head()?;
        self.repeats = self.check_conditions(&read, head)?;
        self.conditions.note_checked(head);
        Ok(())
    }

    /// Rejects the append if a condition fails, unless the append repeats the matching events.
    fn check_conditions(&self, read: &StoreRead<'_>, head: u64) -> Result<Option<Outcome>> {
        let Some(failing) = self.conditions.failing(read, head)? else { return Ok(None) };
        match self.repeated(read, failing.condition, head)? {
            Some(repeated) => Ok(Some(repeated)),
            None => Err(failing.error()),
        }
    }

    /// First and last position of the first matches of `condition`, if they are the events of this append.
    fn repeated(
        &self,
        read: &StoreRead<'_>,
        condition: &AppendCondition,
        head: u64,
    ) -> Result<Option<Outcome>> {
        let Some(ids) = &self.ids else { return Ok(None) };
        let options = ReadOptions { after: condition.after, ..ReadOptions::default() };
        let mut scan = Scan::new(read, &condition.fail_if_events_match, &options, head)?;
        let mut found: Option<Outcome> = None;
        for id in ids {
            match scan.next()? {
                Some(event) if event.id() == Some(*id) => {
                    found = Some((found.map_or(event.position.0, |(first, _)| first), event.position.0));
                }
                _ => return Ok(None),
            }
        }
        Ok(found)
    }

    fn decide(&mut self, latest: ReadView<'_>) -> Result<Verdict> {
        if let Some(repeated) = self.repeats {
            return Ok(Verdict::Done(repeated));
        }
        if self.state.is_none() {
            self.state = self.model.find(&self.store);
        }
        let Some(state) = self.state.clone() else {
            if self.model.next_id() > STORES_MAX {
                return Err(EventsError::Exhausted { what: "the 2^24 - 1 event stores of this engine" });
            }
            return Ok(Verdict::Write);
        };
        if state.is_deleted() {
            // The store on which this append was decided is deleted. A retry creates a new store.
            return Err(EventsError::UnknownStore { name: self.store.clone() });
        }
        if let Some((key, fingerprint)) = &self.idempotency {
            let stored = latest.get(self.model.meta(), &MetaKey::Idempotency(state.id, key).encode())?;
            if let Some(stored) = stored {
                let mut numbers = stored.chunks_exact(8).map(|c| c.try_into().map_or(0, u64::from_le_bytes));
                let mut next = || numbers.next().unwrap_or(0);
                let (first, last, seen) = (next(), next(), next());
                if seen == *fingerprint {
                    return Ok(Verdict::Done(outcome(first, last)));
                }
                let (first, last) = (Position(first), Position(last));
                return Err(EventsError::IdempotencyMismatch { key: key.clone(), first, last });
            }
        }
        let sequenced = state.sequenced.load(Ordering::Acquire);
        if sequenced + self.count as u64 > POSITION_MAX {
            return Err(EventsError::Exhausted { what: "the 2^40 - 1 positions of this store" });
        }
        if !self.conditions.are_checked_to(sequenced) {
            let read = StoreRead::new(latest, self.model.place(state.id));
            if let Some(repeated) = self.check_conditions(&read, sequenced)? {
                return Ok(Verdict::Done(repeated));
            }
        }
        if let Some(tracking) = &self.tracking {
            let key = MetaKey::Tracking(state.id, &tracking.source).encode();
            if let Some(stored) = latest.get(self.model.meta(), &key)? {
                let stored = (*stored).try_into().map_or(u64::MAX, u64::from_le_bytes);
                if tracking.position <= stored {
                    let (source_name, position) = (tracking.source.clone(), tracking.position);
                    return Err(EventsError::TrackingConflict { source_name, position, stored });
                }
            }
        }
        Ok(Verdict::Write)
    }
}

impl Operation for AppendOperation {
    fn model(&self) -> ModelId {
        EVENTS
    }

    fn bytes_max(&self) -> usize {
        self.bodies.len() + 3 * NAME_BYTES_MAX + 64
    }

    fn validate(&mut self, latest: ReadView<'_>) -> Result<Verdict, Rejection> {
        self.decide(latest).map_err(|error| Box::new(error) as Rejection)
    }

    fn encode(&mut self, _seq: Seq, _time_micros: i64, out: &mut Vec<u8>) -> Outcome {
        // Looked up again: an earlier part of the same transaction may have created the store.
        let state = self.state.take().or_else(|| self.model.find(&self.store));
        let (store, sequenced) = match &state {
            Some(state) => (state.id, state.sequenced.load(Ordering::Acquire)),
            None => (self.model.next_id(), 0),
        };
        let head = SectionHead {
            store,
            first: sequenced + 1,
            creates: state.is_none().then_some(self.store.as_str()),
            tracking: self.tracking.as_ref(),
            idempotency: self.idempotency.as_ref().map(|(key, fingerprint)| (key.as_str(), *fingerprint)),
            count: self.count,
        };
        put_section(out, &head, &self.bodies);
        outcome(sequenced + 1, sequenced + self.count as u64)
    }
}
