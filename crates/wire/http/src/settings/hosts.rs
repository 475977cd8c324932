//! The names by which clients reach the API.

use std::net::IpAddr;

/// Names by which clients may reach the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hosts {
    /// Any.
    Any,
    /// These in lower case, loopback names, and IP addresses, which no page can rebind.
    Names(Vec<String>),
}

impl Default for Hosts {
    fn default() -> Self {
        Self::Names(Vec::new())
    }
}

/// A text that is no host name.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a host name; it has no scheme, port or path")]
pub struct InvalidHost(pub String);

impl Hosts {
    /// Reads a list of names; `*` means any.
    ///
    /// # Errors
    /// [`InvalidHost`].
    pub fn names<T: AsRef<str>>(list: impl IntoIterator<Item = T>) -> Result<Self, InvalidHost> {
        let mut names = Vec::new();
        for name in list {
            let name = name.as_ref();
            if name == "*" {
                return Ok(Self::Any);
            }
            if name.is_empty() || name.contains([':', '/', '?', '#', '@', ' ']) {
                return Err(InvalidHost(name.to_owned()));
            }
            names.push(name.to_ascii_lowercase());
        }
        Ok(Self::Names(names))
    }

    pub(crate) fn allow(&self, host: &str) -> bool {
        let Self::Names(names) = self else { return true };
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
        literal.parse::<IpAddr>().is_ok()
            || host == "localhost"
            || host.ends_with(".localhost")
            || names.contains(&host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_loopback_names_addresses_and_listed_names() {
        let hosts = Hosts::names(["db.Example"]).unwrap();
        for allowed in
            ["localhost", "LOCALHOST.", "shop.localhost", "127.0.0.1", "[::1]", "10.1.2.3", "DB.example"]
        {
            assert!(hosts.allow(allowed), "{allowed}");
        }
        for refused in ["evil.example", "localhost.evil.example", "db.example.evil", "", "127.0.0.1.nip.io"] {
            assert!(!hosts.allow(refused), "{refused}");
        }
        assert!(Hosts::names(["*"]).unwrap().allow("evil.example"));
        for bad in ["", "a:80", "http://a", "a/b"] {
            assert!(Hosts::names([bad]).is_err(), "{bad}");
        }
    }
}
