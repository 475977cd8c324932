//! Titles of problem responses (RFC 9457): the cause in a few words.

use ropewalk_wire::Code;

/// The title of a code.
pub fn title(code: Code) -> &'static str {
    match code {
        Code::InvalidArgument => "Invalid request",
        Code::Unauthenticated => "Authentication required",
        Code::PermissionDenied => "Permission denied",
        Code::NotFound => "Not found",
        Code::NoSuchLease => "Unknown lease",
        Code::AlreadyExists => "Already exists",
        Code::ConditionFailed => "An event matches the append condition",
        Code::TrackingConflict => "The tracking position does not increase",
        Code::KeyConflict => "Another commit changed data that was read",
        Code::IdempotencyMismatch => "The idempotency key was used for another request",
        Code::TooLarge => "The request exceeds a limit of size",
        Code::ResourceExhausted => "A limit of the server is reached; retry later",
        Code::Stopping => "The server is stopping",
        Code::Timeout => "Deadline exceeded",
        Code::NotLeader => "This node does not lead",
        Code::OutcomeUnknown => "It is unknown whether the commit took place",
        Code::Corrupt => "Stored data is corrupt",
        Code::Io => "I/O error",
        Code::Internal => "Internal error",
    }
}

/// The title of a failed SQL statement, by its code and its SQLSTATE.
pub fn statement_title(code: Code, sqlstate: &str) -> &'static str {
    match (code, sqlstate.get(..2)) {
        (Code::NotFound, _) => "Unknown name in an SQL statement",
        (Code::AlreadyExists, Some("23")) => "A unique constraint is violated",
        (Code::Timeout, _) => "SQL statement cancelled",
        (Code::InvalidArgument, _) if sqlstate == "42601" => "SQL syntax error",
        (Code::InvalidArgument, Some("0A")) => "SQL feature not supported",
        (Code::InvalidArgument, Some("22")) => "Invalid value",
        (Code::InvalidArgument, Some("23")) => "A constraint is violated",
        (Code::InvalidArgument, Some("25")) => "Not possible in this state of the transaction",
        (Code::InvalidArgument, Some("42")) => "Invalid SQL statement",
        (Code::InvalidArgument, _) => "SQL statement failed",
        (code, _) => title(code),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_has_its_title() {
        let titles: BTreeSet<_> = Code::ALL.iter().map(|code| title(*code)).collect();
        assert_eq!(titles.len(), Code::ALL.len());
    }

    #[test]
    fn title_of_a_statement_is_that_of_its_class_of_errors() {
        let invalid = |sqlstate| statement_title(Code::InvalidArgument, sqlstate);
        let titles: BTreeSet<_> =
            ["42601", "42804", "0A000", "22P02", "23514", "25001", "P0001"].map(invalid).into();
        assert_eq!(titles.len(), 7);
        assert_eq!(statement_title(Code::PermissionDenied, "42501"), title(Code::PermissionDenied));
        assert_eq!(statement_title(Code::AlreadyExists, "42P07"), title(Code::AlreadyExists));
    }
}
