//! The position of a change stream between two batches.

use std::time::Duration;

use ropewalk::documents::lang::{DocBuf, Value, Writer};
use ropewalk::documents::{ChangeEvent, ChangeStream};

use crate::protocol::failure::{Code, Failure, Outcome};

/// State of a change stream cursor.
pub(crate) struct Changes {
    stream: ChangeStream,
    /// An event read ahead; the events before it are sent first.
    ahead: Option<ChangeEvent>,
}

impl Changes {
    /// The state at the start of `stream`.
    pub(crate) fn new(stream: ChangeStream) -> Self {
        Self { stream, ahead: None }
    }

    /// The next events, up to `count`.
    ///
    /// # Errors
    /// The log no longer holds the position; errors of the pipeline.
    pub(crate) fn take(&mut self, count: usize, bytes_max: usize) -> Outcome<Vec<DocBuf>> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < count {
            let event = match self.ahead.take() {
                // Rules may have been added since.
                Some(event) if !self.stream.may_show(&event)? => continue,
                Some(event) => event,
                None => match self.stream.next(Duration::ZERO)? {
                    Some(event) => event,
                    None => break,
                },
            };
            let next = &event.document;
            if next.doc().get("_id").is_none() {
                let message = "Encountered an event whose _id field, which contains the resume token, was modified by the pipeline.";
                return Err(Failure::new(Code::ChangeStreamFatalError, message));
            }
            if !batch.is_empty() && bytes + next.bytes().len() > bytes_max {
                self.ahead = Some(event);
                break;
            }
            bytes += next.bytes().len();
            batch.push(event.document);
        }
        Ok(batch)
    }

    /// True when no more events will follow.
    pub(crate) fn has_ended(&self) -> bool {
        self.ahead.is_none() && self.stream.has_ended()
    }

    /// Resume token for the next batch.
    pub(crate) fn token(&self) -> DocBuf {
        let mut out = Writer::new();
        match self.ahead.as_ref().and_then(|next| next.document.doc().get("_id")) {
            // One event is still held. The resume point after the previous event lies right before it, and
            // only the held event can name that point.
            Some(Value::Document(ahead)) => ahead.iter().for_each(|(name, value)| out.put(name, value)),
            _ => out.put("_data", Value::String(&self.stream.token().to_string())),
        }
        out.finish()
    }
}
