//! Target of a command: a database that this process opens, or a server.

use std::rc::Rc;

use ropewalk::events::{Appended, PendingAppend, ReadOptions, SequencedEvent};
use ropewalk::{AppendOptions, Database, Event, EventStore, Query};

use crate::database::listed::ListedStore;
use crate::database::remote::Remote;
use crate::output::failure::{Exit, Failure, Result};

/// A database, opened or connected to.
pub(crate) enum Place {
    Local(Database),
    Remote(Rc<Remote>),
}

/// One event store of a database.
pub(crate) enum Store {
    Local(EventStore),
    Remote { remote: Rc<Remote>, name: String },
}

/// An append in progress; a server has completed it already.
pub(crate) enum Pending {
    Local(PendingAppend),
    Remote,
}

impl Place {
    /// Returns a store to write to, which may not exist yet.
    pub(crate) fn store(&self, name: &str) -> Result<Store> {
        Ok(match self {
            Self::Local(db) => Store::Local(db.events(name)?),
            Self::Remote(remote) => Store::Remote { remote: remote.clone(), name: name.to_owned() },
        })
    }

    /// Returns a store to read, which must exist. `shown` names the database in errors.
    pub(crate) fn existing_store(&self, name: &str, shown: &str) -> Result<Store> {
        let missing = match self {
            Self::Local(db) => match db.existing_events(name) {
                Ok(store) => return Ok(Store::Local(store)),
                Err(error) => Failure::from(error),
            },
            Self::Remote(remote) => match remote.head(name) {
                Ok(_) => return self.store(name),
                Err(failure) => failure,
            },
        };
        if !matches!(missing, Failure::Said { exit: Exit::NotFound, .. }) {
            return Err(missing);
        }
        let known: Vec<_> = self.stores()?.into_iter().map(|store| store.name).collect();
        let what = match known.as_slice() {
            [] => {
                format!("there is no event store {name:?}; the database in {shown} has none yet")
            }
            known => format!("there is no event store {name:?}; there are: {}", known.join(", ")),
        };
        let todo = "--store NAME selects one; the first append creates a store";
        Err(Failure::new(Exit::NotFound, what, todo))
    }

    /// Lists all stores by name.
    pub(crate) fn stores(&self) -> Result<Vec<ListedStore>> {
        match self {
            Self::Local(db) => db
                .event_stores()
                .into_iter()
                .map(|name| {
                    let store = db.existing_events(&name)?;
                    let newest = store.scan(&Query::all(), ReadOptions::backwards().limit(1), |scan| {
                        Ok(scan.next()?.map(|event| event.time_micros))
                    })?;
                    let events = store.head()?.map_or(0, |head| head.0);
                    Ok(ListedStore { name, events, newest })
                })
                .collect(),
            Self::Remote(remote) => remote.stores(),
        }
    }

    /// Closes the database. Syncs the appends of `buffered` and `async`, so callers must report the failure.
    pub(crate) fn close(self) -> Result {
        match self {
            Self::Local(db) => Ok(db.close()?),
            Self::Remote(_) => Ok(()),
        }
    }
}

impl Store {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Local(store) => store.name(),
            Self::Remote { name, .. } => name,
        }
    }

    pub(crate) fn append(&self, events: &[Event], options: AppendOptions) -> Result<Appended> {
        match self {
            Self::Local(store) => Ok(store.append_with(events, options)?),
            Self::Remote { remote, name } => remote.append(name, events, &options),
        }
    }

    /// Starts an append; appends take effect in the order in which they were started.
    pub(crate) fn submit(&self, events: &[Event], options: AppendOptions) -> Result<Pending> {
        match self {
            Self::Local(store) => Ok(Pending::Local(store.submit(events, options)?)),
            Self::Remote { remote, name } => remote.append(name, events, &options).map(|_| Pending::Remote),
        }
    }

    pub(crate) fn read(
        &self,
        query: &Query,
        options: ReadOptions,
        mut visit: impl FnMut(SequencedEvent) -> Result,
    ) -> Result {
        match self {
            Self::Local(store) => {
                for event in store.read(query, options)? {
                    visit(event?)?;
                }
                Ok(())
            }
            Self::Remote { remote, name } => remote.read(name, query, options, visit),
        }
    }

    pub(crate) fn last(&self, query: &Query) -> Result<Option<SequencedEvent>> {
        match self {
            Self::Local(store) => Ok(store.read_last(query)?),
            Self::Remote { remote, name } => remote.last(name, query),
        }
    }

    pub(crate) fn count(&self, query: &Query) -> Result<u64> {
        match self {
            Self::Local(store) => Ok(store.count(query)?),
            Self::Remote { remote, name } => remote.count(name, query),
        }
    }

    pub(crate) fn exists(&self, query: &Query) -> Result<bool> {
        match self {
            Self::Local(store) => Ok(store.exists(query, None)?),
            Self::Remote { remote, name } => remote.exists(name, query),
        }
    }

    /// Number of its events, which is its last position.
    pub(crate) fn events(&self) -> Result<u64> {
        let head = match self {
            Self::Local(store) => store.head()?,
            Self::Remote { remote, name } => remote.head(name)?,
        };
        Ok(head.map_or(0, |head| head.0))
    }

    /// True once an event was appended.
    pub(crate) fn is_used(&self) -> Result<bool> {
        match self {
            Self::Local(store) => Ok(store.head()?.is_some()),
            Self::Remote { remote, name } => Ok(remote.stores()?.iter().any(|store| store.name == *name)),
        }
    }

    /// How far an upstream source was read.
    pub(crate) fn tracking(&self, source: &str) -> Result<Option<u64>> {
        match self {
            Self::Local(store) => Ok(store.tracking(source)?),
            Self::Remote { remote, name } if self.is_used()? => remote.tracking(name, source),
            Self::Remote { .. } => Ok(None),
        }
    }
}

impl Pending {
    pub(crate) fn wait(self) -> Result {
        match self {
            Self::Local(append) => Ok(append.wait().map(drop)?),
            Self::Remote => Ok(()),
        }
    }
}
