use std::fmt;

/// What the document language refuses, with the number and the name that MongoDB's clients know it by.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct LangError {
    /// Which kind of mistake.
    pub code: Code,
    /// What and where, in words.
    pub message: String,
}

/// Bytes of a message. It may show values, which may be large.
const MESSAGE_BYTES_MAX: usize = 2 << 10;

impl LangError {
    /// An error of `code` that says `message`.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// The text of a message. It is cut where it is too long, and what follows is not formatted.
pub(crate) fn text(message: fmt::Arguments<'_>) -> String {
    let mut out = Cut(String::new());
    if fmt::write(&mut out, message).is_err() {
        out.0.push_str("..");
    }
    out.0
}

/// Text up to its limit; writing more of it is an error, which ends the formatting of the rest.
struct Cut(String);

impl fmt::Write for Cut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MESSAGE_BYTES_MAX.saturating_sub(self.0.len());
        let end = text.floor_char_boundary(room);
        self.0.push_str(text.get(..end).unwrap_or_default());
        if end < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

macro_rules! codes {
    ($($name:ident = $number:literal, $what:literal;)*) => {
        /// The error codes of MongoDB that this half of the crate answers with.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Code {
            $(#[doc = $what] $name,)*
            /// An error that has a number and no name; its name is `Location` and the number.
            Location(i32),
        }

        impl Code {
            /// The number on the wire.
            #[must_use]
            pub fn number(self) -> i32 {
                match self {
                    $(Self::$name => $number,)*
                    Self::Location(number) => number,
                }
            }
        }

        impl fmt::Display for Code {
            /// The name on the wire: `BadValue`, `Location16020`.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name => f.write_str(stringify!($name)),)*
                    Self::Location(number) => write!(f, "Location{number}"),
                }
            }
        }
    };
}

codes! {
    BadValue = 2, "a value that cannot be used here";
    FailedToParse = 9, "a query, update or option that is not understood";
    TypeMismatch = 14, "a value of the wrong type";
    Overflow = 15, "too deep, or too many";
    InvalidBSON = 22, "bytes that are no BSON";
    PathNotViable = 28, "a path through a value that has no fields";
    ConflictingUpdateOperators = 40, "two operators of one update on the same path";
    MaxTimeMSExpired = 50, "the time that was given is up";
    DollarPrefixedFieldName = 52, "a field name that begins with a dollar";
    InvalidIdField = 53, "an `_id` of a type that identifies nothing";
    NotSingleValueField = 54, "two values for one field";
    EmptyFieldName = 56, "a field name of no characters";
    DottedFieldName = 57, "a field name with a dot where none may be";
    ImmutableField = 66, "a change of `_id`";
    InvalidOptions = 72, "an option where it has no place";
    CommandNotSupported = 115, "known, and not offered";
    InvalidPipelineOperator = 168, "an unknown operator in an expression";
    CannotIndexParallelArrays = 171, "two arrays side by side in one index";
    NotImplemented = 238, "known, and not built yet";
    ConversionFailure = 241, "a value that cannot be converted";
    ExceededTimeLimit = 262, "more work than one document may be";
    ExceededMemoryLimit = 146, "all commands together want more memory than there is for them";
    ClientDisconnect = 279, "who asked has gone";
    QueryExceededMemoryLimitNoDiskUseAllowed = 292, "a stage wants more memory than it may have";
    InterruptedAtShutdown = 11_600, "who serves is going away";
    Interrupted = 11_601, "somebody ended it";
    BSONObjectTooLarge = 10334, "a document above 16 MiB";
}

/// `lang_error!(BadValue, "{} is {}", ..)` and `lang_error!(16020, "..")` for codes without a name.
macro_rules! lang_error {
    ($code:literal, $($arg:tt)+) => {
        $crate::lang::LangError::new(
            $crate::lang::Code::Location($code),
            $crate::lang::error::text(format_args!($($arg)+)),
        )
    };
    ($code:ident, $($arg:tt)+) => {
        $crate::lang::LangError::new(
            $crate::lang::Code::$code,
            $crate::lang::error::text(format_args!($($arg)+)),
        )
    };
}

/// Leaves the function with that error.
macro_rules! refuse {
    ($code:tt, $($arg:tt)+) => { return Err($crate::lang::error::lang_error!($code, $($arg)+)) };
}

pub(crate) use {lang_error, refuse};
