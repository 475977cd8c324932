//! Requests that a follower sends to its leader.

use core::fmt;
use core::pin::Pin;

use axum::extract::Request;
use axum::http::HeaderName;
use axum::response::Response;
use ropewalk_wire::Code;

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

impl ToLeaderError {
    /// The code of the error that a client receives.
    pub fn code(&self) -> Code {
        match self {
            Self::NotSent(_) => Code::NotLeader,
            Self::NoAnswer(_) => Code::OutcomeUnknown,
        }
    }
}

/// A response of the leader.
pub type LeaderResponse<'a> = Pin<Box<dyn Future<Output = Result<Response, ToLeaderError>> + Send + 'a>>;

/// Sends requests to the leader of the cluster.
pub trait ToLeader: fmt::Debug + Send + Sync {
    /// Sends a request to the API at the URL `leader`, marked with [`FORWARDED`]: by HTTP/1.1 to `http` and `https`, by HTTP/2
    /// to `grpc` and `grpcs`.
    fn send<'a>(&'a self, leader: &'a str, request: Request) -> LeaderResponse<'a>;
}
