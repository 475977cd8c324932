//! Values of settings as people write them: sizes, times, addresses. Each parses what it prints.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number of bytes: `4096`, `64KiB`, `16MiB`, `2GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

const SIZES: &[(&str, u64)] = &[("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        number_with_unit(text, SIZES)
            .map(Self)
            .ok_or_else(|| format!("{text:?} is not a size such as 512MiB"))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_with_unit(f, self.0, SIZES)
    }
}

/// A time: `500ms`, `30s`, `5m`, `1h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(pub Duration);

const PERIODS: &[(&str, u64)] = &[("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

impl Period {
    /// A period of this many seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match number_with_unit(text, PERIODS) {
            Some(0) => Err("must be more than zero".to_owned()),
            Some(millis) => Ok(Self(Duration::from_millis(millis))),
            None => Err(format!("{text:?} is not a time such as 500ms, 30s, 5m or 1h")),
        }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_with_unit(f, u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX), PERIODS)
    }
}

/// Digits, then one of the units, then nothing.
fn number_with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*factor)
}

/// The largest unit that divides the number.
fn write_with_unit(f: &mut fmt::Formatter<'_>, number: u64, units: &[(&str, u64)]) -> fmt::Result {
    match units.iter().find(|(_, factor)| number >= *factor && number.is_multiple_of(*factor)) {
        Some((unit, factor)) => write!(f, "{}{unit}", number / factor),
        None => write!(f, "{number}{}", units.last().map_or("", |(unit, _)| unit)),
    }
}

/// Where to listen: an address, or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listen {
    /// This port is not served.
    Off,
    /// Here; port 0 is any free one.
    At(SocketAddr),
}

impl Listen {
    /// A port of this machine alone.
    pub const fn loopback(port: u16) -> Self {
        Self::At(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
    }

    /// The address, unless it is off.
    pub fn address(self) -> Option<SocketAddr> {
        match self {
            Self::Off => None,
            Self::At(address) => Some(address),
        }
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let numeric = match text.strip_prefix("localhost:") {
            Some(port) => Cow::Owned(format!("127.0.0.1:{port}")),
            None => Cow::Borrowed(text),
        };
        numeric.parse().map(Self::At).map_err(|_| format!("{text:?} is neither IP:PORT nor off"))
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(address) => write!(f, "{address}"),
        }
    }
}

/// Event store with a separate port: `shop=127.0.0.1:50052`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreListen {
    /// The store.
    pub store: String,
    /// Where to listen; port 0 is any free one.
    pub address: SocketAddr,
}

impl FromStr for StoreListen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.rsplit_once('=').filter(|(store, _)| !store.is_empty());
        let (store, address) = parts.ok_or_else(|| format!("{text:?} is not STORE=IP:PORT"))?;
        match address.parse()? {
            Listen::At(address) => Ok(Self { store: store.to_owned(), address }),
            Listen::Off => Err(format!("{text:?} is not STORE=IP:PORT; leave the store out instead")),
        }
    }
}

impl fmt::Display for StoreListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.store, self.address)
    }
}

/// How often something happens, or that it does not: `15s`, `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Every {
    /// Never.
    Off,
    /// After each such period.
    Period(Period),
}

impl Every {
    /// Every this many seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self::Period(Period::seconds(seconds))
    }
}

impl FromStr for Every {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" { Ok(Self::Off) } else { text.parse().map(Self::Period) }
    }
}

impl fmt::Display for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Period(period) => period.fmt(f),
        }
    }
}

/// A number of bytes, or `auto`: `auto`, `512MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// Derived from the machine's memory.
    Auto,
    /// This many bytes.
    Bytes(ByteSize),
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        text.parse()
            .map(Self::Bytes)
            .map_err(|_| format!("{text:?} is neither a size such as 512MiB nor auto"))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Bytes(bytes) => bytes.fmt(f),
        }
    }
}

/// Serializes a type in its printed form, with a matching schema.
macro_rules! as_text {
    ($type:ident, $schema:expr) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    };
}

as_text!(ByteSize, json_schema!({ "type": "string", "pattern": "^[0-9]+(B|KiB|MiB|GiB)$" }));
as_text!(Share, json_schema!({ "type": "string", "pattern": "^(auto|[0-9]+(B|KiB|MiB|GiB))$" }));
as_text!(Period, json_schema!({ "type": "string", "pattern": "^[0-9]+(ms|s|m|h)$" }));
as_text!(Every, json_schema!({ "type": "string", "pattern": "^(off|[0-9]+(ms|s|m|h))$" }));
as_text!(StoreListen, json_schema!({ "type": "string", "examples": ["shop=127.0.0.1:50052"] }));
as_text!(Listen, json_schema!({ "type": "string", "examples": ["127.0.0.1:4780", "[::1]:0", "off"] }));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_parse_what_they_print() {
        for text in ["1B", "64KiB", "16MiB", "2GiB", "1025B"] {
            assert_eq!(text.parse::<ByteSize>().unwrap().to_string(), text);
        }
        for text in ["1ms", "1500ms", "30s", "5m", "1h"] {
            assert_eq!(text.parse::<Period>().unwrap().to_string(), text);
        }
        for text in ["shop=127.0.0.1:50052", "a=b=[::1]:0"] {
            assert_eq!(text.parse::<StoreListen>().unwrap().to_string(), text);
        }
        for text in ["", "shop", "=127.0.0.1:1", "shop=", "shop=off", "shop=host:1", "127.0.0.1:1"] {
            assert!(text.parse::<StoreListen>().is_err(), "{text}");
        }
        for text in ["auto", "0B", "3GiB"] {
            assert_eq!(text.parse::<Share>().unwrap().to_string(), text);
        }
        for text in ["off", "15s"] {
            assert_eq!(text.parse::<Every>().unwrap().to_string(), text);
        }
        for text in ["off", "127.0.0.1:0", "[::1]:4780", "0.0.0.0:80"] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        assert_eq!("localhost:1".parse::<Listen>().unwrap(), Listen::loopback(1));
    }

    #[test]
    fn other_values_are_rejected() {
        for text in ["", "MiB", "1", "-1B", "1 MiB", "1.5GiB", "99999999999GiB", "1mib"] {
            assert!(text.parse::<ByteSize>().is_err() && text.parse::<Share>().is_err(), "{text}");
        }
        for text in ["", "0s", "s", "1", "1d", "-1s", "99999999999999999999h"] {
            assert!(text.parse::<Period>().is_err(), "{text}");
        }
        for text in ["", "localhost", "4780", ":4780", "example.org:80", "127.0.0.1:99999"] {
            assert!(text.parse::<Listen>().is_err(), "{text}");
        }
    }
}
