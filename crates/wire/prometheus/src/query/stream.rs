//! Streamed responses: a list of items in an envelope, encoded chunk by chunk.
//!
//! A short response is sent as one chunk with its length, and can be cached. Of a long one, only one chunk at
//! a time is in memory in addition to the items.

use std::convert::Infallible;

use axum::body::Bytes;
use axum::response::Response;
use futures_util::stream;
use ropewalk::promql::Share;
use ropewalk_http_kit::response::{chunks, json};

use crate::query::result_cache::ANSWER_BYTES_MAX;

/// A chunk of a long response is sent once it has this size.
const PIECE_BYTES: usize = 64 << 10;

/// A response, complete where it is short.
pub(crate) enum List {
    Short(Bytes),
    Long(Response),
}

impl List {
    pub(crate) fn into_response(self) -> Response {
        match self {
            Self::Short(body) => json(body),
            Self::Long(response) => response,
        }
    }
}

/// `head`, the items separated by commas, then what `tail` writes.
pub(crate) fn list<T: Send + 'static>(
    head: Vec<u8>,
    items: Vec<T>,
    put: fn(&mut Vec<u8>, &T),
    tail: Vec<u8>,
    share: Share,
) -> List {
    let mut pieces = Pieces {
        head: Some(head),
        items: items.into_iter(),
        first: true,
        put,
        tail: Some(tail),
        piece_bytes: ANSWER_BYTES_MAX,
        _share: share,
    };
    let first = pieces.next().unwrap_or_default();
    if pieces.tail.is_none() {
        return List::Short(first);
    }
    pieces.piece_bytes = PIECE_BYTES;
    List::Long(json(chunks(first, Some(stream::iter(pieces.map(Ok::<_, Infallible>))))))
}

struct Pieces<T> {
    head: Option<Vec<u8>>,
    items: std::vec::IntoIter<T>,
    first: bool,
    put: fn(&mut Vec<u8>, &T),
    tail: Option<Vec<u8>>,
    piece_bytes: usize,
    /// Memory reservation of the items, released after the last of them is sent.
    _share: Share,
}

impl<T> Iterator for Pieces<T> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        self.tail.as_ref()?;
        let mut piece = self.head.take().unwrap_or_default();
        for item in self.items.by_ref() {
            if !self.first {
                piece.push(b',');
            }
            self.first = false;
            (self.put)(&mut piece, &item);
            if piece.len() >= self.piece_bytes {
                return Some(piece.into());
            }
        }
        piece.append(&mut self.tail.take().unwrap_or_default());
        Some(piece.into())
    }
}
