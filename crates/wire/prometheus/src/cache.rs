//! Answers that are kept for as long as they stay right.
//!
//!   question ─▶ kept? ─▶ has a commit since touched what it looked at? ── no ─▶ the same bytes again
//!                 └─ no, or yes ─▶ evaluated anew, and kept with the commit that it saw and the latest time that it looked at
//!
//! Nothing expires and nothing is guessed: an answer about the past stays right until somebody writes or deletes there, and the
//! store knows how far back each commit reached. So a dashboard that asks again costs a look-up, and a late sample is seen by
//! the next question.

use axum::body::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use ropewalk::Seq;
use ropewalk::series::SeriesStore;

/// Longer answers are not kept.
pub(crate) const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Roughly, of an answer and its question: how many the cache is laid out for.
const BYTES_USUAL: u64 = 16 << 10;

/// One answer.
#[derive(Debug, Clone)]
struct Kept {
    body: Bytes,
    /// The last commit that it saw.
    seq: Seq,
    /// The latest time that it looked at; `None` when it looked at nothing.
    upto_ms: Option<i64>,
}

#[derive(Debug, Clone)]
struct Bytewise;

impl Weighter<String, Kept> for Bytewise {
    fn weight(&self, question: &String, kept: &Kept) -> u64 {
        (question.len() + kept.body.len() + size_of::<Kept>()) as u64
    }
}

/// Bounded by bytes; the least used go first.
#[derive(Debug)]
pub(crate) struct Answers(Option<Cache<String, Kept, Bytewise>>);

impl Answers {
    /// Keeps at most `bytes`; with 0, nothing.
    pub(crate) fn new(bytes: u64) -> Self {
        let items = (bytes / BYTES_USUAL).clamp(16, 1 << 20) as usize;
        Self((bytes > 0).then(|| Cache::with_weighter(items, bytes, Bytewise)))
    }

    /// The answer, if it is kept and still right.
    pub(crate) fn get(&self, question: &str, store: &SeriesStore) -> Option<Bytes> {
        let kept = self.0.as_ref()?.get(question)?;
        let right =
            kept.upto_ms.is_none_or(|upto| store.oldest_change(kept.seq).is_none_or(|oldest| oldest > upto));
        right.then_some(kept.body)
    }

    /// Keeps an answer that was evaluated at commit `seq` and looked at times up to `upto_ms`.
    pub(crate) fn keep(&self, question: String, body: &Bytes, seq: Seq, upto_ms: Option<i64>) {
        if let Some(cache) = self.0.as_ref().filter(|_| body.len() <= ANSWER_BYTES_MAX) {
            cache.insert(question, Kept { body: body.clone(), seq, upto_ms });
        }
    }
}
