//! Consumer groups and checkpoints: no event is lost or leased twice at once, despite crashes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ropewalk::engine::{Background, Env};
use ropewalk::groups::{ConsumerGroup, ConsumerGroups, GroupError, GroupSettings, Lease};
use ropewalk::{Class, Database, Error, Event, EventStore, Options, Position, Query};
use ropewalk_vfs::{FaultyVfs, ManualClock, MemoryVfs, Random, SeededRandom};

const LEASE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_secs(1);

/// A store with a group `g` of the events `A`, and a manual clock.
struct Shop {
    env: Env,
    clock: Arc<ManualClock>,
    db: Database,
    events: EventStore,
    groups: ConsumerGroups,
    group: ConsumerGroup,
}

fn settings() -> GroupSettings {
    let query = Query::from_types(["A"]);
    GroupSettings { lease: LEASE, pause: PAUSE, tries_max: 3, ..GroupSettings::new(query) }
}

impl Shop {
    fn with(settings: GroupSettings) -> Self {
        let clock = Arc::new(ManualClock::default());
        let env = Env {
            vfs: Arc::new(MemoryVfs::default()),
            clock: clock.clone(),
            random: Arc::new(SeededRandom::new(1)),
        };
        Self::open(env, clock, &settings).unwrap()
    }

    fn open(env: Env, clock: Arc<ManualClock>, settings: &GroupSettings) -> Result<Self, Error> {
        let db = Options::new().env(env.clone()).background(Background::Manual).open("/shop")?;
        let groups = db.consumer_groups("shop")?;
        if !groups.names()?.contains(&"g".to_owned()) {
            groups.create("g", settings.clone(), None)?;
        }
        Ok(Self { env, clock, events: db.events("shop")?, group: groups.group("g")?, groups, db })
    }

    fn reopen(self) -> Self {
        let (env, clock) = (self.env.clone(), self.clock.clone());
        drop(self);
        Self::open(env, clock, &settings()).unwrap()
    }

    /// Appends `count` events `A`, each preceded by a `B`.
    fn append(&self, count: usize) {
        for _ in 0..count {
            self.events.append(&[Event::new("B"), Event::new("A")], None).unwrap();
        }
    }

    fn take(&self, max: usize) -> Lease {
        self.group.take(max).unwrap()
    }
}

fn positions(lease: &Lease) -> Vec<u64> {
    lease.events.iter().map(|taken| taken.event.position.0).collect()
}

fn tries(lease: &Lease) -> Vec<u32> {
    lease.events.iter().map(|taken| taken.tries).collect()
}

#[test]
fn events_are_leased_once_and_again_after_lease_expires() {
    let shop = Shop::with(settings());
    assert!(shop.take(5).events.is_empty(), "an empty store has nothing");
    shop.append(5);
    let (first, second) = (shop.take(2), shop.take(2));
    assert_eq!((positions(&first), positions(&second)), (vec![2, 4], vec![6, 8]));
    assert!(first.id != second.id && first.until_micros == LEASE.as_micros() as i64);
    let done = shop.group.acknowledge(first.id, Some(&[Position(2)])).unwrap();
    assert_eq!((done.done, done.lost), (1, vec![]));
    let status = shop.group.status().unwrap();
    assert_eq!((status.cursor, status.head), (Position(8), Position(10)));
    assert_eq!((status.waiting, status.pending, status.leased, status.parked), (1, 3, 3, 0));

    shop.clock.advance(LEASE);
    let again = shop.take(10);
    assert_eq!((positions(&again), tries(&again)), (vec![4, 6, 8, 10], vec![2, 2, 2, 1]));
    // A consumer whose lease expired and was taken over gets the event as lost.
    let late = shop.group.acknowledge(first.id, Some(&[Position(4)])).unwrap();
    assert_eq!((late.done, late.lost), (0, vec![Position(4)]));
    assert_eq!(shop.group.acknowledge(again.id, None).unwrap().done, 4);
    assert!(shop.take(10).events.is_empty());
    assert_eq!(shop.group.status().unwrap().pending, 0);
    // Late, but the event was not leased again, so the acknowledgement counts.
    shop.append(1);
    let lease = shop.take(1);
    shop.clock.advance(LEASE * 2);
    assert_eq!(shop.group.acknowledge(lease.id, None).unwrap().done, 1);
    assert!(shop.take(10).events.is_empty());
}

