//! Commands on a member of a replica set: which only the primary runs, and reads that wait.
//!
//! ```text
//! secondary: write, transaction ─▶ NotWritablePrimary      read without a preference for secondaries ─▶ NotPrimaryNoSecondaryOk
//! read: afterClusterTime ─▶ wait for that commit           linearizable ─▶ proof of the primary
//! ```

use ropewalk_wire::WireError;

use crate::call::Call;
use crate::command::table::{Command, Run};
use crate::protocol::failure::{Code, Failure, Outcome, not_primary, not_primary_no_secondary};

/// Reads that a secondary serves to clients that allow it. Other commands are about the server itself.
const READS: &[&str] = &[
    "aggregate",
    "collStats",
    "count",
    "dbStats",
    "dbstats",
    "distinct",
    "explain",
    "find",
    "listCollections",
    "listDatabases",
    "listIndexes",
    "validate",
];

/// Rejects a command that this member does not run.
pub(super) fn check(call: &Call<'_>, command: &Command) -> Outcome<()> {
    if call.shared.service.database().leads() {
        return Ok(());
    }
    let writes = match command.run {
        Run::Write(_) => command.name != "aggregate" || ends_in_a_write(call),
        Run::Change(_) | Run::Models(_) | Run::Commit | Run::Users => true,
        Run::Quick(_) | Run::Read(_) | Run::GetMore => false,
    };
    if writes || call.in_transaction || call.read_level() == Some("linearizable") {
        return Err(not_primary());
    }
    if READS.contains(&command.name) && !call.allows_secondary() {
        return Err(not_primary_no_secondary());
    }
    Ok(())
}

/// True for a pipeline with `$out` or `$merge`, which are last.
fn ends_in_a_write(call: &Call<'_>) -> bool {
    let stages = call.args.array("pipeline").ok().flatten();
    let last = stages.and_then(|stages| stages.values().last());
    let stage = last.and_then(|last| last.as_document()).and_then(|stage| stage.first());
    stage.is_some_and(|(name, _)| ["$out", "$merge"].contains(&name))
}

/// Waits until this member may serve the read.
pub(super) async fn wait(call: &Call<'_>) -> Outcome<()> {
    let service = &call.shared.service;
    if service.cluster().is_none() {
        return Ok(());
    }
    let waited = async {
        if let Some(seq) = call.after_cluster_time() {
            service.wait_for_commit(seq).await?;
        }
        if call.read_level() == Some("linearizable") {
            service.read_barrier().await?;
        }
        Ok::<_, WireError>(())
    };
    let Some(deadline) = call.deadline else { return Ok(waited.await?) };
    match tokio::time::timeout_at(deadline.into(), waited).await {
        Ok(waited) => Ok(waited?),
        Err(_) => Err(Failure::new(Code::MaxTimeMSExpired, "operation exceeded time limit")),
    }
}
