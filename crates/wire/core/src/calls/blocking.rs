//! Work that occupies a thread of the runtime for a while.

use ropewalk::hooks::InFlightCommit;

use crate::calls::processor::roaming;

/// Runs work that may wait or take long, without blocking other tasks. A pinned thread may leave its
/// processor meanwhile.
pub fn run_unpinned<R>(work: impl FnOnce() -> R) -> R {
    waiting(|| roaming(work))
}

/// Runs work that may wait, without blocking other tasks.
fn waiting<R>(work: impl FnOnce() -> R) -> R {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        // With a single thread the work blocks; tests run so.
        _ => work(),
    }
}

/// Awaits a commit. A lone one is written by this thread, which saves two thread switches; many share one
/// write of the log.
pub async fn committed<C: InFlightCommit + Unpin>(mut commit: C) -> C::Output {
    if commit.can_lead() {
        waiting(|| commit.lead());
    }
    commit.await
}