#[test]
fn retried_event_returns_after_pause_and_is_parked_after_last_try() {
    let shop = Shop::with(settings());
    shop.append(2);
    for attempt in 1..=2 {
        let lease = shop.take(1);
        assert_eq!((positions(&lease), tries(&lease)), (vec![2], vec![attempt]));
        let settled = shop.group.retry(lease.id, None, None, "mail server is down").unwrap();
        assert_eq!((settled.done, settled.parked), (1, 0));
        if attempt == 1 {
            // Other consumers receive the next event meanwhile, and may set the pause themselves.
            let other = shop.take(9);
            assert_eq!(positions(&other), [4]);
            shop.group.retry(other.id, None, Some(PAUSE / 2), "").unwrap();
            assert_eq!(shop.take(9).due_micros, Some((PAUSE / 2).as_micros() as i64));
            shop.clock.advance(PAUSE / 2);
            let other = shop.take(9);
            assert_eq!((positions(&other), tries(&other)), (vec![4], vec![2]));
            shop.group.acknowledge(other.id, None).unwrap();
            shop.clock.advance(PAUSE / 2);
        } else {
            shop.clock.advance(PAUSE - Duration::from_micros(1));
            assert!(shop.take(9).events.is_empty());
            shop.clock.advance(Duration::from_micros(1));
        }
    }
    let last = shop.take(9);
    assert_eq!((positions(&last), tries(&last)), (vec![2], vec![3]));
    let settled = shop.group.retry(last.id, None, None, "mail server is down").unwrap();
    assert_eq!((settled.done, settled.parked), (0, 1));
    assert!(shop.take(9).events.is_empty());
    let parked = shop.group.parked(None, 10).unwrap();
    assert_eq!(parked.len(), 1);
    assert_eq!((parked[0].event.position, parked[0].tries), (Position(2), 3));
    assert_eq!(parked[0].reason, "mail server is down");
    assert_eq!(parked[0].time_micros, (PAUSE * 2).as_micros() as i64);
}

#[test]
fn event_of_vanished_consumers_is_parked_after_last_lease() {
    let shop = Shop::with(settings());
    shop.append(1);
    for _ in 0..3 {
        assert_eq!(shop.take(1).events.len(), 1);
        shop.clock.advance(LEASE);
    }
    assert!(shop.take(1).events.is_empty());
    assert_eq!(shop.group.parked(None, 10).unwrap()[0].reason, "the lease ran out");
    assert_eq!(shop.group.status().unwrap().pending, 0);
}

#[test]
fn parked_events_are_listed_replayed_and_discarded() {
    let shop = Shop::with(settings());
    shop.append(4);
    let lease = shop.take(4);
    let settled =
        shop.group.park(lease.id, Some(&[Position(4), Position(2), Position(99)]), "poison").unwrap();
    assert_eq!((settled.done, settled.parked, settled.lost), (0, 2, vec![Position(99)]));
    shop.group.park(lease.id, None, "the rest").unwrap();
    let page = |after, limit| -> Vec<u64> {
        shop.group.parked(after, limit).unwrap().iter().map(|parked| parked.event.position.0).collect()
    };
    assert_eq!((page(None, 3), page(Some(Position(6)), 3), page(None, 0)), (vec![2, 4, 6], vec![8], vec![]));
    assert_eq!(shop.group.replay(Some(&[Position(4), Position(5)])).unwrap().lost, [Position(5)]);
    let lease = shop.take(9);
    assert_eq!((positions(&lease), tries(&lease)), (vec![4], vec![1]), "with all its tries");
    assert_eq!(shop.group.discard(Some(&[Position(2)])).unwrap().done, 1);
    assert_eq!(shop.group.replay(None).unwrap().done, 2);
    assert_eq!(positions(&shop.take(9)), [6, 8]);
    assert_eq!(shop.group.discard(None).unwrap().done, 0);
    assert_eq!(shop.group.status().unwrap().parked, 0);
}

