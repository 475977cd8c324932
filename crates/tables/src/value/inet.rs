//! IPv4 and IPv6 addresses with the length of a network prefix: the types inet and cidr.
//!
//! They sort as in PostgreSQL: IPv4 first, then by the common bits of their networks, then shorter prefixes
//! first, then by the whole address. Their keys sort the same by bytes, since a network whose other bits are 0
//! comes before every network in it:
//!
//! ```text
//! key   family u8 (4, 6) │ network, other bits 0 │ bits u8 │ address       4 or 16 bytes each
//! row   family u8 │ bits u8 │ address                                      4 or 16 bytes
//! ```

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::cmp::Ordering;
use std::fmt;

use ropewalk_base::DecodeError;

const V4: u8 = 4;
const V6: u8 = 6;
/// Most bytes in a key.
const KEY_BYTES_MAX: usize = 34;

/// An address of a host, and the length of the prefix of its network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Inet {
    address: IpAddr,
    bits: u8,
}

/// The first bits of an address; the others are 0.
fn masked(bytes: &[u8], bits: u8) -> impl Iterator<Item = u8> + '_ {
    bytes.iter().enumerate().map(move |(place, byte)| {
        let kept = usize::from(bits).saturating_sub(place * 8).min(8);
        // 8 bits are not shifted out of a byte.
        byte & (0xff00_u16 >> kept) as u8
    })
}

impl Inet {
    /// An address in a network with a prefix of so many bits; `None` if the address has fewer.
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        (bits <= Self { address, bits }.bits_max()).then_some(Self { address, bits })
    }

    /// The address of one host.
    pub fn host(address: IpAddr) -> Self {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        Self { address, bits }
    }

    /// The address.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// Length of the network's prefix.
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// Bits of the address.
    pub fn bits_max(self) -> u8 {
        if self.address.is_ipv4() { 32 } else { 128 }
    }

    /// The network: its address, with the other bits 0.
    pub fn network(self) -> Self {
        let address = match self.address {
            IpAddr::V4(v4) => {
                let mut bytes = [0; 4];
                bytes.iter_mut().zip(masked(&v4.octets(), self.bits)).for_each(|(to, from)| *to = from);
                Ipv4Addr::from(bytes).into()
            }
            IpAddr::V6(v6) => {
                let mut bytes = [0; 16];
                bytes.iter_mut().zip(masked(&v6.octets(), self.bits)).for_each(|(to, from)| *to = from);
                Ipv6Addr::from(bytes).into()
            }
        };
        Self { address, ..self }
    }

    /// True when the other bits are 0, as in each cidr.
    pub fn is_network(self) -> bool {
        self.network() == self
    }

    /// True when the other is this network, or in it.
    pub fn contains(self, other: Self) -> bool {
        let same_family = self.address.is_ipv4() == other.address.is_ipv4();
        let inner = Self { bits: self.bits, ..other };
        same_family && self.bits <= other.bits && inner.network() == self.network()
    }

    pub(crate) fn compare(self, other: Self) -> Ordering {
        let key = |inet: Self| {
            let mut bytes = Vec::with_capacity(KEY_BYTES_MAX);
            inet.put_key(&mut bytes);
            bytes
        };
        key(self).cmp(&key(other))
    }

    pub(crate) fn put_key(self, out: &mut Vec<u8>) {
        let mut put = |family: u8, octets: &[u8]| {
            out.push(family);
            out.extend(masked(octets, self.bits));
            out.push(self.bits);
            out.extend_from_slice(octets);
        };
        match self.address {
            IpAddr::V4(v4) => put(V4, &v4.octets()),
            IpAddr::V6(v6) => put(V6, &v6.octets()),
        }
    }

    pub(crate) fn take_key(key: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let error = || DecodeError { what: "address of a key", offset: 0 };
        let (family, rest) = key.split_first().ok_or_else(error)?;
        let width = if *family == V4 { 4 } else { 16 };
        let rest = rest.get(width..).ok_or_else(error)?;
        let (bits, rest) = rest.split_first().ok_or_else(error)?;
        let (octets, rest) = rest.split_at_checked(width).ok_or_else(error)?;
        let inet = address(*family, octets).and_then(|address| Self::new(address, *bits));
        Ok((inet.ok_or_else(error)?, rest))
    }

    pub(crate) fn put_row(self, out: &mut Vec<u8>) {
        let mut put = |family: u8, octets: &[u8]| {
            out.extend_from_slice(&[family, self.bits]);
            out.extend_from_slice(octets);
        };
        match self.address {
            IpAddr::V4(v4) => put(V4, &v4.octets()),
            IpAddr::V6(v6) => put(V6, &v6.octets()),
        }
    }

    pub(crate) fn from_row(bytes: &[u8]) -> Option<Self> {
        let ([family, bits], octets) = bytes.split_first_chunk::<2>()?;
        Self::new(address(*family, octets)?, *bits)
    }

    /// Parses `address` or `address/bits`.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let host = Self::host(address.parse().ok()?);
        match bits {
            None => Some(host),
            Some(bits) if bits.len() <= 3 && bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                Self::new(host.address, bits.parse().ok()?)
            }
            Some(_) => None,
        }
    }

    /// Parses a network, whose trailing zero bytes may be left out for IPv4: `10.1` is `10.1.0.0/16`.
    pub fn parse_network(text: &str) -> Option<Self> {
        let (written, bits) =
            text.split_once('/').map_or((text, None), |(network, bits)| (network, Some(bits)));
        let parts = written.split('.').count();
        if written.contains(':') || parts >= 4 {
            return Self::parse(text);
        }
        let whole = format!("{written}{}", ".0".repeat(4 - parts));
        // The class of the first byte, if that is more than was written.
        let first: u8 = written.split('.').next()?.parse().ok()?;
        let class = match first {
            0..=127 | 224..=239 => 8,
            128..=191 => 16,
            192..=223 => 24,
            240..=255 => 32,
        };
        let bits = match bits {
            Some(bits) => bits.to_owned(),
            // All of class D.
            None if written == "224" => "4".to_owned(),
            None => class.max(parts * 8).to_string(),
        };
        Self::parse(&format!("{whole}/{bits}"))
    }
}

