use crate::lang::error::{LangResult, refuse};
use crate::lang::random::Random;
use crate::lang::regex::Patterns;
use crate::lang::value::DocBuf;
use crate::lang::value::collation::Collation;

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
    /// The order of text, if not that of its bytes.
    pub collation: Option<Collation>,
}

impl Options {
    /// Rejects a collation in `place`, which compares text by its bytes.
    ///
    /// # Errors
    /// `CommandNotSupported`
    pub fn refuse_collation(&self, place: &str) -> LangResult<()> {
        match self.collation {
            None => Ok(()),
            Some(_) => refuse!(CommandNotSupported, "collations are not offered in {place}"),
        }
    }
}