#[test]
fn batches_and_pages_of_large_events_end_early() {
    let shop = Shop::with(settings());
    for _ in 0..3 {
        shop.events.append(&[Event::new("A").data(vec![b'x'; 3 << 20])], None).unwrap();
    }
    // New events, events due again, and parked ones.
    for tries in 1..=3 {
        let lease = shop.take(9);
        assert_eq!((positions(&lease), lease.events[0].tries), (vec![1, 2], tries));
        shop.clock.advance(LEASE);
    }
    let lease = shop.take(9);
    assert_eq!((positions(&lease), tries(&lease)), (vec![3], vec![1]));
    shop.group.park(lease.id, None, "large").unwrap();
    let page = |after| -> Vec<u64> {
        shop.group.parked(after, 9).unwrap().iter().map(|parked| parked.event.position.0).collect()
    };
    assert_eq!((page(None), page(Some(Position(2)))), (vec![1, 2], vec![3]));
}

#[test]
fn in_order_group_delivers_no_event_early() {
    let shop = Shop::with(GroupSettings { in_order: true, ..settings() });
    shop.append(6);
    let lease = shop.take(3);
    assert_eq!(positions(&lease), [2, 4, 6]);
    assert!(shop.take(3).events.is_empty(), "one batch at a time");
    shop.group.acknowledge(lease.id, Some(&[Position(2)])).unwrap();
    assert!(shop.take(3).events.is_empty(), "what is left of it holds the others up");
    // The second fails: later events of the lease wait with it, without counting a try.
    shop.group.retry(lease.id, Some(&[Position(4)]), None, "no").unwrap();
    let none = shop.take(3);
    assert_eq!((positions(&none), none.due_micros), (vec![], Some(PAUSE.as_micros() as i64)));
    shop.clock.advance(PAUSE);
    let lease = shop.take(3);
    assert_eq!((positions(&lease), tries(&lease)), (vec![4, 6, 8], vec![2, 1, 1]));
    // Once parked, it does not block later events.
    shop.group.park(lease.id, Some(&[Position(4)]), "no").unwrap();
    shop.group.acknowledge(lease.id, None).unwrap();
    assert_eq!(positions(&shop.take(9)), [10, 12]);
    // Once replayed, it precedes new events.
    shop.append(1);
    shop.clock.advance(LEASE);
    shop.group.replay(None).unwrap();
    assert_eq!(positions(&shop.take(9)), [4, 10, 12, 14]);
}

#[test]
fn a_lease_may_be_extended() {
    let shop = Shop::with(settings());
    shop.append(2);
    let lease = shop.take(2);
    shop.clock.advance(LEASE / 2);
    let (settled, until) = shop.group.extend(lease.id, None).unwrap();
    assert_eq!((settled.done, until), (2, (LEASE + LEASE / 2).as_micros() as i64));
    shop.clock.advance(LEASE - Duration::from_micros(1));
    assert!(shop.take(2).events.is_empty());
    shop.clock.advance(Duration::from_micros(1));
    assert_eq!(shop.group.take_for(1, Some(LEASE * 5)).unwrap().events.len(), 1);
    assert_eq!(shop.group.extend(lease.id, None).unwrap().0.done, 1, "the other one is still its own");
    assert!(shop.group.extend(0, None).is_err(), "zero is no lease");
}

#[test]
fn pending_events_never_exceed_the_limit() {
    let shop = Shop::with(GroupSettings { pending_max: 3, ..settings() });
    shop.append(5);
    let lease = shop.take(2);
    assert_eq!(positions(&shop.take(9)), [6]);
    assert!(shop.take(9).events.is_empty());
    shop.group.acknowledge(lease.id, None).unwrap();
    assert_eq!(positions(&shop.take(9)), [8, 10]);
}

