//! The server as a real process, with clients that race, stall, vanish or send garbage. Each test is short
//! here; an environment variable sets its length:
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `ROPEWALK_SEEDS` | seeds of the consistency checker | 2 |
//! | `ROPEWALK_GARBAGE_SECONDS` | seconds of garbage | 2 |
//! | `ROPEWALK_IDLE` | idle subscriptions | 1,000 |

mod calls;
mod checker;
mod garbage;
mod idle;
mod slow;

use crate::Place;
use crate::serving::Server;

/// A number from the environment.
fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// Resident memory of the server in MiB, including mapped files.
fn resident_mib(place: &Place) -> u64 {
    memory_kib(place, "VmRSS:") / 1024
}

/// A line of /proc/PID/status of the server, in KiB.
fn memory_kib(place: &Place, name: &str) -> u64 {
    let ready: serde_json::Value =
        serde_json::from_slice(&std::fs::read(place.path().join("ready.json")).unwrap()).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", ready["pid"])).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Stops the server and verifies the database.
fn ends_clean(place: &Place, server: Server) {
    assert_eq!(server.stop(), 0);
    place.ok(&["verify"]);
}

/// A seeded stream of numbers (SplitMix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0 to `n` - 1.
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn bytes(&mut self, n: u64) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}
