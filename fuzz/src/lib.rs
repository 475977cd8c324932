//! A fuzz target for every decoder: any bytes give a result or a typed error, never a panic, a hang or much
//! memory.
//!
//!   bytes ─▶ target ─▶ decoder        fuzz_targets/NAME.rs: libFuzzer chooses the bytes (nightly)
//!                                     tests/corpus.rs: seeds, their mutations and corpus/NAME/ choose them (stable)
//!
//! Checksums would stop a fuzzer at once, so targets of files that carry them read the input as a script and
//! correct the checksums: the target is the code after the checksum.

mod commit;
mod events;
mod log;
mod postgres;
mod script;
mod series;
mod shared;
mod store;

/// One decoder under test.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name: that of the binary, and of its folder in `corpus/`.
    pub name: &'static str,
    /// Decodes the bytes; panics when something is wrong with the decoder.
    pub run: fn(&[u8]),
    /// Inputs to start from, made by the encoders, so that they are never out of date.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "log_record", run: log::record, seeds: log::record_seeds },
    Target { name: "log_segment", run: log::segment, seeds: log::segment_seeds },
    Target { name: "shared_entry", run: shared::entry, seeds: shared::entry_seeds },
    Target { name: "shared_log", run: shared::follower, seeds: shared::follower_seeds },
    Target { name: "manifest", run: store::manifest, seeds: store::manifest_seeds },
    Target { name: "run", run: store::run, seeds: store::run_seeds },
    Target { name: "commit_record", run: commit::record, seeds: commit::record_seeds },
    Target { name: "event_value", run: events::value, seeds: events::value_seeds },
    Target { name: "posting_chunk", run: events::chunk, seeds: events::chunk_seeds },
    Target { name: "postgres_message", run: postgres::message, seeds: postgres::message_seeds },
    Target { name: "series_chunk", run: series::chunk, seeds: series::chunk_seeds },
    Target { name: "series_histograms", run: series::histograms, seeds: series::histogram_seeds },
    Target { name: "series_section", run: series::section, seeds: series::section_seeds },
    Target { name: "prometheus_chunk", run: series::block_chunk, seeds: series::block_chunk_seeds },
    Target { name: "prometheus_index", run: series::block_index, seeds: series::block_index_seeds },
];

/// The target called `name`.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Runs one input through the target called `name`.
pub fn run(name: &str, data: &[u8]) {
    (target(name).expect("the binaries are named after targets").run)(data);
}
