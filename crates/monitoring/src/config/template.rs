//! Templates in the labels and annotations of an alert: the subset of Go's templates that alerts use.
//!
//!   {{ $labels.instance }}   {{ $value }}   {{ $externalLabels.region }}   {{ .Value }}   {{ .Labels.instance }}
//!   {{ $value | humanize }}   {{ humanizePercentage $value }}   {{ printf "%.2f" $value }}
//!
//! Anything else is rejected when the rule is read: queries inside of templates, conditions, loops.

use std::collections::BTreeMap;

use crate::notation;

/// A text with placeholders.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Template(Vec<Part>);

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Text(String),
    Filled { what: What, through: Vec<Function> },
}

#[derive(Debug, Clone, PartialEq)]
enum What {
    Value,
    Label(String),
    External(String),
}

#[derive(Debug, Clone, PartialEq)]
enum Function {
    Humanize,
    Humanize1024,
    Percentage,
    Duration,
    Timestamp,
    Title,
    Upper,
    Lower,
    /// Precision of `printf "%.2f"`.
    Fixed(usize),
    /// `printf "%v"` and `%s`.
    Plain,
}

/// The values for the placeholders.
pub(crate) struct Known<'a> {
    pub(crate) value: f64,
    pub(crate) labels: &'a dyn Fn(&str) -> String,
    pub(crate) external: &'a BTreeMap<String, String>,
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// An unknown expression between braces.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (inside, tail) =
                after.split_once("}}").ok_or_else(|| format!("{text:?}: {{{{ is not closed"))?;
            parts.push(Part::Text(before.to_owned()));
            parts.push(filled(inside.trim_matches('-').trim()).map_err(|why| format!("{text:?}: {why}"))?);
            rest = tail;
        }
        parts.push(Part::Text(rest.to_owned()));
        parts.retain(|part| *part != Part::Text(String::new()));
        Ok(Self(parts))
    }

    /// The text with everything filled in.
    pub(crate) fn fill(&self, known: &Known<'_>) -> String {
        let mut out = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Filled { what, through } => {
                    let mut filled = match what {
                        What::Value => Filled::Number(known.value),
                        What::Label(name) => Filled::Text((known.labels)(name)),
                        What::External(name) => {
                            Filled::Text(known.external.get(name).cloned().unwrap_or_default())
                        }
                    };
                    for function in through {
                        filled = Filled::Text(function.apply(filled));
                    }
                    out.push_str(&filled.text());
                }
            }
        }
        out
    }
}

enum Filled {
    Number(f64),
    Text(String),
}

impl Filled {
    fn text(self) -> String {
        match self {
            Self::Number(number) => plain(number),
            Self::Text(text) => text,
        }
    }

    fn number(&self) -> f64 {
        match self {
            Self::Number(number) => *number,
            Self::Text(text) => notation::parse_float(text).unwrap_or(f64::NAN),
        }
    }
}

/// Formats a number like the API.
fn plain(value: f64) -> String {
    let mut out = Vec::new();
    notation::put_float(&mut out, value);
    String::from_utf8_lossy(&out).into_owned()
}

fn filled(inside: &str) -> Result<Part, String> {
    let mut stages = inside.split('|').map(str::trim);
    let first = stages.next().unwrap_or_default();
    let mut through = Vec::new();
    let what = match what(first) {
        Some(what) => what,
        None => {
            // A function followed by its argument.
            let (call, argument) = first.rsplit_once(' ').ok_or_else(|| format!("{first:?} is not there"))?;
            through.push(function(call.trim())?);
            what(argument.trim()).ok_or_else(|| format!("{argument:?} is not there"))?
        }
    };
    for stage in stages {
        through.push(function(stage)?);
    }
    Ok(Part::Filled { what, through })
}

fn what(text: &str) -> Option<What> {
    let name =
        |name: &str| (!name.is_empty() && !name.contains(char::is_whitespace)).then(|| name.to_owned());
    let prefixed =
        |prefixes: [&str; 2]| prefixes.iter().find_map(|prefix| text.strip_prefix(prefix)).and_then(name);
    if matches!(text, "$value" | ".Value") {
        return Some(What::Value);
    }
    prefixed(["$labels.", ".Labels."])
        .map(What::Label)
        .or_else(|| prefixed(["$externalLabels.", ".ExternalLabels."]).map(What::External))
}

fn function(text: &str) -> Result<Function, String> {
    Ok(match text {
        "humanize" => Function::Humanize,
        "humanize1024" => Function::Humanize1024,
        "humanizePercentage" => Function::Percentage,
        "humanizeDuration" => Function::Duration,
        "humanizeTimestamp" => Function::Timestamp,
        "title" => Function::Title,
        "toUpper" => Function::Upper,
        "toLower" => Function::Lower,
        other => {
            let format = other.strip_prefix("printf").map(|rest| rest.trim().trim_matches(['"', '`']));
            match format {
                Some("%v" | "%s") => Function::Plain,
                Some("%f") => Function::Fixed(6),
                Some(format) => {
                    let digits = format.strip_prefix("%.").and_then(|rest| rest.strip_suffix('f'));
                    let digits =
                        digits.and_then(|digits| digits.parse().ok()).filter(|digits| *digits <= 100);
                    Function::Fixed(digits.ok_or_else(|| format!("the form {format:?} is not there"))?)
                }
                None => return Err(format!("the function {other:?} is not there")),
            }
        }
    })
}

