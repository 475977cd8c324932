//! Cost of point reads and scans: rows of 8 + 100 bytes, random keys, one thread.
//!
//! ```text
//! cargo run --release -p ropewalk-store --example points -- [ROWS] [DIRECTORY]
//! ```
//!
//! Prints nanoseconds per operation. The store that the example made is removed from the directory.
#![allow(clippy::print_stdout, clippy::unwrap_used)] // a measuring program: it prints, and stops at the first error

use std::path::PathBuf;

use ropewalk_base::Seq;
use ropewalk_store::{
    CompactStep, Cursor, Edit, FilterPolicy, KeyspaceOptions, Memtable, Store, StoreOptions, get,
};
use ropewalk_vfs::{Env, Random, SeededRandom};

const READS: u64 = 500_000;
const SCANS: u64 = 20_000;
const SLICES: u64 = 200;
const MEMTABLE_BYTES: u64 = 64 << 20;

/// SplitMix64's finaliser: a bijection, so keys are distinct. Even results are rows, odd ones misses.
fn key(index: u64) -> [u8; 8] {
    let mut z = index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_be_bytes()
}

struct Timer<'e>(&'e Env);

impl Timer<'_> {
    fn time<T>(&self, f: impl FnOnce() -> T) -> (T, u64) {
        let start = self.0.clock.monotonic_nanos();
        let result = f();
        (result, self.0.clock.monotonic_nanos() - start)
    }

    /// Runs `f` in 200 slices, each shorter than a time slice of the scheduler, and prints the time of one
    /// operation: over all, in the median slice, and in the fastest, which approximates a quiet machine.
    fn per(&self, name: &str, operations: u64, mut f: impl FnMut(u64)) {
        let slice = operations / SLICES;
        let mut nanos: Vec<u64> = (0..SLICES).map(|_| self.time(|| f(slice)).1).collect();
        nanos.sort_unstable();
        let per = |nanos: u64, slices: u64| nanos as f64 / (slice * slices) as f64;
        let (mean, at) =
            (per(nanos.iter().sum(), SLICES), |i: usize| per(nanos.get(i).copied().unwrap_or(0), 1));
        println!("{name:<44} {mean:>8.1} ns, median {:>8.1}, best {:>8.1}", at(nanos.len() / 2), at(0));
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rows: u64 = arguments.next().map_or(1_000_000, |n| n.parse().unwrap());
    let dir = arguments.next().map_or_else(|| std::env::temp_dir().join("ropewalk-points"), PathBuf::from);
    let env = Env::real();
    let timer = Timer(&env);
    clear(&env, &dir);
    let keyspace_options = KeyspaceOptions { filter: FilterPolicy::All, ..KeyspaceOptions::default() };
    let store = Store::open(&env, &dir, StoreOptions::default()).unwrap();
    let rows_keyspace = store.keyspace("rows", keyspace_options).unwrap();
    let unfiltered = store.keyspace("unfiltered", KeyspaceOptions::default()).unwrap();
    println!("{rows} rows of 8 + 100 bytes, random keys");
    let memory = vec![1_u8; rows as usize * 108];
    let random = SeededRandom::new(2);
    timer.per("floor: one random byte of as much memory", READS, |slice| {
        let mut last = 0;
        for _ in 0..slice {
            last =
                memory.get((random.next_u64() ^ last) as usize % memory.len()).copied().unwrap_or(0).into();
        }
        std::hint::black_box(last);
    });
    drop(memory);

    load(&timer, &store, rows_keyspace, rows);
    let before = store.stats().keyspaces.swap_remove(0);
    println!("before compact_all: {} flushes, levels {:?}", before.flushes, before.levels);
    reads(&timer, &store, rows_keyspace, rows, "");
    let ((), nanos) = timer.time(|| store.compact_all(&[Seq(rows)]).unwrap());
    println!("compact_all                        {:>9.2} s", nanos as f64 / 1e9);
    reads(&timer, &store, rows_keyspace, rows, ", compacted");

    // The same rows without filters, written in order.
    let view = store.view();
    let mut cursor = view.cursor(rows_keyspace, Seq::MAX);
    let mut writer = store.writer(unfiltered).unwrap();
    let ((), nanos) = timer.time(|| {
        cursor.first().unwrap();
        while cursor.valid() {
            writer.add(cursor.key(), Seq::ZERO, Some(cursor.value())).unwrap();
            cursor.next().unwrap();
        }
        let new_l0 = writer.finish().unwrap();
        store.install(Edit { new_l0, checkpoint: None, flush: None }).unwrap();
        store.compact_all(&[Seq(rows)]).unwrap();
    });
    println!("copied into another keyspace, sorted: {:>9.1} ns per row", nanos as f64 / rows as f64);
    reads(&timer, &store, unfiltered, rows, ", no filter");
    drop(cursor);
    drop(view);
    for keyspace in store.stats().keyspaces {
        let ratio = keyspace.file_bytes as f64 / keyspace.raw_bytes as f64;
        println!(
            "{}: {:.1} MB, {ratio:.3}x raw, {} model pieces, {} runs, {:.1} MB memory, amplification {:.2}",
            keyspace.name,
            keyspace.file_bytes as f64 / 1e6,
            keyspace.model_pieces,
            keyspace.levels.iter().map(|l| l.runs).sum::<u64>(),
            keyspace.memory_bytes as f64 / 1e6,
            (keyspace.flushed_bytes + keyspace.compacted_bytes) as f64 / keyspace.flushed_bytes as f64,
        );
    }
    drop(store);
    let (store, nanos) = timer.time(|| {
        Store::open(&env, &dir, StoreOptions { learned_index: false, ..StoreOptions::default() }).unwrap()
    });
    println!("open                               {:>9.2} ms", nanos as f64 / 1e6);
    hits(&timer, &store, unfiltered, rows, "hit, model off, first touch");
    hits(&timer, &store, unfiltered, rows, "hit, model off");
    hits(&timer, &store, unfiltered, rows, "hit, model off");
    drop(store);
    let store = Store::open(&env, &dir, StoreOptions::default()).unwrap();
    hits(&timer, &store, unfiltered, rows, "hit, model on, first touch");
    hits(&timer, &store, unfiltered, rows, "hit, model on");
    hits(&timer, &store, unfiltered, rows, "hit, model on");
    drop(store);
    clear(&env, &dir);
}

