//! List-append test: threads read lists and append numbers, with power cuts; the isolation level must allow
//! the history. Source: Kingsbury and Alvaro, "Elle", VLDB 2020. Every commit has a position in the order,
//! so no search is needed: a list at any position is its numbers in commit order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ropewalk_engine::{EngineOptions, Isolation};
use ropewalk_tables::{ColumnDef, KeyRange, Table, TableDef, TablesError, Type, Value};
use ropewalk_vfs::{Env, FaultyVfs, Random, SeededRandom};

use crate::{Db, id, int};

const LISTS: u64 = 5;
const THREADS: u64 = 4;
const TRANSACTIONS: usize = 60;

type Lists = BTreeMap<i64, Vec<i64>>;

/// Reads and appends of one transaction.
struct Story {
    isolation: Isolation,
    snapshot: u64,
    /// `None`: no result was received.
    seq: Option<u64>,
    reads: Vec<(i64, Vec<i64>)>,
    appends: Vec<(i64, i64)>,
}

fn numbers(value: &Value<'_>) -> Vec<i64> {
    match value {
        Value::Array(array) => array.iter().map(|item| item.unwrap().as_integer().unwrap()).collect(),
        other => panic!("{other:?} is no list"),
    }
}

fn list(items: &[i64]) -> Value<'static> {
    let items: Vec<Value<'_>> = items.iter().map(|n| Value::Int8(*n)).collect();
    Value::Array(ropewalk_tables::Array::new(ropewalk_tables::Scalar::Int8, items).unwrap())
}

fn all(db: &Db, table: &Table) -> Lists {
    let snapshot = db.engine.snapshot();
    let mut lists = Lists::new();
    let each = &mut |row: ropewalk_tables::Row<'_>| {
        lists.insert(row.get(0)?.as_integer().unwrap(), numbers(&row.get(1)?));
        Ok(true)
    };
    db.tables.at(&snapshot).scan(table, &KeyRange::all(), false, each).unwrap();
    lists
}

/// Runs one transaction: a few reads, some followed by appends. An error if the engine has stopped.
fn transact(
    db: &Db,
    table: &Table,
    dice: &SeededRandom,
    next: &AtomicI64,
) -> Result<Option<Story>, TablesError> {
    let levels = [Isolation::Serializable, Isolation::Serializable, Isolation::Snapshot];
    let isolation = levels[dice.next_u64() as usize % levels.len()];
    let mut tx = db.begin_with(isolation);
    let snapshot = tx.snapshot_seq();
    let mut story = Story { isolation, snapshot, seq: None, reads: Vec::new(), appends: Vec::new() };
    let mut own = Lists::new();
    for _ in 0..1 + dice.next_u64() % 3 {
        let key = (dice.next_u64() % LISTS) as i64;
        let found = tx.t().get(table, &id(key))?.map(|row| row.get(1).map(|items| numbers(&items)));
        let mut items = found.transpose()?.unwrap_or_default();
        match own.get(&key) {
            Some(own) => assert_eq!(items, *own, "a transaction reads its own list"),
            None => story.reads.push((key, items.clone())),
        }
        if !dice.next_u64().is_multiple_of(3) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            items.push(number);
            tx.t().upsert(table, &[("id", key.into()), ("items", list(&items))])?;
            story.appends.push((key, number));
            own.insert(key, items);
        }
    }
    match tx.committed() {
        Ok(seq) => story.seq = Some(seq.unwrap_or(snapshot)),
        Err(error) if error.is_conflict() => return Ok(None),
        Err(_) => {}
    }
    Ok(Some(story))
}

/// Checks that the stories applied to `base` give `found`.
fn check(base: &Lists, stories: &[Story], found: &Lists) {
    let mut placed: BTreeMap<i64, Vec<(u64, i64)>> = BTreeMap::new();
    let mut known: Vec<&Story> = stories.iter().filter(|story| story.seq.is_some()).collect();
    known.sort_by_key(|story| story.seq);
    for story in &known {
        for (key, number) in &story.appends {
            placed.entry(*key).or_default().push((story.seq.unwrap(), *number));
        }
    }
    // The list after every commit up to `seq`.
    let at = |key: i64, seq: u64| -> Vec<i64> {
        let placed = placed.get(&key).map_or(&[][..], Vec::as_slice);
        let later = placed.iter().take_while(|(at, _)| *at <= seq).map(|(_, number)| *number);
        base.get(&key).into_iter().flatten().copied().chain(later).collect()
    };
    for story in &known {
        let writes = !story.appends.is_empty();
        let seen = match story.isolation {
            Isolation::Serializable if writes => story.seq.unwrap() - 1,
            _ => story.snapshot,
        };
        for (key, items) in &story.reads {
            assert_eq!(
                *items,
                at(*key, seen),
                "list {key}, read by commit {:?}, {:?}",
                story.seq,
                story.isolation
            );
        }
    }
    let mut rest: Lists = Lists::new();
    for (key, items) in found {
        let expected = at(*key, u64::MAX);
        assert!(items.starts_with(&expected), "list {key}: {items:?} lacks of {expected:?}");
        rest.insert(*key, items[expected.len()..].to_vec());
    }
    // Unacknowledged transactions may follow the acknowledged ones, each completely.
    for story in stories.iter().filter(|story| story.seq.is_none()) {
        let there = |(key, number): &(i64, i64)| rest.get(key).is_some_and(|rest| rest.contains(number));
        let count = story.appends.iter().filter(|append| there(append)).count();
        assert!(count == 0 || count == story.appends.len(), "half of {:?} is there", story.appends);
        story.appends.iter().for_each(|(key, number)| {
            rest.entry(*key).or_default().retain(|n| n != number);
        });
    }
    assert!(rest.values().all(Vec::is_empty), "numbers that nobody appended: {rest:?}");
}

