//! Requests that a follower sends to its leader.

use core::fmt;
use core::pin::Pin;
use core::time::Duration;

use axum::extract::Request;
use axum::http::HeaderName;
use axum::response::Response;
use ropewalk_wire::{Cluster, Code, NodeAddresses, WireError};

/// How often a request that waits for the leader checks that it still leads: short compared with any lease.
const REPLACED_CHECK: Duration = Duration::from_millis(100);

/// Marks a request that a follower has sent on, so that the receiver does not send it further.
pub const FORWARDED: HeaderName = HeaderName::from_static("ropewalk-forwarded");

/// Why the leader did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToLeaderError {
    /// It received nothing of the request.
    #[error("the leader cannot be reached: {0}")]
    NotSent(String),
    /// It may have carried out the request.
    #[error("the leader did not answer, and may have carried out the request: {0}")]
    NoAnswer(String),
}

/// A response of the leader.
pub type LeaderResponse<'a> = Pin<Box<dyn Future<Output = Result<Response, ToLeaderError>> + Send + 'a>>;

/// Sends requests to the leader of the cluster.
pub trait ToLeader: fmt::Debug + Send + Sync {
    /// Sends a request to the API at the URL `leader`, marked with [`FORWARDED`]: by HTTP/1.1 to `http` and `https`, by HTTP/2
    /// to `grpc` and `grpcs`.
    fn send<'a>(&'a self, leader: &'a str, request: Request) -> LeaderResponse<'a>;
}

/// Sends a request to the leader, at the one of its addresses that `address` chooses. Waits no longer when another node
/// leads: this one may have lost its power or its network.
///
/// # Errors
/// [`Code::NotLeader`]: no leader is known, or it received nothing; [`Code::OutcomeUnknown`].
pub async fn send_to_leader(
    sender: &dyn ToLeader,
    cluster: &dyn Cluster,
    address: fn(&NodeAddresses) -> Option<&str>,
    request: Request,
) -> Result<Response, WireError> {
    let addresses = cluster.leader();
    let leader = addresses.as_ref().map(ToString::to_string);
    let Some(url) = addresses.as_ref().and_then(address) else {
        return Err(WireError::not_leader(leader.as_deref()));
    };
    let replaced = async {
        loop {
            tokio::time::sleep(REPLACED_CHECK).await;
            if cluster.leader().as_ref().and_then(address).is_some_and(|leads| leads != url) {
                return;
            }
        }
    };
    let answered = tokio::select! {
        answered = sender.send(url, request) => answered,
        () = replaced => Err(ToLeaderError::NoAnswer("another node leads now".to_owned())),
    };
    answered.map_err(|error| {
        let code = match &error {
            ToLeaderError::NotSent(_) => Code::NotLeader,
            ToLeaderError::NoAnswer(_) => Code::OutcomeUnknown,
        };
        let mut refused = WireError::new(code, error.to_string());
        refused.leader = leader;
        refused
    })
}
