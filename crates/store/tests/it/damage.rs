//! Damaged files: each gives a typed error that names the file, never wrong data or a panic.

use std::path::{Path, PathBuf};

use ropewalk_base::Seq;
use ropewalk_store::{
    Compression, Edit, Keyspace, KeyspaceOptions, Memtable, Store, StoreError, StoreOptions, get,
};
use ropewalk_vfs::{Env, OpenMode};

use crate::basics::{flush, open, runs};

const ROWS: u64 = 60;

fn value(row: u64) -> Vec<u8> {
    vec![row as u8; 20 + row as usize]
}

/// A store of one run with several blocks, closed again; and its files.
fn build(compression: Compression) -> (Env, PathBuf, PathBuf) {
    let env = Env::memory();
    let store = open(&env);
    let options = KeyspaceOptions { compression, block_bytes: 512, ..KeyspaceOptions::default() };
    let keyspace = store.keyspace("rows", options).unwrap();
    let memtable = Memtable::new();
    for row in 0..ROWS {
        memtable.put(&row.to_be_bytes(), Some(&value(row)), Seq(1));
    }
    memtable.delete_range(b"x", b"y", Seq(2));
    let new_l0 = store.write_memtable(keyspace, &memtable, &[]).unwrap();
    store.install(Edit { new_l0, checkpoint: None, flush: None }).unwrap();
    drop(store);
    let dir = Path::new("/store");
    let names = env.vfs.list(dir).unwrap();
    let run = names.iter().find(|n| n.ends_with(".run")).unwrap();
    (env.clone(), dir.join(run), dir.join("MANIFEST"))
}

