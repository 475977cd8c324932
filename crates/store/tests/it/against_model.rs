//! Random work on a store and on the obvious model in parallel: every version of every key in a sorted map.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use ropewalk_base::Seq;
use ropewalk_store::{
    Compression, Cursor, Edit, FilterPolicy, Keyspace, KeyspaceOptions, Memtable, ReadMode, Store,
    StoreOptions, StoreView, changed_in_range, get, newest_seq,
};
use ropewalk_vfs::Env;

#[derive(Debug, Clone)]
enum Step {
    Put(Vec<u8>, usize),
    Delete(Vec<u8>),
    DeleteRange(Vec<u8>, Vec<u8>),
    TakeSnapshot,
    DropSnapshot(usize),
    Freeze,
    Flush,
    Compact(u64),
    CompactAll,
    Reopen,
}

fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => (0..40_u64).prop_map(|k| k.to_be_bytes().to_vec()),
        2 => proptest::collection::vec(0..2_u8, 0..4),
        2 => (0..20_u8, 0..2_u8).prop_map(|(a, b)| [b"a/very/long/shared/prefix/".as_slice(), &[a, 0, b]].concat()),
        1 => (0..6_u8).prop_map(|n| vec![0xff; n.into()]),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        30 => (keys(), prop_oneof![8 => 0..60_usize, 1 => 400..3000_usize]).prop_map(|(k, n)| Step::Put(k, n)),
        8 => keys().prop_map(Step::Delete),
        3 => (keys(), keys()).prop_map(|(a, b)| Step::DeleteRange(a.clone().min(b.clone()), a.max(b))),
        4 => Just(Step::TakeSnapshot),
        3 => (0..4_usize).prop_map(Step::DropSnapshot),
        4 => Just(Step::Freeze),
        6 => Just(Step::Flush),
        6 => (1..4000_u64).prop_map(Step::Compact),
        1 => Just(Step::CompactAll),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..160)
}

fn options() -> impl Strategy<Value = (StoreOptions, KeyspaceOptions)> {
    let compression = prop_oneof![Just(Compression::None), Just(Compression::Lz4), Just(Compression::Zstd)];
    let filter =
        prop_oneof![Just(FilterPolicy::None), Just(FilterPolicy::UpperLevels), Just(FilterPolicy::All)];
    (compression, filter, 0..3_u8, prop_oneof![Just(512), Just(4096), Just(65536)], 600..6000_u64, 1..3_usize)
        .prop_map(|(compression, filter, filter_ignores_last, block_bytes, run_bytes, l0_runs_max)| {
            let store = StoreOptions {
                run_bytes,
                l0_runs_max,
                fanout: 2,
                cache_bytes: 8192,
                read_mode: ReadMode::Auto,
                ..StoreOptions::default()
            };
            (store, KeyspaceOptions { compression, filter, filter_ignores_last, block_bytes })
        })
}

type Versions = Vec<(u64, Option<Vec<u8>>)>;

/// Every change ever made, per key; ranges apart.
#[derive(Default)]
struct Model {
    points: BTreeMap<Vec<u8>, Versions>,
    ranges: Vec<(Vec<u8>, Vec<u8>, u64)>,
}

impl Model {
    fn get(&self, key: &[u8], at: u64) -> Option<Vec<u8>> {
        let point = self.points.get(key)?.iter().rev().find(|(seq, _)| *seq <= at)?;
        let covers =
            |r: &&(Vec<u8>, Vec<u8>, u64)| r.0.as_slice() <= key && key < r.1.as_slice() && r.2 <= at;
        let deleted = self.ranges.iter().filter(covers).any(|r| r.2 > point.0);
        if deleted { None } else { point.1.clone() }
    }

    fn all(&self, at: u64) -> Vec<(Vec<u8>, Short)> {
        self.points.keys().filter_map(|k| Some((k.clone(), short(&self.get(k, at)?)))).collect()
    }

    fn changed(&self, start: &[u8], end: Option<&[u8]>, after: u64) -> Option<u64> {
        let inside = |key: &[u8]| start <= key && end.is_none_or(|end| key < end);
        let points =
            self.points.iter().filter(|(k, _)| inside(k)).flat_map(|(_, v)| v.iter().map(|(seq, _)| *seq));
        let touches = |r: &&(Vec<u8>, Vec<u8>, u64)| {
            r.0 < r.1 && start < r.1.as_slice() && end.is_none_or(|end| r.0.as_slice() < end && start < end)
        };
        let ranges = self.ranges.iter().filter(touches).map(|r| r.2);
        points.chain(ranges).filter(|&seq| seq > after).max()
    }
}

/// First byte and length: values are one byte repeated, and failures should be readable.
type Short = (Option<u8>, usize);

