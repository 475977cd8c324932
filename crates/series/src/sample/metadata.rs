//! Type, unit and help of a metric.

use ropewalk_base::{DecodeError, Decoder, put_bytes};

/// Longest unit, bytes.
pub const UNIT_BYTES_MAX: usize = 1024;
/// Longest help text, bytes.
pub const HELP_BYTES_MAX: usize = 64 << 10;

/// Type of a metric, named as in OpenMetrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[allow(missing_docs)] // the names are those of OpenMetrics
pub enum MetricType {
    #[default]
    Unknown,
    Counter,
    Gauge,
    Histogram,
    GaugeHistogram,
    Summary,
    Info,
    StateSet,
}

const TYPES: [(MetricType, &str); 8] = [
    (MetricType::Unknown, "unknown"),
    (MetricType::Counter, "counter"),
    (MetricType::Gauge, "gauge"),
    (MetricType::Histogram, "histogram"),
    (MetricType::GaugeHistogram, "gaugehistogram"),
    (MetricType::Summary, "summary"),
    (MetricType::Info, "info"),
    (MetricType::StateSet, "stateset"),
];

impl MetricType {
    /// Its name in OpenMetrics.
    pub fn name(self) -> &'static str {
        TYPES.iter().find(|(of, _)| *of == self).map_or("unknown", |(_, name)| name)
    }

    /// The type of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        TYPES.iter().find(|(_, other)| *other == name).map(|(of, _)| *of)
    }
}

/// Metadata of a metric.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    /// Its type.
    pub metric_type: MetricType,
    /// Its unit, empty for none.
    pub unit: String,
    /// Its description, empty for none.
    pub help: String,
}

impl Metadata {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let place = TYPES.iter().position(|(of, _)| *of == self.metric_type);
        let place = place.expect("every type is in the list");
        out.push(place as u8);
        put_bytes(out, self.unit.as_bytes());
        put_bytes(out, self.help.as_bytes());
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let offset = decoder.offset();
        let place = usize::from(decoder.u8("type of a metric")?);
        let (metric_type, _) =
            TYPES.get(place).copied().ok_or(DecodeError { what: "a known type of metric", offset })?;
        let unit = decoder.str("unit")?.to_owned();
        Ok(Self { metric_type, unit, help: decoder.str("help")?.to_owned() })
    }
}
