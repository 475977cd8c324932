//! Work that holds a thread of the runtime for a while.

use ropewalk::Committing;

use crate::processor::roaming;

/// Runs what may wait or take long, so that others go on. A thread that stays on one processor may leave it meanwhile.
pub fn blocking<R>(work: impl FnOnce() -> R) -> R {
    waiting(|| roaming(work))
}

/// Runs what may wait, so that others go on.
fn waiting<R>(work: impl FnOnce() -> R) -> R {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        // With a single thread there is nowhere else; tests run so.
        _ => work(),
    }
}

/// Awaits a commit. A lone one is written by this thread, which saves a lone client two changes of thread; many come
/// together in one write of the log.
pub async fn committed<C: Committing + Unpin>(mut commit: C) -> C::Output {
    if commit.is_lone() {
        waiting(|| commit.drive());
    }
    commit.await
}
