//! Import of comma-separated rows, as in VictoriaMetrics: `POST /api/v1/import/csv?format=…`.
//!
//! ```text
//! format=2:metric:ask,3:metric:bid,1:label:ticker,4:time:unix_s
//! GOOG,1.23,1.25,1583865146     ─▶  ask{ticker="GOOG"} 1.23    bid{ticker="GOOG"} 1.25
//! ```
//! Columns count from 1 and are `metric:NAME`, `label:NAME` or `time:FORM`, with the form `unix_s`,
//! `unix_ms`, `unix_ns` or `rfc3339`; columns that `format` does not name are ignored. A row without a time
//! gets that of the request; an empty value adds no sample. A field may be quoted, with `""` for a quote; a
//! row is one line. The text is one commit: an unreadable row rejects all of it, and the error has its line
//! number. `extra_label=name=value` adds a label.

use std::borrow::Cow;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use ropewalk::series::SampleBatch;
use ropewalk_auth::Caller;
use ropewalk_http_kit::params::pairs;
use ropewalk_monitoring::notation::parse_float;

use crate::app::App;
use crate::ingest::exposition::extra_label;
use crate::ingest::labels::{LabelSet, METRIC_NAME, Rejected};
use crate::ingest::{self, Read};
use crate::request::response::{ApiError, Plain};
use crate::request::time::now_ms;

/// The content of a column.
#[derive(Debug, PartialEq)]
enum Column {
    Metric(String),
    Label(String),
    Time(Form),
}

/// The formats of times.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Seconds,
    Millis,
    Nanos,
    Rfc3339,
}

impl Form {
    fn time_ms(self, text: &str) -> Option<i64> {
        match self {
            Self::Seconds => match text.parse::<i64>() {
                Ok(seconds) => seconds.checked_mul(1000),
                Err(_) => crate::request::time::parse_time(text).ok().filter(|_| parse_float(text).is_some()),
            },
            Self::Millis => text.parse().ok(),
            Self::Nanos => text.parse::<i64>().ok().map(|nanos| nanos.div_euclid(1_000_000)),
            Self::Rfc3339 => text.parse::<jiff::Timestamp>().ok().map(|time| time.as_millisecond()),
        }
    }
}

/// The named columns, each with its index from 0.
#[derive(Debug, PartialEq)]
struct Format(Vec<(usize, Column)>);

impl Format {
    fn parse(text: &str) -> Result<Self, String> {
        let columns: Vec<_> = text.split(',').map(Self::column).collect::<Result<_, _>>()?;
        let times = columns.iter().filter(|(_, column)| matches!(column, Column::Time(_))).count();
        if times > 1 {
            return Err("there is more than one time".to_owned());
        }
        if !columns.iter().any(|(_, column)| matches!(column, Column::Metric(_))) {
            return Err("there is no metric".to_owned());
        }
        Ok(Self(columns))
    }

    fn column(text: &str) -> Result<(usize, Column), String> {
        let refuse = |why: &str| format!("{text:?}: {why}");
        let mut parts = text.splitn(3, ':');
        let (Some(place), Some(kind), Some(what)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(refuse("column:metric:name, column:label:name or column:time:form is needed"));
        };
        let place = place.parse::<usize>().ok().and_then(|place| place.checked_sub(1));
        let place = place.ok_or_else(|| refuse("columns count from 1"))?;
        let column = match (kind, what) {
            (_, "") => return Err(refuse("the name is empty")),
            ("metric", name) => Column::Metric(name.to_owned()),
            ("label", name) => Column::Label(name.to_owned()),
            ("time", "unix_s") => Column::Time(Form::Seconds),
            ("time", "unix_ms") => Column::Time(Form::Millis),
            ("time", "unix_ns") => Column::Time(Form::Nanos),
            ("time", "rfc3339") => Column::Time(Form::Rfc3339),
            ("time", _) => return Err(refuse("times are unix_s, unix_ms, unix_ns or rfc3339")),
            _ => return Err(refuse("a column is metric, label or time")),
        };
        Ok((place, column))
    }

    /// Reads all rows.
    ///
    /// # Errors
    /// The first row that cannot be read, or whose labels are invalid.
    fn read(&self, text: &str, extra: &[(String, String)], now_ms: i64) -> Result<SampleBatch, String> {
        let mut batch = SampleBatch::new();
        for (number, row) in (1..).zip(text.lines()).filter(|(_, row)| !row.is_empty()) {
            self.add(&mut batch, row, extra, now_ms).map_err(|why| format!("line {number}: {why}"))?;
        }
        Ok(batch)
    }

