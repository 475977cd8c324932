//! Documents that are made of events or rows while a cursor reads them.
//!
//! ```text
//! feed: events or rows of one snapshot ─▶ document ─▶ filter ─▶ skip ─▶ limit ─▶ projection ─▶ batch
//! ```

use ropewalk::documents::CancelCheck;
use ropewalk::documents::lang::{Code, DOCUMENT_BYTES_MAX, DocBuf, Filter, LangError, Projection};

use crate::protocol::failure::Outcome;

/// Receives documents; false ends the delivery.
pub(crate) type Each<'e> = &'e mut dyn FnMut(DocBuf) -> Outcome<bool>;

/// A source of documents at one snapshot.
pub(crate) trait Feed: Send {
    /// Passes the next documents, some hundreds at most, to `each` until it returns false. False when there are
    /// no more.
    ///
    /// # Errors
    /// Damage; the errors of `each`.
    fn next(&mut self, each: Each<'_>) -> Outcome<bool>;
}

/// The documents of a query: which, and which of their fields.
pub(crate) struct Chosen {
    pub(crate) filter: Filter,
    pub(crate) projection: Option<Projection>,
    /// Matches that are still left out.
    pub(crate) skip: usize,
    /// Matches that are still returned.
    pub(crate) left: usize,
}

impl Chosen {
    /// The document as returned; `None` when it is left out.
    ///
    /// # Errors
    /// Those of expressions; the end of the command; a document that is too large for BSON.
    pub(crate) fn choose(&mut self, document: DocBuf) -> Result<Option<DocBuf>, LangError> {
        if self.left == 0 || !self.filter.matches(document.doc())? {
            return Ok(None);
        }
        if self.skip > 0 {
            self.skip -= 1;
            return Ok(None);
        }
        self.left -= 1;
        let document = match &self.projection {
            None => document,
            Some(projection) => projection.apply(document.doc(), Some(&self.filter))?,
        };
        let bytes = document.bytes().len();
        if bytes > DOCUMENT_BYTES_MAX {
            let message = format!(
                "a document of {bytes} bytes; at most {DOCUMENT_BYTES_MAX} are returned: leave fields out"
            );
            return Err(LangError::new(Code::BSONObjectTooLarge, message));
        }
        Ok(Some(document))
    }
}

/// A query over a feed.
pub(crate) struct Made {
    feed: Box<dyn Feed>,
    chosen: Chosen,
    /// A document that did not fit in the batch before.
    held: Option<DocBuf>,
    has_more: bool,
}

impl Made {
    pub(crate) fn new(feed: Box<dyn Feed>, chosen: Chosen) -> Self {
        Self { feed, chosen, held: None, has_more: true }
    }

    /// Bytes of the document that waits for the next batch.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held.as_ref().map_or(0, |document| document.bytes().len())
    }

    /// True once every document was returned.
    pub(crate) fn is_done(&self) -> bool {
        self.held.is_none() && (!self.has_more || self.chosen.left == 0)
    }

    /// The next documents: at most `count`, and as many as fit in `bytes_max`, at least one.
    ///
    /// # Errors
    /// Those of the feed and of expressions; the error of `look`.
    pub(crate) fn next_batch(
        &mut self,
        count: usize,
        bytes_max: usize,
        look: CancelCheck<'_>,
    ) -> Outcome<Vec<DocBuf>> {
        let mut batch = Vec::new();
        if count == 0 {
            return Ok(batch);
        }
        batch.extend(self.held.take());
        let mut bytes: usize = batch.iter().map(|document| document.bytes().len()).sum();
        let Self { feed, chosen, held, has_more } = self;
        while *has_more && held.is_none() && chosen.left > 0 && batch.len() < count {
            look()?;
            *has_more = feed.next(&mut |document| {
                let Some(document) = chosen.choose(document)? else { return Ok(chosen.left > 0) };
                if !batch.is_empty() && bytes + document.bytes().len() > bytes_max {
                    *held = Some(document);
                    return Ok(false);
                }
                bytes += document.bytes().len();
                batch.push(document);
                Ok(chosen.left > 0 && batch.len() < count)
            })?;
        }
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use ropewalk::documents::lang::{Value, Writer};

    use super::*;

    /// The numbers below ten, three at a time.
    struct Numbers(std::ops::Range<i32>);

    impl Feed for Numbers {
        fn next(&mut self, each: Each<'_>) -> Outcome<bool> {
            for _ in 0..3 {
                let Some(number) = self.0.next() else { break };
                let mut out = Writer::new();
                out.put("_id", Value::Int32(number));
                if !each(out.finish())? {
                    break;
                }
            }
            Ok(!self.0.is_empty())
        }
    }

    fn made(skip: usize, left: usize) -> Made {
        let chosen = Chosen { filter: Filter::all(), projection: None, skip, left };
        Made::new(Box::new(Numbers(0..10)), chosen)
    }

    fn batch(made: &mut Made, count: usize, bytes_max: usize) -> Vec<i64> {
        let batch = made.next_batch(count, bytes_max, &|| Ok(())).unwrap();
        let id = |document: &DocBuf| document.doc().get("_id").and_then(Value::as_integer).unwrap();
        batch.iter().map(id).collect()
    }

    #[test]
    fn batches_are_limited_by_count_and_bytes_and_lose_nothing() {
        let mut all = made(0, usize::MAX);
        assert_eq!(batch(&mut all, 4, usize::MAX), [0, 1, 2, 3]);
        let one = 14; // bytes of a document
        assert_eq!(batch(&mut all, 9, 2 * one), [4, 5]);
        assert_eq!(batch(&mut all, 9, 1), [6]);
        assert!(!all.is_done());
        assert_eq!(batch(&mut all, 9, usize::MAX), [7, 8, 9]);
        assert!(all.is_done());
    }

    #[test]
    fn skip_and_limit_count_matches() {
        let mut some = made(2, 3);
        assert_eq!(batch(&mut some, 2, usize::MAX), [2, 3]);
        assert_eq!(batch(&mut some, 2, usize::MAX), [4]);
        assert!(some.is_done());
    }
}
