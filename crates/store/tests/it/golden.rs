//! The bytes of whole files, as docs/format/run.md and docs/format/manifest.md draw them.

use std::path::Path;

use ropewalk_base::{Lsn, Seq, from_hex, hex};
use ropewalk_store::{
    Checkpoint, Edit, FilterPolicy, Keyspace, KeyspaceOptions, Memtable, Store, StoreError, StoreOptions, get,
};
use ropewalk_vfs::{Env, OpenMode};

use crate::basics::{flush, open};

fn lines(env: &Env, name: &str) -> Vec<String> {
    let file = env.vfs.open(&Path::new("/store").join(name), OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes.chunks(32).map(hex).collect()
}

#[test]
fn a_run_and_its_manifest() {
    let env = Env::memory();
    let store = open(&env);
    let options =
        KeyspaceOptions { block_bytes: 512, filter: FilterPolicy::All, ..KeyspaceOptions::default() };
    let keyspace = store.keyspace("cities", options).unwrap();
    let memtable = Memtable::new();
    memtable.put(b"city/bern", Some(b"Aare"), Seq(5));
    memtable.put(b"city/basel", Some(b"Rhine"), Seq(6));
    memtable.put(b"city/basel", None, Seq(9));
    memtable.delete_range(b"lake/", b"lake0", Seq(7));
    let new_l0 = store.write_memtable(keyspace, &memtable, &[Seq(6), Seq(9)]).unwrap();
    let checkpoint = Some(Checkpoint { lsn: Lsn(4096), seq: Seq(9), meta: b"x".to_vec() });
    store.install(Edit { new_l0, checkpoint, flush: None }).unwrap();
    let run = lines(&env, "0000000000000001.run");
    let zeros = run.iter().filter(|line| line.bytes().all(|b| b == b'0')).count();
    let shown: Vec<&str> = run.iter().filter(|l| l.bytes().any(|b| b != b'0')).map(String::as_str).collect();
    let expected = [
        "9008f2c7030000000600000002ff01000000000000000000636974792f620000",
        "00006c657361000000006c65736100000000006e7265090000408046004b0004",
        "045268696e650341617265000000000000000000000000000000000000000000",
        "000000006c657361000000001000000000000008000000000000808000000009",
        "0000000000000000000a00000000000000000008000000000000000000010000",
        "000000000000000000480000000200000200000301012600090a636974792f62",
        "6173656c09636974792f6265726e01056c616b652f056c616b6530010701000b",
        "00000000000000bff4eb9a4000000000000000c56404304b020000000000004c",
        "00000000000000da00c1ae56b1adaf02000000524f50452d52554e",
    ];
    assert_eq!((zeros, shown), (13, expected.to_vec()));
    let expected = [
        "524f50454d414e49010000000c770a4f1b000000000000008020090178020106",
        "6369746965730002000002000001000101bb05",
    ];
    assert_eq!(lines(&env, "MANIFEST"), expected);
}

/// The run of [`a_run_and_its_manifest`] as version 1 has it: 13 lines of zeros after the first three lines.
const RUN_1: [&str; 9] = [
    "9008f2c7030000000600000002ff01000000000000000000636974792f620000",
    "00006c657361000000006c65736100000000006e7265090000408046004b0004",
    "045268696e650341617265000000000000000000000000000000000000000000",
    "00000200000200000301012600090a636974792f626173656c09636974792f62",
    "65726e01056c616b652f056c616b6530010701000000006c6573610000000100",
    "10000000000000080000000000008080000000090000000000000000000a0000",
    "0000000000000008000000000000000000010000000000000000000000480000",
    "020000000000007f0000000000000035c56fc3514f76c401000000524f50452d",
    "52554e",
];
const MANIFEST_1: &str = concat!(
    "524f50454d414e49010000003545dbed1b000000000000008020090178020106",
    "6369746965730002000002000001000101a305"
);
const FILTER_OFFSET_1: usize = 575;

fn store_of_version_1(change: impl FnOnce(&mut Vec<u8>)) -> Env {
    let env = Env::memory();
    let dir = Path::new("/store");
    env.vfs.create_dir_all(dir).unwrap();
    let mut lines = RUN_1.map(|line| from_hex(line).unwrap()).to_vec();
    lines.splice(3..3, vec![vec![0; 32]; 13]);
    let mut run = lines.concat();
    change(&mut run);
    for (name, bytes) in [("0000000000000001.run", run), ("MANIFEST", from_hex(MANIFEST_1).unwrap())] {
        env.vfs.open(&dir.join(name), OpenMode::CreateNew).unwrap().write_all_at(&bytes, 0).unwrap();
    }
    env
}

#[test]
fn run_of_version_1_opens_and_is_replaced_by_version_2() {
    let env = store_of_version_1(|_| {});
    let cities = Keyspace(0);
    let read = |store: &Store, key: &[u8], at| {
        get(&[], &store.view(), cities, key, Seq(at)).unwrap().map(|value| value.to_vec())
    };
    let store = open(&env);
    assert_eq!(store.verify().unwrap().damage, []);
    assert!(store.stats().keyspaces[0].memory_bytes > 64, "index and filter come with the footer");
    assert_eq!(read(&store, b"city/basel", 8), Some(b"Rhine".to_vec()));
    assert_eq!(read(&store, b"city/basel", 9), None);
    flush(&store, cities, 10, &[(b"city/bern", Some(b"Aar"))]);
    store.compact_all(&[Seq(10)]).unwrap();
    drop(store);
    let store = open(&env);
    let names = env.vfs.list(Path::new("/store")).unwrap();
    assert!(names.len() == 2 && !names.contains(&"0000000000000001.run".to_owned()), "{names:?}");
    assert_eq!(read(&store, b"city/bern", 10), Some(b"Aar".to_vec()));
    assert_eq!(store.verify().unwrap().damage, []);
}

#[test]
fn damaged_filter_of_a_run_of_version_1_is_found_by_the_opening() {
    let env = store_of_version_1(|run| run[FILTER_OFFSET_1 + 30] ^= 1);
    let error = Store::open(&env, Path::new("/store"), StoreOptions::default()).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { offset: 512, .. }), "{error}");
}
