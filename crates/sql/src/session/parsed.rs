//! Parsed statements by text, shared by all sessions of a database.
//!
//! A plan belongs to its session, and a new session has none. A parsed statement depends on its text alone.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use ropewalk::Database;

use crate::error::Result;
use crate::syntax::parse::{self, Statement};

/// Maximum number of texts; at the maximum all are dropped.
const TEXTS_MAX: usize = 256;
/// Longest text, so that the statements take a few megabytes at most.
const TEXT_BYTES_MAX: usize = 512;

/// The statements of one database.
#[derive(Default)]
struct Parsed(Mutex<HashMap<String, Arc<Statement>>>);

/// The statement of a text.
///
/// # Errors
/// As [`parse::one`].
pub(crate) fn parsed(db: &Database, text: &str) -> Result<Arc<Statement>> {
    // A text without parameters contains its values, and seldom comes again.
    if text.len() > TEXT_BYTES_MAX || !text.contains('$') {
        return Ok(Arc::new(parse::one(text)?));
    }
    let shared = db.extension::<Parsed>();
    if let Some(statement) = shared.0.lock().get(text) {
        return Ok(statement.clone());
    }
    let statement = Arc::new(parse::one(text)?);
    let mut texts = shared.0.lock();
    if texts.len() >= TEXTS_MAX {
        texts.clear();
    }
    texts.insert(text.to_owned(), statement.clone());
    Ok(statement)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statement_with_parameters_is_shared_and_bounded() {
        let db = Database::in_memory().unwrap();
        let same = |text: &str| {
            let [first, second] = [0, 1].map(|_| parsed(&db, text).unwrap());
            assert_eq!(first, second);
            Arc::ptr_eq(&first, &second)
        };
        assert!(same("SELECT $1::int"));
        assert!(!same("SELECT 1"));
        assert!(!same(&format!("SELECT $1::int{}", " ".repeat(TEXT_BYTES_MAX))));
        for number in 0..2 * TEXTS_MAX {
            parsed(&db, &format!("SELECT $1 + {number}")).unwrap();
        }
        assert!(db.extension::<Parsed>().0.lock().len() <= TEXTS_MAX);
        assert!((0..2).all(|_| parsed(&db, "SELEC $1").is_err()));
    }
}