#[test]
fn groups_are_made_changed_listed_and_deleted() {
    let shop = Shop::with(settings());
    shop.append(3);
    assert!(shop.groups.create("h", GroupSettings::new(Query::all()), Some(Position(4))).unwrap());
    assert!(shop.groups.create("gg", settings(), None).unwrap());
    assert!(shop.db.consumer_groups("sho").unwrap().create("other", settings(), None).unwrap());
    assert_eq!(shop.groups.names().unwrap(), ["g", "gg", "h"]);
    assert_eq!(shop.groups.names_after(None, 2).unwrap(), ["g", "gg"]);
    assert_eq!(shop.groups.names_after(Some("g"), 9).unwrap(), ["gg", "h"]);
    assert_eq!(shop.groups.names_after(Some("ga"), 1).unwrap(), ["gg"]);
    assert_eq!(shop.groups.names_after(Some("h"), 9).unwrap(), [""; 0]);
    let all = shop.groups.group("h").unwrap();
    assert_eq!(positions(&all.take(9).unwrap()), [5, 6]);
    // New settings, unchanged cursor.
    assert_eq!(shop.take(1).events.len(), 1);
    let query = Query::from_types(["B"]);
    assert!(!shop.groups.create("g", GroupSettings { query, ..settings() }, Some(Position(0))).unwrap());
    assert_eq!(positions(&shop.take(9)), [3, 5]);
    assert!(shop.groups.delete("g").unwrap());
    assert!(!shop.groups.delete("g").unwrap());
    assert_eq!(shop.groups.names().unwrap(), ["gg", "h"]);
    assert_eq!(shop.group.take(1).unwrap_err().class(), Class::NotFound);
    assert!(shop.groups.create("g", settings(), None).unwrap());
    assert_eq!(positions(&shop.take(9)), [2, 4, 6], "it begins anew");

    let refused = |settings: GroupSettings| shop.groups.create("x", settings, None).unwrap_err().class();
    assert_eq!(refused(GroupSettings { tries_max: 0, ..settings() }), Class::Invalid);
    assert_eq!(refused(GroupSettings { lease: Duration::ZERO, ..settings() }), Class::Invalid);
    assert_eq!(refused(GroupSettings { pending_max: 1_000_000, ..settings() }), Class::Invalid);
    let query = Query::from_tags([""]);
    assert_eq!(refused(GroupSettings { query, ..settings() }), Class::Invalid);
    assert_eq!(shop.groups.create("a\0", settings(), None).unwrap_err().class(), Class::Invalid);
    assert_eq!(shop.groups.group("nobody").err().unwrap().class(), Class::NotFound);
}

#[test]
fn recreated_store_is_distinguished_from_deleted_one() {
    let shop = Shop::with(settings());
    shop.append(1);
    assert_eq!(shop.take(9).events.len(), 1);
    let checkpoints = shop.db.consumer_checkpoints("shop").unwrap();
    checkpoints.set("c", Position(2)).unwrap();
    shop.events.delete().unwrap();
    shop.append(3);
    let error = shop.group.take(9).unwrap_err();
    assert!(matches!(error, Error::Group(GroupError::StoreReplaced { .. })), "{error}");
    assert_eq!(checkpoints.get("c").unwrap(), None);
    assert_eq!(checkpoints.all().unwrap(), []);
    shop.groups.delete("g").unwrap();
    shop.groups.create("g", settings(), None).unwrap();
    assert_eq!(positions(&shop.take(9)), [2, 4, 6]);
}

