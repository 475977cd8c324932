//! SQL statements within a transaction of several operations.

use ropewalk::tables::{Type, Value};
use ropewalk_sql::{Outcome, Prepared, Rights, Session, SqlError, StatementKind, from_text, state};

use crate::operation::Statement;

/// Runs a statement in the session's open transaction. `only_queries`: the transaction only reads.
///
/// # Errors
/// Those of the statement; a statement that begins or ends transactions, or needs a connection.
///
/// Returns the result, and the rights that the statement needs.
pub(crate) fn run(
    session: &mut Session,
    statement: &Statement,
    only_queries: bool,
) -> Result<(Outcome, Rights), SqlError> {
    let located = |error: SqlError| error.located_in(&statement.text);
    let mut prepared = session.prepare(&statement.text).map_err(located)?;
    if let Some(kind) = prepared.kind() {
        let (place, hint) = match kind {
            StatementKind::Query => ("", ""),
            _ if statement.is_check => ("a precondition", "a precondition is a query"),
            _ if only_queries => ("a transaction at a chosen commit", "such a transaction runs queries"),
            kind if may_be_part(kind) => ("", ""),
            _ => ("a transaction of several operations", "the request begins and ends the transaction"),
        };
        if !place.is_empty() {
            let message = format!("not in {place}: {}", kind.description());
            return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message).hint(hint));
        }
    }
    let values = parameters(&prepared, &statement.parameters)?;
    let outcome = session.run(&mut prepared, &values).map_err(located)?;
    if !session.is_implicit() {
        return Err(SqlError::new(state::INTERNAL_ERROR, "a statement ended the transaction of the request"));
    }
    Ok((outcome, prepared.needs()))
}

/// Rejects a caller of the session without the rights of the statement.
///
/// # Errors
/// 42501. A statement that can no longer be planned needs no rights.
pub(crate) fn check(session: &mut Session, statement: &Statement) -> Result<(), SqlError> {
    match session.prepare(&statement.text) {
        Ok(prepared) => session.check_rights(prepared.needs()),
        Err(error) if error.state == state::INSUFFICIENT_PRIVILEGE => Err(error),
        Err(_) => Ok(()),
    }
}

/// False for statements that would end the transaction, or whose effect is that of a connection.
fn may_be_part(kind: StatementKind) -> bool {
    use StatementKind as K;
    !matches!(
        kind,
        K::Begin
            | K::Commit
            | K::Rollback
            | K::Savepoint
            | K::Release
            // They could run one of the others.
            | K::Prepare
            | K::Execute
            | K::Deallocate
            | K::Discard
            | K::CopyTo
            | K::CopyFrom
            | K::Listen
            | K::Unlisten
            | K::Vacuum
    )
}

/// The values of JSON texts by the types of the statement's parameters: strings by their content, other
/// values by their text.
///
/// # Errors
/// The wrong number of values, or one that is not of its parameter's type.
pub fn parameters(prepared: &Prepared, given: &[String]) -> Result<Vec<Value<'static>>, SqlError> {
    let types = prepared.parameters();
    if types.len() != given.len() {
        let message = format!("the statement takes {} parameters, {} were given", types.len(), given.len());
        return Err(SqlError::new(state::SYNTAX_ERROR, message));
    }
    given.iter().zip(types).map(|(text, ty)| parameter(text, *ty)).collect()
}

fn parameter(text: &str, ty: Type) -> Result<Value<'static>, SqlError> {
    match text {
        "null" => Ok(Value::Null),
        text if text.starts_with('"') => {
            let text: String = serde_json::from_str(text)
                .map_err(|error| SqlError::new(state::INVALID_PARAMETER_VALUE, error.to_string()))?;
            from_text(&text, ty)
        }
        text => from_text(text, ty),
    }
}
