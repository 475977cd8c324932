//! `group`: the consumer groups of a store, and what is parked in them. Consumers themselves are programs: they take and
//! acknowledge through the library or over HTTP.

use ropewalk::Position;
use ropewalk::groups::{ConsumerGroups, GroupSettings};

use crate::command::Group;
use crate::database::context::Context;
use crate::database::place::Place;
use crate::output::failure::Result;
use crate::output::report::Cell;

/// Parked events that are asked for at once.
const PAGE: usize = 1_000;

/// A group as listed.
pub(crate) struct ListedGroup {
    pub(crate) name: String,
    pub(crate) cursor: u64,
    pub(crate) waiting: u64,
    pub(crate) pending: u64,
    pub(crate) parked: u64,
}

/// A parked event as listed.
pub(crate) struct ListedParked {
    pub(crate) position: u64,
    pub(crate) event_type: String,
    pub(crate) tries: u64,
    pub(crate) reason: String,
}

pub(crate) fn group(context: &Context, command: Group) -> Result {
    let place = context.place()?;
    place.existing_store(context)?;
    let store = context.store_name();
    match command {
        Group::List => {
            let mut report = context.report(&["group", "cursor", "waiting", "pending", "parked"])?;
            for group in list(&place, store)? {
                let numbers = [group.cursor, group.waiting, group.pending, group.parked];
                let mut row: Vec<Cell> = vec![group.name.into()];
                row.extend(numbers.map(Cell::from));
                report.row(row)?;
            }
            report.finish()?;
        }
        Group::Create(create) => {
            let (settings, after) = create.settings();
            let cursor = match &place {
                Place::Here(db) => {
                    let groups = db.consumer_groups(store)?;
                    groups.create(&create.name, settings, after)?;
                    groups.group(&create.name)?.status()?.cursor.0
                }
                Place::There(remote) => remote.create_group(store, &create.name, &settings, after)?,
            };
            context.print_row(&["group", "cursor"], vec![create.name.into(), cursor.into()])?;
        }
        Group::Delete { name } => {
            match &place {
                Place::Here(db) => {
                    let groups = db.consumer_groups(store)?;
                    groups.group(&name)?;
                    groups.delete(&name)?;
                }
                Place::There(remote) => remote.delete_group(store, &name)?,
            }
            context.print_row(&["group", "deleted"], vec![name.into(), Cell::Bool(true)])?;
        }
        Group::Parked { name } => {
            let mut report = context.report(&["position", "type", "tries", "reason"])?;
            let mut after = None;
            loop {
                let page = parked(&place, store, &name, after)?;
                let Some(last) = page.last() else { break };
                after = Some(Position(last.position));
                for one in page {
                    let row =
                        vec![one.position.into(), one.event_type.into(), one.tries.into(), one.reason.into()];
                    report.row(row)?;
                }
            }
            report.finish()?;
        }
        Group::Replay { name, positions } => settle(context, &place, &name, &positions, true)?,
        Group::Discard { name, positions } => settle(context, &place, &name, &positions, false)?,
    }
    place.close()
}

fn list(place: &Place, store: &str) -> Result<Vec<ListedGroup>> {
    let listed = |groups: &ConsumerGroups, name: String| -> Result<ListedGroup> {
        let status = groups.group(&name)?.status()?;
        let (cursor, waiting) = (status.cursor.0, status.waiting);
        Ok(ListedGroup { name, cursor, waiting, pending: status.pending, parked: status.parked })
    };
    match place {
        Place::Here(db) => {
            let groups = db.consumer_groups(store)?;
            groups.names()?.into_iter().map(|name| listed(&groups, name)).collect()
        }
        Place::There(remote) => remote.groups(store),
    }
}

fn parked(place: &Place, store: &str, name: &str, after: Option<Position>) -> Result<Vec<ListedParked>> {
    match place {
        Place::Here(db) => {
            let parked = db.consumer_groups(store)?.group(name)?.parked(after, PAGE)?;
            let listed = parked.into_iter().map(|one| ListedParked {
                position: one.event.position.0,
                event_type: one.event.event.event_type,
                tries: one.tries.into(),
                reason: one.reason,
            });
            Ok(listed.collect())
        }
        Place::There(remote) => remote.parked(store, name, after, PAGE),
    }
}

/// Replays or discards parked events: these, or all.
fn settle(context: &Context, place: &Place, name: &str, positions: &[u64], replays: bool) -> Result {
    let store = context.store_name();
    let done = match place {
        Place::Here(db) => {
            let group = db.consumer_groups(store)?.group(name)?;
            let which: Vec<Position> = positions.iter().copied().map(Position).collect();
            let which = (!which.is_empty()).then_some(which.as_slice());
            let settled = if replays { group.replay(which)? } else { group.discard(which)? };
            settled.done
        }
        Place::There(remote) => remote.settle_parked(store, name, positions, replays)?,
    };
    context.print_row(&["group", "events"], vec![name.into(), done.into()])
}

/// What `group create` was asked for.
impl crate::command::CreateGroup {
    fn settings(&self) -> (GroupSettings, Option<Position>) {
        let defaults = GroupSettings::new(self.select.query());
        let settings = GroupSettings {
            lease: self.lease.unwrap_or(defaults.lease),
            pause: self.pause.unwrap_or(defaults.pause),
            tries_max: self.tries.unwrap_or(defaults.tries_max),
            in_order: self.in_order,
            ..defaults
        };
        (settings, self.after.map(Position))
    }
}
