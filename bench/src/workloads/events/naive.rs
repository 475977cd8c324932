//! A trivially correct event store to test the drivers: a list of events per directory.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};

use anyhow::Result;

use crate::harness::plan::Plan;
use crate::harness::worker::{Group, Outcome, Task};
use crate::workloads::events::event_store::{Direction, Event, EventStore, Flush, Item, Query, Visitor};
use crate::workloads::events::{append, plan, queries};
use crate::workloads::opossum;

type Events = Arc<Mutex<Vec<Event>>>;
static STORES: LazyLock<Mutex<HashMap<PathBuf, Events>>> = LazyLock::new(Mutex::default);

struct Naive(Events);

fn matches(query: &Query, event: &Event) -> bool {
    let item = |item: &Item| {
        (item.kinds.is_empty() || item.kinds.contains(&event.kind))
            && item.tags.iter().all(|t| event.tags.contains(t))
    };
    query.items.is_empty() || query.items.iter().any(item)
}

impl Naive {
    fn found(&self, query: &Query, direction: Direction, limit: Option<u32>) -> Vec<(u64, Event)> {
        let events = self.0.lock().unwrap();
        let mut all: Vec<_> = (1..).zip(events.iter()).filter(|(_, event)| matches(query, event)).collect();
        if direction == Direction::Backward {
            all.reverse();
        }
        let limit = limit.map_or(usize::MAX, |limit| limit as usize);
        all.into_iter().take(limit).map(|(position, event)| (position, event.clone())).collect()
    }
}

impl EventStore for Naive {
    type Batch = Vec<Event>;
    type Filter = Query;
    type Owned = Event;

    const CONCURRENT: bool = true;

    fn open(dir: &Path) -> Result<Self> {
        let mut stores = STORES.lock().unwrap();
        if std::fs::read_dir(dir)?.next().is_none() {
            stores.remove(dir);
            std::fs::write(dir.join("opened"), b"")?;
        }
        Ok(Self(stores.entry(dir.into()).or_default().clone()))
    }

    fn batch(events: Vec<Event>) -> Vec<Event> {
        events
    }

    fn filter(query: &Query) -> Query {
        query.clone()
    }

    fn append(&self, batch: Vec<Event>, unless: Option<&Query>, _flush: Flush) -> Result<Option<u64>> {
        let mut events = self.0.lock().unwrap();
        if unless.is_some_and(|query| events.iter().any(|event| matches(query, event))) {
            return Ok(None);
        }
        events.extend(batch);
        Ok(Some(events.len() as u64))
    }

    fn read<V: Visitor>(
        &self,
        filter: &Query,
        way: Direction,
        limit: Option<u32>,
        visitor: &mut V,
    ) -> Result<()> {
        for (position, event) in self.found(filter, way, limit) {
            visitor.event(position, &event.kind, &event.data);
            event.tags.iter().for_each(|tag| visitor.tag(tag));
        }
        Ok(())
    }

    fn collect(&self, filter: &Query, direction: Direction) -> Result<Vec<Event>> {
        Ok(self.found(filter, direction, None).into_iter().map(|(_, event)| event).collect())
    }

    fn head(&self) -> Result<u64> {
        Ok(self.0.lock().unwrap().len() as u64)
    }
}

/// Runs the task of a plan's group, reduced for a test.
fn outcome(group: Group, rows: u64, threads: usize, run: fn(&Task) -> Result<Outcome>) -> Outcome {
    let dir = tempfile::tempdir().unwrap();
    let task = Task { dir: dir.path().into(), rows, threads, seconds: 0.001, ..Task::new(group) };
    run(&task).unwrap()
}

/// Checks that every row of the plan's steps of `group` has its figure, and every figure a row.
fn fills(plan: &Plan, group: Group, outcome: &Outcome, renamed: impl Fn(&str) -> String) {
    let step = plan.steps.iter().find(|step| step.task.group == group).unwrap();
    let mut wanted: Vec<String> = step.rows.iter().map(|row| row.figure.clone()).collect();
    let mut present: Vec<String> = outcome.figures.keys().map(|name| renamed(name)).collect();
    wanted.sort();
    present.sort();
    let difference: Vec<&String> = wanted
        .iter()
        .filter(|w| !present.contains(w))
        .chain(present.iter().filter(|p| !wanted.contains(p)))
        .collect();
    assert!(difference.is_empty(), "{difference:?}");
    assert_eq!(wanted.len(), present.len());
}

#[test]
fn the_opossum_rows_are_the_drivers_figures() {
    let outcome = outcome(Group::Opossum, 0, 1, opossum::run::run::<Naive>);
    fills(&opossum::plan::plan(true), Group::Opossum, &outcome, str::to_owned);
}

#[test]
fn the_opossum_rows_at_a_million_are_the_drivers_figures() {
    let outcome = outcome(Group::OpossumAt, 3000, 1, opossum::run::run_at::<Naive>);
    fills(&opossum::plan::plan(true), Group::OpossumAt, &outcome, |name| name.replace("3K", "1M"));
}

#[test]
fn the_query_rows_are_the_drivers_figures() {
    let outcome = outcome(Group::Queries, 20_000, 1, queries::run::<Naive>);
    fills(&plan::plan(true), Group::Queries, &outcome, str::to_owned);
}

#[test]
fn appends_are_counted_and_conditions_checked() {
    assert!(outcome(Group::Append, 0, 1, append::run::<Naive>).figures.contains_key("append"));
    let dir = tempfile::tempdir().unwrap();
    let task = Task { dir: dir.path().into(), threads: 3, seconds: 0.05, ..Task::new(Group::Append) };
    assert!(append::run::<Naive>(&task).unwrap().figures["append"].samples[0] > 0.0);
    outcome(Group::Conditional, 0, 1, append::conditional::<Naive>);
}