#[test]
fn competing_consumers_process_each_event_exactly_once() {
    let db = Database::in_memory().unwrap();
    let groups = db.consumer_groups("s").unwrap();
    let query = Query::from_types(["A"]);
    groups.create("g", GroupSettings { pause: Duration::ZERO, ..GroupSettings::new(query) }, None).unwrap();
    let (total, done) = (150, Mutex::new(BTreeMap::<u64, u32>::new()));
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let events = db.events("s").unwrap();
            scope.spawn(move || {
                for _ in 0..total / 2 {
                    let events =
                        events.append(&[Event::new("A").tag(format!("w:{writer}")), Event::new("B")], None);
                    events.unwrap();
                }
            });
        }
        for consumer in 0..3 {
            let (group, done) = (groups.group("g").unwrap(), &done);
            scope.spawn(move || {
                while done.lock().unwrap().len() < total {
                    let lease = group.take_waiting(7, None, Duration::from_millis(50)).unwrap();
                    for taken in &lease.events {
                        // Every fifth event fails on the first try.
                        let position = taken.event.position;
                        if position.0 % 5 == consumer && taken.tries == 1 {
                            group.retry(lease.id, Some(&[position]), None, "later").unwrap();
                            continue;
                        }
                        *done.lock().unwrap().entry(position.0).or_default() += 1;
                        let settled = group.acknowledge(lease.id, Some(&[position])).unwrap();
                        assert_eq!((settled.done, settled.lost), (1, vec![]));
                    }
                }
            });
        }
    });
    let done = done.into_inner().unwrap();
    assert_eq!(done.len(), total);
    assert!(done.values().all(|times| *times == 1), "{done:?}");
    let status = groups.group("g").unwrap().status().unwrap();
    assert_eq!((status.waiting, status.pending, status.parked), (0, 0, 0));
}

/// Reference model of a group.
#[derive(Default)]
struct Model {
    cursor: u64,
    /// Position: tries, lease, due.
    pending: BTreeMap<u64, (u32, u64, i64)>,
    parked: BTreeSet<u64>,
}

