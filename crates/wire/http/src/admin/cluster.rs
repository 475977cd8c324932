//! The cluster as this node sees it, the reports by which its followers join it, and commands of operators.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, Method};
use ropewalk::Seq;
use ropewalk::cluster::Role;
use ropewalk_auth::{Needs, Resource};
use ropewalk_wire::{
    CheckpointStatus, Cluster, ContentsCheck, ContentsStatus, Member, MemberReport, NodeAddresses,
    RemovedMember, SteppedDown, TakenReport, WireError, run_unpinned,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use crate::app::App;
use crate::kit::body::{JsonText, NoBody};
use crate::kit::path::PathRequest;
use crate::kit::problem::{Problem, Result};
use crate::route::Route;

/// Shows that a report comes from a node of the cluster: the secret is in the database of each.
const SECRET: HeaderName = HeaderName::from_static("ropewalk-cluster-secret");
/// Hashes of the contents of a node. A header, because a leader of an earlier version rejects other fields of a report.
const HASHES: HeaderName = HeaderName::from_static("ropewalk-cluster-hashes");

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::new(Needs::LOGIN, routes!(status)),
        Route::new(Needs::admin(Resource::AllStores), routes!(step_down)),
        Route::new(Needs::admin(Resource::AllStores), routes!(remove)),
        Route::new(Needs::admin(Resource::AllStores), routes!(check)),
    ]
}

/// The cluster of this node.
fn cluster(app: &App) -> Result<&Arc<dyn Cluster>> {
    app.service.cluster().ok_or_else(|| WireError::not_found("this node belongs to no cluster").into())
}

/// The route for nodes, which have no user.
pub(crate) fn open() -> Vec<Route> {
    vec![Route::undescribed(Needs::PUBLIC, Method::POST, "/v1/cluster/members", report)]
}

/// A node that has joined.
#[derive(Serialize, ToSchema)]
#[schema(as = ClusterMember)]
struct MemberOut {
    /// Its name.
    #[schema(example = "5d3c1f0a9b8e47d26c5b4a39281706f5")]
    node: String,
    /// Its addresses, one URL for each protocol.
    addresses: Vec<String>,
    /// Newest commit that it had at its last report. Only the leader knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    /// Milliseconds since its last report. Only the leader knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    heard_ms: Option<u64>,
}

impl From<Member> for MemberOut {
    fn from(member: Member) -> Self {
        Self {
            node: member.node,
            addresses: member.addresses.urls().to_vec(),
            seq: member.seq.map(|seq| seq.0),
            heard_ms: member.heard.map(|heard| heard.as_millis() as u64),
        }
    }
}

/// The checkpoints of the cluster, as this node knows them.
#[derive(Serialize, ToSchema)]
#[schema(as = ClusterCheckpoints)]
struct CheckpointsOut {
    /// Number of the newest checkpoint, if one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
    /// Its age, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    age_ms: Option<u64>,
    /// Checkpoints that this node has made since its database was opened.
    made: u64,
    /// Attempts to report, to make a checkpoint or to trim the shared log that have failed since then.
    failures: u64,
    /// Why the last attempt failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl From<CheckpointStatus> for CheckpointsOut {
    fn from(status: CheckpointStatus) -> Self {
        Self {
            number: status.newest,
            age_ms: status.age.map(|age| age.as_millis() as u64),
            made: status.made,
            failures: status.failures,
            error: status.failed,
        }
    }
}

/// A check of all contents.
#[derive(Serialize, ToSchema)]
#[schema(as = ClusterContentsCheck)]
struct CheckOut {
    /// Bytes that were equal.
    bytes: u64,
    /// The commit as of which the last part was compared.
    seq: u64,
    /// Milliseconds since it ended, if it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    age_ms: Option<u64>,
}

impl CheckOut {
    fn new(check: ContentsCheck, age_ms: Option<u64>) -> Self {
        Self { bytes: check.bytes, seq: check.seq.0, age_ms }
    }
}