#[test]
fn histories_with_power_cuts_satisfy_isolation() {
    let (mut answered, mut doubtful, mut refused) = (0, 0, 0);
    for seed in 0..12 {
        let disk = FaultyVfs::new(seed);
        let next = AtomicI64::new(1);
        let mut base = Lists::new();
        for boot in 0..4_u64 {
            let env = Env { vfs: Arc::new(disk.process()), ..Env::memory() };
            let options = EngineOptions { memory_budget: 1 << 19, ..EngineOptions::default() };
            let db = Db::open(&env, options);
            if boot == 0 {
                let items = ColumnDef::new("items", Type::Array(ropewalk_tables::Scalar::Int8));
                db.create(TableDef::new("lists").column(int("id")).column(items).primary_key(["id"]));
            }
            let table = db.tables.table("lists").unwrap();
            assert_eq!(all(&db, &table), base, "seed {seed}: reopening changed the lists");
            if boot < 3 {
                disk.crash_at(disk.operations() + 20 + seed * 13 + boot * 40);
            }
            let work = |thread: u64| {
                let dice = SeededRandom::new(seed * 1000 + boot * 10 + thread);
                let mut stories = Vec::new();
                for _ in 0..TRANSACTIONS {
                    match transact(&db, &table, &dice, &next) {
                        Ok(Some(story)) => {
                            let last = story.seq.is_none();
                            stories.push(Some(story));
                            if last {
                                break;
                            }
                        }
                        Ok(None) => stories.push(None),
                        Err(_) => break,
                    }
                }
                stories
            };
            let stories: Vec<Option<Story>> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
                threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
            });
            refused += stories.iter().filter(|story| story.is_none()).count();
            let stories: Vec<Story> = stories.into_iter().flatten().collect();
            answered += stories.iter().filter(|story| story.seq.is_some()).count();
            doubtful += stories.iter().filter(|story| story.seq.is_none()).count();
            drop(db);
            disk.crash();
            let db =
                Db::open(&Env { vfs: Arc::new(disk.process()), ..Env::memory() }, EngineOptions::default());
            let table = db.tables.table("lists").unwrap();
            let found = all(&db, &table);
            check(&base, &stories, &found);
            db.verify();
            base = found;
        }
    }
    // The numbers depend on scheduling, but none may be zero.
    assert!(answered > 100 && doubtful > 0 && refused > 0, "{answered} {doubtful} {refused}");
}

/// Tests the checker: it detects a lost, a duplicate, a reordered and a partial append, and a stale read.
#[test]
fn broken_histories_are_found() {
    let story = |seq: u64, reads: &[(i64, &[i64])], appends: &[(i64, i64)]| Story {
        isolation: Isolation::Serializable,
        snapshot: seq - 1,
        seq: (seq < 100).then_some(seq),
        reads: reads.iter().map(|(key, items)| (*key, items.to_vec())).collect(),
        appends: appends.to_vec(),
    };
    let lists = |lists: &[(i64, &[i64])]| -> Lists { lists.iter().map(|(k, v)| (*k, v.to_vec())).collect() };
    let good = || vec![story(1, &[(1, &[])], &[(1, 10)]), story(2, &[(1, &[10])], &[(1, 11), (2, 12)])];
    let fails = |stories: Vec<Story>, found: Lists| {
        std::panic::catch_unwind(|| check(&Lists::new(), &stories, &found)).is_err()
    };
    assert!(!fails(good(), lists(&[(1, &[10, 11]), (2, &[12])])));
    assert!(fails(good(), lists(&[(1, &[10]), (2, &[12])])), "lost");
    assert!(fails(good(), lists(&[(1, &[10, 11, 11]), (2, &[12])])), "doubled");
    assert!(fails(good(), lists(&[(1, &[11, 10]), (2, &[12])])), "reordered");
    let stale = vec![story(1, &[(1, &[])], &[(1, 10)]), story(2, &[(1, &[])], &[(2, 12)])];
    assert!(fails(stale, lists(&[(1, &[10]), (2, &[12])])), "a stale read");
    let half = || vec![story(100, &[], &[(1, 10), (2, 11)])];
    assert!(!fails(half(), lists(&[])) && !fails(half(), lists(&[(1, &[10]), (2, &[11])])));
    assert!(fails(half(), lists(&[(1, &[10])])), "half of a transaction");
}
