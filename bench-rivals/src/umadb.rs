//! UmaDB 0.7.8's core, embedded, with its default storage options; every commit is synced, there is no other mode.
//! Appends come from one thread only: two threads in `append` corrupt the database, which its server avoids by having
//! one writer thread.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use ropewalk_bench::workloads::events::event_store::{Direction, Event, EventStore, Flush, Query, Visitor};
use umadb_core::db::UmaDb;
use umadb_core::mvcc::{Mvcc, StorageOptions};
use umadb_dcb::{
    DcbAppendCondition, DcbError, DcbEvent, DcbEventStoreSync, DcbQuery, DcbQueryItem, DcbSequencedEvent,
};

/// An open store.
pub(crate) struct Store(UmaDb);

impl EventStore for Store {
    type Batch = Vec<DcbEvent>;
    type Filter = DcbQuery;
    type Owned = DcbSequencedEvent;

    const CONCURRENT: bool = false;

    fn open(dir: &Path) -> Result<Self> {
        let mvcc = Mvcc::new(false, StorageOptions::default().db_path(dir))?;
        Ok(Self(UmaDb::from_arc(Arc::new(mvcc))))
    }

    fn batch(events: Vec<Event>) -> Vec<DcbEvent> {
        let convert = |event: Event| DcbEvent {
            event_type: event.kind,
            tags: event.tags,
            data: event.data,
            uuid: None,
            metadata: Vec::new(),
        };
        events.into_iter().map(convert).collect()
    }

    fn filter(query: &Query) -> DcbQuery {
        let items = query.items.iter();
        DcbQuery {
            items: items
                .map(|item| DcbQueryItem { types: item.kinds.clone(), tags: item.tags.clone() })
                .collect(),
        }
    }

    fn append(&self, batch: Vec<DcbEvent>, unless: Option<&DcbQuery>, flush: Flush) -> Result<Option<u64>> {
        ensure!(flush == Flush::Synced, "UmaDB always syncs");
        let condition = unless.map(|query| DcbAppendCondition::new(query.clone()));
        match self.0.append(batch, condition, None) {
            Ok(position) => Ok(Some(position)),
            Err(DcbError::IntegrityError(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn read<V: Visitor>(
        &self,
        filter: &DcbQuery,
        direction: Direction,
        limit: Option<u32>,
        visitor: &mut V,
    ) -> Result<()> {
        let backwards = direction == Direction::Backward;
        for event in self.0.read(Some(filter.clone()), None, backwards, limit)? {
            let event = event?;
            visitor.event(event.position, &event.event.event_type, &event.event.data);
            event.event.tags.iter().for_each(|tag| visitor.tag(tag));
        }
        Ok(())
    }

    fn collect(&self, filter: &DcbQuery, direction: Direction) -> Result<Vec<DcbSequencedEvent>> {
        let backwards = direction == Direction::Backward;
        Ok(self.0.read(Some(filter.clone()), None, backwards, None)?.collect::<Result<_, _>>()?)
    }

    fn head(&self) -> Result<u64> {
        Ok(self.0.head()?.unwrap_or_default())
    }
}
