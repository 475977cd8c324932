//! Errors of a server, in the words and with the exit codes of a command that opened the files itself.

use hyper::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::failure::{Exit, Failure};

/// The body of an error, `application/problem+json`.
#[derive(Deserialize)]
struct Problem {
    code: String,
    detail: String,
}

/// A line of a stream that ends with an error.
#[derive(Deserialize)]
struct ErrorLine {
    error: Problem,
}

/// What an answer with an error status means here.
pub(super) fn failure(server: &str, status: StatusCode, body: &[u8]) -> Failure {
    match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => problem.failure(server),
        Err(_) => {
            let what = format!("{server} answered {status}, and not in the way of a Ropewalk server");
            Failure::new(Exit::Internal, what, "Is this the HTTP port?")
        }
    }
}

/// Reads a line of a stream: what was asked for, or the error that ends it, or something strange.
pub(super) fn line<T: DeserializeOwned>(line: &[u8]) -> Result<T, Result<Failure, serde_json::Error>> {
    match serde_json::from_slice(line) {
        Ok(value) => Ok(value),
        Err(strange) => match serde_json::from_slice::<ErrorLine>(line) {
            Ok(ended) => Err(Ok(ended.error.failure("the server"))),
            Err(_) => Err(Err(strange)),
        },
    }
}

impl Problem {
    fn failure(self, server: &str) -> Failure {
        Failure::from_code(&self.code, self.detail, server)
    }
}
