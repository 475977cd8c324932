//! One thing at a time.

use std::path::Path;

use ropewalk_base::{Lsn, Seq};
use ropewalk_store::{
    Checkpoint, CompactStep, Compression, Cursor, Edit, FilterPolicy, Keyspace, KeyspaceOptions, Memtable,
    ReadMode, Store, StoreError, StoreOptions, get,
};
use ropewalk_vfs::Env;

const DIR: &str = "/store";

pub(crate) fn open(env: &Env) -> Store {
    Store::open(env, Path::new(DIR), StoreOptions::default()).unwrap()
}

pub(crate) fn flush(store: &Store, keyspace: Keyspace, seq: u64, entries: &[(&[u8], Option<&[u8]>)]) {
    let memtable = Memtable::new();
    for (key, value) in entries {
        memtable.put(key, *value, Seq(seq));
    }
    let new_l0 = store.write_memtable(keyspace, &memtable, &[Seq(seq)]).unwrap();
    store.install(Edit { new_l0, checkpoint: None, flush: None }).unwrap();
}

pub(crate) fn runs(env: &Env) -> usize {
    env.vfs.list(Path::new(DIR)).unwrap().iter().filter(|n| n.ends_with(".run")).count()
}

#[test]
fn a_memtable_keeps_every_version() {
    let memtable = Memtable::new();
    assert!(memtable.is_empty());
    memtable.put(b"a", Some(b"1"), Seq(3));
    memtable.put(b"a", None, Seq(5));
    memtable.put(b"a", Some(b"2"), Seq(9));
    memtable.put(b"a", Some(b"3"), Seq(9));
    let at = |seq| memtable.get(b"a", Seq(seq)).map(|e| (e.seq.0, e.value.map(|v| v.to_vec())));
    assert_eq!(at(2), None);
    assert_eq!(at(4), Some((3, Some(b"1".to_vec()))));
    assert_eq!(at(8), Some((5, None)));
    assert_eq!(at(9), Some((9, Some(b"3".to_vec()))), "a second put of the same version replaces the first");
    assert_eq!(memtable.len(), 3);
    memtable.delete_range(b"a", b"b", Seq(11));
    assert_eq!(at(10), Some((9, Some(b"3".to_vec()))));
    assert_eq!(at(11), Some((11, None)));
    assert_eq!(memtable.newest(b"a"), Some(Seq(11)));
    assert_eq!(memtable.newest(b"b"), None);
    assert_eq!(memtable.changed_in(b"a", Some(b"a\0"), Seq(10)), Some(Seq(11)));
    assert_eq!(memtable.changed_in(b"b", None, Seq(0)), None);
    assert_eq!(memtable.max_seq(), Seq(11));
}

#[test]
fn memtable_scans_run_concurrently_with_its_writer() {
    let memtable = Memtable::new();
    let env = Env::memory();
    let store = open(&env);
    let keyspace = store.keyspace("rows", KeyspaceOptions::default()).unwrap();
    let key = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes();
    for i in 0..2000 {
        memtable.put(&key(i), Some(&i.to_le_bytes()), Seq(i + 1));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 2000..40_000 {
                memtable.put(&key(i), Some(&i.to_le_bytes()), Seq(i + 1));
            }
        });
        let view = store.view();
        for backward in [false, true].into_iter().cycle().take(30) {
            let mut cursor = Cursor::merged(&[&memtable], &view, keyspace, Seq(2000));
            if backward {
                cursor.last().unwrap()
            } else {
                cursor.first().unwrap()
            }
            let mut seen = Vec::new();
            while cursor.valid() {
                seen.push(cursor.key().to_vec());
                if backward { cursor.prev().unwrap() } else { cursor.next().unwrap() }
            }
            assert_eq!(seen.len(), 2000);
            assert!(seen.is_sorted_by(|a, b| if backward { a > b } else { a < b }));
        }
    });
    assert_eq!(memtable.len(), 40_000);
}

#[test]
fn a_checkpoint_and_the_options_of_keyspaces_survive() {
    let env = Env::memory();
    let store = open(&env);
    assert_eq!(store.checkpoint(), Checkpoint::default());
    let options = KeyspaceOptions { compression: Compression::Zstd, ..KeyspaceOptions::default() };
    let first = store.keyspace("first", options).unwrap();
    let second = store.keyspace("second", KeyspaceOptions::default()).unwrap();
    let checkpoint = Checkpoint { lsn: Lsn(77), seq: Seq(5), meta: b"engine".to_vec() };
    store.install(Edit { new_l0: Vec::new(), checkpoint: Some(checkpoint.clone()), flush: None }).unwrap();
    flush(&store, second, 6, &[(b"k", Some(b"v"))]);
    drop(store);
    let store = open(&env);
    assert_eq!(store.checkpoint(), checkpoint, "an edit without a checkpoint leaves it alone");
    assert_eq!(store.keyspace("second", KeyspaceOptions::default()).unwrap(), second);
    assert_eq!(store.keyspace("first", options).unwrap(), first);
    assert_eq!(get(&[], &store.view(), second, b"k", Seq(9)).unwrap().unwrap().to_vec(), b"v");
    assert_eq!(get(&[], &store.view(), first, b"k", Seq(9)).unwrap(), None, "keyspaces do not mix");
}

