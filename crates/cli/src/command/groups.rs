//! `ropewalk group`: the consumer groups of a store and their parked events. Consumers are other programs,
//! which take and acknowledge events through the library or over HTTP.

use std::time::Duration;

use clap::{Args, Subcommand};
use ropewalk::Position;
use ropewalk::groups::{ConsumerGroups, GroupSettings};

use super::events::Select;
use crate::database::context::Context;
use crate::database::listed::{ListedGroup, ListedParked};
use crate::database::place::Place;
use crate::output::cell::Cell;
use crate::output::failure::Result;
use crate::values::seconds;

#[derive(Debug, Subcommand)]
pub(crate) enum Group {
    /// List the groups: cursor, waiting, pending and parked events
    List,
    /// Create a group, or change the settings of an existing one, which retains its cursor
    Create(CreateGroup),
    /// Delete a group with its pending and parked events
    Delete {
        /// Its name
        name: String,
    },
    /// List the parked events of a group
    Parked {
        /// The group
        name: String,
    },
    /// Make parked events available again, at once and with all tries
    Replay {
        /// The group
        name: String,
        /// Positions of the events [default: all parked events]
        positions: Vec<u64>,
    },
    /// Delete parked events
    Discard {
        /// The group
        name: String,
        /// Positions of the events [default: all parked events]
        positions: Vec<u64>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CreateGroup {
    /// Its name
    name: String,
    #[command(flatten)]
    select: Select,
    /// Start a new group after this position [default: at the first event]
    #[arg(long, value_name = "POSITION")]
    after: Option<u64>,
    /// Lease time in seconds [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    lease: Option<Duration>,
    /// Seconds before a retry [default: 1]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pause: Option<Duration>,
    /// Tries before an event is parked [default: 10]
    #[arg(long, value_name = "N")]
    tries: Option<u32>,
    /// One batch at a time, strictly in order
    #[arg(long)]
    in_order: bool,
}

impl CreateGroup {
    /// The settings of the group, and the position after which a new group starts.
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

/// Number of parked events per request.
const PAGE: usize = 1_000;

pub(crate) fn group(context: &Context, command: Group) -> Result {
    let place = context.place()?;
    context.existing_store(&place)?;
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
                Place::Local(db) => {
                    let groups = db.consumer_groups(store)?;
                    groups.create(&create.name, settings, after)?;
                    groups.group(&create.name)?.status()?.cursor.0
                }
                Place::Remote(remote) => remote.create_group(store, &create.name, &settings, after)?,
            };
            context.print_row(&["group", "cursor"], vec![create.name.into(), cursor.into()])?;
        }
        Group::Delete { name } => {
            match &place {
                Place::Local(db) => {
                    let groups = db.consumer_groups(store)?;
                    groups.group(&name)?;
                    groups.delete(&name)?;
                }
                Place::Remote(remote) => remote.delete_group(store, &name)?,
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
        Place::Local(db) => {
            let groups = db.consumer_groups(store)?;
            groups.names()?.into_iter().map(|name| listed(&groups, name)).collect()
        }
        Place::Remote(remote) => remote.groups(store),
    }
}

fn parked(place: &Place, store: &str, name: &str, after: Option<Position>) -> Result<Vec<ListedParked>> {
    match place {
        Place::Local(db) => {
            let parked = db.consumer_groups(store)?.group(name)?.parked(after, PAGE)?;
            let listed = parked.into_iter().map(|one| ListedParked {
                position: one.event.position.0,
                event_type: one.event.event.event_type,
                tries: one.tries.into(),
                reason: one.reason,
            });
            Ok(listed.collect())
        }
        Place::Remote(remote) => remote.parked(store, name, after, PAGE),
    }
}

/// Replays or discards the given parked events, or all.
fn settle(context: &Context, place: &Place, name: &str, positions: &[u64], replays: bool) -> Result {
    let store = context.store_name();
    let done = match place {
        Place::Local(db) => {
            let group = db.consumer_groups(store)?.group(name)?;
            let which: Vec<Position> = positions.iter().copied().map(Position).collect();
            let which = (!which.is_empty()).then_some(which.as_slice());
            let settled = if replays { group.replay(which)? } else { group.discard(which)? };
            settled.done
        }
        Place::Remote(remote) => remote.settle_parked(store, name, positions, replays)?,
    };
    context.print_row(&["group", "events"], vec![name.into(), done.into()])
}
