use std::fmt;

/// The result of most functions of this language.
pub(crate) type LangResult<T, E = LangError> = core::result::Result<T, E>;

/// An error of the document language, with MongoDB's code and name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct LangError {
    /// The kind of error.
    pub code: Code,
    /// Description of the error.
    pub message: String,
}

/// Most bytes of a message. It may contain values, which may be large.
const MESSAGE_BYTES_MAX: usize = 2 << 10;

impl LangError {
    /// An error of `code` that says `message`.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// Formats a message. It is cut when too long, and the rest is not formatted.
pub(crate) fn text(message: fmt::Arguments<'_>) -> String {
    let mut out = Cut(String::new());
    if fmt::write(&mut out, message).is_err() {
        out.0.push_str("..");
    }
    out.0
}

/// Text up to its limit; writing more is an error, which ends the formatting.
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
        /// MongoDB's error codes that the language uses.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Code {
            $(#[doc = $what] $name,)*
            /// An error with a code but no name; its name is `Location` and the code.
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
    GraphContainsCycle = 5, "views that read each other in a circle";
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
    EmptyFieldName = 56, "an empty field name";
    DottedFieldName = 57, "a field name with a dot where none may be";
    ImmutableField = 66, "a change of `_id`";
    InvalidOptions = 72, "an option that is not allowed here";
    CommandNotSupported = 115, "a known feature that is not supported";
    IncompatibleCollationVersion = 161, "a collation of another version";
    ViewDepthLimitExceeded = 165, "views that read too many others";
    CommandNotSupportedOnView = 166, "an operation that a view does not have";
    OptionNotSupportedOnView = 167, "a stage that a view cannot have";
    InvalidPipelineOperator = 168, "an unknown operator in an expression";
    CannotIndexParallelArrays = 171, "two parallel arrays in one index";
    NotImplemented = 238, "a feature of MongoDB that is not supported";
    ConversionFailure = 241, "a value that cannot be converted";
    ExceededTimeLimit = 262, "more work than is allowed for one document";
    ExceededMemoryLimit = 146, "all commands together need more memory than they may use";
    ClientDisconnect = 279, "the client has disconnected";
    QueryExceededMemoryLimitNoDiskUseAllowed = 292, "a stage needs more memory than it may use";
    InterruptedAtShutdown = 11_600, "the server is shutting down";
    Interrupted = 11_601, "the operation was cancelled";
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

/// Returns from the function with that error.
macro_rules! refuse {
    ($code:tt, $($arg:tt)+) => { return Err($crate::lang::error::lang_error!($code, $($arg)+)) };
}

pub(crate) use {lang_error, refuse};
