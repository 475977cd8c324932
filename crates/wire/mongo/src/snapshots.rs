//! Snapshots that sessions come back to: a read with read concern `snapshot` is told as of when it was, and the reads that
//! follow ask for the same time.
//!
//! A snapshot keeps old versions alive, so there are few and they live shortly; MongoDB keeps them for five minutes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ropewalk::{Seq, Snapshot};

use crate::failure::{Code, Failure, Outcome};

/// How long a snapshot is kept after it was last asked for.
const KEPT: Duration = Duration::from_secs(300);
/// Snapshots at once; the oldest go first.
const SNAPSHOTS_MAX: usize = 256;

/// The snapshots, by the commit that they see last.
#[derive(Default)]
pub(crate) struct Snapshots(Mutex<BTreeMap<Seq, (Snapshot, Instant)>>);

impl Snapshots {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Seq, (Snapshot, Instant)>> {
        self.0.lock().unwrap_or_else(|held| held.into_inner())
    }

    /// Keeps a snapshot.
    pub(crate) fn keep(&self, snapshot: Snapshot) {
        let mut all = self.all();
        all.insert(snapshot.seq(), (snapshot, Instant::now()));
        if all.len() > SNAPSHOTS_MAX {
            all.pop_first();
        }
    }

    /// The snapshot that was told to be of `seq`.
    ///
    /// # Errors
    /// `SnapshotTooOld`.
    pub(crate) fn at(&self, seq: Seq) -> Outcome<Snapshot> {
        let mut all = self.all();
        let (snapshot, used) = all.get_mut(&seq).ok_or_else(|| {
            Failure::new(Code::SnapshotTooOld, "what could be read at that time is not kept any more")
        })?;
        *used = Instant::now();
        Ok(snapshot.clone())
    }

    /// Lets go of what nobody asks for.
    pub(crate) fn tend(&self) {
        self.all().retain(|_, (_, used)| used.elapsed() < KEPT);
    }
}