/// Comparisons of the contents of this node with those of the others. A node whose contents differ stops.
#[derive(Default, Serialize, ToSchema)]
#[schema(as = ClusterContents)]
struct ContentsOut {
    /// Newest commit up to which the effects of all commits were compared, and equal.
    equal_seq: u64,
    /// Commits whose effects were hashed since the database was opened.
    hashed_commits: u64,
    /// Bytes that were hashed for these.
    hashed_bytes: u64,
    /// Names of nodes that have reported other hashes. Only the leader knows them.
    differing: Vec<String>,
    /// The check of all contents that is under way. Only the leader knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<CheckOut>,
    /// The last check that ended while this node led.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_check: Option<CheckOut>,
    /// Checks that ended while this node led, early or at the end of the contents.
    checks: u64,
    /// Why the last check ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl From<ContentsStatus> for ContentsOut {
    fn from(status: ContentsStatus) -> Self {
        let ended =
            |(check, age): (_, core::time::Duration)| CheckOut::new(check, Some(age.as_millis() as u64));
        Self {
            equal_seq: status.equal.0,
            hashed_commits: status.hashed_commits,
            hashed_bytes: status.hashed_bytes,
            differing: status.differing,
            check: status.check.map(|check| CheckOut::new(check, None)),
            last_check: status.last_check.map(ended),
            checks: status.checks,
            error: status.failed,
        }
    }
}

/// The cluster as this node sees it.
#[derive(Default, Serialize, ToSchema)]
#[schema(as = ClusterStatus)]
struct ClusterOut {
    /// `alone`, `leader` or `follower`.
    #[schema(example = "follower")]
    role: &'static str,
    /// Name of this node; empty when it is alone.
    node: String,
    /// Its addresses, one URL for each protocol.
    addresses: Vec<String>,
    /// The newest term that it knows: the number of the leader.
    term: u64,
    /// Addresses of the leader, if one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    leader: Option<Vec<String>>,
    /// Newest commit that can be read here.
    seq: u64,
    /// Newest entry of the shared log that is applied here.
    entry: u64,
    /// Entries of the shared log that are not applied here yet.
    lag_entries: u64,
    /// Commits of the leader that cannot be read here yet, as of its last answer to this node.
    lag_commits: u64,
    /// Milliseconds since this node had everything that the shared log had.
    lag_ms: u64,
    /// Why the shared log did not answer the last call.
    #[serde(skip_serializing_if = "Option::is_none")]
    log_error: Option<String>,
    /// Risks in the settings of the log service.
    warnings: Vec<String>,
    /// All nodes that have joined.
    members: Vec<MemberOut>,
    /// The checkpoints, if this node has a store for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoints: Option<CheckpointsOut>,
    /// Comparisons of contents with the other nodes; absent when this node is alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    contents: Option<ContentsOut>,
}

/// The cluster as this node sees it: role, term, leader, lag, members, checkpoints. The lag of another node is in its own response.
#[utoipa::path(
    get, path = "/v1/cluster", operation_id = "get_cluster", tag = "access",
    responses((status = 200, description = "The state of this node.", body = ClusterOut)),
)]
async fn status(State(app): State<App>) -> Json<ClusterOut> {
    let Some(cluster) = app.service.cluster() else {
        let seq = app.service.database().seq().0;
        return Json(ClusterOut { role: "alone", seq, ..ClusterOut::default() });
    };
    let status = cluster.status();
    Json(ClusterOut {
        role: match status.role {
            Role::Alone => "alone",
            Role::Leader { .. } => "leader",
            Role::Follower { .. } => "follower",
        },
        node: status.node,
        addresses: status.addresses.urls().to_vec(),
        term: status.term,
        leader: status.leader.map(|leader| leader.urls().to_vec()),
        seq: status.seq.0,
        entry: status.index,
        lag_entries: status.lag_entries,
        lag_commits: status.lag_commits,
        lag_ms: status.lag.as_millis() as u64,
        log_error: status.unavailable,
        warnings: status.warnings,
        members: status.members.into_iter().map(MemberOut::from).collect(),
        checkpoints: status.checkpoints.map(CheckpointsOut::from),
        contents: Some(status.contents.into()),
    })
}

/// A leader that has given up leading.
#[derive(Serialize, ToSchema)]
#[schema(as = SteppedDown)]
struct SteppedDownOut {
    /// The node that led.
    #[schema(example = "5d3c1f0a9b8e47d26c5b4a39281706f5")]
    node: String,
    /// The term that has ended; the next leader has a larger one.
    term: u64,
    /// The node that it has asked to lead: of those that have reported lately, one with the newest commit.
    #[schema(example = "0b9e47d26c5b4a39281706f55d3c1f0a")]
    successor: String,
    /// Milliseconds within which another node leads, if the successor does not and the shared log answers.
    leads_within_ms: u64,
}

