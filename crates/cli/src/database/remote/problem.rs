//! Errors of a server, with the texts and exit codes of the same command on a directory.

use hyper::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::output::failure::{Exit, Failure};

/// The body of an error, `application/problem+json`.
#[derive(Deserialize)]
struct Problem {
    code: String,
    detail: String,
}

/// The error body of the Prometheus API.
#[derive(Deserialize)]
struct Refused {
    error: String,
}

/// A line of a stream that ends with an error.
#[derive(Deserialize)]
struct ErrorLine {
    problem: Problem,
}

/// A line about the stream itself and not its content.
#[derive(Deserialize)]
struct ControlLine {
    #[serde(rename = "control")]
    _control: String,
}

/// The failure for a response with an error status.
pub(super) fn failure(server: &str, status: StatusCode, body: &[u8]) -> Failure {
    match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => problem.failure(server),
        Err(_) if let Ok(refused) = serde_json::from_slice::<Refused>(body) => {
            let exit = if status.is_client_error() { Exit::Invalid } else { Exit::Internal };
            Failure::new(exit, refused.error, "")
        }
        Err(_) => {
            let what = format!("{server} responded {status}, but not as a Ropewalk server");
            Failure::new(Exit::Internal, what, "Is this the HTTP port?")
        }
    }
}

/// One line of a stream.
pub(super) enum Line<T> {
    /// A row of the result.
    Value(T),
    /// A line about the stream itself, such as a heartbeat.
    Control,
    /// The error that ends it.
    Ended(Failure),
    /// Unexpected content.
    Strange(serde_json::Error),
}

pub(super) fn line<T: DeserializeOwned>(server: &str, line: &[u8]) -> Line<T> {
    match serde_json::from_slice(line) {
        Ok(value) => Line::Value(value),
        Err(strange) => match serde_json::from_slice::<ErrorLine>(line) {
            Ok(ended) => Line::Ended(ended.problem.failure(server)),
            Err(_) if serde_json::from_slice::<ControlLine>(line).is_ok() => Line::Control,
            Err(_) => Line::Strange(strange),
        },
    }
}

impl Problem {
    fn failure(self, server: &str) -> Failure {
        Failure::from_code(&self.code, self.detail, server)
    }
}
