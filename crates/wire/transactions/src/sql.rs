//! SQL statements within a transaction of several operations.

use ropewalk::tables::{Type, Value};
use ropewalk_sql::{Outcome, Prepared, Rights, Session, SqlError, StatementKind, from_text, state};

use crate::brief;
use crate::operation::Statement;

/// Plans a statement in the session's open transaction.
///
/// # Errors
/// Those of the statement; a statement that begins or ends transactions, or needs a connection.
pub(crate) fn prepare(session: &mut Session, statement: &Statement) -> Result<Prepared, SqlError> {
    let located = |error: SqlError| error.located_in(&statement.text);
    let prepared = session.prepare(&statement.text).map_err(located)?;
    if let Some(kind) = prepared.kind()
        && !(may_be_part(kind) && (kind == StatementKind::Query || !statement.is_check))
    {
        let message = format!("not in a transaction of several operations: {}", kind.description());
        let hint = "the request begins and ends the transaction";
        return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message).hint(hint));
    }
    brief::note(session.database(), &statement.text, prepared.is_brief());
    Ok(prepared)
}

/// Runs a planned statement in the session's open transaction.
///
/// # Errors
/// Those of the statement.
///
/// Returns the result, and the rights that the statement needs.
pub(crate) fn run(
    session: &mut Session,
    mut prepared: Prepared,
    statement: &Statement,
) -> Result<(Outcome, Rights), SqlError> {
    let values = parameters(&prepared, &statement.parameters)?;
    let outcome = session.run(&mut prepared, &values);
    let outcome = outcome.map_err(|error| error.located_in(&statement.text))?;
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
