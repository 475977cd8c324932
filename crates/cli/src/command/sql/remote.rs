//! `ropewalk sql` against a server: each text is one request to `POST /v1/sql`, run as one transaction unless
//! it says otherwise.

use std::fs;
use std::io::{self, Read as _, Write as _};

use ropewalk::tables::{Type, Value};
use ropewalk_sql::{Outcome, ResultColumn, Zone};
use serde::Deserialize;

use super::form::{self, Form};
use super::{Sql, unread};
use crate::database::remote::Remote;
use crate::output::failure::{Exit, Failure, Result};

#[derive(Deserialize)]
struct Answer {
    results: Vec<Answered>,
}

#[derive(Deserialize)]
struct Answered {
    #[serde(default)]
    columns: Option<Vec<Column>>,
    #[serde(default)]
    rows: Vec<Vec<serde_json::Value>>,
}

#[derive(Deserialize)]
struct Column {
    name: String,
    #[serde(rename = "type")]
    ty: String,
}

impl Answered {
    /// Converts to a printable outcome; `None` without rows.
    fn outcome(self) -> Option<Outcome> {
        let columns = self.columns?.into_iter().map(|column| {
            let is_number = matches!(
                column.ty.as_str(),
                "smallint" | "integer" | "bigint" | "real" | "double precision" | "numeric"
            );
            ResultColumn { name: column.name, ty: if is_number { Type::FLOAT8 } else { Type::TEXT } }
        });
        let columns = Some(columns.collect::<Vec<_>>().into());
        let rows = self.rows.into_iter().map(|row| row.into_iter().map(value).collect()).collect();
        Some(Outcome { columns, rows, ..Outcome::of("SELECT") })
    }
}

fn value(cell: serde_json::Value) -> Value<'static> {
    use serde_json::Value as Json;
    match cell {
        Json::Null => Value::Null,
        Json::Bool(truth) => Value::Bool(truth),
        Json::Number(number) => match number.as_i64() {
            Some(number) => Value::Int8(number),
            None => number.as_f64().map_or_else(|| Value::text(number.to_string()), Value::Float8),
        },
        Json::String(text) => Value::text(text),
        other => Value::json(other.to_string()),
    }
}

pub(super) fn run(remote: &Remote, sql: &Sql, form: Form) -> Result {
    if sql.is_typed() {
        let todo = "Give statements as an argument, by -c or -f, or use psql at the server's postgres.listen";
        return Err(Failure::new(Exit::Invalid, "a server has no prompt", todo));
    }
    sql.texts().try_for_each(|text| one(remote, text, form))?;
    match &sql.file {
        Some(file) if file.as_os_str() != "-" => {
            let text = fs::read_to_string(file).map_err(|error| Failure::file("read", file, &error))?;
            one(remote, &text, form)
        }
        None if sql.texts().next().is_some() => Ok(()),
        _ => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).map_err(|error| unread(&error))?;
            one(remote, &text, form)
        }
    }
}

fn one(remote: &Remote, text: &str, form: Form) -> Result {
    let answer: Answer = remote.sql(text)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    for outcome in answer.results.into_iter().filter_map(Answered::outcome) {
        form::show(&outcome, form, &Zone::UTC, &mut out)?;
    }
    out.flush()?;
    Ok(())
}
