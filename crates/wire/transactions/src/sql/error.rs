//! Errors of SQL statements as clients see them: codes, and messages without the server's paths.

use std::borrow::Cow;
use std::path::Path;

use ropewalk_sql::{SqlError, SqlState, state};
use ropewalk_wire::Code;

const ADMIN_SHUTDOWN: SqlState = SqlState("57P01");

/// The error as sent to a client: files of the database by their names within it. Internal errors are logged
/// unchanged.
pub fn told<'e>(error: &'e SqlError, database: &Path) -> Cow<'e, SqlError> {
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

/// The code that clients of other protocols see, and that metrics count.
pub fn code_of(error: &SqlError) -> Code {
    let state = error.state.0;
    match state.get(..2) {
        Some("08") if error.state == state::TRANSACTION_RESOLUTION_UNKNOWN => Code::OutcomeUnknown,
        Some("28") => Code::Unauthenticated,
        Some("40") => Code::KeyConflict,
        Some("53") => Code::ResourceExhausted,
        Some("54") => Code::TooLarge,
        Some("57") if error.state == ADMIN_SHUTDOWN => Code::Stopping,
        Some("57") => Code::Timeout,
        Some("58") => Code::Io,
        Some("XX") if error.state == state::DATA_CORRUPTED => Code::Corrupt,
        Some("XX") => Code::Internal,
        _ if error.is_not_leader() => Code::NotLeader,
        _ => match state {
            "42501" => Code::PermissionDenied,
            "42P01" | "42703" | "42704" | "42883" | "3D000" => Code::NotFound,
            "23505" | "42P07" | "42710" | "42P05" => Code::AlreadyExists,
            _ => Code::InvalidArgument,
        },
    }
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
