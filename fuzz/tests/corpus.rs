//! Every target over its seeds, their mutations, what libFuzzer has collected here (`corpus/NAME/`) and the inputs that
//! once failed (`regressions/NAME/`).
#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // helpers of tests

use std::fs;
use std::path::Path;

use ropewalk_fuzz::{TARGETS, Target, target};

/// A small generator: the same numbers on every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

const RANDOM_INPUTS: usize = 2_000;
/// Shared out among the seeds of a target.
const MUTANTS: usize = 8_000;
/// The largest number as a varint: counts and lengths that decoders must not believe.
const LARGEST: [u8; 10] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];

fn mutate(input: &mut Vec<u8>, numbers: &mut Numbers) {
    for _ in 0..=numbers.below(3) {
        let at = numbers.below(input.len());
        match numbers.below(6) {
            0 => input.truncate(at),
            1 => input.insert(at.min(input.len()), numbers.next() as u8),
            2 => drop(input.splice(at..(at + 1).min(input.len()), LARGEST)),
            3 => input.extend_from_within(at.min(input.len())..),
            _ => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = [*byte ^ 1 << numbers.below(8), 0, 0xff, numbers.next() as u8][numbers.below(4)];
                }
            }
        }
    }
}

fn try_all(target: &Target) {
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty());
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    for seed in &seeds {
        (target.run)(seed);
        for cut in 0..seed.len().min(1024) {
            (target.run)(&seed[..cut]);
        }
        for _ in 0..MUTANTS / seeds.len() {
            let mut mutant = seed.clone();
            mutate(&mut mutant, &mut numbers);
            (target.run)(&mutant);
        }
    }
    for _ in 0..RANDOM_INPUTS {
        let noise: Vec<u8> = (0..numbers.below(200)).map(|_| numbers.next() as u8).collect();
        (target.run)(&noise);
    }
    for folder in ["corpus", "regressions"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(target.name);
        for entry in fs::read_dir(folder).into_iter().flatten() {
            (target.run)(&fs::read(entry.unwrap().path()).unwrap());
        }
    }
}

/// One test per target, so that they run side by side and a failure has a name.
macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            try_all(target(stringify!($name)).unwrap());
        })*

        #[test]
        fn every_target_has_a_test_and_a_binary() {
            let tested = [$(stringify!($name)),*];
            assert_eq!(TARGETS.iter().map(|t| t.name).collect::<Vec<_>>(), tested);
            for name in tested {
                let binary = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fuzz_targets/{name}.rs"));
                assert!(fs::read_to_string(binary).unwrap().contains(&format!("run(\"{name}\"")));
            }
        }
    };
}

targets!(
    log_record,
    log_segment,
    shared_entry,
    shared_log,
    manifest,
    run,
    commit_record,
    event_value,
    posting_chunk,
    postgres_message,
    series_chunk,
    series_histograms,
    series_section,
    prometheus_chunk,
    prometheus_index,
);