    fn add(
        &self,
        batch: &mut SampleBatch,
        row: &str,
        extra: &[(String, String)],
        now_ms: i64,
    ) -> Result<(), String> {
        let fields = fields(row)?;
        let (mut time_ms, mut labels) = (now_ms, Vec::new());
        let mut samples = Vec::new();
        for (place, column) in &self.0 {
            let field = fields.get(*place).ok_or_else(|| format!("there is no column {}", place + 1))?;
            match column {
                Column::Time(form) => {
                    time_ms = form.time_ms(field).ok_or_else(|| format!("{field:?} is no such time"))?;
                }
                Column::Label(name) => labels.push((name.as_str(), &**field)),
                Column::Metric(_) if field.is_empty() => {}
                Column::Metric(name) => {
                    let value = parse_float(field).ok_or_else(|| format!("{field:?} is no number"))?;
                    samples.push((name.as_str(), value));
                }
            }
        }
        let given = |name: &str| extra.iter().any(|(extra, _)| extra == name);
        labels.retain(|(name, _)| !given(name));
        labels.extend(extra.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        for (name, value) in samples {
            let mut set = LabelSet::default();
            set.push(METRIC_NAME.as_bytes(), name.as_bytes());
            labels.iter().for_each(|(name, value)| set.push(name.as_bytes(), value.as_bytes()));
            let stored = set.stored().map_err(|Rejected(why)| why)?;
            batch.series_bytes(stored).push(time_ms, value);
        }
        Ok(())
    }
}

/// The fields of a row.
fn fields(row: &str) -> Result<Vec<Cow<'_, str>>, String> {
    let mut all = Vec::new();
    let mut rest = row;
    loop {
        let (field, behind) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_field(quoted)?,
            None => {
                let (field, _) = rest.split_once(',').unwrap_or((rest, ""));
                (Cow::Borrowed(field), rest.get(field.len()..).unwrap_or_default())
            }
        };
        all.push(field);
        match behind.strip_prefix(',') {
            Some(next) => rest = next,
            None if behind.is_empty() => return Ok(all),
            None => return Err("a comma is missing after a quoted field".to_owned()),
        }
    }
}

/// Reads a field after its opening quote; returns it and the text after its closing quote.
fn quoted_field(mut rest: &str) -> Result<(Cow<'_, str>, &str), String> {
    let mut field = String::new();
    loop {
        let (part, behind) = rest.split_once('"').ok_or("a quote is not closed")?;
        field.push_str(part);
        match behind.strip_prefix('"') {
            Some(more) => {
                field.push('"');
                rest = more;
            }
            None => return Ok((Cow::Owned(field), behind)),
        }
    }
}

/// `POST /api/v1/import/csv`.
pub(crate) async fn import(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<StatusCode, Plain> {
    let (mut format, mut extra) = (None, Vec::new());
    for (name, value) in pairs(request.uri().query())? {
        match name.as_str() {
            "format" => {
                let parsed = Format::parse(&value).map_err(|why| ApiError::parameter("format", why))?;
                format = Some(parsed);
            }
            "extra_label" => extra.push(extra_label(&value)?),
            other => return Err(ApiError::parameter(other, "there is format and extra_label").into()),
        }
    }
    let format = format.ok_or_else(|| ApiError::parameter("format", "the columns have to be named"))?;
    let now_ms = now_ms();
    let read = move |text: &str| {
        let batch = format.read(text, &extra, now_ms).map_err(ApiError::bad)?;
        Ok(Read { batch, ..Read::default() })
    };
    Ok(ingest::import(&app, &caller, request, read).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_fields() {
        for (row, wanted) in [
            ("a,b", vec!["a", "b"]),
            ("", vec![""]),
            (",", vec!["", ""]),
            ("\"a,b\",\"say \"\"so\"\"\",", vec!["a,b", "say \"so\"", ""]),
            ("a\"b,c", vec!["a\"b", "c"]),
        ] {
            assert_eq!(fields(row).unwrap(), wanted, "{row}");
        }
        assert!(fields("\"a").is_err() && fields("\"a\"b").is_err());
    }

    #[test]
    fn times_in_their_forms() {
        for (form, text, wanted) in [
            (Form::Seconds, "1583865146", Some(1_583_865_146_000)),
            (Form::Seconds, "1.5", Some(1500)),
            (Form::Seconds, "now", None),
            (Form::Seconds, "9223372036854775807", None),
            (Form::Millis, "-5", Some(-5)),
            (Form::Millis, "1.5", None),
            (Form::Nanos, "1999999", Some(1)),
            (Form::Rfc3339, "1970-01-01T00:00:01.5Z", Some(1500)),
            (Form::Rfc3339, "1970-01-01", None),
        ] {
            assert_eq!(form.time_ms(text), wanted, "{form:?} {text}");
        }
    }

    #[test]
    fn rejects_invalid_formats() {
        for (text, why) in [
            ("1:metric", "is needed"),
            ("0:metric:a", "from 1"),
            ("1:metric:", "empty"),
            ("1:colour:a", "metric, label or time"),
            ("1:time:custom:2006", "unix_s"),
            ("1:label:a", "no metric"),
            ("1:metric:a,2:time:unix_s,3:time:unix_s", "more than one"),
        ] {
            let said = Format::parse(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
