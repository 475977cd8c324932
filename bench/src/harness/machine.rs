//! Facts about the machine and the build, stored with every figure.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde::{Deserialize, Serialize};

/// The machine a benchmark ran on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// Model name of the first processor.
    pub cpu: String,
    /// Processors this process may use.
    pub cores: usize,
    /// Physical memory, rounded.
    pub memory_gib: u64,
    /// File system of the data directory.
    pub fs: String,
    /// Kernel release.
    pub kernel: String,
    /// Load average of the minute before.
    pub load: Option<f64>,
}

impl Machine {
    /// This machine, for data in `dir`. Unavailable values are `unknown` or 0.
    pub fn here(dir: &Path) -> Self {
        let unknown = || "unknown".to_owned();
        Self {
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(unknown),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gib: field("/proc/meminfo", "MemTotal")
                .and_then(|kib| kib.trim_end_matches(" kB").parse::<u64>().ok())
                .map_or(0, |kib| (kib + (1 << 19)) >> 20),
            fs: file_system(dir).unwrap_or_else(unknown),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .map_or_else(|_| unknown(), |s| s.trim().into()),
            load: load(),
        }
    }
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Peak resident memory of this process, including mapped files, in MiB.
pub fn peak_resident_mib() -> Option<f64> {
    let peak = field("/proc/self/status", "VmHWM")?;
    Some(peak.trim_end_matches(" kB").parse::<f64>().ok()? / 1024.0)
}

/// Load average of the last minute.
pub fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// Type of the file system with the longest mount point above `dir`.
fn file_system(dir: &Path) -> Option<String> {
    let dir = fs::canonicalize(dir).ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let (_, kind) =
        mounts.filter(|(point, _)| dir.starts_with(point)).max_by_key(|(point, _)| point.len())?;
    Some(kind.to_owned())
}

/// The commit this was built from, with `+` when the tree has changes; `unknown` outside a clone.
pub fn git_commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    let changed =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.is_empty());
    if changed { commit + "+" } else { commit }
}

/// Bytes that the files below `dir` occupy on disk (allocated blocks, so holes are free and preallocation counts).
pub fn disk_bytes(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let about = entry.metadata()?;
        bytes += if about.is_dir() { disk_bytes(&entry.path())? } else { about.blocks() * 512 };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_known() {
        let machine = Machine::here(Path::new("."));
        assert!(machine.cores > 0 && machine.memory_gib > 0);
        assert_ne!(machine.fs, "unknown");
        assert!(peak_resident_mib().is_some_and(|mib| mib > 0.1));
        assert!(load().is_some());
    }

    #[test]
    fn disk_bytes_counts_allocated_blocks_of_nested_files() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("inner")).unwrap();
        fs::write(dir.path().join("inner/full"), vec![1; 10_000]).unwrap();
        let sparse = fs::File::create(dir.path().join("sparse")).unwrap();
        sparse.set_len(1 << 30).unwrap();
        let file = fs::File::open(dir.path().join("inner/full")).unwrap();
        file.sync_all().unwrap();
        let bytes = disk_bytes(dir.path()).unwrap();
        assert!((10_000..1 << 20).contains(&bytes), "{bytes}");
    }
}
