//! Errors and notices as messages: severity, SQLSTATE, text, hint. Paths of the server's files appear only in
//! the log.

use std::borrow::Cow;
use std::path::Path;

use ropewalk_sql::{About, SqlError, SqlState, state};
use ropewalk_wire::{Code, WireError};

use crate::frame::{Malformed, Out};

pub(crate) const PROTOCOL_VIOLATION: SqlState = SqlState("08P01");
pub(crate) const INVALID_AUTHORIZATION: SqlState = SqlState("28000");
pub(crate) const INVALID_PASSWORD: SqlState = SqlState("28P01");
pub(crate) const INVALID_CATALOG_NAME: SqlState = SqlState("3D000");
pub(crate) const INVALID_CURSOR_NAME: SqlState = SqlState("34000");
pub(crate) const DUPLICATE_CURSOR: SqlState = SqlState("42P03");
pub(crate) const INSUFFICIENT_PRIVILEGE: SqlState = SqlState("42501");
pub(crate) const INSUFFICIENT_RESOURCES: SqlState = SqlState("53000");
pub(crate) const TOO_MANY_CONNECTIONS: SqlState = SqlState("53300");
pub(crate) const NOT_IN_PREREQUISITE_STATE: SqlState = SqlState("55000");
pub(crate) const ADMIN_SHUTDOWN: SqlState = SqlState("57P01");
pub(crate) const IDLE_IN_TRANSACTION: SqlState = SqlState("25P03");

/// Consequence of an error for the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// The statement failed.
    Error,
    /// The connection ends.
    Fatal,
    /// Nothing failed.
    Warning,
    Notice,
}

impl Severity {
    fn as_str(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Fatal => "FATAL",
            Self::Warning => "WARNING",
            Self::Notice => "NOTICE",
        }
    }
}

impl Out {
    /// An error or a notice.
    pub(crate) fn failure(&mut self, severity: Severity, error: &SqlError) {
        let tag = match severity {
            Severity::Error | Severity::Fatal => b'E',
            Severity::Warning | Severity::Notice => b'N',
        };
        self.message(tag, |body| {
            let mut field = |field: u8, text: &str| {
                body.byte(field);
                body.text(text);
            };
            field(b'S', severity.as_str());
            field(b'V', severity.as_str());
            field(b'C', error.state.0);
            field(b'M', &error.message);
            if let Some(detail) = &error.detail {
                field(b'D', detail);
            }
            if let Some(hint) = &error.hint {
                field(b'H', hint);
            }
            if let Some(position) = error.location.as_ref().and_then(|location| location.position) {
                field(b'P', &position.to_string());
            }
            if let Some(about) = &error.about {
                let About { schema, table, column, constraint } = &**about;
                let objects = [(b's', schema), (b't', table), (b'c', column), (b'n', constraint)];
                for (name, object) in objects {
                    if let Some(object) = object {
                        field(name, object);
                    }
                }
            }
            body.byte(0);
        });
    }

    /// Writes a notice that accompanies success.
    pub(crate) fn notice(&mut self, notice: &SqlError) {
        // PostgreSQL warns about transactions and sends notices about skipped objects.
        let severity = if notice.state.0.starts_with("25") { Severity::Warning } else { Severity::Notice };
        self.failure(severity, notice);
    }
}

/// The error as sent to a client: files of the database by their names within it. Internal errors are logged
/// unchanged.
pub(crate) fn told<'e>(error: &'e SqlError, database: &Path) -> Cow<'e, SqlError> {
    let is_ours = matches!(error.state.0.get(..2), Some("58" | "XX"));
    if is_ours {
        tracing::error!(state = error.state.0, %error, "statement failed");
    }
    let may_name_files = is_ours || matches!(error.state.0.get(..2), Some("53" | "55"));
    let within = |text: &str| {
        let mut text = text.to_owned();
        if let Some(place) = database.to_str().filter(|place| place.len() > 1) {
            text = text.replace(&format!("{}/", place.trim_end_matches('/')), "");
        }
        if may_name_files { without_folders(&text) } else { text }
    };
    let message = within(&error.message);
    let (detail, hint) = (error.detail.as_deref().map(within), error.hint.as_deref().map(within));
    if message == error.message && detail == error.detail && hint == error.hint {
        return Cow::Borrowed(error);
    }
    if !is_ours {
        tracing::warn!(state = error.state.0, %error, "statement failed");
    }
    Cow::Owned(SqlError { message, detail, hint, ..error.clone() })
}