#[test]
fn any_sequence_of_calls_equals_the_model() {
    for seed in 0..80 {
        let random = SeededRandom::new(seed);
        let up_to = |n: u64| random.next_u64() % n;
        let settings =
            GroupSettings { tries_max: 1 + up_to(3) as u32, pending_max: 1 + up_to(8) as u32, ..settings() };
        let mut shop = Shop::with(settings.clone());
        let (mut model, mut leases, mut head) = (Model::default(), Vec::new(), 0);
        for step in 0..60 {
            let at = format!("seed {seed}, step {step}");
            let now = shop.env.clock.wall_micros();
            let due = |pause: Duration| now + pause.as_micros() as i64;
            match up_to(10) {
                0 | 1 => {
                    let count = 1 + up_to(3);
                    shop.append(count as usize);
                    head += 2 * count;
                }
                2..=4 => {
                    let max = up_to(5) as usize;
                    let lease = shop.take(max);
                    let mut expected = Vec::new();
                    let ready: Vec<u64> =
                        model.pending.iter().filter(|(_, one)| one.2 <= now).map(|(p, _)| *p).collect();
                    let full = model.pending.len() >= settings.pending_max as usize;
                    let news = (model.cursor + 1..=head).any(|position| position % 2 == 0);
                    // A take that finds nothing changes nothing.
                    if !ready.is_empty() || (news && !full) {
                        for position in ready {
                            if expected.len() == max {
                                break;
                            }
                            let (tries, ..) = model.pending[&position];
                            if tries >= settings.tries_max {
                                model.pending.remove(&position);
                                model.parked.insert(position);
                                continue;
                            }
                            expected.push((position, tries + 1));
                        }
                        let mut out = model.pending.len();
                        for position in model.cursor + 1..=head {
                            if expected.len() >= max || out >= settings.pending_max as usize {
                                break;
                            }
                            model.cursor = position;
                            if position % 2 == 0 {
                                expected.push((position, 1));
                                out += 1;
                            }
                        }
                        for (position, tries) in &expected {
                            model.pending.insert(*position, (*tries, lease.id, due(LEASE)));
                        }
                    }
                    let got: Vec<(u64, u32)> = positions(&lease).into_iter().zip(tries(&lease)).collect();
                    assert_eq!(got, expected, "{at}");
                    leases.push(lease.id);
                }
                what @ 5..=7 => {
                    let Some(lease) = leases.get(up_to(leases.len().max(1) as u64) as usize).copied() else {
                        continue;
                    };
                    let held = |model: &Model| -> Vec<u64> {
                        let of = model.pending.iter().filter(|(_, one)| one.1 == lease && lease > 0);
                        of.map(|(position, _)| *position).collect()
                    };
                    let some: Vec<Position> =
                        held(&model).into_iter().filter(|_| up_to(2) == 0).map(Position).collect();
                    if lease == 0 {
                        // The lease of a take that found nothing.
                        assert!(shop.group.acknowledge(lease, Some(&some)).is_err(), "{at}");
                        continue;
                    }
                    let settled = match what {
                        5 => shop.group.acknowledge(lease, Some(&some)).unwrap(),
                        6 => shop.group.retry(lease, Some(&some), None, "again").unwrap(),
                        _ => shop.group.park(lease, Some(&some), "never").unwrap(),
                    };
                    assert_eq!(settled.done + settled.parked, some.len() as u64, "{at}");
                    for Position(position) in some {
                        let (tries, ..) = model.pending[&position];
                        model.pending.remove(&position);
                        match what {
                            5 => {}
                            6 if tries < settings.tries_max => {
                                model.pending.insert(position, (tries, 0, due(PAUSE)));
                            }
                            _ => {
                                model.parked.insert(position);
                            }
                        }
                    }
                }
                8 => {
                    let step = [PAUSE / 2, PAUSE, LEASE][up_to(3) as usize];
                    shop.clock.advance(step);
                    if up_to(3) == 0 {
                        shop.group.replay(None).unwrap();
                        let now = shop.env.clock.wall_micros();
                        for position in std::mem::take(&mut model.parked) {
                            model.pending.insert(position, (0, 0, now));
                        }
                    }
                }
                _ => shop = shop.reopen(),
            }
            let status = shop.group.status().unwrap();
            let counts = (status.pending, status.parked);
            assert_eq!(counts, (model.pending.len() as u64, model.parked.len() as u64), "{at}");
        }
        assert!(shop.db.verify().unwrap().violations.is_empty());
    }
}

#[test]
fn power_cut_at_any_operation_loses_no_event_and_repeats_no_acknowledged_one() {
    let env = |disk: &FaultyVfs, clock: &Arc<ManualClock>| Env {
        vfs: Arc::new(disk.process()),
        clock: clock.clone(),
        random: Arc::new(SeededRandom::new(7)),
    };
    // Collects the acknowledged and the parked positions.
    let work =
        |disk: &FaultyVfs, clock: &Arc<ManualClock>, said: &mut [BTreeSet<u64>; 2]| -> Result<(), Error> {
            let shop = Shop::open(env(disk, clock), clock.clone(), &settings())?;
            shop.events.append(&vec![Event::new("A"); 6], None)?;
            let first = shop.group.take(3)?;
            shop.group.acknowledge(first.id, Some(&[Position(1), Position(2)]))?;
            said[0].extend([1, 2]);
            shop.db.checkpoint()?;
            let second = shop.group.take(2)?;
            shop.group.park(second.id, Some(&[Position(4)]), "poison")?;
            said[1].insert(4);
            shop.group.retry(second.id, None, None, "later")?;
            shop.group.acknowledge(first.id, None)?;
            said[0].insert(3);
            Ok(())
        };
    let disk = FaultyVfs::new(1);
    let clock = Arc::new(ManualClock::default());
    work(&disk, &clock, &mut Default::default()).unwrap();
    let operations = disk.operations();
    assert!(operations > 20, "{operations}");
    for point in 1..=operations {
        let disk = FaultyVfs::new(point);
        disk.crash_at(point);
        let (clock, mut said) = (Arc::new(ManualClock::default()), Default::default());
        let _ = work(&disk, &clock, &mut said);
        let [acknowledged, parked] = said;
        disk.crash();
        let shop = Shop::open(env(&disk, &clock), clock.clone(), &settings()).unwrap();
        let there: BTreeSet<u64> =
            shop.events.head().unwrap().map_or(0..=0, |head| 1..=head.0).filter(|p| *p > 0).collect();
        clock.advance(LEASE);
        let mut again = BTreeSet::new();
        loop {
            let lease = shop.take(2);
            if lease.events.is_empty() {
                break;
            }
            for position in positions(&lease) {
                assert!(again.insert(position), "cut at {point}: {position} came twice");
            }
            shop.group.acknowledge(lease.id, None).unwrap();
        }
        let kept: BTreeSet<u64> =
            shop.group.parked(None, 99).unwrap().iter().map(|parked| parked.event.position.0).collect();
        assert!(again.is_disjoint(&acknowledged), "cut at {point}: {again:?} after {acknowledged:?}");
        assert!(kept.is_superset(&parked) && again.is_disjoint(&kept), "cut at {point}: {kept:?}");
        // Events neither handed out again nor parked were acknowledged, or about to be.
        let gone: BTreeSet<u64> = there.difference(&again).filter(|p| !kept.contains(p)).copied().collect();
        assert!(
            gone.is_superset(&acknowledged) && gone.is_subset(&[1, 2, 3].into()),
            "cut at {point}: {gone:?}"
        );
    }
}

