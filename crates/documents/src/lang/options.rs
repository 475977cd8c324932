use crate::lang::error::{LangResult, refuse};
use crate::lang::random::Random;
use crate::lang::regex::Patterns;
use crate::lang::value::{DocBuf, Value};

/// Properties of the command that a parser needs.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The time of `$$NOW` and `$currentDate`, milliseconds since 1970: one for the whole command.
    pub now_ms: i64,
    /// The command's `let`: constants that expressions see as `$$name`.
    pub variables: Option<DocBuf>,
    /// The random numbers of `$sample`, `$rand` and `$sampleRate`.
    pub random: Random,
    /// The regular expressions of the command.
    pub patterns: Patterns,
}

impl Options {
    /// Rejects a command's `collation` unless it is the simple one: text is compared by its bytes here.
    ///
    /// # Errors
    /// `CommandNotSupported`
    pub fn refuse_collation(collation: Option<Value<'_>>) -> LangResult<()> {
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