/// The text with every absolute path reduced to its last part.
fn without_folders(text: &str) -> String {
    let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '(' | ')' | ',' | ';' | ':');
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    let mut is_begin = true;
    while let Some(first) = rest.chars().next() {
        let length = match is_begin && first == '/' {
            true => rest.find(ends).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let (part, behind) = rest.split_at(length);
        let shown = if length > 1 { part.rsplit('/').find(|name| !name.is_empty()) } else { None };
        out += shown.unwrap_or(part);
        is_begin = ends(first) || first == '=';
        rest = behind;
    }
    out
}

/// Converts an error of the server's parts that all protocols share.
pub(crate) fn refused(error: &WireError) -> SqlError {
    let state = match error.code {
        Code::PermissionDenied => INSUFFICIENT_PRIVILEGE,
        Code::Unauthenticated => INVALID_PASSWORD,
        Code::NotFound => state::UNDEFINED_OBJECT,
        Code::AlreadyExists => state::DUPLICATE_OBJECT,
        Code::KeyConflict | Code::ConditionFailed => state::SERIALIZATION_FAILURE,
        Code::TooLarge => state::PROGRAM_LIMIT_EXCEEDED,
        Code::ResourceExhausted => INSUFFICIENT_RESOURCES,
        Code::Stopping => ADMIN_SHUTDOWN,
        Code::Timeout => state::QUERY_CANCELED,
        Code::Corrupt => state::DATA_CORRUPTED,
        Code::Io => state::IO_ERROR,
        Code::Internal => state::INTERNAL_ERROR,
        _ => state::INVALID_PARAMETER_VALUE,
    };
    SqlError::new(state, error.message.clone())
}

/// Outcome for the metrics.
pub(crate) fn code_of(error: &SqlError) -> Code {
    let state = error.state.0;
    match state.get(..2) {
        Some("28") => Code::Unauthenticated,
        Some("40") => Code::KeyConflict,
        Some("53") => Code::ResourceExhausted,
        Some("54") => Code::TooLarge,
        Some("57") if error.state == ADMIN_SHUTDOWN => Code::Stopping,
        Some("57") => Code::Timeout,
        Some("58") => Code::Io,
        Some("XX") if error.state == state::DATA_CORRUPTED => Code::Corrupt,
        Some("XX") => Code::Internal,
        _ => match state {
            "42501" => Code::PermissionDenied,
            "42P01" | "42703" | "42704" | "42883" | "3D000" => Code::NotFound,
            "23505" | "42P07" | "42710" | "42P05" => Code::AlreadyExists,
            _ => Code::InvalidArgument,
        },
    }
}

pub(crate) fn malformed(error: Malformed) -> SqlError {
    SqlError::new(PROTOCOL_VIOLATION, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told_of(state: SqlState, message: &str) -> String {
        told(&SqlError::new(state, message), Path::new("/srv/my data/shop")).message.clone()
    }

    #[test]
    fn files_are_named_within_the_database() {
        for (message, wanted) in [
            ("read /srv/my data/shop/store/7.run: gone", "read store/7.run: gone"),
            ("/srv/my data/shop/log/1.log at byte 7: a record", "log/1.log at byte 7: a record"),
            (
                "spill \"/tmp/x1/part\": No space left (os error 28)",
                "spill \"part\": No space left (os error 28)",
            ),
            ("1 / 2, either/or, //, dir=/a/b/", "1 / 2, either/or, //, dir=b"),
            ("größe /größe/ß", "größe ß"),
        ] {
            assert_eq!(told_of(state::IO_ERROR, message), wanted);
        }
    }

    #[test]
    fn paths_in_client_input_are_unchanged() {
        let message = "invalid input syntax for type integer: \"/srv/other\"";
        assert_eq!(told_of(state::INVALID_TEXT_REPRESENTATION, message), message);
    }
}