#[test]
fn manifest_lists_a_defined_keyspace_from_its_checkpoint_or_first_run_on() {
    let env = Env::memory();
    let store = open(&env);
    let options = KeyspaceOptions::default();
    store.keyspace("first", options).unwrap();
    let (second, third) = (Keyspace(1), Keyspace(2));
    store.define_keyspace(Seq(5), second, "second", options).unwrap();
    for _ in 0..2 {
        store.define_keyspace(Seq(7), third, "third", options).unwrap();
    }
    let found = store.find_keyspace("third").map(|found| (found.keyspace, found.defined));
    assert_eq!(found, Some((third, Seq(7))));
    for (number, name) in [(4, "gap"), (2, "other"), (3, "first"), (0, "third")] {
        store.define_keyspace(Seq(8), Keyspace(number), name, options).unwrap_err();
    }
    let checkpoint = Checkpoint { lsn: Lsn(1), seq: Seq(5), meta: Vec::new() };
    store.install(Edit { new_l0: Vec::new(), checkpoint: Some(checkpoint), flush: None }).unwrap();
    drop(store);
    let store = open(&env);
    assert_eq!(store.find_keyspace("second").map(|found| found.keyspace), Some(second));
    assert_eq!(store.find_keyspace("third"), None, "the log after the checkpoint has it");
    assert_eq!(store.next_keyspace().unwrap(), third);
    store.define_keyspace(Seq(7), third, "third", options).unwrap();
    flush(&store, third, 8, &[(b"k", Some(b"v"))]);
    drop(store);
    let store = open(&env);
    assert_eq!(store.find_keyspace("third").map(|found| found.keyspace), Some(third));
    assert_eq!(get(&[], &store.view(), third, b"k", Seq(9)).unwrap().unwrap().to_vec(), b"v");
}

#[test]
fn options_out_of_range_and_unknown_keyspaces_are_refused() {
    let env = Env::memory();
    let dir = Path::new(DIR);
    for (name, options) in [
        ("fanout", StoreOptions { fanout: 1, ..StoreOptions::default() }),
        ("run_bytes", StoreOptions { run_bytes: 0, ..StoreOptions::default() }),
        ("l0_runs_max", StoreOptions { l0_runs_max: 0, ..StoreOptions::default() }),
    ] {
        let error = Store::open(&env, dir, options).unwrap_err();
        assert!(matches!(error, StoreError::Option { name: found, .. } if found == name), "{error}");
    }
    let store = open(&env);
    let options = KeyspaceOptions { block_bytes: 100, ..KeyspaceOptions::default() };
    assert!(matches!(store.keyspace("a", options), Err(StoreError::Option { name: "block_bytes", .. })));
    assert!(matches!(store.writer(Keyspace(3)), Err(StoreError::UnknownKeyspace(3))));
    assert!(matches!(store.view().get(Keyspace(3), b"", Seq(1)), Err(StoreError::UnknownKeyspace(3))));
    assert!(matches!(store.view().cursor(Keyspace(3), Seq(1)).first(), Err(StoreError::UnknownKeyspace(3))));
}

#[test]
fn writer_refuses_entries_out_of_order() {
    let env = Env::memory();
    let store = open(&env);
    let keyspace = store.keyspace("rows", KeyspaceOptions::default()).unwrap();
    let mut writer = store.writer(keyspace).unwrap();
    writer.add(b"b", Seq(5), Some(b"")).unwrap();
    for (key, seq) in [(b"a", 9), (b"b", 5), (b"b", 6)] {
        assert!(matches!(writer.add(key, Seq(seq), None), Err(StoreError::Order(_))));
    }
    writer.add(b"b", Seq(4), None).unwrap();
    assert!(matches!(writer.add_range_tombstone(b"a", b"b", Seq(1)), Err(StoreError::Order(_))));
    drop(writer);
    assert_eq!(runs(&env), 0, "a writer that is dropped leaves nothing");
}

#[test]
fn runs_that_are_not_installed_leave_nothing() {
    let env = Env::memory();
    let store = open(&env);
    let keyspace = store.keyspace("rows", KeyspaceOptions::default()).unwrap();
    let mut writer = store.writer(keyspace).unwrap();
    writer.add(b"b", Seq(5), Some(b"")).unwrap();
    let new = writer.finish().unwrap();
    assert_eq!((runs(&env), new.len()), (1, 1));
    assert!(new[0].bytes() > 0);
    drop(new);
    assert_eq!(runs(&env), 0);
}

