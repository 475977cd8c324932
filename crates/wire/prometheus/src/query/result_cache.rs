//! Cache of complete query responses, invalidated by commits.
//!
//!   query ─▶ cached? ─▶ has a later commit changed a time it read? ── no ─▶ the same bytes again
//!               └─ no, or yes ─▶ evaluated, and cached with its snapshot's commit and the latest time it read
//!
//! Entries have no expiry time: a response about the past stays valid until a commit writes or deletes there,
//! and the store knows how far back each commit reached. So a repeated dashboard query costs a lookup, and
//! the next query sees a late sample.

use axum::body::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use ropewalk::Seq;
use ropewalk::series::SeriesStore;

/// Longer responses are not cached.
pub(crate) const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Rough size of a response and its query, from which the cache's number of entries is estimated.
const BYTES_USUAL: u64 = 16 << 10;

/// A cached response.
#[derive(Debug, Clone)]
struct Kept {
    body: Bytes,
    /// Last commit visible to its snapshot.
    seq: Seq,
    /// Latest time that it read; `None` when it read nothing.
    upto_ms: Option<i64>,
}

#[derive(Debug, Clone)]
struct Bytewise;

impl Weighter<String, Kept> for Bytewise {
    fn weight(&self, question: &String, kept: &Kept) -> u64 {
        (question.len() + kept.body.len() + size_of::<Kept>()) as u64
    }
}

/// Bounded by bytes; evicts the least used entries first.
#[derive(Debug)]
pub(crate) struct Answers(Option<Cache<String, Kept, Bytewise>>);

impl Answers {
    /// Caches at most `bytes`; with 0, nothing.
    pub(crate) fn new(bytes: u64) -> Self {
        let items = (bytes / BYTES_USUAL).clamp(16, 1 << 20) as usize;
        Self((bytes > 0).then(|| Cache::with_weighter(items, bytes, Bytewise)))
    }

    /// The response, if it is cached and still valid.
    pub(crate) fn get(&self, question: &str, store: &SeriesStore) -> Option<Bytes> {
        let kept = self.0.as_ref()?.get(question)?;
        let right =
            kept.upto_ms.is_none_or(|upto| store.oldest_change(kept.seq).is_none_or(|oldest| oldest > upto));
        right.then_some(kept.body)
    }

    /// Caches a response that was evaluated at commit `seq` and read times up to `upto_ms`.
    pub(crate) fn keep(&self, question: String, body: &Bytes, seq: Seq, upto_ms: Option<i64>) {
        if let Some(cache) = self.0.as_ref().filter(|_| body.len() <= ANSWER_BYTES_MAX) {
            cache.insert(question, Kept { body: body.clone(), seq, upto_ms });
        }
    }
}
