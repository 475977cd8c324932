//! Memory that the process may use: the memory of the machine, or less where a control group sets a limit, as
//! containers and services do.
//!
//! ```text
//! /proc/meminfo       MemTotal: 24684084 kB
//! /proc/self/cgroup   0::/app.slice/db.service   ─▶ /sys/fs/cgroup/app.slice/db.service/memory.max, and of every group around it
//!                     4:memory:/docker/1f34      ─▶ /sys/fs/cgroup/memory/docker/1f34/memory.limit_in_bytes, and so on
//! ```
//! The least of them counts. Within a container the path may be that of the machine outside, which does not
//! exist: the container's group is the root then, which is read, too.
//!
//! Source: Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst; proc_meminfo(5), cgroups(7).

use std::path::{Component, Path, PathBuf};

/// Bytes of memory that this process may use, as far as the system reports it: Linux does, others return
/// `None`.
pub fn process_memory() -> Option<u64> {
    memory_told_by(&|path| std::fs::read_to_string(path).ok())
}

fn memory_told_by(read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| machine_bytes(&text));
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().filter_map(limit_files).flatten().filter_map(|file| limit(&read(&file)?));
    machine.into_iter().chain(limits).min()
}

/// `MemTotal` of `/proc/meminfo`.
fn machine_bytes(meminfo: &str) -> Option<u64> {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    total.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

/// The files that limit the memory of a group of `/proc/self/cgroup`, for the group and those around it.
fn limit_files(line: &str) -> Option<Vec<PathBuf>> {
    let (_, rest) = line.split_once(':')?;
    let (controllers, path) = rest.split_once(':')?;
    let (root, file) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max"),
        v1 if v1.split(',').any(|name| name == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let mut dir = PathBuf::from(root);
    let mut files = vec![dir.join(file)];
    // A group outside what is mounted begins with `..`: it cannot be read.
    let inside = Path::new(path).components().skip_while(|part| *part == Component::RootDir);
    for part in inside.take_while(|part| matches!(part, Component::Normal(_))) {
        dir.push(part);
        files.push(dir.join(file));
    }
    Some(files)
}

/// A limit; `max` means unlimited. Version 1 writes a number larger than any machine's memory for that.
fn limit(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str =
        "MemTotal:       24684084 kB\nMemFree:        19706660 kB\nMemAvailable:   23244352 kB\n";
    const MACHINE: u64 = 24_684_084 * 1024;
    /// Contents of version 1 without a limit.
    const NO_LIMIT: &str = "9223372036854771712\n";

    fn told(files: &[(&str, &str)]) -> Option<u64> {
        memory_told_by(&|path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path)?;
            Some(found.1.to_owned())
        })
    }

    #[test]
    fn without_a_limit_it_is_the_machines() {
        assert_eq!(told(&[("/proc/meminfo", MEMINFO)]), Some(MACHINE));
        let root = [
            ("/proc/meminfo", MEMINFO),
            ("/proc/self/cgroup", "1:cpu:/\n0::/\n"),
            ("/sys/fs/cgroup/memory.max", "max\n"),
        ];
        assert_eq!(told(&root), Some(MACHINE));
        assert_eq!(told(&[]), None);
        for nonsense in
            ["", "MemTotal:", "MemTotal: many kB", "MemTotal: 7 MB", "MemTotal: 99999999999999999999 kB"]
        {
            assert_eq!(told(&[("/proc/meminfo", nonsense)]), None, "{nonsense}");
        }
    }

    #[test]
    fn the_least_limit_of_a_group_and_those_around_it_counts() {
        let limits = |own, around, root| {
            told(&[
                ("/proc/meminfo", MEMINFO),
                ("/proc/self/cgroup", "0::/app.slice/db.service\n"),
                ("/sys/fs/cgroup/app.slice/db.service/memory.max", own),
                ("/sys/fs/cgroup/app.slice/memory.max", around),
                ("/sys/fs/cgroup/memory.max", root),
            ])
        };
        assert_eq!(limits("1073741824\n", "max\n", ""), Some(1 << 30));
        assert_eq!(limits("max\n", "2147483648\n", ""), Some(2 << 30));
        assert_eq!(limits("max\n", "max\n", "4096\n"), Some(4096));
        assert_eq!(limits("99999999999999\n", "max\n", "max\n"), Some(MACHINE));
    }

    #[test]
    fn version_1_has_a_tree_for_memory_alone() {
        let limits = |own, root| {
            told(&[
                ("/proc/meminfo", MEMINFO),
                (
                    "/proc/self/cgroup",
                    "9:name=systemd:/\n4:cpu,memory:/docker/1f34:5\n1:cpuset:/docker\n0::/\n",
                ),
                ("/sys/fs/cgroup/memory/docker/1f34:5/memory.limit_in_bytes", own),
                ("/sys/fs/cgroup/memory/memory.limit_in_bytes", root),
            ])
        };
        assert_eq!(limits("536870912\n", NO_LIMIT), Some(512 << 20));
        assert_eq!(limits(NO_LIMIT, NO_LIMIT), Some(MACHINE));
        // Within a container the root is its own group, and the path that of the machine.
        assert_eq!(limits("", "268435456\n"), Some(256 << 20));
    }

    #[test]
    fn control_group_outside_the_mount_is_skipped() {
        let files = limit_files("0::/../other").unwrap();
        assert_eq!(files, [Path::new("/sys/fs/cgroup/memory.max")]);
        assert_eq!(limit_files("nonsense"), None);
    }
}