fn clear(env: &Env, dir: &std::path::Path) {
    env.vfs.create_dir_all(dir).unwrap();
    for name in env.vfs.list(dir).unwrap() {
        if name.ends_with(".run") || name.starts_with("MANIFEST") {
            env.vfs.remove(&dir.join(name)).unwrap();
        }
    }
}

fn load(timer: &Timer<'_>, store: &Store, keyspace: ropewalk_store::Keyspace, rows: u64) {
    let mut values = vec![0_u8; 1 << 20];
    let random = SeededRandom::new(1);
    for chunk in values.chunks_mut(8) {
        chunk.copy_from_slice(&random.next_u64().to_le_bytes());
    }
    let (mut put, mut flush, mut compact, mut next) = (0, 0, 0, 0);
    while next < rows {
        let memtable = Memtable::new();
        let mut slices = Vec::new();
        while next < rows && memtable.bytes() < MEMTABLE_BYTES {
            let end = (next + 1000).min(rows);
            let ((), nanos) = timer.time(|| {
                while next < end {
                    let at = (next as usize * 104) % (values.len() - 100);
                    memtable.put(&key(next * 2), values.get(at..at + 100), Seq(next + 1));
                    next += 1;
                }
            });
            put += nanos;
            slices.push(nanos);
        }
        if next <= 1_000_000 {
            let count = memtable.len() as u64;
            let first = next - count;
            let mean = slices.iter().sum::<u64>() as f64 / count as f64;
            // The second half of the slices: a memtable that is at least half full.
            let mut full = slices.split_off(slices.len() / 2);
            full.sort_unstable();
            let per = |i: usize| full.get(i).copied().unwrap_or(0) as f64 / 1000.0;
            let (median, best) = (per(full.len() / 2), per(0));
            println!(
                "{:<44} {mean:>8.1} ns, median {median:>8.1}, best {best:>8.1}",
                format!("memtable put, {count} rows")
            );
            let random = SeededRandom::new(3);
            timer.per("memtable get", READS, |slice| {
                for _ in 0..slice {
                    let key = key((first + random.next_u64() % count) * 2);
                    assert!(memtable.get(&key, Seq::MAX).is_some());
                }
            });
        }
        let ((), nanos) = timer.time(|| {
            let new_l0 = store.write_memtable(keyspace, &memtable, &[Seq(next)]).unwrap();
            store.install(Edit { new_l0, checkpoint: None, flush: None }).unwrap();
        });
        flush += nanos;
        let ((), nanos) = timer
            .time(|| while store.compact_step(&[Seq(next)], &[], 4 << 20).unwrap() != CompactStep::Idle {});
        compact += nanos;
    }
    for (name, nanos) in [("put", put), ("flush and install", flush), ("compaction", compact)] {
        println!(
            "load: {name:<28} {:>9.1} ns per row, {:.2} s",
            nanos as f64 / rows as f64,
            nanos as f64 / 1e9
        );
    }
}

fn hits(timer: &Timer<'_>, store: &Store, keyspace: ropewalk_store::Keyspace, rows: u64, name: &str) {
    let view = store.view();
    let random = SeededRandom::new(7);
    timer.per(name, READS, |slice| {
        for _ in 0..slice {
            let key = key(random.next_u64() % rows * 2);
            let value = get(&[], &view, keyspace, &key, Seq::MAX).unwrap().unwrap();
            assert_eq!(value.len(), 100);
            std::hint::black_box((value.first(), value.last()));
        }
    });
}

fn reads(timer: &Timer<'_>, store: &Store, keyspace: ropewalk_store::Keyspace, rows: u64, what: &str) {
    hits(timer, store, keyspace, rows, &format!("hit{what}, first pass"));
    hits(timer, store, keyspace, rows, &format!("hit{what}"));
    let view = store.view();
    let random = SeededRandom::new(8);
    timer.per(&format!("miss{what}"), READS, |slice| {
        for _ in 0..slice {
            let key = key(random.next_u64() % rows * 2 + 1);
            assert!(get(&[], &view, keyspace, &key, Seq::MAX).unwrap().is_none());
        }
    });
    let random = SeededRandom::new(9);
    timer.per(&format!("scan of 100{what}"), SCANS, |slice| {
        let mut cursor = Cursor::merged(&[], &view, keyspace, Seq::MAX);
        for _ in 0..slice {
            cursor.seek(&key(random.next_u64() % rows * 2)).unwrap();
            for _ in 0..100 {
                std::hint::black_box((cursor.key().first(), cursor.value().first(), cursor.value().last()));
                cursor.next().unwrap();
            }
        }
    });
    let mut cursor = Cursor::merged(&[], &view, keyspace, Seq::MAX);
    cursor.first().unwrap();
    timer.per(&format!("scan of everything{what}, per row"), rows, |slice| {
        for _ in 0..slice {
            std::hint::black_box((cursor.key().first(), cursor.value().first()));
            cursor.next().unwrap();
        }
    });
}
