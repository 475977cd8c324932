//! Memory of responses that are built completely.

use axum::response::Response;
use ropewalk_http_kit::response::json;
use ropewalk_wire::Service;

use crate::kit::problem::Result;

/// A response with serialized JSON. Its memory counts until the client has read it.
///
/// # Errors
/// The responses of the server hold too much.
pub(crate) fn counted_json(service: &Service, body: Vec<u8>) -> Result<Response> {
    let mut memory = service.answer_memory().connection().reservation();
    memory.try_cover(body.len())?;
    Ok(json(memory.hold(body)))
}
