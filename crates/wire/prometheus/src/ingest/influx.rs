//! The line protocol of InfluxDB: `POST /write` (version 1) and `POST /api/v2/write` (version 2), as Telegraf
//! sends it.
//!
//! ```text
//! cpu,host=a usage=0.5,idle=3i 1435781451781000000   ─▶  cpu_usage{host="a"} 0.5    cpu_idle{host="a"} 3
//! ```
//! Each field is a separate series, called `measurement_field`; true is 1 and false is 0; the parameter `db`
//! becomes a label unless there is a tag of that name. Times are truncated to milliseconds. String fields and
//! unreadable lines are rejected: the response is 400 with the reason, and the rest is written.

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use ropewalk::series::SampleBatch;
use ropewalk_auth::Caller;
use ropewalk_http_kit::params::pairs;

use crate::app::App;
use crate::ingest::labels::{LabelSet, METRIC_NAME, Rejected};
use crate::ingest::{self, Read};
use crate::request::response::ApiError;
use crate::request::time::now_ms;

/// `POST /write`, `POST /api/v2/write`.
pub(crate) async fn write(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let context = context(request.uri().query())?;
    ingest::import(&app, &caller, request, move |text| Ok(decode(text, &context))).await
}

/// The request's parameters.
struct Context {
    /// Nanoseconds of one unit of the given times.
    nanos: i128,
    database: String,
    now_ms: i64,
}

fn context(query: Option<&str>) -> Result<Context, ApiError> {
    let mut context = Context { nanos: 1, database: String::new(), now_ms: now_ms() };
    for (name, value) in pairs(query)? {
        match name.as_str() {
            "precision" => {
                context.nanos = match value.as_str() {
                    "" | "n" | "ns" => 1,
                    "u" | "us" | "µ" => 1_000,
                    "ms" => 1_000_000,
                    "s" => 1_000_000_000,
                    "m" => 60_000_000_000,
                    "h" => 3_600_000_000_000,
                    _ => {
                        return Err(ApiError::parameter(
                            "precision",
                            format!("{value:?} is not one of ns, us, ms, s, m, h"),
                        ));
                    }
                }
            }
            "db" => context.database = value,
            // Bucket, retention and organization are the server's; credentials are in the header.
            _ => {}
        }
    }
    Ok(context)
}

fn decode(text: &str, context: &Context) -> Read {
    let Read { mut batch, mut refused, metadata } = Read::default();
    for (index, line) in text.split('\n').enumerate() {
        let line = line.trim_end_matches('\r').trim_matches(' ');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = |why: &str| format!("line {}: {why}", index + 1);
        match Point::parse(line, context) {
            Ok(point) => point.add(context, &mut batch, |why| refused.add(1, || at(why))),
            Err(why) => refused.add(1, || at(why)),
        }
    }
    Read { batch, refused, metadata }
}

struct Point {
    measurement: String,
    tags: Vec<(String, String)>,
    /// The value is `None` for a string.
    fields: Vec<(String, Option<f64>)>,
    time_ms: i64,
}

/// Reads characters up to one of `ends`; a backslash makes the next one literal.
fn until(rest: &mut &str, ends: &[char]) -> String {
    let mut text = String::new();
    let mut chars = rest.char_indices();
    while let Some((at, c)) = chars.next() {
        if ends.contains(&c) {
            *rest = rest.get(at..).unwrap_or_default();
            return text;
        }
        if c != '\\' {
            text.push(c);
            continue;
        }
        let mut ahead = chars.clone();
        match ahead.next() {
            Some((_, next @ (',' | ' ' | '='))) => {
                text.push(next);
                chars = ahead;
            }
            _ => text.push('\\'),
        }
    }
    *rest = "";
    text
}

fn take(rest: &mut &str, what: char) -> bool {
    let after = rest.strip_prefix(what);
    *rest = after.unwrap_or(rest);
    after.is_some()
}