impl Function {
    fn apply(&self, filled: Filled) -> String {
        let number = filled.number();
        match self {
            Self::Plain => filled.text(),
            Self::Title => {
                let text = filled.text();
                let mut letters = text.chars();
                letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
            }
            Self::Upper => filled.text().to_uppercase(),
            Self::Lower => filled.text().to_lowercase(),
            Self::Fixed(digits) => format!("{number:.digits$}"),
            Self::Percentage => format!("{}%", four(number * 100.0)),
            Self::Humanize => scaled(number, 1000.0, ["k", "M", "G", "T", "P", "E", "Z", "Y"], true),
            Self::Humanize1024 => {
                scaled(number, 1024.0, ["ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"], false)
            }
            Self::Duration => duration(number),
            Self::Timestamp => {
                let time = jiff::Timestamp::from_millisecond((number * 1000.0) as i64);
                time.map_or_else(|_| plain(number), |time| time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string())
            }
        }
    }
}

/// Four digits that matter, as `%.4g` writes them.
fn four(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return plain(value);
    }
    let exponent = value.abs().log10().floor() as i32;
    if !(-4..4).contains(&exponent) {
        let text = format!("{value:.3e}");
        let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
        let mantissa = if mantissa.contains('.') {
            mantissa.trim_end_matches('0').trim_end_matches('.')
        } else {
            mantissa
        };
        let power: i32 = power.parse().unwrap_or(0);
        return format!("{mantissa}e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs());
    }
    let text = format!("{value:.*}", (3 - exponent).max(0) as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn scaled(mut value: f64, base: f64, prefixes: [&str; 8], small: bool) -> String {
    if value == 0.0 || !value.is_finite() {
        return four(value);
    }
    let mut prefix = "";
    if value.abs() >= 1.0 {
        for next in prefixes {
            if value.abs() < base {
                break;
            }
            prefix = next;
            value /= base;
        }
    } else if small {
        for next in ["m", "u", "n", "p", "f", "a", "z", "y"] {
            if value.abs() >= 1.0 {
                break;
            }
            prefix = next;
            value *= base;
        }
    }
    format!("{}{prefix}", four(value))
}

fn duration(seconds: f64) -> String {
    if !seconds.is_finite() {
        return four(seconds);
    }
    let sign = if seconds < 0.0 { "-" } else { "" };
    let left = seconds.abs();
    if left < 1.0 {
        return scaled(seconds, 1000.0, ["k", "M", "G", "T", "P", "E", "Z", "Y"], true) + "s";
    }
    if left < 60.0 {
        return four(seconds) + "s";
    }
    let whole = left as u64;
    let (days, hours, minutes, rest) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60, whole % 60);
    match (days, hours) {
        (0, 0) => format!("{sign}{minutes}m {rest}s"),
        (0, _) => format!("{sign}{hours}h {minutes}m {rest}s"),
        _ => format!("{sign}{days}d {hours}h {minutes}m {rest}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(text: &str, value: f64) -> String {
        let labels = |name: &str| if name == "instance" { "host:1".to_owned() } else { String::new() };
        let external = BTreeMap::from([("region".to_owned(), "eu".to_owned())]);
        Template::parse(text).unwrap().fill(&Known { value, labels: &labels, external: &external })
    }

    #[test]
    fn texts_are_filled_in() {
        for (text, value, filled) in [
            ("plain", 1.0, "plain"),
            ("{{ $labels.instance }} is {{$value}}", 0.5, "host:1 is 0.5"),
            ("{{ .Labels.instance }}{{ $labels.nothing }} {{ $externalLabels.region }}", 1.0, "host:1 eu"),
            ("{{ $value | humanize }}", 1_234_567.0, "1.235M"),
            ("{{ $value | humanize }}", 0.001_234, "1.234m"),
            ("{{ humanize1024 $value }}B", 1536.0, "1.5kiB"),
            ("{{ $value | humanizePercentage }}", 0.1234, "12.34%"),
            ("{{ $value | humanizeDuration }}", 93_784.0, "1d 2h 3m 4s"),
            ("{{ $value | humanizeDuration }}", 0.5, "500ms"),
            ("{{ $value | humanizeTimestamp }}", 0.0, "1970-01-01 00:00:00 UTC"),
            (r#"{{ printf "%.2f" $value }}"#, 1.239, "1.24"),
            (r#"{{ $value | printf "%.0f" | toUpper }}"#, 7.0, "7"),
        ] {
            assert_eq!(fill(text, value), filled, "{text}");
        }
    }

    #[test]
    fn rejects_unsupported_expressions() {
        for text in [
            "{{",
            "{{ query \"up\" }}",
            "{{ if $value }}",
            "{{ $nothing }}",
            "{{ $value | what }}",
            "{{ printf \"%x\" $value }}",
        ] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
    }
}
