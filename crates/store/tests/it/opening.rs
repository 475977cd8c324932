//! Bytes that an opening reads, and those of the first reads after it: index and filter, each with its own checksum.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropewalk_base::Seq;
use ropewalk_store::{
    Compression, Edit, FilterPolicy, Keyspace, KeyspaceOptions, Memtable, Store, StoreError, StoreOptions,
    StoreView, get,
};
use ropewalk_vfs::{DiskOp, Env, FaultyVfs};

const DIR: &str = "/store";
const RUNS: u64 = 3;
const ROWS: u64 = 10_000;
/// 10 bits per key, in lines of 64 bytes.
const FILTER_BYTES: u64 = (10 * ROWS).div_ceil(512) * 64;
/// An opening reads so many bytes at the end of each run.
const TAIL_BYTES: u64 = 1024;
const ROWS_KEYSPACE: Keyspace = Keyspace(0);

fn env(disk: &FaultyVfs) -> Env {
    Env { vfs: Arc::new(disk.clone()), ..Env::memory() }
}

fn open(disk: &FaultyVfs) -> Store {
    Store::open(&env(disk), Path::new(DIR), StoreOptions::default()).unwrap()
}

/// Row `row` of run `run`; odd numbers are absent.
fn key(run: u64, row: u64) -> [u8; 8] {
    ((run << 32) | (2 * row)).to_be_bytes()
}

fn absent(run: u64, row: u64) -> [u8; 8] {
    ((run << 32) | (2 * row + 1)).to_be_bytes()
}

fn read(view: &StoreView, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    Ok(get(&[], view, ROWS_KEYSPACE, key, Seq::MAX)?.map(|value| value.to_vec()))
}

fn flush(store: &Store, run: u64, seq: Seq) {
    let memtable = Memtable::new();
    for row in 0..ROWS {
        memtable.put(&key(run, row), Some(&row.to_le_bytes()), seq);
    }
    let new_l0 = store.write_memtable(ROWS_KEYSPACE, &memtable, &[]).unwrap();
    store.install(Edit { new_l0, checkpoint: None, flush: None }).unwrap();
}

/// A closed store of [`RUNS`] runs with filters.
fn build(compression: Compression) -> FaultyVfs {
    let disk = FaultyVfs::new(1);
    let store = open(&disk);
    let options = KeyspaceOptions { compression, filter: FilterPolicy::All, ..KeyspaceOptions::default() };
    assert_eq!(store.keyspace("rows", options).unwrap(), ROWS_KEYSPACE);
    (0..RUNS).for_each(|run| flush(&store, run, Seq(1)));
    disk
}

/// The part of a run that an error has to name.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    Index,
    Filter,
}

/// The file of the oldest run, and where the part lies in it.
fn place(disk: &FaultyVfs, part: Part) -> (PathBuf, u64) {
    let files = disk.files();
    let (path, _) = files.iter().find(|(path, _)| path.extension().is_some_and(|e| e == "run")).unwrap();
    let bytes = disk.bytes(path).unwrap();
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let trailer_at = bytes.len() - 36;
    let (footer_at, [index_bytes, filter_bytes]) =
        (number(trailer_at), [trailer_at - 24, trailer_at - 12].map(number));
    assert_eq!(filter_bytes, FILTER_BYTES);
    match part {
        Part::Index => (path.clone(), footer_at - filter_bytes - index_bytes),
        Part::Filter => (path.clone(), footer_at - filter_bytes),
    }
}

fn memory(store: &Store) -> u64 {
    store.stats().keyspaces[0].memory_bytes
}

#[test]
fn opening_reads_one_kibibyte_per_run_and_neither_index_nor_filter() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let disk = build(compression);
        let manifest = disk.bytes(&Path::new(DIR).join("MANIFEST")).unwrap().len() as u64;
        let (reads, bytes) = (disk.count(DiskOp::Read), disk.bytes_read());
        let store = open(&disk);
        assert_eq!(disk.count(DiskOp::Read) - reads, 1 + RUNS, "{compression:?}");
        assert_eq!(disk.bytes_read() - bytes, manifest + RUNS * TAIL_BYTES, "{compression:?}");
        assert_eq!(memory(&store), 0);
    }
}

#[test]
fn footer_longer_than_the_first_read_is_read_separately() {
    let disk = build(Compression::None);
    let store = open(&disk);
    let memtable = Memtable::new();
    for n in 0..500_u64 {
        memtable.delete_range(&key(RUNS, 10 * n), &key(RUNS, 10 * n + 5), Seq(1));
    }
    let new_l0 = store.write_memtable(ROWS_KEYSPACE, &memtable, &[]).unwrap();
    store.install(Edit { new_l0, checkpoint: None, flush: None }).unwrap();
    drop(store);
    let reads = disk.count(DiskOp::Read);
    let store = open(&disk);
    assert_eq!(disk.count(DiskOp::Read) - reads, 1 + RUNS + 2);
    assert_eq!(store.stats().keyspaces[0].range_tombstones, 500);
    assert_eq!(store.verify().unwrap().damage, []);
}

#[test]
fn first_read_loads_the_parts_it_needs_and_only_then_they_count_as_memory() {
    let disk = build(Compression::None);
    let store = open(&disk);
    let view = store.view();
    let denied = (0..ROWS).map(|row| absent(1, row)).find(|key| {
        let before = disk.count(DiskOp::Read);
        assert_eq!(read(&view, key).unwrap(), None);
        disk.count(DiskOp::Read) == before
    });
    let denied = denied.expect("after the first reads, the filter alone answers for most absent keys");
    let loaded = memory(&store);
    assert!(
        loaded >= RUNS.min(2) * FILTER_BYTES,
        "{loaded}: the filters of the runs newer than the key's, too"
    );
    let reads = disk.count(DiskOp::Read);
    assert_eq!(read(&view, &denied).unwrap(), None);
    assert_eq!((memory(&store), disk.count(DiskOp::Read)), (loaded, reads));
    assert_eq!(read(&view, &key(0, 7)).unwrap(), Some(7_u64.to_le_bytes().to_vec()));
    assert!(memory(&store) > loaded, "the index of the oldest run");
}

