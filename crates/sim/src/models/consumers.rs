//! Consumers of events on a disk that fails: a group whose events are received, settled and redelivered, and
//! a projection.
//!
//!   append ─▶ take ─▶ acknowledge, retry or park      crash ─▶ open ─▶ each event is settled or comes again
//!         └─▶ catch up ─▶ one row that counts         each event was counted once
//!
//! Each call is one durable commit, so the model is the fate of each position. A call without a response
//! leaves its positions in doubt until the next opening decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ropewalk::events::SequencedEventRef;
use ropewalk::groups::{ConsumerGroup, GroupSettings, Settled};
use ropewalk::projections::{ApplyError, MaterializedProjection, Output, ProjectionRun, Projections};
use ropewalk::tables::{ColumnDef, TableDef, Type};
use ropewalk::{Database, Durability, Error, Event, Position, Query};

use crate::Run;
use crate::events::scenario::{Bug, Check, ensure};
use crate::runs::restarts;
use crate::runs::restarts::{Boots, World};

const STORE: &str = "orders";
const NAME: &str = "counted";
const LEASE: Duration = Duration::from_secs(10);
/// Longer than any lease and any pause.
const LATER: Duration = Duration::from_secs(3_600);

/// One row: how many events there were, and the sum of their positions.
struct Counting;

impl MaterializedProjection for Counting {
    fn query(&self) -> Query {
        Query::all()
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::table(NAME)]
    }

    fn prepare(&self, run: &mut ProjectionRun<'_>) -> Result<(), ApplyError> {
        let columns = ["id", "events", "sum"].map(|name| ColumnDef::new(name, Type::INT8));
        let table = columns.into_iter().fold(TableDef::new(run.name(NAME)?), TableDef::column);
        run.tx().tables().create_table(table.primary_key(["id"]))?;
        Ok(())
    }

    fn apply(&self, run: &mut ProjectionRun<'_>, event: &SequencedEventRef<'_>) -> Result<(), ApplyError> {
        let table = run.table(NAME)?;
        let row = run.tx().tables().get(&table, &[0_i64.into()])?;
        let number = |name| row.as_ref().and_then(|row| row.column(name).ok()?.as_integer()).unwrap_or(0);
        let (events, sum) = (number("events") + 1, number("sum") + event.position.0.cast_signed());
        run.tx()
            .tables()
            .upsert(&table, &[("id", 0_i64.into()), ("events", events.into()), ("sum", sum.into())])?;
        Ok(())
    }
}

/// Fate of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Acknowledged,
    Parked,
    /// A call got no response.
    Doubt,
}

struct Consumers {
    boots: Boots,
    fates: BTreeMap<u64, Fate>,
    /// Active leases, as far as this process knows.
    leases: Vec<(u64, Vec<u64>)>,
    projections: Option<Projections>,
}

/// Runs one seed: so many boots, each with one kind of injected fault.
pub fn run_consumers(seed: u64, boots: u64) -> Run {
    let boots_of_world = Boots::new(seed, 0xc0_175);
    let world =
        Consumers { boots: boots_of_world, fates: BTreeMap::new(), leases: Vec::new(), projections: None };
    restarts::run(world, boots)
}

fn projections(db: &Database) -> Result<Projections, Error> {
    let projections = db.projections(STORE)?;
    projections.register(NAME, Arc::new(Counting))?;
    Ok(projections)
}

fn group(db: &Database) -> Result<ConsumerGroup, Error> {
    db.consumer_groups(STORE)?.group("g")
}

impl World for Consumers {
    fn boots(&mut self) -> &mut Boots {
        &mut self.boots
    }

    fn leave(&mut self) {
        self.leases.clear();
        self.projections = None;
    }

    fn create(db: &Database) -> Result<(), Error> {
        // A comparison receives everything at once.
        let settings = GroupSettings {
            lease: LEASE,
            tries_max: 1_000,
            pending_max: 100_000,
            ..GroupSettings::new(Query::all())
        };
        db.consumer_groups(STORE)?.create("g", settings, None)?;
        Ok(())
    }

