//! Responses of nested JSON that are built completely, within the memory that all queries share.

use axum::body::Bytes;
use axum::response::Response;
use ropewalk::promql::Share;
use ropewalk_http_kit::response::json;
use serde_json::Value;

use crate::app::App;
use crate::request::response::{ApiError, HEAD, Notes, put_tail};

/// The text of a response. Its memory counts until the client has read it.
pub(crate) struct Counted {
    out: Vec<u8>,
    share: Share,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.out
    }
}

impl Counted {
    /// The beginning of a response; its data follows.
    pub(crate) fn new(app: &App) -> Self {
        Self { out: HEAD.to_vec(), share: Share::new(Some(app.memory.clone())) }
    }

    /// Appends a part of a JSON text.
    ///
    /// # Errors
    /// Queries and responses hold too much memory together.
    pub(crate) fn put(&mut self, text: &str) -> Result<(), ApiError> {
        self.share.grow(text.len())?;
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    /// Appends an element of the list that was begun last.
    ///
    /// # Errors
    /// As [`Counted::put`].
    pub(crate) fn element(&mut self, value: &Value) -> Result<(), ApiError> {
        if self.out.last() != Some(&b'[') {
            self.put(",")?;
        }
        self.put(&value.to_string())
    }

    /// As [`Counted::element`], with an object that has a further field, a list, which [`Counted::close`] ends.
    ///
    /// # Errors
    /// As [`Counted::put`].
    pub(crate) fn open(&mut self, fields: &Value, list: &str) -> Result<(), ApiError> {
        assert!(fields.as_object().is_some_and(|fields| !fields.is_empty()), "{fields} has no fields");
        self.element(fields)?;
        self.out.pop();
        self.put(&format!(",\"{list}\":["))
    }

    /// Ends the list and the object that were begun last.
    ///
    /// # Errors
    /// As [`Counted::put`].
    pub(crate) fn close(&mut self) -> Result<(), ApiError> {
        self.put("]}")
    }

    /// The complete response.
    pub(crate) fn into_response(mut self) -> Response {
        put_tail(&mut self.out, &Notes::default());
        json(Bytes::from_owner(self))
    }
}
