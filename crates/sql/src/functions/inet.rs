//! Functions and operators over addresses and networks: inet and cidr.
//!
//! Source of the rules: PostgreSQL 15's documentation, "Network Address Functions and Operators".

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ropewalk::tables::{Inet, Type, Value};

use crate::error::{Result, SqlError, state};
use crate::expr::function::Function;
use crate::functions::{Resolved, integer_of};

/// The function over addresses with this name, if any.
pub(crate) fn resolve(name: &str, types: &[Option<Type>]) -> Option<Resolved> {
    use Function as F;
    const INET: Type = Type::INET;
    let resolved = |function, arguments: &[Type], result| {
        Some(Resolved { function, arguments: arguments.to_vec(), result })
    };
    let first = types.first().copied().flatten();
    let is_inet = matches!(first, Some(Type::INET | Type::CIDR));
    match (name, types.len()) {
        ("host", 1) => resolved(F::Host, &[INET], Type::TEXT),
        ("text", 1) if is_inet => resolved(F::InetText, &[INET], Type::TEXT),
        ("abbrev", 1) => resolved(F::Abbrev, &[first.filter(|_| is_inet).unwrap_or(INET)], Type::TEXT),
        ("family", 1) => resolved(F::Family, &[INET], Type::INT4),
        ("masklen", 1) => resolved(F::Masklen, &[INET], Type::INT4),
        ("network", 1) => resolved(F::Network, &[INET], Type::CIDR),
        ("netmask", 1) => resolved(F::Netmask, &[INET], INET),
        ("hostmask", 1) => resolved(F::Hostmask, &[INET], INET),
        ("broadcast", 1) => resolved(F::Broadcast, &[INET], INET),
        ("set_masklen", 2) => {
            let ty = first.filter(|_| is_inet).unwrap_or(INET);
            resolved(F::SetMasklen, &[ty, Type::INT4], ty)
        }
        ("inet_same_family", 2) => resolved(F::SameFamily, &[INET; 2], Type::BOOL),
        ("*inet_within", 2) => resolved(F::InetWithin, &[INET; 2], Type::BOOL),
        ("*inet_within_or_equal", 2) => resolved(F::InetWithinOrEqual, &[INET; 2], Type::BOOL),
        ("*inet_overlaps", 2) => resolved(F::InetOverlaps, &[INET; 2], Type::BOOL),
        _ => None,
    }
}

fn inet_of(value: Option<&Value<'_>>) -> Option<Inet> {
    match value {
        Some(Value::Inet(inet) | Value::Cidr(inet)) => Some(*inet),
        _ => None,
    }
}

/// The address whose first `bits` bits are 1, or the others.
fn mask(inet: Inet, is_of_network: bool) -> IpAddr {
    let bits = u32::from(inet.bits());
    match inet.address() {
        IpAddr::V4(_) => {
            let host = u32::MAX.checked_shr(bits).unwrap_or(0);
            Ipv4Addr::from(if is_of_network { !host } else { host }).into()
        }
        IpAddr::V6(_) => {
            let host = u128::MAX.checked_shr(bits).unwrap_or(0);
            Ipv6Addr::from(if is_of_network { !host } else { host }).into()
        }
    }
}

/// The last address of the network.
fn broadcast(inet: Inet) -> Option<Inet> {
    let address = match (inet.address(), mask(inet, false)) {
        (IpAddr::V4(address), IpAddr::V4(host)) => Ipv4Addr::from(address.to_bits() | host.to_bits()).into(),
        (IpAddr::V6(address), IpAddr::V6(host)) => Ipv6Addr::from(address.to_bits() | host.to_bits()).into(),
        (address, _) => address,
    };
    Inet::new(address, inet.bits())
}

/// A network without the zero bytes at its end.
fn abbreviated(network: Inet) -> String {
    let IpAddr::V4(address) = network.address() else {
        return format!("{}/{}", network.address(), network.bits());
    };
    let kept = usize::from(network.bits()).div_ceil(8).max(1);
    let octets: Vec<String> = address.octets().iter().take(kept).map(ToString::to_string).collect();
    format!("{}/{}", octets.join("."), network.bits())
}

impl Function {
    /// Evaluates a function over addresses; `None` for other functions. No argument is NULL.
    pub(crate) fn of_inets(self, values: &[Value<'_>]) -> Result<Option<Value<'static>>> {
        use Function as F;
        let Some(inet) = inet_of(values.first()) else { return Ok(None) };
        let other = inet_of(values.get(1)).unwrap_or(inet);
        Ok(Some(match self {
            F::Host => Value::text(inet.address().to_string()),
            F::InetText => Value::text(format!("{}/{}", inet.address(), inet.bits())),
            F::Abbrev => Value::text(match values.first() {
                Some(Value::Cidr(network)) => abbreviated(*network),
                _ => inet.to_string(),
            }),
            F::Family => Value::Int4(if inet.address().is_ipv4() { 4 } else { 6 }),
            F::Masklen => Value::Int4(inet.bits().into()),
            F::Network => Value::Cidr(inet.network()),
            F::Netmask => Value::Inet(Inet::host(mask(inet, true))),
            F::Hostmask => Value::Inet(Inet::host(mask(inet, false))),
            F::Broadcast => broadcast(inet).map_or(Value::Null, Value::Inet),
            F::SetMasklen => {
                let given = integer_of(values.get(1));
                let bits = if given == -1 { Some(inet.bits_max()) } else { u8::try_from(given).ok() };
                let changed = bits.and_then(|bits| Inet::new(inet.address(), bits)).ok_or_else(|| {
                    let message = format!("invalid mask length: {given}");
                    SqlError::new(state::INVALID_PARAMETER_VALUE, message)
                })?;
                match values.first() {
                    Some(Value::Cidr(_)) => Value::Cidr(changed.network()),
                    _ => Value::Inet(changed),
                }
            }
            F::SameFamily => Value::Bool(inet.address().is_ipv4() == other.address().is_ipv4()),
            F::InetWithin => Value::Bool(other.contains(inet) && other.bits() < inet.bits()),
            F::InetWithinOrEqual => Value::Bool(other.contains(inet)),
            F::InetOverlaps => Value::Bool(inet.contains(other) || other.contains(inet)),
            _ => return Ok(None),
        }))
    }
}