#[test]
fn flush_holds_index_and_filter_of_its_run_in_memory() {
    let disk = build(Compression::None);
    let store = open(&disk);
    flush(&store, RUNS, Seq(1));
    let loaded = memory(&store);
    assert!((FILTER_BYTES..2 * FILTER_BYTES).contains(&loaded), "{loaded}");
    let reads = disk.count(DiskOp::Read);
    assert!(!store.view().may_contain_prefix(ROWS_KEYSPACE, &[0xff; 8]).unwrap());
    let denied =
        (0..ROWS).filter(|row| !store.view().may_contain_prefix(ROWS_KEYSPACE, &absent(RUNS, *row)).unwrap());
    assert!(denied.count() as u64 > ROWS / 2);
    assert_eq!((memory(&store), disk.count(DiskOp::Read)), (loaded, reads));
}

/// Every way to read a row of the oldest run.
fn read_every_way(view: &StoreView) -> [(&'static str, Result<bool, StoreError>); 4] {
    let one = read(view, &key(0, 7)).map(|found| found.is_some());
    let mut found = [None, None];
    let many = view.get_many(ROWS_KEYSPACE, &[&key(0, 7), &key(0, 8)], Seq::MAX, &mut found);
    let prefix = view.may_contain_prefix(ROWS_KEYSPACE, &key(0, 7));
    let mut cursor = view.cursor(ROWS_KEYSPACE, Seq::MAX);
    let scan = cursor.seek(&key(0, 7)).map(|()| cursor.valid() && cursor.key() == key(0, 7));
    [("get", one), ("get_many", many.map(|()| found[0].is_some())), ("prefix", prefix), ("scan", scan)]
}

#[test]
fn damaged_part_is_an_error_of_reads_that_need_it_and_of_verify() {
    for part in [Part::Index, Part::Filter] {
        let disk = build(Compression::None);
        let (path, at) = place(&disk, part);
        disk.flip_bit(&path, at + 100, 3).unwrap();
        let store = open(&disk);
        let unaffected = if part == Part::Filter { "scan" } else { "prefix" };
        for _ in 0..2 {
            for (way, result) in read_every_way(&store.view()) {
                match result {
                    Ok(found) => assert!(found && way == unaffected, "{way} {part:?}: {found}"),
                    Err(StoreError::Corrupt { path: named, offset, what }) => {
                        assert!(way != unaffected && (&named, offset) == (&path, at), "{way}: {offset}");
                        assert!(
                            what.contains(if part == Part::Filter { "filter" } else { "index" }),
                            "{what}"
                        );
                    }
                    Err(other) => panic!("{way} {part:?}: {other}"),
                }
            }
        }
        assert_eq!(read(&store.view(), &key(2, 7)).unwrap(), Some(7_u64.to_le_bytes().to_vec()));
        let damage = store.verify().unwrap().damage;
        assert_eq!((damage.len(), &damage[0].path, damage[0].offset), (1, &path, at), "{damage:?}");
        // Compaction moves a run that overlaps no other without reading it.
        flush(&store, 0, Seq(2));
        assert_eq!(store.compact_all(&[Seq(2)]).is_err(), part == Part::Index, "{part:?}");
    }
}

#[test]
fn verify_reads_parts_again_that_are_in_memory() {
    for part in [Part::Index, Part::Filter] {
        let disk = build(Compression::Lz4);
        let store = open(&disk);
        assert!(read_every_way(&store.view()).iter().all(|(_, found)| matches!(found, Ok(true))));
        let (path, at) = place(&disk, part);
        disk.flip_bit(&path, at + 9, 0).unwrap();
        assert!(read_every_way(&store.view()).iter().all(|(_, found)| matches!(found, Ok(true))));
        let damage = store.verify().unwrap().damage;
        assert_eq!((damage.len(), &damage[0].path, damage[0].offset), (1, &path, at), "{damage:?}");
        disk.flip_bit(&path, at + 9, 0).unwrap();
        assert_eq!(store.verify().unwrap().damage, []);
    }
}

/// The n-th read of the call fails, or returns a wrong bit, for each n until the call needs fewer.
#[test]
fn failed_load_is_an_error_and_the_next_read_loads_again() {
    let disk = build(Compression::None);
    let mut failures = 0;
    for skip in 0.. {
        let store = open(&disk);
        disk.fail(DiskOp::Read, skip);
        let first = read(&store.view(), &key(0, 7));
        disk.calm();
        match first {
            Ok(found) => {
                assert_eq!(found, Some(7_u64.to_le_bytes().to_vec()));
                break;
            }
            Err(StoreError::Io { op: "read", .. }) => failures += 1,
            Err(other) => panic!("{other}"),
        }
        assert_eq!(read(&store.view(), &key(0, 7)).unwrap(), Some(7_u64.to_le_bytes().to_vec()));
    }
    assert_eq!(failures, RUNS + 2, "the filters of all runs; index and block of the oldest");
}

#[test]
fn threads_that_read_first_at_the_same_time_share_one_copy() {
    let disk = build(Compression::None);
    let alone = open(&disk);
    assert!(read(&alone.view(), &key(0, 7)).unwrap().is_some());
    let store = open(&disk);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!(read(&store.view(), &key(0, 7)).unwrap().is_some()));
        }
    });
    assert_eq!(memory(&store), memory(&alone));
}