    fn reconcile(&mut self, db: &Database) -> Check {
        self.decide_doubts(db)?;
        self.compare(db)
    }

    fn compare(&mut self, db: &Database) -> Check {
        self.boots.counts.reads += 1;
        let head = db.events(STORE)?.head()?.map_or(0, |head| head.0);
        let projections = projections(db)?;
        projections.catch_up(NAME)?;
        let counted = counted(db)?;
        let sum = (1..=head).sum::<u64>();
        ensure!(counted == (head, sum), "{head} events of sum {sum}, the projection has {counted:?}");
        let (taken, parked) = (self.take_all(db)?, parked(db)?);
        for position in 1..=head {
            let found = (taken.contains(&position), parked.contains(&position));
            let expected = match self.fates.get(&position) {
                Some(Fate::Acknowledged) => (false, false),
                Some(Fate::Parked) => (false, true),
                Some(Fate::Doubt) => continue,
                None => (true, false),
            };
            let fate = self.fates.get(&position);
            ensure!(found == expected, "event {position}, {fate:?}: taken and parked are {found:?}");
        }
        restarts::verify(db)
    }

    fn step(&mut self) -> Check {
        match self.boots.dice.below(20) {
            0..5 => self.append(),
            5..9 => self.take(),
            9..15 => self.settle(),
            15..17 => self.catch_up(),
            17 => {
                self.boots.clock.advance(Duration::from_secs(self.boots.dice.below(15)));
                Ok(())
            }
            18 => self.boots.housekeeping(4),
            _ => self.follow_status(),
        }
    }
}

fn counted(db: &Database) -> Result<(u64, u64), Error> {
    let Ok(table) = db.table(NAME) else { return Ok((0, 0)) };
    let snapshot = db.snapshot();
    let row = snapshot.tables(db).get(&table, &[0_i64.into()])?;
    let number = |name| row.as_ref().and_then(|row| row.column(name).ok()?.as_integer()).unwrap_or(0);
    Ok((number("events").cast_unsigned(), number("sum").cast_unsigned()))
}

fn parked(db: &Database) -> Result<BTreeSet<u64>, Error> {
    Ok(group(db)?.parked(None, usize::MAX)?.iter().map(|parked| parked.event.position.0).collect())
}

impl Consumers {
    /// Everything that the group still delivers once each lease has expired.
    fn take_all(&self, db: &Database) -> Check<BTreeSet<u64>> {
        self.boots.clock.advance(LATER);
        let group = group(db)?;
        let mut taken = BTreeSet::new();
        loop {
            let lease = group.take(7)?;
            if lease.events.is_empty() {
                return Ok(taken);
            }
            for one in lease.events {
                ensure!(taken.insert(one.event.position.0), "{} is given out twice", one.event.position.0);
            }
        }
    }

    /// Calls without a response have happened or not; the database decides which.
    fn decide_doubts(&mut self, db: &Database) -> Check {
        if !self.fates.values().any(|fate| *fate == Fate::Doubt) {
            return Ok(());
        }
        let (taken, parked) = (self.take_all(db)?, parked(db)?);
        self.fates.retain(|position, fate| *fate != Fate::Doubt || !taken.contains(position));
        for (position, fate) in self.fates.iter_mut().filter(|(_, fate)| **fate == Fate::Doubt) {
            *fate = if parked.contains(position) { Fate::Parked } else { Fate::Acknowledged };
        }
        Ok(())
    }

    fn append(&mut self) -> Check {
        let count = self.boots.dice.between(1, 20);
        let events: Vec<Event> =
            (0..count).map(|_| Event::new("Placed").data(self.boots.dice.bytes(200))).collect();
        self.boots.note(format!("append {count}"));
        match self.boots.db()?.events(STORE)?.append(&events, None) {
            Ok(done) => self.boots.acknowledged(done.seq.0, Durability::Sync),
            Err(error) => self.boots.excuse("append", &error.into())?,
        }
        Ok(())
    }

