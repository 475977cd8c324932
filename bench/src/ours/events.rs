//! The event store of a database with default options.

use std::path::Path;

use anyhow::{Result, anyhow};
use ropewalk::events::{EventsError, QueryItem, ReadOptions, SequencedEvent};
use ropewalk::{AppendCondition, AppendOptions, Database, Durability, EventStore as Events};
use ropewalk_bench::workloads::events::event_store::{Direction, Event, EventStore, Flush, Query, Visitor};

/// A database and its one event store.
pub(crate) struct Store {
    _db: Database,
    events: Events,
}

fn options(direction: Direction, limit: Option<u32>) -> ReadOptions {
    ReadOptions {
        backwards: direction == Direction::Backward,
        limit: limit.map(u64::from),
        ..ReadOptions::default()
    }
}

impl EventStore for Store {
    type Batch = Vec<ropewalk::Event>;
    type Filter = ropewalk::Query;
    type Owned = SequencedEvent;

    const CONCURRENT: bool = true;

    fn open(dir: &Path) -> Result<Self> {
        let db = Database::open(dir)?;
        let events = db.events("bench")?;
        Ok(Self { _db: db, events })
    }

    fn batch(events: Vec<Event>) -> Vec<ropewalk::Event> {
        let convert = |event: Event| ropewalk::Event {
            event_type: event.kind,
            tags: event.tags,
            data: event.data,
            ..ropewalk::Event::default()
        };
        events.into_iter().map(convert).collect()
    }

    fn filter(query: &Query) -> ropewalk::Query {
        let item = |item: &ropewalk_bench::workloads::events::event_store::Item| {
            QueryItem::new(item.kinds.clone(), item.tags.clone())
        };
        ropewalk::Query::from_items(query.items.iter().map(item))
    }

    fn append(
        &self,
        batch: Vec<ropewalk::Event>,
        unless: Option<&ropewalk::Query>,
        flush: Flush,
    ) -> Result<Option<u64>> {
        let options = AppendOptions {
            conditions: unless.map(|query| AppendCondition::none_match(query.clone())).into_iter().collect(),
            durability: if flush == Flush::Synced { Durability::Sync } else { Durability::Buffered },
            ..AppendOptions::default()
        };
        match self.events.append_with(&batch, options) {
            Ok(appended) => Ok(Some(appended.last.0)),
            Err(EventsError::AppendConditionFailed { .. }) => Ok(None),
            Err(error) => Err(anyhow!(error)),
        }
    }

    fn read<V: Visitor>(
        &self,
        filter: &ropewalk::Query,
        direction: Direction,
        limit: Option<u32>,
        visitor: &mut V,
    ) -> Result<()> {
        self.events.scan(filter, options(direction, limit), |scan| {
            while let Some(event) = scan.next()? {
                visitor.event(event.position.0, event.event_type(), event.data());
                event.tags().for_each(|tag| visitor.tag(tag));
            }
            Ok(())
        })?;
        Ok(())
    }

    fn collect(&self, filter: &ropewalk::Query, direction: Direction) -> Result<Vec<SequencedEvent>> {
        Ok(self.events.read(filter, options(direction, None))?.next_batch(usize::MAX)?)
    }

    fn head(&self) -> Result<u64> {
        Ok(self.events.head()?.map_or(0, |position| position.0))
    }
}
