//! Speed of the disk: 4 KiB pwrite + fdatasync in a preallocated file, one after the other. This rate bounds
//! every durable figure of one writer, so it is stored with them.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::harness::worker::Latencies;

const BLOCK_BYTES: usize = 4096;
/// Written once with data before the clock starts, then overwritten cyclically.
const FILE_BYTES: usize = 16 << 20;

/// Rate and latency of fdatasync.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Probe {
    /// Synced 4 KiB writes per second.
    pub fdatasync_per_s: f64,
    /// Median in microseconds.
    pub p50_us: f64,
    /// 99th percentile in microseconds.
    pub p99_us: f64,
}

/// Measures for about `duration` in `dir`; the file is removed.
pub fn run(dir: &Path, duration: Duration) -> Result<Probe> {
    let path = dir.join("fdatasync-probe");
    let file = fs::File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    let zeros = vec![0; FILE_BYTES];
    file.write_all_at(&zeros, 0)?;
    file.sync_all()?;
    let block = [0xa5; BLOCK_BYTES];
    let mut latencies = Latencies::default();
    let started = Instant::now();
    let offsets = (0..FILE_BYTES as u64).step_by(BLOCK_BYTES).cycle();
    for offset in offsets {
        let one = Instant::now();
        file.write_all_at(&block, offset)?;
        file.sync_data()?;
        latencies.record(one.elapsed());
        if started.elapsed() >= duration {
            break;
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    fs::remove_file(&path)?;
    Ok(Probe {
        fdatasync_per_s: latencies.count() as f64 / seconds,
        p50_us: latencies.quantile_us(0.5).unwrap_or_default(),
        p99_us: latencies.quantile_us(0.99).unwrap_or_default(),
    })
}
