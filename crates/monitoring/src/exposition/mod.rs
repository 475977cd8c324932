//! Pages in the exposition formats of Prometheus, read sample by sample.
//!
//! `parse` has the grammar; the import over HTTP uses it directly. `each` is for scraping.

mod parse;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use ropewalk::promql::format_float_open_metrics;
use ropewalk::series::{Exemplar, Labels, Metadata, MetricType};

use crate::notation::parse_float;

pub use parse::{Example, Format, Item, SampleLine, parse_lines};

impl Format {
    /// By the content type; without one, the old text format.
    pub fn of(content_type: &str) -> Self {
        match content_type.trim_start().starts_with("application/openmetrics-text") {
            true => Self::OpenMetrics,
            false => Self::Text,
        }
    }
}

impl Item<'_, '_> {
    /// Adds the type, help or unit to the descriptions of all metrics.
    pub fn describe(self, all: &mut HashMap<String, Metadata>) {
        match self {
            Self::Sample(_) => {}
            Self::Type(name, kind) => all.entry(name.into_owned()).or_default().metric_type = kind,
            Self::Help(name, help) => all.entry(name.into_owned()).or_default().help = help,
            Self::Unit(name, unit) => all.entry(name.into_owned()).or_default().unit = unit.to_owned(),
        }
    }
}

impl Example<'_> {
    /// The exemplar, at its time or at `at_ms`.
    ///
    /// # Errors
    /// Its labels are invalid.
    pub fn exemplar(&self, at_ms: i64) -> Result<Exemplar, String> {
        let labels = match self.labels.is_empty() {
            true => None,
            false => {
                let labels = Labels::new(self.labels.iter().map(|(name, value)| (name, value)));
                Some(labels.map_err(|error| error.to_string())?)
            }
        };
        Ok(Exemplar { time_ms: self.time_ms.unwrap_or(at_ms), value: self.value, labels })
    }
}

/// A sample of a scraped page.
pub(crate) struct Scraped<'s> {
    sample: &'s SampleLine<'s>,
    pub(crate) value: f64,
    pub(crate) time_ms: Option<i64>,
}

impl Scraped<'_> {
    /// The labels by name.
    ///
    /// # Errors
    /// A label name that occurs twice, since its value would be ambiguous.
    pub(crate) fn labels(&self) -> Result<BTreeMap<String, String>, String> {
        let mut labels = BTreeMap::new();
        for (name, value) in &self.sample.labels {
            if labels.insert(name.to_string(), value.to_string()).is_some() {
                return Err(format!("label name {name:?} is not unique"));
            }
        }
        Ok(labels)
    }

    /// The exemplar, at its own time or at `at_ms`.
    pub(crate) fn exemplar(&self, at_ms: i64) -> Result<Option<Exemplar>, String> {
        self.sample.exemplar.as_ref().map(|example| example.exemplar(at_ms)).transpose()
    }
}

/// Reads a page, sample by sample; returns the descriptions of its metrics. Bounds of buckets and quantiles
/// are normalized as in Prometheus 3: `le="1"` of a histogram becomes `le="1.0"`.
///
/// # Errors
/// The first line that cannot be read, or that `take` rejects.
pub(crate) fn each(
    text: &str,
    format: Format,
    mut take: impl FnMut(Scraped<'_>) -> Result<(), String>,
) -> Result<HashMap<String, Metadata>, String> {
    let mut described = HashMap::new();
    let mut bounded = None;
    parse_lines(text, format, |mut item: Item<'_, '_>| {
        match &mut item {
            Item::Sample(sample) => {
                if let Some(label) = bounded {
                    one_form(sample, label);
                }
                return take(Scraped { value: sample.value, time_ms: sample.time_ms, sample });
            }
            Item::Type(_, MetricType::Histogram) => bounded = Some("le"),
            Item::Type(_, MetricType::Summary) => bounded = Some("quantile"),
            Item::Type(..) => bounded = None,
            Item::Help(..) | Item::Unit(..) => {}
        }
        item.describe(&mut described);
        Ok(())
    })?;
    Ok(described)
}

/// Normalizes the number in a label to the form of OpenMetrics.
fn one_form(sample: &mut SampleLine<'_>, label: &str) {
    for (_, value) in sample.labels.iter_mut().filter(|(name, _)| name == label) {
        if let Some(number) = parse_float(value) {
            *value = Cow::Owned(format_float_open_metrics(number));
        }
    }
}
