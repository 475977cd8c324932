//! Answers that may be long, sent while they are written: a list of items in an envelope, a piece of text at a time.
//!
//! What is short leaves as one piece with its length, and can be kept. Of what is long only that much, and then one piece
//! at a time, is in memory beside the items.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::response::Response;
use ropewalk::promql::Share;

use crate::cache::ANSWER_BYTES_MAX;

/// A piece of a long answer is sent once it has this size.
const PIECE_BYTES: usize = 64 << 10;

/// An answer, as a whole where it is short.
pub(crate) enum List {
    Short(Bytes),
    Long(Response),
}

impl List {
    pub(crate) fn into_response(self) -> Response {
        match self {
            Self::Short(body) => crate::answer::json(Body::from(body)),
            Self::Long(response) => response,
        }
    }
}

/// `head`, the items parted by commas, then what `tail` writes.
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
    let all = std::iter::once(first).chain(pieces).map(Ok::<_, Infallible>);
    List::Long(crate::answer::json(Body::from_stream(futures_util::stream::iter(all))))
}

struct Pieces<T> {
    head: Option<Vec<u8>>,
    items: std::vec::IntoIter<T>,
    first: bool,
    put: fn(&mut Vec<u8>, &T),
    tail: Option<Vec<u8>>,
    piece_bytes: usize,
    /// The memory of the items, until the last of them is sent.
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
