//! Lists in replies of one document.

use ropewalk::documents::lang::{Code, DOCUMENT_BYTES_MAX, LangError, Writer};

/// Whether a reply with a list is at most as large as a document may be. As in MongoDB, a list that a command
/// returns without a cursor has no further pages.
///
/// # Errors
/// `BSONObjectTooLarge`, which says how to request less.
pub(crate) fn check_list(out: &Writer, list: &str, remedy: &str) -> Result<(), LangError> {
    if out.size() <= DOCUMENT_BYTES_MAX {
        return Ok(());
    }
    let message = format!("the list of {list} exceeds {DOCUMENT_BYTES_MAX} bytes; {remedy}");
    Err(LangError::new(Code::BSONObjectTooLarge, message))
}