/// Lets the leader give up leading, so that another node leads.
///
/// Commits that took place are acknowledged, later ones are refused with `not_leader` until another node leads. The node opens its
/// database again and follows, so its connections end. Which node leads next is not determined. A node that does not lead responds
/// with `not_leader` and the leader's addresses; a leader to which no other node has reported, with `resource_exhausted`. Needs the
/// right `admin` on every store.
#[utoipa::path(
    post, path = "/v1/cluster/step-down", operation_id = "step_down", tag = "access",
    responses(
        (status = 200, description = "This node no longer leads.", body = SteppedDownOut),
        (status = 404, description = "This node belongs to no cluster: `not_found`."),
    ),
)]
async fn step_down(State(app): State<App>, NoBody: NoBody) -> Result<Json<SteppedDownOut>> {
    let cluster = cluster(&app)?;
    let SteppedDown { node, term, successor, within } = run_unpinned(|| cluster.step_down())?;
    Ok(Json(SteppedDownOut { node, term, successor, leads_within_ms: within.as_millis() as u64 }))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct NodeName {
    /// Name of the node: 32 hexadecimal digits.
    #[param(min_length = 32, max_length = 32, pattern = "^[0-9a-f]+$")]
    node: String,
}

/// A node that was removed.
#[derive(Serialize, ToSchema)]
#[schema(as = RemovedClusterMember)]
struct RemovedOut {
    /// Its name.
    #[schema(example = "5d3c1f0a9b8e47d26c5b4a39281706f5")]
    node: String,
    /// Its addresses, if it was a member.
    #[serde(skip_serializing_if = "Option::is_none")]
    addresses: Option<Vec<String>>,
    /// Its reports that were deleted from the checkpoint store: while they are there, the shared log is retained for the node.
    reports: u64,
}

/// Removes a node that will not return.
///
/// It is no longer listed, and the shared log is no longer retained for it. A node that is started again joins again. A node that
/// has reported within the last seconds is not removed: `resource_exhausted`. Needs the right `admin` on every store.
#[utoipa::path(
    delete, path = "/v1/cluster/members/{node}", operation_id = "remove_cluster_member", tag = "access",
    params(NodeName),
    responses(
        (status = 200, description = "Removed.", body = RemovedOut),
        (status = 404, description = "There is no such node, or this node belongs to no cluster: `not_found`."),
    ),
)]
async fn remove(at: PathRequest<NodeName>, NoBody: NoBody) -> Result<Json<RemovedOut>> {
    let cluster = cluster(&at.app)?;
    let RemovedMember { node, addresses, reports } = run_unpinned(|| cluster.remove(&at.names.node))?;
    let addresses = addresses.map(|addresses| addresses.urls().to_vec());
    Ok(Json(RemovedOut { node, addresses, reports }))
}

/// Begins to compare all contents of the nodes.
///
/// The nodes hash their contents part by part, some megabytes in a second, each part as of one commit, and a node with another
/// hash than most nodes stops. Responds at once; `contents` of `GET /v1/cluster` on the leader shows how far the check is. While one
/// is under way, no other begins. Needs the right `admin` on every store.
#[utoipa::path(
    post, path = "/v1/cluster/check", operation_id = "check_cluster", tag = "access",
    responses(
        (status = 200, description = "A check is under way, or begins within seconds.", body = ContentsOut),
        (status = 404, description = "This node belongs to no cluster: `not_found`."),
    ),
)]
async fn check(State(app): State<App>, NoBody: NoBody) -> Result<Json<ContentsOut>> {
    let cluster = cluster(&app)?;
    cluster.check_contents()?;
    Ok(Json(cluster.status().contents.into()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReportIn {
    node: String,
    addresses: String,
    seq: u64,
}

#[derive(Serialize)]
struct ReportOut {
    seq: u64,
    differs: bool,
}

/// Takes the report of a follower.
async fn report(State(app): State<App>, headers: HeaderMap, text: JsonText) -> Result<Json<ReportOut>> {
    let cluster = cluster(&app)?;
    let given: ReportIn = text.json().await?;
    let addresses = NodeAddresses::parse(&given.addresses).map_err(Problem::invalid_field)?;
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let hashes = text(&HASHES).map(str::to_owned);
    let report = MemberReport { node: given.node, addresses, seq: Seq(given.seq), hashes };
    let secret = text(&SECRET).unwrap_or_default();
    let TakenReport { seq, differs } = run_unpinned(|| cluster.report(secret, report))?;
    Ok(Json(ReportOut { seq: seq.0, differs }))
}
