//! Responses that are built completely: their memory counts until the client has read them.

use axum::response::Response;
use ropewalk_http_kit::response::json;
use ropewalk_wire::{Code, Service};
use serde::Serialize;

use crate::kit::problem::Problem;

/// A response with this JSON text.
///
/// # Errors
/// The responses of the server hold too much.
pub(crate) fn counted(service: &Service, text: Vec<u8>) -> Result<Response, Problem> {
    let mut memory = service.answer_memory().connection().reservation();
    memory.try_cover(text.len())?;
    Ok(json(memory.hold(text)))
}

/// As [`counted`], with a value that is written as JSON.
///
/// # Errors
/// As [`counted`].
pub(crate) fn counted_json(service: &Service, value: &impl Serialize) -> Result<Response, Problem> {
    let text = serde_json::to_vec(value);
    let text = text.map_err(|error| Problem::new(Code::Internal, format!("response: {error}")))?;
    counted(service, text)
}
