//! Errors as responses.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

/// An error becomes a 500 with the reason.
#[derive(Debug)]
pub struct Failed(anyhow::Error);

impl<E: Into<anyhow::Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, format!("{:#}", self.0)).into_response()
    }
}
