//! Converts OpenTelemetry's names to those of Prometheus: any character but letters, digits and `_` becomes
//! `_`; the unit and `total` are appended.
//!
//! ```text
//! http.server.duration, unit ms, histogram   ─▶ http_server_duration_milliseconds
//! requests, unit 1, monotonic sum            ─▶ requests_total
//! ```
//! Source: "Prometheus and OpenMetrics Compatibility" of the OpenTelemetry specification.

/// Type of a metric, as far as it affects the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Gauge,
    Counter,
    Other,
}

const UNITS: [(&str, &str); 33] = [
    ("d", "days"),
    ("h", "hours"),
    ("min", "minutes"),
    ("s", "seconds"),
    ("ms", "milliseconds"),
    ("us", "microseconds"),
    ("ns", "nanoseconds"),
    ("By", "bytes"),
    ("KiBy", "kibibytes"),
    ("MiBy", "mebibytes"),
    ("GiBy", "gibibytes"),
    ("TiBy", "tibibytes"),
    ("KBy", "kilobytes"),
    ("kBy", "kilobytes"),
    ("MBy", "megabytes"),
    ("GBy", "gigabytes"),
    ("TBy", "terabytes"),
    ("B", "bytes"),
    ("KB", "kilobytes"),
    ("MB", "megabytes"),
    ("GB", "gigabytes"),
    ("TB", "terabytes"),
    ("m", "meters"),
    ("V", "volts"),
    ("A", "amperes"),
    ("J", "joules"),
    ("W", "watts"),
    ("g", "grams"),
    ("Cel", "celsius"),
    ("Hz", "hertz"),
    ("%", "percent"),
    ("1", ""),
    ("", ""),
];

const PER: [(&str, &str); 7] = [
    ("s", "second"),
    ("min", "minute"),
    ("h", "hour"),
    ("d", "day"),
    ("w", "week"),
    ("mo", "month"),
    ("y", "year"),
];

fn look_up<'a>(table: &[(&'a str, &'a str)], unit: &'a str) -> &'a str {
    table.iter().find(|(short, _)| *short == unit).map_or(unit, |(_, long)| long)
}

/// Retains letters, digits, `_` and, with `colon`, `:`; anything else becomes one `_`.
fn clean(text: &str, colon: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || (colon && c == ':') {
            out.push(c);
        } else if !out.ends_with('_') {
            out.push('_');
        }
    }
    out
}

/// The name of a metric without `_sum`, `_bucket` and similar suffixes.
pub(crate) fn metric(name: &str, unit: &str, shape: Shape) -> String {
    let (main, per) = unit.split_once('/').map_or((unit, None), |(main, per)| (main, Some(per)));
    let mut parts: Vec<String> = vec![clean(name, true).trim_matches('_').to_owned()];
    let mut add = |word: String| {
        let there = parts.iter().any(|part| part.split('_').any(|token| token == word));
        if !word.is_empty() && !there {
            parts.push(word);
        }
    };
    if !main.contains(['{', '}']) {
        add(clean(look_up(&UNITS, main.trim()), false).trim_matches('_').to_owned());
    }
    if let Some(per) = per.filter(|per| !per.contains(['{', '}']) && !per.trim().is_empty()) {
        let word = clean(look_up(&PER, per.trim()), false);
        add(format!("per_{}", word.trim_matches('_')));
    }
    let mut name = parts.join("_");
    match shape {
        Shape::Counter => {
            name = name.strip_suffix("_total").map_or(name.clone(), str::to_owned);
            name.push_str("_total");
        }
        Shape::Gauge if unit.trim() == "1" && !name.ends_with("_ratio") => name.push_str("_ratio"),
        _ => {}
    }
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert(0, '_');
    }
    name
}

/// The name of a label.
pub(crate) fn label(name: &str) -> String {
    let mut out: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
    if out.starts_with(|c: char| c.is_ascii_digit()) {
        out.insert_str(0, "key_");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (name, unit, shape, wanted) in [
            ("http.server.duration", "ms", Shape::Other, "http_server_duration_milliseconds"),
            ("requests", "1", Shape::Counter, "requests_total"),
            ("requests.total", "{request}", Shape::Counter, "requests_total"),
            ("utilization", "1", Shape::Gauge, "utilization_ratio"),
            ("net.io", "By/s", Shape::Gauge, "net_io_bytes_per_second"),
            ("memory_bytes", "By", Shape::Gauge, "memory_bytes"),
            ("2xx", "", Shape::Gauge, "_2xx"),
            ("a  b", "", Shape::Other, "a_b"),
            ("temp", "Cel", Shape::Gauge, "temp_celsius"),
        ] {
            assert_eq!(metric(name, unit, shape), wanted, "{name} {unit}");
        }
        assert_eq!([label("host.name"), label("0a"), label("x")], ["host_name", "key_0a", "x"]);
    }
}