    fn take(&mut self) -> Check {
        let db = self.boots.db()?;
        match group(&db).and_then(|group| group.take(self.boots.dice.between(1, 9) as usize)) {
            Ok(lease) if lease.events.is_empty() => {}
            Ok(lease) => {
                self.boots.acknowledged(db.seq().0, Durability::Sync);
                let positions: Vec<u64> = lease.events.iter().map(|one| one.event.position.0).collect();
                self.boots.note(format!("lease {} has {positions:?}", lease.id));
                for position in &positions {
                    let fate = self.fates.get(position);
                    ensure!(fate.is_none_or(|fate| *fate == Fate::Doubt), "{position} comes again: {fate:?}");
                }
                self.leases.push((lease.id, positions));
            }
            Err(error) => self.boots.excuse("take", &error)?,
        }
        Ok(())
    }

    /// Acknowledges, releases or dead-letters all or some events of a lease.
    fn settle(&mut self) -> Check {
        if self.leases.is_empty() {
            return self.take();
        }
        let db = self.boots.db()?;
        let (lease, mut positions) = self.leases.swap_remove(self.boots.dice.index(self.leases.len()));
        positions.truncate(self.boots.dice.between(1, 9) as usize);
        let asked: Vec<Position> = positions.iter().map(|position| Position(*position)).collect();
        let (fate, done) = match (self.boots.dice.below(6), group(&db)) {
            (_, Err(error)) => return self.boots.excuse("settle", &error),
            (0, Ok(group)) => (None, group.retry(lease, Some(&asked), None, "again")),
            (1, Ok(group)) => (Some(Fate::Parked), group.park(lease, Some(&asked), "broken")),
            (_, Ok(group)) => (Some(Fate::Acknowledged), group.acknowledge(lease, Some(&asked))),
        };
        self.boots.note(format!("settle {positions:?} of lease {lease} as {fate:?}: {done:?}"));
        match done {
            Ok(Settled { lost, .. }) => {
                self.boots.acknowledged(db.seq().0, Durability::Sync);
                let kept = positions.iter().filter(|position| !lost.contains(&Position(**position)));
                self.fates.extend(kept.filter_map(|position| Some((*position, fate?))));
            }
            Err(error) => {
                self.boots.excuse("settle", &error)?;
                let unsettled = positions.iter().filter(|position| !self.fates.contains_key(position));
                let doubts: Vec<u64> = unsettled.copied().collect();
                self.fates.extend(doubts.into_iter().map(|position| (position, Fate::Doubt)));
            }
        }
        Ok(())
    }

    fn catch_up(&mut self) -> Check {
        let db = self.boots.db()?;
        if self.projections.is_none() {
            match projections(&db) {
                Ok(projections) => self.projections = Some(projections),
                Err(error) => return self.boots.excuse("projections", &error),
            }
        }
        let projections = self.projections.as_ref().ok_or_else(|| Bug("they were just opened".into()))?;
        match projections.catch_up(NAME) {
            Ok(_) => self.boots.acknowledged(db.seq().0, Durability::Sync),
            Err(error) => self.boots.excuse("catch up", &error)?,
        }
        Ok(())
    }

    /// The parts of the group add up to the complete store.
    fn follow_status(&mut self) -> Check {
        let db = self.boots.db()?;
        match group(&db).and_then(|group| group.status()) {
            Ok(status) => {
                let all = status.waiting + status.pending + status.parked;
                let gone = self.fates.values().filter(|fate| **fate == Fate::Acknowledged).count() as u64;
                let doubts = self.fates.values().filter(|fate| **fate == Fate::Doubt).count() as u64;
                let known = (all + gone..=all + gone + doubts).contains(&status.head.0);
                ensure!(known, "{status:?} with {gone} acknowledged, {doubts} in doubt");
            }
            Err(error) => self.boots.excuse("status", &error)?,
        }
        Ok(())
    }
}
