//! The names of isolation levels that document databases use, and what they mean here.
//!
//! | name | reads | refused at commit, beside what rules rest on |
//! |---|---|---|
//! | read uncommitted | as read committed: nobody ever sees what is not committed | as read committed |
//! | read committed | the newest commit, at each statement | a document written that somebody else wrote since the statement read it |
//! | repeatable read, snapshot | one commit, of the begin | any key written that somebody else wrote since |
//! | serializable | one commit, of the begin | also any key or range read that somebody else wrote since |
//!
//! None has dirty reads or writes, and none loses an update. Repeatable read has no phantoms either, but write skew.

use ropewalk_engine::Isolation;

/// The level that a name stands for: `ReadCommitted`, `read committed`, `READ-COMMITTED` are the same.
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
