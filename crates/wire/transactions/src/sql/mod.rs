//! SQL statements within a transaction of several operations.

use std::borrow::Cow;

use ropewalk::tables::{Type, Value};
use ropewalk_sql::{
    Outcome, Prepared, Rights, Session, SqlError, StatementKind, from_text, state, to_text, type_name,
};

pub(crate) mod csv;
pub(crate) mod error;
pub(crate) mod json;

use crate::brief;
use crate::operation::{Parameter, Statement};

/// Plans a statement in the session's open transaction. `only_queries`: the transaction only reads.
///
/// # Errors
/// Those of the statement; a statement that begins or ends transactions, or needs a connection.
pub(crate) fn prepare(
    session: &mut Session,
    statement: &Statement,
    only_queries: bool,
) -> Result<Prepared, SqlError> {
    let located = |error: SqlError| error.located_in(&statement.text);
    let prepared = session.prepare_cached(&statement.text).map_err(located)?;
    if let Some(kind) = prepared.kind() {
        let (place, hint) = match kind {
            StatementKind::Query => ("", ""),
            _ if statement.is_check => ("a precondition", "a precondition is a query"),
            _ if only_queries => ("a transaction at a chosen commit", "such a transaction runs queries"),
            kind if kind.can_join_transaction() => ("", ""),
            _ => ("a transaction of several operations", "the request begins and ends the transaction"),
        };
        if !place.is_empty() {
            let message = format!("not in {place}: {}", kind.description());
            return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message).hint(hint));
        }
    }
    brief::note(session.database(), &statement.text, prepared.is_brief());
    Ok(prepared)
}

/// Runs a planned statement in the session's open transaction.
///
/// Returns the result, and the rights that the statement needs.
///
/// # Errors
/// Those of the statement.
pub(crate) fn run(
    session: &mut Session,
    mut prepared: Prepared,
    statement: &Statement,
) -> Result<(Outcome, Rights), SqlError> {
    let values = parameters(&prepared, &statement.parameters)?;
    let outcome = session.run(&mut prepared, &values);
    let needed = prepared.needs();
    session.retain(&statement.text, prepared);
    let outcome = outcome.map_err(|error| error.located_in(&statement.text))?;
    if !session.is_implicit() {
        return Err(SqlError::new(state::INTERNAL_ERROR, "a statement ended the transaction of the request"));
    }
    Ok((outcome, needed))
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

impl Parameter {
    /// The parameter of a JSON text: a string by its content, another value by its text.
    ///
    /// # Errors
    /// 22023: a string with an escape that is not a character.
    pub fn from_json(text: &str) -> Result<Self, SqlError> {
        match text {
            "null" => Ok(Self::Null),
            text if text.starts_with('"') => serde_json::from_str(text)
                .map(Self::Text)
                .map_err(|error| SqlError::new(state::INVALID_PARAMETER_VALUE, error.to_string())),
            text => Ok(Self::Text(text.to_owned())),
        }
    }

    fn value(&self, ty: Type) -> Result<Value<'static>, SqlError> {
        let text = match self {
            Self::Null => return Ok(Value::Null),
            Self::Bytes(bytes) if ty == Type::BYTEA => return Ok(Value::bytea(bytes.clone())),
            Self::Bytes(_) => {
                let message = format!("bytes for a parameter of type {}", type_name(ty));
                return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
            }
            Self::Bool(value) => Cow::Borrowed(if *value { "true" } else { "false" }),
            Self::Integer(number) => Cow::Owned(number.to_string()),
            Self::Float(number) => Cow::Owned(to_text(&Value::Float8(*number)).unwrap_or_default()),
            Self::Text(text) => Cow::Borrowed(text.as_str()),
        };
        from_text(&text, ty)
    }
}

/// The values of the parameters by their types.
///
/// # Errors
/// The wrong number of values, or one that is not of its parameter's type.
pub fn parameters(prepared: &Prepared, given: &[Parameter]) -> Result<Vec<Value<'static>>, SqlError> {
    let types = prepared.parameters();
    if types.len() != given.len() {
        let message = format!("the statement takes {} parameters, {} were given", types.len(), given.len());
        return Err(SqlError::new(state::SYNTAX_ERROR, message));
    }
    given.iter().zip(types).map(|(parameter, ty)| parameter.value(*ty)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_converted_to_the_type_of_the_statement() {
        let value = |parameter: Parameter, ty| parameter.value(ty);
        assert_eq!(value(Parameter::Null, Type::INT4).unwrap(), Value::Null);
        assert_eq!(value(Parameter::Bool(true), Type::BOOL).unwrap(), Value::Bool(true));
        assert_eq!(value(Parameter::Integer(7), Type::INT4).unwrap(), Value::Int4(7));
        assert_eq!(value(Parameter::Integer(7), Type::TEXT).unwrap(), Value::text("7"));
        assert_eq!(value(Parameter::Float(2.0), Type::INT8).unwrap(), Value::Int8(2));
        assert_eq!(value(Parameter::Float(0.5), Type::FLOAT8).unwrap(), Value::Float8(0.5));
        assert_eq!(
            value(Parameter::Float(f64::INFINITY), Type::FLOAT8).unwrap(),
            Value::Float8(f64::INFINITY)
        );
        assert_eq!(value(Parameter::Text("1970-01-02".to_owned()), Type::DATE).unwrap(), Value::Date(1));
        assert_eq!(value(Parameter::Bytes(vec![1]), Type::BYTEA).unwrap(), Value::bytea(vec![1]));
        for (parameter, ty, sqlstate) in [
            (Parameter::Integer(1 << 40), Type::INT4, "22003"),
            (Parameter::Float(0.5), Type::INT4, "22P02"),
            (Parameter::Bool(true), Type::INT4, "22P02"),
            (Parameter::Bytes(vec![1]), Type::TEXT, "42804"),
        ] {
            assert_eq!(value(parameter.clone(), ty).unwrap_err().state.0, sqlstate, "{parameter:?}");
        }
    }

    #[test]
    fn json_texts_are_parameters() {
        let text = |text: &str| Parameter::Text(text.to_owned());
        assert_eq!(Parameter::from_json("null").unwrap(), Parameter::Null);
        assert_eq!(Parameter::from_json(r#""a\u0062""#).unwrap(), text("ab"));
        for json in ["12.50", "true", "[1, 2]"] {
            assert_eq!(Parameter::from_json(json).unwrap(), text(json));
        }
        assert_eq!(Parameter::from_json(r#""\ud800""#).unwrap_err().state.0, "22023");
    }
}