#[test]
fn a_view_keeps_its_files_until_it_is_dropped() {
    let env = Env::memory();
    let store = open(&env);
    let keyspace = store.keyspace("rows", KeyspaceOptions::default()).unwrap();
    flush(&store, keyspace, 1, &[(b"a", Some(b"old"))]);
    let view = store.view();
    flush(&store, keyspace, 2, &[(b"a", Some(b"new"))]);
    store.compact_all(&[Seq(2)]).unwrap();
    assert_eq!(runs(&env), 2);
    assert_eq!(view.get(keyspace, b"a", Seq(1)).unwrap().unwrap().value.unwrap().to_vec(), b"old");
    drop(view);
    assert_eq!(runs(&env), 1);
    let entry = store.view();
    let entry = entry.get(keyspace, b"a", Seq(2)).unwrap().unwrap();
    assert_eq!((entry.seq, entry.value.unwrap().to_vec()), (Seq::ZERO, b"new".to_vec()));
}

#[test]
fn runs_that_overlap_nothing_are_moved_and_not_written_again() {
    let env = Env::memory();
    let store = open(&env);
    let keyspace = store.keyspace("log", KeyspaceOptions::default()).unwrap();
    for batch in 0..20_u64 {
        let keys: Vec<[u8; 8]> = (0..100).map(|i| (batch * 100 + i).to_be_bytes()).collect();
        let entries: Vec<(&[u8], Option<&[u8]>)> =
            keys.iter().map(|k| (k.as_slice(), Some(b"v".as_slice()))).collect();
        flush(&store, keyspace, batch + 1, &entries);
        while store.compact_step(&[Seq(batch + 1)], &[], 1000).unwrap() != CompactStep::Idle {}
    }
    store.compact_all(&[Seq(20)]).unwrap();
    let stats = store.stats().keyspaces.swap_remove(0);
    assert_eq!((stats.compacted_bytes, stats.flushes, stats.entries), (0, 0, 2000));
    assert_eq!(stats.flushed_bytes, stats.file_bytes);
    assert_eq!(store.verify().unwrap().entries, 2000);
}

#[test]
fn stats_after_a_name_have_the_next_keyspaces_and_all_totals() {
    let env = Env::memory();
    let store = open(&env);
    for name in ["b", "c", "a"] {
        let keyspace = store.keyspace(name, KeyspaceOptions::default()).unwrap();
        flush(&store, keyspace, 1, &[(b"k", Some(b"v"))]);
    }
    let all = store.stats();
    let names = |after, limit| -> Vec<(String, u16)> {
        let stats = store.stats_after(after, limit);
        assert_eq!(stats.memory_bytes, all.memory_bytes);
        stats.keyspaces.into_iter().map(|keyspace| (keyspace.name, keyspace.number)).collect()
    };
    let [a, b, c] = [("a", 2), ("b", 0), ("c", 1)].map(|(name, number)| (name.to_owned(), number));
    assert_eq!(names(None, 9), [a.clone(), b.clone(), c.clone()]);
    assert_eq!(names(None, 2), [a, b]);
    assert_eq!(names(Some("b"), 2), std::slice::from_ref(&c));
    assert_eq!(names(Some("bb"), 2), [c]);
    assert!(names(Some("c"), 2).is_empty());
    assert_eq!(store.stats_after(None, 9).keyspaces[1], all.keyspaces[0]);
}

#[test]
fn filters_answer_for_prefixes() {
    let env = Env::memory();
    let store = open(&env);
    let options =
        KeyspaceOptions { filter: FilterPolicy::All, filter_ignores_last: 8, ..KeyspaceOptions::default() };
    let keyspace = store.keyspace("tags", options).unwrap();
    let key = |tag: u64, position: u64| [tag.to_be_bytes(), position.to_be_bytes()].concat();
    let memtable = Memtable::new();
    for tag in (0..2000).step_by(2) {
        for position in 0..3 {
            memtable.put(&key(tag, position), Some(b""), Seq(1));
        }
    }
    let new_l0 = store.write_memtable(keyspace, &memtable, &[Seq(1)]).unwrap();
    let view = store.install(Edit { new_l0, checkpoint: None, flush: None }).unwrap();
    let passes = |tag: u64| view.may_contain_prefix(keyspace, &tag.to_be_bytes()).unwrap();
    assert!((0..2000).step_by(2).all(passes));
    assert!((1..2000).step_by(2).filter(|&t| passes(t)).count() < 60);
    assert!(!passes(5000));
}