fn bytes(env: &Env, path: &Path) -> Vec<u8> {
    let file = env.vfs.open(path, OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn replace(env: &Env, path: &Path, bytes: &[u8]) {
    let file = env.vfs.open(path, OpenMode::ReadWrite).unwrap();
    file.set_len(0).unwrap();
    file.write_all_at(bytes, 0).unwrap();
}

fn try_open(env: &Env) -> Result<Store, StoreError> {
    Store::open(env, Path::new("/store"), StoreOptions::default())
}

/// True when the damage is noticed by opening or by `verify`; what can be read is right in any case.
fn noticed(env: &Env) -> bool {
    let store = match try_open(env) {
        Err(error) => {
            assert!(error.to_string().contains("/store/"), "{error}");
            return true;
        }
        Ok(store) => store,
    };
    let view = store.view();
    for row in 0..ROWS {
        match get(&[], &view, Keyspace(0), &row.to_be_bytes(), Seq(9)) {
            Ok(found) => assert_eq!(found.map(|v| v.to_vec()), Some(value(row))),
            Err(StoreError::Corrupt { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    let mut cursor = view.cursor(Keyspace(0), Seq(9));
    let mut walk = cursor.first();
    while walk.is_ok() && cursor.valid() {
        walk = cursor.next();
    }
    !store.verify().unwrap().damage.is_empty()
}

#[test]
fn every_flipped_bit_of_a_run_is_noticed() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let (env, run, _) = build(compression);
        let whole = bytes(&env, &run);
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            replace(&env, &run, &damaged);
            assert!(noticed(&env), "byte {at} of {}", whole.len());
        }
        replace(&env, &run, &whole);
        assert!(!noticed(&env));
    }
}

#[test]
fn every_flipped_bit_of_a_manifest_is_noticed() {
    let (env, _, manifest) = build(Compression::None);
    let whole = bytes(&env, &manifest);
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        replace(&env, &manifest, &damaged);
        assert!(try_open(&env).is_err(), "byte {at}");
    }
}

#[test]
fn every_cut_is_noticed() {
    let (env, run, manifest) = build(Compression::None);
    for path in [run, manifest] {
        let whole = bytes(&env, &path);
        for len in (0..whole.len()).step_by(7) {
            replace(&env, &path, &whole[..len]);
            assert!(try_open(&env).is_err(), "{} cut to {len}", path.display());
        }
        replace(&env, &path, &whole);
    }
}

#[test]
fn foreign_files_and_formats_from_the_future_are_named() {
    let (env, run, manifest) = build(Compression::None);
    let whole = bytes(&env, &run);
    replace(&env, &run, &b"not a run at all, but long enough to have a trailer. ".repeat(100)[..whole.len()]);
    assert!(matches!(try_open(&env), Err(StoreError::Foreign { kind: "run", .. })));
    let mut future = whole.clone();
    let version = whole.len() - 12;
    future[version] = 9;
    replace(&env, &run, &future);
    let error = try_open(&env).unwrap_err();
    assert!(matches!(error, StoreError::Version { found: 9, supported: 2, .. }));
    assert!(error.to_string().contains("format from the future"), "{error}");
    replace(&env, &run, &whole);

    let whole = bytes(&env, &manifest);
    replace(&env, &manifest, b"MANIFEST-000004\n (of another database, no doubt)");
    assert!(matches!(try_open(&env), Err(StoreError::Foreign { kind: "manifest", .. })));
    let mut future = whole.clone();
    future[8] = 2;
    replace(&env, &manifest, &future);
    assert!(matches!(try_open(&env), Err(StoreError::Version { found: 2, .. })));
}

#[test]
fn missing_files_are_named_and_orphans_removed() {
    let (env, run, manifest) = build(Compression::None);
    let orphan = Path::new("/store/00000000000000ff.run");
    env.vfs.open(orphan, OpenMode::CreateNew).unwrap().write_all_at(b"partial", 0).unwrap();
    env.vfs.open(Path::new("/store/MANIFEST.new"), OpenMode::CreateNew).unwrap();
    env.vfs.open(Path::new("/store/notes.txt"), OpenMode::CreateNew).unwrap();
    drop(try_open(&env).unwrap());
    let left = env.vfs.list(Path::new("/store")).unwrap();
    assert_eq!(left.len(), 3, "{left:?}: what is not ours stays");
    let whole = bytes(&env, &run);
    env.vfs.remove(&run).unwrap();
    assert!(matches!(try_open(&env), Err(StoreError::Missing { path }) if path == run));
    env.vfs.open(&run, OpenMode::CreateNew).unwrap().write_all_at(&whole, 0).unwrap();
    env.vfs.remove(&manifest).unwrap();
    assert!(matches!(try_open(&env), Err(StoreError::Missing { path }) if path == manifest));
    assert_eq!(runs(&env), 1, "without a manifest nothing is taken for an orphan");
}

#[test]
fn damage_stops_compaction_and_leaves_the_state_alone() {
    let (env, run, _) = build(Compression::None);
    let mut damaged = bytes(&env, &run);
    damaged[100] ^= 8;
    replace(&env, &run, &damaged);
    let store = try_open(&env).unwrap();
    flush(&store, Keyspace(0), 5, &[(b"\0\0\0\0\0\0\0\x01", Some(b"new"))]);
    for _ in 0..2 {
        assert!(matches!(store.compact_all(&[Seq(5)]), Err(StoreError::Corrupt { offset: 0, .. })));
        assert_eq!(runs(&env), 2);
    }
    let view = store.view();
    assert_eq!(
        get(&[], &view, Keyspace(0), &50_u64.to_be_bytes(), Seq(9)).unwrap().unwrap().to_vec(),
        value(50)
    );
    let damage = store.verify().unwrap().damage;
    assert_eq!((damage.len(), &damage[0].path, damage[0].offset), (1, &run, 0));
}

/// Reads check each block once, and never those that this process wrote; `verify` reads the files again.
#[test]
fn damage_after_a_block_was_read_is_found_by_verify() {
    let (env, opened, _) = build(Compression::None);
    let store = try_open(&env).unwrap();
    flush(&store, Keyspace(0), 5, &[(b"written", Some(&[7; 200]))]);
    let view = store.view();
    for row in 0..ROWS {
        let found = get(&[], &view, Keyspace(0), &row.to_be_bytes(), Seq(9)).unwrap();
        assert_eq!(found.map(|v| v.to_vec()), Some(value(row)));
    }
    assert_eq!(get(&[], &view, Keyspace(0), b"written", Seq(9)).unwrap().unwrap().to_vec(), [7; 200]);
    assert!(store.verify().unwrap().damage.is_empty());
    let names = env.vfs.list(Path::new("/store")).unwrap();
    let mut files: Vec<_> = names.iter().filter(|name| name.ends_with(".run")).collect();
    files.sort();
    let files: Vec<PathBuf> = files.into_iter().map(|name| Path::new("/store").join(name)).collect();
    assert!(files.len() == 2 && files.contains(&opened), "{files:?}");
    for path in &files {
        let mut damaged = bytes(&env, path);
        damaged[100] ^= 8;
        replace(&env, path, &damaged);
    }
    let damage = store.verify().unwrap().damage;
    let mut found: Vec<_> = damage.iter().map(|damage| (damage.path.clone(), damage.offset)).collect();
    found.sort();
    assert_eq!(found, files.into_iter().map(|path| (path, 0)).collect::<Vec<_>>());
}
