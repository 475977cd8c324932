//! Sample reads in serializable transactions: which concurrent commits cause a conflict.

use std::path::Path;

use ropewalk::engine::{Background, Env, Keyspace, KeyspaceOptions};
use ropewalk::promql::{self, Query};
use ropewalk::series::{
    Labels, MatchOp, Matcher, PARTITION_MS, SampleBatch, Samples, SeriesError, SeriesOptions, SeriesStore,
};
use ropewalk::{Class, Database, Error, Isolation, Options, Transaction};

const LEVELS: [Isolation; 3] = [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted];

struct World {
    db: Database,
    store: SeriesStore,
    keys: Keyspace,
}

impl World {
    /// Samples of `load{host="a"}` and `load{host="b"}` at 10, 20, 30 and of `other` at 10.
    fn new() -> Self {
        let db = Options::new().env(Env::memory()).background(Background::Manual).open("/db").unwrap();
        let store = db.series("s").unwrap();
        let keys = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        let world = Self { db, store, keys };
        for host in ["a", "b"] {
            world.write(&labels("load", host), &[10, 20, 30]);
        }
        world.write(&labels("other", ""), &[10]);
        world
    }

    fn write(&self, labels: &Labels, times: &[i64]) {
        let mut batch = SampleBatch::new();
        times.iter().for_each(|time| batch.push(labels, *time, 7.0));
        self.store.append(&batch).unwrap();
    }

    /// The error of a transaction that reads, writes a key, and commits after a concurrent one.
    fn overtaken(
        &self,
        isolation: Isolation,
        read: impl Fn(&mut Transaction, &SeriesStore),
        other: impl Fn(&Self),
    ) -> Option<Error> {
        let mut tx = self.db.begin_with(isolation);
        read(&mut tx, &self.store);
        tx.put(self.keys, b"seen", b"");
        other(self);
        tx.commit().err()
    }
}

fn labels(metric: &str, host: &str) -> Labels {
    let pairs = [("__name__", metric), ("host", host)];
    Labels::new(pairs.into_iter().filter(|(_, value)| !value.is_empty())).unwrap()
}

fn is(name: &str, value: &str) -> Matcher {
    Matcher::equal(name, value)
}

fn sum(tx: &mut Transaction, store: &SeriesStore, matchers: &[Matcher], (from, to): (i64, i64)) -> f64 {
    let at = tx.series(store).unwrap();
    let mut selection = at.select(matchers, from, to).unwrap();
    let mut samples = Samples::default();
    while selection.next().is_some() {
        selection.samples(&mut samples).unwrap();
    }
    samples.values.iter().sum()
}

#[test]
fn d1_15_serializable_transactions_guard_the_samples_they_read() {
    let a = || vec![is("__name__", "load"), is("host", "a")];
    let not_a = || vec![is("__name__", "load"), Matcher::new("host", MatchOp::NotEqual, "a").unwrap()];
    let all = (i64::MIN, i64::MAX);
    let cases: [(Vec<Matcher>, (i64, i64), Labels, i64, bool); 9] = [
        (a(), all, labels("load", "a"), 40, true),
        (a(), all, labels("load", "b"), 40, false),
        (a(), all, labels("other", "a"), 40, false),
        // A sample is overwritten, or an earlier one is added.
        (a(), (10, 10), labels("load", "a"), 10, true),
        (a(), (i64::MIN, 5), labels("load", "a"), 5, true),
        (a(), (10, 39), labels("load", "a"), 40, false),
        // New series.
        (not_a(), all, labels("load", "c"), 40, true),
        (not_a(), (0, 30), labels("load", "c"), 40, false),
        (vec![], all, labels("new", ""), 40, true),
    ];
    for flushes in [false, true] {
        for (matchers, range, other, time, conflicts) in &cases {
            for isolation in LEVELS {
                let world = World::new();
                if flushes {
                    world.db.checkpoint().unwrap();
                }
                let error = world.overtaken(
                    isolation,
                    |tx, store| {
                        sum(tx, store, matchers, *range);
                    },
                    |world| {
                        world.write(other, &[*time]);
                        if flushes {
                            world.db.checkpoint().unwrap();
                        }
                    },
                );
                let case = format!("{isolation:?}, {matchers:?} {range:?}, {other} at {time}, {flushes}");
                let expected = *conflicts && isolation == Isolation::Serializable;
                assert_eq!(error.is_some(), expected, "{case}: {error:?}");
                let Some(error) = error else { continue };
                assert_eq!((error.class(), error.conflict_seq()), (Class::Conflict, Some(world.db.seq())));
                let text = format!("series store \"s\": commit {} changed {other}, which", world.db.seq());
                assert!(error.to_string().starts_with(&text), "{error}");
            }
        }
    }
}