fn short(value: &[u8]) -> Short {
    assert!(value.windows(2).all(|w| w[0] == w[1]));
    (value.first().copied(), value.len())
}

struct Bench {
    env: Env,
    dir: std::path::PathBuf,
    store_options: StoreOptions,
    keyspace_options: KeyspaceOptions,
    store: Option<Store>,
    keyspace: Keyspace,
    active: Arc<Memtable>,
    /// Oldest first.
    frozen: Vec<Arc<Memtable>>,
    seq: u64,
    /// Each with the view and memtables it was taken with.
    snapshots: Vec<(u64, Arc<StoreView>, Vec<Arc<Memtable>>)>,
    model: Model,
}

impl Bench {
    fn new(env: Env, dir: &Path, store_options: StoreOptions, keyspace_options: KeyspaceOptions) -> Self {
        let store = Store::open(&env, dir, store_options.clone()).unwrap();
        store.keyspace("other", KeyspaceOptions::default()).unwrap();
        let keyspace = store.keyspace("tested", keyspace_options).unwrap();
        Self {
            env,
            dir: dir.to_owned(),
            store_options,
            keyspace_options,
            store: Some(store),
            keyspace,
            active: Arc::default(),
            frozen: Vec::new(),
            seq: 0,
            snapshots: Vec::new(),
            model: Model::default(),
        }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn live(&self) -> Vec<Seq> {
        let mut live: Vec<Seq> = self.snapshots.iter().map(|s| Seq(s.0)).collect();
        live.push(Seq(self.seq));
        live
    }

    /// Newest first.
    fn memtables(&self) -> Vec<Arc<Memtable>> {
        std::iter::once(&self.active).chain(self.frozen.iter().rev()).cloned().collect()
    }

    fn flush(&mut self) {
        if !self.frozen.is_empty() {
            let memtable = self.frozen[0].clone();
            let new_l0 = self.store().write_memtable(self.keyspace, &memtable, &self.live()).unwrap();
            self.store().install(Edit { new_l0, checkpoint: None, flush: None }).unwrap();
            self.frozen.remove(0);
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Put(key, len) => {
                self.seq += 1;
                let value = vec![self.seq as u8; *len];
                self.active.put(key, Some(&value), Seq(self.seq));
                self.model.points.entry(key.clone()).or_default().push((self.seq, Some(value)));
            }
            Step::Delete(key) => {
                self.seq += 1;
                self.active.put(key, None, Seq(self.seq));
                self.model.points.entry(key.clone()).or_default().push((self.seq, None));
            }
            Step::DeleteRange(start, end) => {
                self.seq += 1;
                self.active.delete_range(start, end, Seq(self.seq));
                self.model.ranges.push((start.clone(), end.clone(), self.seq));
            }
            Step::TakeSnapshot => {
                self.snapshots.push((self.seq, self.store().view(), self.memtables()));
            }
            Step::DropSnapshot(index) => {
                if !self.snapshots.is_empty() {
                    self.snapshots.remove(index % self.snapshots.len());
                }
            }
            Step::Freeze => {
                if !self.active.is_empty() {
                    self.frozen.push(std::mem::take(&mut self.active));
                }
            }
            Step::Flush => self.flush(),
            Step::Compact(bytes) => {
                self.store().compact_step(&self.live(), &[], *bytes).unwrap();
            }
            Step::CompactAll => {
                self.store().compact_all(&self.live()).unwrap();
                let stats = self.store().stats().keyspaces.pop().unwrap();
                assert_eq!(stats.flushes, 0);
                assert!(stats.levels.iter().filter(|l| l.runs > 0).count() <= 1);
                if self.snapshots.is_empty() {
                    assert_eq!((stats.tombstones, stats.range_tombstones), (0, 0));
                }
            }
            Step::Reopen => {
                self.step(&Step::Freeze);
                while !self.frozen.is_empty() {
                    self.flush();
                }
                // Snapshots do not live across a reopen: only what is visible then counts.
                self.snapshots.clear();
                let before = self.store().stats();
                self.store = None;
                let store = Store::open(&self.env, &self.dir, self.store_options.clone()).unwrap();
                self.keyspace = store.keyspace("tested", self.keyspace_options).unwrap();
                let after = store.stats();
                assert_eq!(before.keyspaces[1].levels, after.keyspaces[1].levels);
                self.store = Some(store);
            }
        }
    }

    fn check(&self, probes: &[Vec<u8>]) {
        let report = self.store().verify().unwrap();
        assert_eq!(report.damage, []);
        let view = self.store().view();
        let memtables = self.memtables();
        for seq in self.live() {
            self.check_at(&memtables, &view, seq, probes);
        }
        for (seq, view, memtables) in &self.snapshots {
            self.check_at(memtables, view, Seq(*seq), probes);
        }
        let memtables: Vec<&Memtable> = memtables.iter().map(|m| &**m).collect();
        for after in self.live() {
            for (i, key) in probes.iter().enumerate() {
                let single = [key.as_slice(), &[0]].concat();
                let newest = newest_seq(memtables.iter().copied(), &view, self.keyspace, key, after).unwrap();
                assert_eq!(
                    newest.map(|s| s.0),
                    self.model.changed(key, Some(&single), after.0),
                    "{key:?} after {after}"
                );
                let end = probes.get(i + 1).map(Vec::as_slice);
                let changed = changed_in_range(&memtables, &view, self.keyspace, key, end, after).unwrap();
                assert_eq!(
                    changed.map(|s| s.0),
                    self.model.changed(key, end, after.0),
                    "{key:?} .. {end:?} after {after}"
                );
            }
        }
    }

    fn check_at(&self, memtables: &[Arc<Memtable>], view: &StoreView, at: Seq, probes: &[Vec<u8>]) {
        let memtables: Vec<&Memtable> = memtables.iter().map(|m| &**m).collect();
        let all = self.model.all(at.0);
        for key in all.iter().map(|(k, _)| k).chain(probes) {
            let found = get(&memtables, view, self.keyspace, key, at).unwrap();
            assert_eq!(
                found.map(|v| short(&v)),
                self.model.get(key, at.0).map(|v| short(&v)),
                "{key:?} at {at}"
            );
            if self.keyspace_options.filter_ignores_last > 0
                && let Some(prefix) = key.len().checked_sub(self.keyspace_options.filter_ignores_last.into())
                && view.get(self.keyspace, key, at).unwrap().is_some_and(|e| e.value.is_some())
            {
                assert!(view.may_contain_prefix(self.keyspace, &key[..prefix]).unwrap());
            }
        }
        let mut cursor = Cursor::merged(&memtables, view, self.keyspace, at);
        let shown = |cursor: &Cursor<'_>| (cursor.key().to_vec(), short(cursor.value()));
        let mut seen = Vec::new();
        cursor.first().unwrap();
        while cursor.valid() {
            seen.push(shown(&cursor));
            cursor.next().unwrap();
        }
        assert_eq!(seen, all, "forward at {at}");
        seen.clear();
        cursor.last().unwrap();
        while cursor.valid() {
            seen.push(shown(&cursor));
            cursor.prev().unwrap();
        }
        seen.reverse();
        assert_eq!(seen, all, "backward at {at}");
        for (i, key) in probes.iter().enumerate() {
            let from = all.partition_point(|(k, _)| k < key);
            cursor.seek(key).unwrap();
            let mut expected = from as isize;
            if i % 2 == 0 {
                cursor.seek_for_prev(key).unwrap();
                expected = all.partition_point(|(k, _)| k <= key) as isize - 1;
            }
            // Back and forth from there.
            for turn in [0, 1, 1, -1, -1, -1, 1, 1, -1] {
                if !cursor.valid() {
                    break;
                }
                match turn {
                    1 => cursor.next().unwrap(),
                    -1 => cursor.prev().unwrap(),
                    _ => {}
                }
                expected += turn;
                let entry = usize::try_from(expected).ok().and_then(|i| all.get(i));
                assert_eq!(cursor.valid().then(|| shown(&cursor)).as_ref(), entry, "from {key:?} at {at}");
            }
        }
    }
}

fn run(
    env: Env,
    dir: &Path,
    (store, keyspace): (StoreOptions, KeyspaceOptions),
    steps: &[Step],
    mut probes: Vec<Vec<u8>>,
) {
    probes.sort();
    let mut bench = Bench::new(env, dir, store, keyspace);
    for (i, step) in steps.iter().enumerate() {
        bench.step(step);
        if i % 23 == 0 {
            bench.check(&probes);
        }
    }
    bench.check(&probes);
    bench.step(&Step::Reopen);
    bench.check(&probes);
    bench.step(&Step::CompactAll);
    bench.check(&probes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn in_memory(options in options(), steps in steps(), probes in proptest::collection::vec(keys(), 0..12)) {
        run(Env::memory(), Path::new("/store"), options, &steps, probes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn on_disk_and_mapped(options in options(), steps in steps(), probes in proptest::collection::vec(keys(), 0..12)) {
        let dir = tempfile::tempdir().unwrap();
        let options = (StoreOptions { read_mode: ReadMode::Map, ..options.0 }, options.1);
        run(Env::real(), dir.path(), options, &steps, probes);
    }
}