#[test]
fn consumer_checkpoints_survive_reopen() {
    let shop = Shop::with(settings());
    let checkpoints = shop.db.consumer_checkpoints("shop").unwrap();
    assert_eq!(checkpoints.set("mail", Position(0)).unwrap_err().class(), Class::NotFound);
    shop.append(2);
    assert_eq!(checkpoints.get("mail").unwrap(), None);
    checkpoints.set("mail", Position(3)).unwrap();
    checkpoints.set("a", Position(1)).unwrap();
    assert_eq!(checkpoints.set("mail", Position(5)).unwrap_err().class(), Class::Invalid);
    for name in ["", "a\nb", &"long".repeat(64)] {
        assert_eq!(checkpoints.set(name, Position(1)).unwrap_err().class(), Class::Invalid);
        assert_eq!(checkpoints.get(name).unwrap_err().class(), Class::Invalid);
        assert_eq!(checkpoints.remove(name).unwrap_err().class(), Class::Invalid);
    }
    // Commits or rolls back with the rest of the transaction.
    let mut tx = shop.db.begin();
    checkpoints.set_in(&mut tx, "mail", Position(4)).unwrap();
    tx.rollback();
    assert_eq!(checkpoints.get("mail").unwrap(), Some(Position(3)));
    let mut tx = shop.db.begin();
    checkpoints.set_in(&mut tx, "mail", Position(2)).unwrap();
    tx.commit().unwrap();
    drop(checkpoints);
    let shop = shop.reopen();
    let checkpoints = shop.db.consumer_checkpoints("shop").unwrap();
    let all: Vec<(String, u64)> =
        checkpoints.all().unwrap().into_iter().map(|one| (one.name, one.position.0)).collect();
    assert_eq!(all, [("a".to_owned(), 1), ("mail".to_owned(), 2)]);
    let names = |after, max| -> Vec<String> {
        checkpoints.list_after(after, max).unwrap().into_iter().map(|one| one.name).collect()
    };
    assert_eq!((names(None, 1), names(Some("a"), 9)), (vec!["a".to_owned()], vec!["mail".to_owned()]));
    assert_eq!((names(Some("b"), 9).len(), names(Some("mail"), 9).len(), names(None, 0).len()), (1, 0, 0));
    assert!(checkpoints.remove("mail").unwrap());
    assert!(!checkpoints.remove("mail").unwrap());
    assert_eq!(checkpoints.get("mail").unwrap(), None);
}
