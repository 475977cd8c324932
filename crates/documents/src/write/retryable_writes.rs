//! Retryable writes: the result of a statement is stored in the same commit as its writes.
//!
//! ```text
//! documents.sessions   h session                                   newest number i64 | last used, ms since 1970, i64
//!                      r session bytes, ordered | number | statement    the result, a document
//! ```
//! A client that did not receive the response sends the statement again with the same session, number and
//! statement id. It gets the stored result, and nothing is written twice. Two copies that run concurrently
//! conflict on the session's record, and the one that is retried finds the result of the other.

use ropewalk_base::keys;
use ropewalk_engine::KeySpan;

use crate::error::{DocumentsError, Result};
use crate::lang::{Doc, DocBuf};
use crate::model::Documents;
use crate::transaction::source::Source;
use crate::transaction::tx::DocumentsTx;

/// Longest id of a session, bytes.
pub const SESSION_BYTES_MAX: usize = 256;

/// Identifies a statement of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryKey {
    /// The session's id, such as the 16 bytes of `lsid`.
    pub session: Vec<u8>,
    /// `txnNumber`: grows with every retryable command of the session.
    pub number: i64,
    /// `stmtId`: the position of the statement in its command.
    pub statement: i32,
}

fn header_key(session: &[u8]) -> Vec<u8> {
    [b"h", session].concat()
}

fn answers_of(session: &[u8], number: i64) -> Vec<u8> {
    let mut key = vec![b'r'];
    keys::put_bytes(&mut key, session);
    keys::put_i64(&mut key, number);
    key
}

fn answer_key(retry: &RetryKey) -> Vec<u8> {
    let mut key = answers_of(&retry.session, retry.number);
    keys::put_i64(&mut key, i64::from(retry.statement));
    key
}

fn header(stored: &[u8]) -> Option<(i64, i64)> {
    let (number, rest) = stored.split_first_chunk::<8>()?;
    Some((i64::from_le_bytes(*number), i64::from_le_bytes(rest.try_into().ok()?)))
}

fn damaged() -> DocumentsError {
    DocumentsError::damaged("record of a session", "sixteen bytes")
}

impl DocumentsTx<'_> {
    /// The stored result of this statement, if it was run before.
    ///
    /// # Errors
    /// [`DocumentsError::TransactionTooOld`] when the session has already used a higher number.
    pub fn answered(&mut self, retry: &RetryKey) -> Result<Option<DocBuf>> {
        if retry.session.is_empty() || retry.session.len() > SESSION_BYTES_MAX {
            let what = format!("the id of a session has between 1 and {SESSION_BYTES_MAX} bytes");
            return Err(DocumentsError::InvalidOptions { what });
        }
        self.begin();
        let sessions = self.spaces().sessions;
        let key = header_key(&retry.session);
        // From here on, not from the statements that follow: a copy may commit between them.
        self.guard(sessions, &key);
        let Some(stored) = self.kv.get(sessions, &key)? else { return Ok(None) };
        let (newest, _) = header(&stored).ok_or_else(damaged)?;
        if retry.number < newest {
            return Err(DocumentsError::TransactionTooOld { number: retry.number, newest });
        }
        if retry.number > newest {
            return Ok(None);
        }
        Ok(self.kv.get(sessions, &answer_key(retry))?.map(DocBuf::trusted))
    }

    /// Stores the result of this statement in the commit of its writes. Results of lower numbers of the
    /// session are deleted.
    ///
    /// # Errors
    /// As [`DocumentsTx::answered`].
    pub fn answer(&mut self, retry: &RetryKey, answer: Doc<'_>) -> Result<()> {
        let sessions = self.spaces().sessions;
        let key = header_key(&retry.session);
        if let Some(stored) = self.kv.get(sessions, &key)? {
            let (newest, _) = header(&stored).ok_or_else(damaged)?;
            if retry.number < newest {
                return Err(DocumentsError::TransactionTooOld { number: retry.number, newest });
            }
            if retry.number > newest {
                // Only results of `newest` are left: older ones were deleted when it arrived. One by one: a
                // range deletion per write would slow down reads.
                let (start, end) =
                    (answers_of(&retry.session, newest), answers_of(&retry.session, newest + 1));
                let mut old = Vec::new();
                self.kv.visit(sessions, KeySpan::forward(&start, Some(&end)), |key, _| {
                    old.push(key.to_vec());
                    true
                })?;
                old.iter().for_each(|key| self.kv.delete(sessions, key));
            }
        }
        let now_ms = self.now_ms();
        self.guard(sessions, &key);
        self.kv.put(sessions, &key, &[retry.number.to_le_bytes(), now_ms.to_le_bytes()].concat());
        self.put(sessions, &answer_key(retry), answer.bytes())
    }
}

impl Documents {
    /// Deletes sessions last used before `unused_since_ms`, at most `limit`; returns their number.
    ///
    /// # Errors
    /// The engine's.
    pub fn forget_sessions(&self, unused_since_ms: i64, limit: usize) -> Result<usize> {
        self.transact(ropewalk_engine::Durability::Buffered, |tx| {
            let sessions = tx.spaces().sessions;
            let mut old = Vec::new();
            tx.kv.visit(sessions, KeySpan::forward(b"h", Some(b"i")), |key, value| {
                if header(value).is_some_and(|(_, used)| used < unused_since_ms) {
                    old.extend(key.get(1..).map(<[u8]>::to_vec));
                }
                old.len() < limit
            })?;
            for session in &old {
                let key = header_key(session);
                tx.kv.guard_key(sessions, &key);
                tx.kv.delete(sessions, &key);
                let start = answers_of(session, i64::MIN);
                let mut end = answers_of(session, i64::MAX);
                end.push(u8::MAX);
                tx.kv.sweep_range(sessions, &start, &end);
            }
            Ok(old.len())
        })
    }
}