#[test]
fn write_skew_between_samples_and_rows_is_refused() {
    let world = World::new();
    let World { db, store, keys } = &world;
    // Each transaction decides by data that the other one writes.
    let (mut first, mut second) = (db.begin(), db.begin());
    assert_eq!(sum(&mut first, store, &[is("__name__", "grants")], (i64::MIN, i64::MAX)), 0.0);
    first.put(*keys, b"closed", b"yes");
    assert_eq!(second.get(*keys, b"closed").unwrap(), None);
    let mut batch = SampleBatch::new();
    batch.push(&labels("grants", ""), 1, 1.0);
    second.append_samples(store, &batch).unwrap();
    second.commit().unwrap();
    let error = first.commit().unwrap_err();
    assert!(matches!(&error, Error::Series(SeriesError::ReadConflict { series, .. }) if series == "grants"));
    // The other order.
    let (mut first, mut second) = (db.begin(), db.begin());
    sum(&mut first, store, &[is("__name__", "grants")], (i64::MIN, i64::MAX));
    first.put(*keys, b"closed", b"yes");
    assert_eq!(second.get(*keys, b"closed").unwrap(), None);
    second.append_samples(store, &batch).unwrap();
    first.commit().unwrap();
    assert!(second.commit().unwrap_err().is_conflict());
}

#[test]
fn deletions_of_samples_that_were_read_are_conflicts() {
    let serializable = Isolation::Serializable;
    let far = 3 * PARTITION_MS;
    for flushes in [false, true] {
        let attempt = |range: (i64, i64), delete: &dyn Fn(&SeriesStore)| {
            let world = World::new();
            world.write(&labels("load", "a"), &[far]);
            let error = world.overtaken(
                serializable,
                |tx, store| {
                    sum(tx, store, &[is("host", "a")], range);
                },
                |world| {
                    delete(&world.store);
                    if flushes {
                        world.db.checkpoint().unwrap();
                    }
                },
            );
            assert!(error.iter().all(Error::is_conflict), "{error:?}");
            error.is_some()
        };
        let delete = |host: &'static str, from: i64, to: i64| {
            move |store: &SeriesStore| assert_eq!(store.delete(&[is("host", host)], from, to).unwrap(), 1)
        };
        assert!(attempt((0, 50), &delete("a", 20, 20)));
        assert!(attempt((0, 50), &delete("a", i64::MIN, i64::MAX)));
        assert!(attempt((0, 50), &|store| assert_eq!(store.drop_before(far).unwrap(), far)));
        // Once a deletion is flushed, only its commit number is known.
        assert_eq!(attempt((0, 50), &delete("b", 20, 20)), flushes);
        assert_eq!(attempt((0, 50), &delete("a", 60, 70)), flushes);
        assert_eq!(attempt((far, far), &|store| assert_eq!(store.drop_before(far).unwrap(), far)), flushes);
        // Changed settings do not change samples.
        assert!(!attempt((0, 50), &|store| {
            store.configure(SeriesOptions { series_max: 9, ..store.options() }).unwrap();
        }));
    }
}

#[test]
fn lists_of_series_are_guarded_against_new_and_deleted_series() {
    let names = |tx: &mut Transaction, store: &SeriesStore| {
        let found = tx.series(store).unwrap().label_values("host", &[is("__name__", "load")], 10);
        assert_eq!(found, ["a", "b"]);
    };
    let attempt = |other: &dyn Fn(&World)| {
        let world = World::new();
        let error = world.overtaken(Isolation::Serializable, names, other);
        assert!(error.iter().all(Error::is_conflict), "{error:?}");
        error.is_some()
    };
    assert!(attempt(&|world| world.write(&labels("load", "c"), &[10])));
    assert!(attempt(&|world| {
        world.store.delete(&[is("host", "a")], i64::MIN, i64::MAX).unwrap();
    }));
    assert!(!attempt(&|world| world.write(&labels("load", "a"), &[40])));
    assert!(!attempt(&|world| world.write(&labels("new", "c"), &[40])));
    assert!(!attempt(&|world| {
        world.store.delete(&[is("host", "a")], 0, 10).unwrap();
    }));
    // Two different reads both count.
    let world = World::new();
    let both = |tx: &mut Transaction, store: &SeriesStore| {
        sum(tx, store, &[is("__name__", "load")], (10, 20));
        assert_eq!(tx.series(store).unwrap().count(&[is("__name__", "load")]), 2);
        sum(tx, store, &[is("__name__", "load")], (60, 70));
    };
    for (host, time, conflicts) in [("a", 15, true), ("a", 80, false), ("c", 80, true), ("b", 65, true)] {
        let other = |world: &World| world.write(&labels("load", host), &[time]);
        let error = World::new().overtaken(Isolation::Serializable, both, other);
        assert_eq!(error.is_some(), conflicts, "{host} at {time}: {error:?}");
    }
    assert_eq!(world.overtaken(Isolation::Serializable, both, |_| ()).map(|error| error.class()), None);
}