impl Point {
    fn parse(line: &str, context: &Context) -> Result<Self, &'static str> {
        let mut rest = line;
        let measurement = until(&mut rest, &[',', ' ']);
        if measurement.is_empty() {
            return Err("a measurement is needed");
        }
        let mut point = Self { measurement, tags: Vec::new(), fields: Vec::new(), time_ms: context.now_ms };
        while take(&mut rest, ',') {
            let name = until(&mut rest, &['=', ',', ' ']);
            if name.is_empty() || !take(&mut rest, '=') {
                return Err("a tag is name=value");
            }
            let value = until(&mut rest, &[',', ' ']);
            point.tags.push((name, value));
        }
        if !take(&mut rest, ' ') {
            return Err("a space and fields are needed");
        }
        rest = rest.trim_start_matches(' ');
        loop {
            let name = until(&mut rest, &['=', ',', ' ']);
            if name.is_empty() || !take(&mut rest, '=') {
                return Err("a field is name=value");
            }
            point.fields.push((name, field(&mut rest)?));
            if !take(&mut rest, ',') {
                break;
            }
        }
        let time = rest.trim_matches(' ');
        if !time.is_empty() {
            let units: i128 = time.parse().map_err(|_| "the time is no whole number")?;
            let ms = units.checked_mul(context.nanos).map(|nanos| nanos.div_euclid(1_000_000));
            point.time_ms = ms.and_then(|ms| i64::try_from(ms).ok()).ok_or("the time is too far away")?;
        } else if !rest.is_empty() && !rest.starts_with(' ') {
            return Err("fields are parted by commas");
        }
        Ok(point)
    }

    fn add(&self, context: &Context, batch: &mut SampleBatch, mut refuse: impl FnMut(&str)) {
        for (field, value) in &self.fields {
            let Some(value) = value else {
                refuse(&format!("field {field:?} is a text"));
                continue;
            };
            let name = format!("{}_{field}", self.measurement);
            let mut labels = LabelSet::default();
            labels.push(METRIC_NAME.as_bytes(), name.as_bytes());
            self.tags.iter().for_each(|(name, value)| labels.push(name.as_bytes(), value.as_bytes()));
            if labels.get("db").is_none() {
                labels.push(b"db", context.database.as_bytes());
            }
            match labels.stored() {
                Ok(stored) => {
                    batch.series_bytes(stored).push(self.time_ms, *value);
                }
                Err(Rejected(why)) => refuse(&why),
            }
        }
    }
}

/// The value of a field; `None` for a string.
fn field(rest: &mut &str) -> Result<Option<f64>, &'static str> {
    if take(rest, '"') {
        let mut escaped = false;
        for (at, c) in rest.char_indices() {
            match c {
                '"' if !escaped => {
                    *rest = rest.get(at + 1..).unwrap_or_default();
                    return Ok(None);
                }
                '\\' => escaped = !escaped,
                _ => escaped = false,
            }
        }
        return Err("a text has no end");
    }
    let (text, after) = rest.split_at(rest.find([',', ' ']).unwrap_or(rest.len()));
    *rest = after;
    let value = match text {
        "t" | "T" | "true" | "True" | "TRUE" => Some(1.0),
        "f" | "F" | "false" | "False" | "FALSE" => Some(0.0),
        _ => match text.strip_suffix(['i', 'u']) {
            Some(whole) => whole.parse::<i128>().ok().map(|whole| whole as f64),
            None if text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) => {
                text.parse().ok().filter(|value: &f64| value.is_finite())
            }
            None => None,
        },
    };
    value.map(Some).ok_or("a field's value is no number, true, false or text in quotes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<String, &'static str> {
        let context = Context { nanos: 1, database: String::new(), now_ms: 7 };
        let point = Point::parse(line, &context)?;
        Ok(format!("{} {:?} {:?} {}", point.measurement, point.tags, point.fields, point.time_ms))
    }

    #[test]
    fn lines() {
        let read = |line| read(line).unwrap();
        assert_eq!(read("cpu v=1"), r#"cpu [] [("v", Some(1.0))] 7"#);
        assert_eq!(
            read("cpu,host=a,b=c v=-0.5,w=3i,x=t,y=4u 1435781451781999999"),
            r#"cpu [("host", "a"), ("b", "c")] [("v", Some(-0.5)), ("w", Some(3.0)), ("x", Some(1.0)), ("y", Some(4.0))] 1435781451781"#
        );
        assert_eq!(read(r"a\,b\ c,t\=g=v\ w f\ g=1"), r#"a,b c [("t=g", "v w")] [("f g", Some(1.0))] 7"#);
        assert_eq!(read(r#"m s="a, \" b=c",v=2"#), r#"m [] [("s", None), ("v", Some(2.0))] 7"#);
        assert_eq!(read("m v=1 -1"), r#"m [] [("v", Some(1.0))] -1"#);
    }

    #[test]
    fn rejects_malformed_input() {
        for line in [
            "cpu",
            "cpu ",
            ",a=b v=1",
            "cpu,a v=1",
            "cpu,=b v=1",
            "cpu v",
            "cpu v=",
            "cpu =1",
            "cpu v=x",
            "cpu v=nan",
            "cpu v=1 x",
            "cpu v=1 1 2",
            "cpu v=\"a",
            "cpu v=1i2",
            "cpu v=1 99999999999999999999999999999999999999999",
        ] {
            assert!(read(line).is_err(), "{line}");
        }
    }
}
