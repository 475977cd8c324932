use crate::lang::error::{LangError, refuse};
use crate::lang::regex::Patterns;
use crate::lang::value::{DocBuf, Value};

/// What a parser needs to know of the command around it.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The time that `$$NOW` and `$currentDate` stand for, milliseconds since 1970: one for the whole command.
    pub now_ms: i64,
    /// The command's `let`: constants that expressions see as `$$name`.
    pub variables: Option<DocBuf>,
    /// What `$sample` chooses by; the same seed chooses the same.
    pub seed: u64,
    /// The regular expressions of the command.
    pub patterns: Patterns,
}

impl Options {
    /// Refuses a command's `collation` unless it is the simple one, which is what text is compared by here: its bytes.
    ///
    /// # Errors
    /// `CommandNotSupported`
    pub fn refuse_collation(collation: Option<Value<'_>>) -> Result<(), LangError> {
        match collation {
            None => Ok(()),
            Some(Value::Document(doc)) if doc.is_empty() => Ok(()),
            Some(Value::Document(doc)) if doc.get("locale").and_then(Value::as_str) == Some("simple") => {
                Ok(())
            }
            Some(_) => {
                refuse!(CommandNotSupported, "collations are not offered: text is compared by its bytes")
            }
        }
    }
}
