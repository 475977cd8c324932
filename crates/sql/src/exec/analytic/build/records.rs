//! `json_to_recordset(...) AS t (a int, b text)`, `json_to_record` and their jsonb variants: members of
//! objects as columns of the types in the alias.

use ropewalk::tables::{Array, Type, Value};

use crate::error::{Result, SqlError, state};
use crate::expr::Record;
use crate::expr::cast::cast_in;
use crate::limits::budget::Budget;
use crate::types::json;
use crate::types::text_format::from_text_in;
use crate::types::zone::Zone;

/// The columns of an alias, and how they are filled.
pub(in crate::exec::analytic) struct Shape<'c> {
    pub(in crate::exec::analytic) name: &'c str,
    pub(in crate::exec::analytic) columns: &'c [(String, Type)],
    pub(in crate::exec::analytic) zone: &'c Zone,
}

/// For names of such functions: whether they return a row for each element of an array.
pub(in crate::exec::analytic) fn is_of_many(name: &str) -> Option<bool> {
    match name {
        "json_to_recordset" | "jsonb_to_recordset" => Some(true),
        "json_to_record" | "jsonb_to_record" => Some(false),
        _ => None,
    }
}

fn refused(message: String) -> SqlError {
    SqlError::new(state::INVALID_PARAMETER_VALUE, message)
}

impl Shape<'_> {
    /// The rows of a document.
    pub(in crate::exec::analytic) fn rows(
        &self,
        document: &Value<'_>,
        many: bool,
        budget: &Budget,
    ) -> Result<Vec<Record>> {
        let (Value::Json(text) | Value::Jsonb(text)) = document else {
            // NULL becomes a row of NULLs, or no row.
            return Ok(if many { Vec::new() } else { vec![vec![Value::Null; self.columns.len()]] });
        };
        let mut rows = Vec::new();
        if many {
            let call = |what| refused(format!("cannot call {} on {what}", self.name));
            let elements = match json::kind(text) {
                "object" => return Err(call("an object")),
                _ => json::all_elements(text).ok_or_else(|| call("a scalar"))?,
            };
            for element in elements {
                let wrong = || refused(format!("argument of {} must be an array of objects", self.name));
                let row = self.row(json::members(element).ok_or_else(wrong)?)?;
                budget.take_row(&row)?;
                rows.push(row);
            }
        } else {
            let what = if json::kind(text) == "array" { "an array" } else { "a scalar" };
            let wrong = || refused(format!("cannot call {} on {what}", self.name));
            rows.push(self.row(json::members(text).ok_or_else(wrong)?)?);
        }
        Ok(rows)
    }

    fn row(&self, members: Vec<(String, &str)>) -> Result<Record> {
        let value = |(name, ty): &(String, Type)| {
            // Of duplicate members the last one counts.
            let found = members.iter().rev().find(|(known, _)| known == name);
            found.map_or(Ok(Value::Null), |(_, part)| self.value(name, part, *ty))
        };
        self.columns.iter().map(value).collect()
    }

    fn value(&self, name: &str, part: &str, ty: Type) -> Result<Value<'static>> {
        let Some(text) = json::as_text(part) else { return Ok(Value::Null) };
        match ty {
            Type::JSON => Ok(Value::json(part.to_owned())),
            Type::JSONB => from_text_in(part, ty, self.zone),
            Type::Array(element) => {
                let elements = json::all_elements(part).ok_or_else(|| {
                    SqlError::new(state::INVALID_TEXT_REPRESENTATION, "expected JSON array")
                        .hint(format!("see the value of key \"{name}\""))
                })?;
                let items = elements.into_iter().map(|part| self.value(name, part, Type::Scalar(element)));
                let items: Vec<Value<'static>> = items.collect::<Result<_>>()?;
                Array::new(element, items)
                    .map(Value::Array)
                    .map_err(|error| SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, error.to_string()))
            }
            ty => Ok(cast_in(from_text_in(&text, ty, self.zone)?, ty, self.zone)?.into_owned()),
        }
    }
}