#[test]
fn promql_in_a_transaction_is_guarded_by_what_it_selects() {
    let query = Query::parse("sum(rate(load{host=\"a\"}[1m]))", promql::Options::default()).unwrap();
    for (host, time, conflicts) in [("a", 25, true), ("b", 25, false), ("a", 200_000, false)] {
        let world = World::new();
        let read = |tx: &mut Transaction, store: &SeriesStore| {
            query.instant(&tx.metrics(store).unwrap(), 60_000, &|| None).unwrap();
        };
        let error = world.overtaken(Isolation::Serializable, read, |world| {
            world.write(&labels("load", host), &[time]);
        });
        assert_eq!(error.is_some(), conflicts, "{host} at {time}: {error:?}");
    }
}

#[test]
fn own_samples_refuse_reads_of_their_store() {
    let World { db, store, .. } = World::new();
    let mut batch = SampleBatch::new();
    batch.push(&labels("load", "a"), 40, 1.0);
    for isolation in LEVELS {
        let mut tx = db.begin_with(isolation);
        sum(&mut tx, &store, &[], (0, 100));
        tx.savepoint();
        tx.append_samples(&store, &batch).unwrap();
        for error in [tx.series(&store).err(), tx.metrics(&store).err()] {
            let error = error.unwrap();
            assert!(matches!(&error, Error::Series(SeriesError::OwnSamples { store }) if store == "s"));
            assert_eq!(error.class(), Class::Invalid);
        }
        tx.series(&db.series("elsewhere").unwrap()).unwrap();
        tx.rollback_to_savepoint();
        sum(&mut tx, &store, &[], (0, 100));
        // Its own samples do not conflict.
        tx.append_samples(&store, &batch).unwrap();
        tx.commit().unwrap();
    }
}

#[test]
fn samples_of_a_store_that_was_not_there_are_a_conflict() {
    let db = Database::in_memory().unwrap();
    let store = db.series("s").unwrap();
    let keys = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let world = World { db, store, keys };
    let read = |tx: &mut Transaction, store: &SeriesStore| {
        assert_eq!(sum(tx, store, &[is("__name__", "m")], (0, 9)), 0.0);
    };
    let error = world.overtaken(Isolation::Serializable, read, |world| world.write(&labels("m", ""), &[5]));
    assert!(error.unwrap().is_conflict());
    // A transaction that only reads conflicts with nothing.
    let mut tx = world.db.begin();
    sum(&mut tx, &world.store, &[], (0, 9));
    world.write(&labels("m", ""), &[6]);
    assert_eq!(tx.commit().unwrap(), None);
}

#[test]
fn many_selectors_and_reopening_stay_bounded_and_right() {
    let env = Env::memory();
    let open = || Options::new().env(env.clone()).open(Path::new("/db")).unwrap();
    let store = |db: &Database| db.series("s").unwrap();
    let db = open();
    let world = World { store: store(&db), keys: db.keyspace("k", KeyspaceOptions::default()).unwrap(), db };
    world.write(&labels("old", ""), &[1]);
    drop(world);
    let db = open();
    let world = World { store: store(&db), keys: db.keyspace("k", KeyspaceOptions::default()).unwrap(), db };
    let read = |count: usize| {
        move |tx: &mut Transaction, store: &SeriesStore| {
            for number in 0..count {
                sum(tx, store, &[is("number", &number.to_string())], (0, 9));
            }
        }
    };
    let unrelated = |world: &World| world.write(&labels("old", ""), &[500]);
    assert!(world.overtaken(Isolation::Serializable, read(1_000), unrelated).is_none());
    assert!(world.overtaken(Isolation::Serializable, read(1_001), unrelated).unwrap().is_conflict());
}

#[test]
fn reads_of_many_series_are_checked_before_the_sequencer() {
    const SERIES: usize = 10_001;
    let world = World::new();
    let mut batch = SampleBatch::new();
    for host in 0..SERIES {
        batch.push(&labels("many", &host.to_string()), 10, 1.0);
    }
    world.store.append(&batch).unwrap();
    let read = |tx: &mut Transaction, store: &SeriesStore| {
        assert_eq!(sum(tx, store, &[is("__name__", "many")], (0, 100)), SERIES as f64);
    };
    let unrelated = |world: &World| world.write(&labels("other", ""), &[20]);
    assert!(world.overtaken(Isolation::Serializable, read, unrelated).is_none());
    let related = |world: &World| world.write(&labels("many", "77"), &[20]);
    let error = world.overtaken(Isolation::Serializable, read, related).unwrap();
    assert_eq!(error.conflict_seq(), Some(world.db.seq()));
}
