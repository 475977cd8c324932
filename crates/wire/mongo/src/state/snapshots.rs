//! Snapshots that sessions read again: a read with read concern `snapshot` returns its time, and the reads
//! that follow request the same time.
//!
//! A snapshot keeps old versions alive, so there are few and they live shortly; MongoDB holds them for five
//! minutes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ropewalk::{Seq, Snapshot};

use crate::protocol::failure::{Code, Failure, Outcome};

/// How long a snapshot is held after its last use.
const KEPT: Duration = Duration::from_secs(300);
/// Most snapshots; the oldest are dropped first.
const SNAPSHOTS_MAX: usize = 256;

/// The snapshots, by their newest visible commit.
#[derive(Default)]
pub(crate) struct Snapshots(Mutex<BTreeMap<Seq, (Snapshot, Instant)>>);

impl Snapshots {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Seq, (Snapshot, Instant)>> {
        self.0.lock().unwrap_or_else(|held| held.into_inner())
    }

    /// Stores a snapshot.
    pub(crate) fn keep(&self, snapshot: Snapshot) {
        let mut all = self.all();
        all.insert(snapshot.seq(), (snapshot, Instant::now()));
        if all.len() > SNAPSHOTS_MAX {
            all.pop_first();
        }
    }

    /// The stored snapshot of `seq`.
    ///
    /// # Errors
    /// `SnapshotTooOld`.
    pub(crate) fn at(&self, seq: Seq) -> Outcome<Snapshot> {
        let mut all = self.all();
        let (snapshot, used) = all.get_mut(&seq).ok_or_else(|| {
            Failure::new(Code::SnapshotTooOld, "the snapshot at that time is no longer held")
        })?;
        *used = Instant::now();
        Ok(snapshot.clone())
    }

    /// Drops unused snapshots.
    pub(crate) fn tend(&self) {
        self.all().retain(|_, (_, used)| used.elapsed() < KEPT);
    }
}
