//! Where the events are: in files that this process opens, or behind a server. Commands do not care which.

use std::rc::Rc;

use ropewalk::{
    AppendOptions, Appended, Database, Event, EventStore, PendingAppend, Query, ReadOptions, SequencedEvent,
};

use crate::database::context::Context;
use crate::database::remote::Remote;
use crate::output::failure::{Exit, Failure, Result};

/// A database.
pub(crate) enum Place {
    Here(Database),
    There(Rc<Remote>),
}

/// One store of it.
pub(crate) enum Store {
    Here(EventStore),
    There { remote: Rc<Remote>, name: String },
}

/// A store as listed.
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) events: u64,
    /// Time of its newest event.
    pub(crate) newest: Option<i64>,
}

/// An append on its way; over there it has arrived.
pub(crate) enum Pending {
    Here(PendingAppend),
    There,
}

impl Place {
    /// The store that a command writes to; it may not be there yet.
    pub(crate) fn store(&self, context: &Context) -> Result<Store> {
        let name = context.store_name();
        Ok(match self {
            Self::Here(db) => Store::Here(db.events(name)?),
            Self::There(remote) => Store::There { remote: remote.clone(), name: name.to_owned() },
        })
    }

    /// The store that a command reads, which must exist.
    pub(crate) fn existing_store(&self, context: &Context) -> Result<Store> {
        let name = context.store_name();
        let missing = match self {
            Self::Here(db) => match db.existing_events(name) {
                Ok(store) => return Ok(Store::Here(store)),
                Err(error) => Failure::from(error),
            },
            Self::There(remote) => match remote.head(name) {
                Ok(_) => return self.store(context),
                Err(failure) => failure,
            },
        };
        if !matches!(missing, Failure::Said { exit: Exit::NotFound, .. }) {
            return Err(missing);
        }
        let known: Vec<_> = self.stores()?.into_iter().map(|store| store.name).collect();
        let what = match known.as_slice() {
            [] => {
                format!("there is no event store {name:?}; the database in {} has none yet", context.shown())
            }
            known => format!("there is no event store {name:?}; there are: {}", known.join(", ")),
        };
        let todo = "--store NAME chooses one; a store comes into being with its first append";
        Err(Failure::new(Exit::NotFound, what, todo))
    }

    /// All stores by name.
    pub(crate) fn stores(&self) -> Result<Vec<Listed>> {
        match self {
            Self::Here(db) => db
                .event_stores()
                .into_iter()
                .map(|name| {
                    let store = db.existing_events(&name)?;
                    let newest = store.scan(&Query::all(), ReadOptions::backwards().limit(1), |scan| {
                        Ok(scan.next()?.map(|event| event.time_micros))
                    })?;
                    let events = store.head()?.map_or(0, |head| head.0);
                    Ok(Listed { name, events, newest })
                })
                .collect(),
            Self::There(remote) => remote.stores(),
        }
    }

    /// Ends the work. What `buffered` and `async` left unsynced is synced here; its failure must not go unheard.
    pub(crate) fn close(self) -> Result {
        match self {
            Self::Here(db) => Ok(db.close()?),
            Self::There(_) => Ok(()),
        }
    }
}

impl Store {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Here(store) => store.name(),
            Self::There { name, .. } => name,
        }
    }

    pub(crate) fn append(&self, events: &[Event], options: AppendOptions) -> Result<Appended> {
        match self {
            Self::Here(store) => Ok(store.append_with(events, options)?),
            Self::There { remote, name } => remote.append(name, events, &options),
        }
    }

    /// Begins an append; appends begun one after the other happen in this order.
    pub(crate) fn submit(&self, events: &[Event], options: AppendOptions) -> Result<Pending> {
        match self {
            Self::Here(store) => Ok(Pending::Here(store.submit(events, options)?)),
            Self::There { remote, name } => remote.append(name, events, &options).map(|_| Pending::There),
        }
    }

    pub(crate) fn read(
        &self,
        query: &Query,
        options: ReadOptions,
        mut visit: impl FnMut(SequencedEvent) -> Result,
    ) -> Result {
        match self {
            Self::Here(store) => {
                for event in store.read(query, options)? {
                    visit(event?)?;
                }
                Ok(())
            }
            Self::There { remote, name } => remote.read(name, query, options, visit),
        }
    }

    pub(crate) fn last(&self, query: &Query) -> Result<Option<SequencedEvent>> {
        match self {
            Self::Here(store) => Ok(store.read_last(query)?),
            Self::There { remote, name } => remote.last(name, query),
        }
    }

    pub(crate) fn count(&self, query: &Query) -> Result<u64> {
        match self {
            Self::Here(store) => Ok(store.count(query)?),
            Self::There { remote, name } => remote.count(name, query),
        }
    }

    pub(crate) fn exists(&self, query: &Query) -> Result<bool> {
        match self {
            Self::Here(store) => Ok(store.exists(query, None)?),
            Self::There { remote, name } => remote.exists(name, query),
        }
    }

    /// Number of its events, which is its last position.
    pub(crate) fn events(&self) -> Result<u64> {
        let head = match self {
            Self::Here(store) => store.head()?,
            Self::There { remote, name } => remote.head(name)?,
        };
        Ok(head.map_or(0, |head| head.0))
    }

    /// False while nothing was ever written to it.
    pub(crate) fn is_used(&self) -> Result<bool> {
        match self {
            Self::Here(store) => Ok(store.head()?.is_some()),
            Self::There { remote, name } => Ok(remote.stores()?.iter().any(|store| store.name == *name)),
        }
    }

    /// How far an upstream source was read.
    pub(crate) fn tracking(&self, source: &str) -> Result<Option<u64>> {
        match self {
            Self::Here(store) => Ok(store.tracking(source)?),
            Self::There { remote, name } if self.is_used()? => remote.tracking(name, source),
            Self::There { .. } => Ok(None),
        }
    }
}

impl Pending {
    pub(crate) fn wait(self) -> Result {
        match self {
            Self::Here(append) => Ok(append.wait().map(drop)?),
            Self::There => Ok(()),
        }
    }
}
