//! Writers, readers and the engine's own threads at once.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ropewalk_engine::{Engine, EngineOptions};
use ropewalk_labels::Samples;
use ropewalk_series::{SampleBatch, SeriesModel, SeriesStore};
use ropewalk_vfs::Env;

use crate::{labels, matchers};

const WRITERS: i64 = 3;
const ROUNDS: i64 = 150;

/// Each commit gives every series of its writer the same number, so a reader that sees a commit in part sees two.
#[test]
fn readers_see_whole_commits_while_writers_write_and_flush() {
    let model = Arc::new(SeriesModel::new(1));
    let options = EngineOptions { memory_budget: 1 << 20, ..EngineOptions::default() };
    let engine =
        Arc::new(Engine::open(&Env::memory(), Path::new("/db"), options, vec![model.clone()]).unwrap());
    let store = SeriesStore::new(engine.clone(), model, "main").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut seen = vec![-1; WRITERS as usize];
                    while !done.load(Ordering::Acquire) {
                        for writer in 0..WRITERS {
                            let last = whole(&engine, &store, writer);
                            assert!(last >= seen[writer as usize], "what was seen is seen again");
                            seen[writer as usize] = last;
                        }
                    }
                })
            })
            .collect();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (store, engine) = (&store, &engine);
                scope.spawn(move || {
                    let mut batch = SampleBatch::new();
                    for round in 0..ROUNDS {
                        batch.clear();
                        for i in 0..40 {
                            batch.push(
                                &labels(&format!("m{{w={writer},i={i}}}")),
                                round * 1000,
                                round as f64,
                            );
                        }
                        store.append(&batch).unwrap();
                        assert_eq!(whole(engine, store, writer), round, "an acknowledged commit is visible");
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Release);
        for reader in readers {
            reader.join().unwrap();
        }
    });
    engine.compact().unwrap();
    for writer in 0..WRITERS {
        assert_eq!(whole(&engine, &store, writer), ROUNDS - 1);
    }
    assert!(engine.verify().unwrap().violations.is_empty());
}

/// The last round of a writer; every series has all rounds up to it.
fn whole(engine: &Engine, store: &SeriesStore, writer: i64) -> i64 {
    let snapshot = engine.snapshot();
    let at = store.at(&snapshot);
    let mut selection = at.select(&matchers(&format!("m w={writer}")), i64::MIN, i64::MAX).unwrap();
    let mut lasts = Vec::new();
    let mut samples = Samples::default();
    while selection.next().is_some() {
        samples.clear();
        selection.samples(&mut samples).unwrap();
        assert!(samples.values.iter().enumerate().all(|(i, v)| *v == i as f64));
        lasts.push(samples.len() as i64 - 1);
    }
    assert!(lasts.iter().all(|last| *last == lasts[0]), "{lasts:?}");
    lasts.first().copied().unwrap_or(-1)
}
