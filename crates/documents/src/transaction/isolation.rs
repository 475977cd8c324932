//! Isolation levels by the names that document databases use, and their meaning here.
//!
//! | name | reads | rejected at commit, in addition to violated rules |
//! |---|---|---|
//! | read uncommitted | as read committed: uncommitted data is never visible | as read committed |
//! | read committed | the newest commit, at each statement | a written document that another commit changed since the statement read it |
//! | repeatable read, snapshot | one commit, that of the begin | any written key that another commit changed since |
//! | serializable | one commit, that of the begin | also any key or range read that another commit changed since |
//!
//! No level has dirty reads, dirty writes or lost updates. Repeatable read has no phantoms either, but write
//! skew.

use ropewalk_engine::Isolation;

/// The level by name: `ReadCommitted`, `read committed`, `READ-COMMITTED` are the same.
///
/// ```
/// use ropewalk_documents::isolation_named;
/// use ropewalk_engine::Isolation;
///
/// assert_eq!(isolation_named("RepeatableRead"), Some(Isolation::Snapshot));
/// assert_eq!(isolation_named("read uncommitted"), Some(Isolation::ReadCommitted));
/// assert_eq!(isolation_named("chaos"), None);
/// ```
pub fn isolation_named(name: &str) -> Option<Isolation> {
    let letters: String =
        name.chars().filter(|c| !matches!(c, ' ' | '-' | '_')).map(|c| c.to_ascii_lowercase()).collect();
    match letters.as_str() {
        "readuncommitted" | "readcommitted" => Some(Isolation::ReadCommitted),
        "repeatableread" | "snapshot" => Some(Isolation::Snapshot),
        "serializable" => Some(Isolation::Serializable),
        _ => None,
    }
}