fn address(family: u8, octets: &[u8]) -> Option<IpAddr> {
    match family {
        V4 => <[u8; 4]>::try_from(octets).ok().map(|octets| Ipv4Addr::from(octets).into()),
        V6 => <[u8; 16]>::try_from(octets).ok().map(|octets| Ipv6Addr::from(octets).into()),
        _ => None,
    }
}

/// As inet: without the prefix of a single host.
impl fmt::Display for Inet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)?;
        if self.bits == self.bits_max() { Ok(()) } else { write!(f, "/{}", self.bits) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inet(text: &str) -> Inet {
        Inet::parse(text).unwrap()
    }

    #[test]
    fn keys_sort_as_addresses_compare() {
        // PostgreSQL's order.
        let sorted = [
            "0.0.0.0/0",
            "10.0.0.0/8",
            "10.1.2.3/8",
            "10.0.0.0/16",
            "10.1.0.0/16",
            "10.1.2.3/16",
            "10.1.2.3/24",
            "10.1.2.3",
            "10.1.2.4",
            "192.168.1.0/24",
            "::/0",
            "::1",
            "2001:db8::/32",
            "2001:db8::1",
        ];
        let keys = sorted.map(|text| {
            let mut key = Vec::new();
            inet(text).put_key(&mut key);
            assert_eq!(Inet::take_key(&key).unwrap(), (inet(text), &[][..]));
            let mut row = Vec::new();
            inet(text).put_row(&mut row);
            assert_eq!(Inet::from_row(&row), Some(inet(text)));
            assert_eq!(Inet::from_row(row.get(1..).unwrap()), None);
            assert_eq!(inet(text).to_string(), text);
            key
        });
        assert!(keys.is_sorted());
    }

    #[test]
    fn networks_contain_their_addresses() {
        let within = |network: &str, address: &str| inet(network).contains(inet(address));
        assert!(within("10.0.0.0/8", "10.200.3.4"));
        assert!(within("10.9.0.0/8", "10.200.3.4/9"));
        assert!(!within("10.0.0.0/8", "11.0.0.0"));
        assert!(!within("10.0.0.0/8", "10.0.0.0/7"));
        assert!(!within("0.0.0.0/0", "::1"));
        assert!(inet("10.0.0.0/8").is_network() && !inet("10.0.0.1/8").is_network());
    }

    #[test]
    fn networks_are_read_without_trailing_zeros() {
        for (text, expected) in [
            ("10", "10.0.0.0/8"),
            ("128.1", "128.1.0.0/16"),
            ("192.168.2", "192.168.2.0/24"),
            ("192.1", "192.1.0.0/24"),
            ("10/16", "10.0.0.0/16"),
            ("224", "224.0.0.0/4"),
            ("225", "225.0.0.0/8"),
            ("240", "240.0.0.0"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(Inet::parse_network(text).unwrap().to_string(), expected);
        }
        for text in ["", "10.", "256", "10.1.2.3.4", "10.0.0.0/33", "1.2.3.4/-1", "::1/129", "a"] {
            assert_eq!(Inet::parse_network(text), None, "{text}");
        }
    }
}