#[test]
fn values_of_any_size_and_every_block_size_read_back() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        for block_bytes in [512, 4096, 16384, 1 << 20] {
            for read_mode in [ReadMode::Map, ReadMode::Pread] {
                let dir = tempfile::tempdir().unwrap();
                let env = Env::real();
                let options = StoreOptions { read_mode, cache_bytes: 1 << 16, ..StoreOptions::default() };
                let store = Store::open(&env, dir.path(), options.clone()).unwrap();
                let keyspace_options =
                    KeyspaceOptions { compression, block_bytes, ..KeyspaceOptions::default() };
                let keyspace = store.keyspace("rows", keyspace_options).unwrap();
                let sizes = [0, 1, 100, 600, 4000, 4096, 33_000, 70_000, 3 << 20, 5];
                let value = |size: usize| (0..size).map(|i| ((i * i) >> 7) as u8).collect::<Vec<u8>>();
                let memtable = Memtable::new();
                for (i, &size) in sizes.iter().enumerate() {
                    memtable.put(format!("key {i}").as_bytes(), Some(&value(size)), Seq(1));
                }
                let new_l0 = store.write_memtable(keyspace, &memtable, &[]).unwrap();
                store.install(Edit { new_l0, checkpoint: None, flush: None }).unwrap();
                drop(store);
                let store = Store::open(&env, dir.path(), options).unwrap();
                let view = store.view();
                for (i, &size) in sizes.iter().enumerate() {
                    let found =
                        get(&[], &view, keyspace, format!("key {i}").as_bytes(), Seq(1)).unwrap().unwrap();
                    assert!(*found == value(size), "{compression:?} {block_bytes} {read_mode:?} {size}");
                }
                let stats = store.stats();
                let mapped = read_mode == ReadMode::Map && compression == Compression::None;
                assert_eq!(stats.keyspaces[0].runs_mapped, u64::from(mapped));
                assert!(stats.cache_bytes == 0 || !mapped);
                assert_eq!(store.verify().unwrap().damage, []);
            }
        }
    }
}

#[test]
fn versions_that_no_snapshot_sees_go_with_the_flush() {
    let env = Env::memory();
    let store = open(&env);
    let keyspace = store.keyspace("rows", KeyspaceOptions::default()).unwrap();
    let memtable = Memtable::new();
    for seq in 1..=100 {
        memtable.put(b"k", Some(&[seq as u8]), Seq(seq));
    }
    let new_l0 = store.write_memtable(keyspace, &memtable, &[Seq(10), Seq(50), Seq(90)]).unwrap();
    assert_eq!(new_l0[0].entries(), 3 + 10, "one for each snapshot, and all that no snapshot has seen yet");
    let view = store.install(Edit { new_l0, checkpoint: None, flush: None }).unwrap();
    for seq in [10, 50, 90, 91, 100, 200] {
        let value = get(&[], &view, keyspace, b"k", Seq(seq)).unwrap().unwrap();
        assert_eq!(value.to_vec(), [seq.min(100) as u8]);
    }
}

#[test]
fn opening_reads_footers_only() {
    let dir = tempfile::tempdir().unwrap();
    let env = Env::real();
    let store = Store::open(&env, dir.path(), StoreOptions::default()).unwrap();
    let keyspace = store.keyspace("rows", KeyspaceOptions::default()).unwrap();
    let mut writer = store.writer(keyspace).unwrap();
    for i in 0..50_000_u64 {
        writer.add(&i.to_be_bytes(), Seq(1), Some(&[7; 100])).unwrap();
    }
    let new_l0 = writer.finish().unwrap();
    store.install(Edit { new_l0, checkpoint: None, flush: None }).unwrap();
    let stats = store.stats().keyspaces.swap_remove(0);
    assert_eq!((stats.entries, stats.raw_bytes), (50_000, 50_000 * 108));
    assert_eq!((stats.runs_without_model, stats.model_pieces), (0, 1));
    assert!(
        stats.file_bytes * 100 < stats.raw_bytes * 107,
        "{} bytes for {}",
        stats.file_bytes,
        stats.raw_bytes
    );
    drop(store);
    // Damage in a block goes unnoticed by an open and by reads elsewhere.
    let name = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path());
    let path = name.into_iter().find(|p| p.extension().is_some_and(|e| e == "run")).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4096 * 3 + 50] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let store = Store::open(&env, dir.path(), StoreOptions::default()).unwrap();
    let view = store.view();
    assert!(get(&[], &view, keyspace, &40_000_u64.to_be_bytes(), Seq(1)).unwrap().is_some());
    let error = get(&[], &view, keyspace, &(37 * 3 + 5_u64).to_be_bytes(), Seq(1)).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { offset: 12288, .. }), "{error}");
}
