//! Query strings, parsed strictly. Every parameter is known, given once unless it may repeat, and valid
//! UTF-8; any other is rejected by name.

use ropewalk_wire::AskedStore;
use serde::de::DeserializeOwned;

use crate::kit::json::Object;
use crate::kit::problem::Problem;

/// The parameters of a request that were not yet taken.
pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    /// Decodes `a=1&b=two+words&b=%C3%A4`.
    pub(crate) fn parse(query: Option<&str>) -> Result<Self, Problem> {
        let mut pairs = Vec::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            pairs.push((decode(name)?, decode(value)?));
        }
        Ok(Self(pairs))
    }

    /// All values of a parameter that may repeat.
    pub(crate) fn all(&mut self, name: &str) -> Vec<String> {
        self.0.extract_if(.., |(given, _)| given == name).map(|(_, value)| value).collect()
    }

    /// The value of a parameter that may occur once.
    pub(crate) fn one(&mut self, name: &str) -> Result<Option<String>, Problem> {
        let mut values = self.all(name);
        if values.len() > 1 {
            return Err(Problem::invalid(format!("parameter {name:?} is given {} times", values.len())));
        }
        Ok(values.pop())
    }

    /// A whole number.
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<u64>, Problem> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        let refuse =
            |_| Problem::invalid(format!("parameter {name:?} is {text:?}; a whole number from 0 is needed"));
        text.parse().map(Some).map_err(refuse)
    }

    /// `true` or `false`; the bare name means true.
    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, Problem> {
        match self.one(name)?.as_deref() {
            None | Some("false") => Ok(false),
            Some("" | "true") => Ok(true),
            Some(other) => {
                Err(Problem::invalid(format!("parameter {name:?} is {other:?}; true or false are allowed")))
            }
        }
    }

    /// `must_exist=true`: an event store that does not exist is rejected instead of read as empty.
    pub(crate) fn asked<'a>(&mut self, store: &'a str) -> Result<AskedStore<'a>, Problem> {
        Ok(AskedStore { name: store, must_exist: self.flag("must_exist")? })
    }

    /// As [`Params::asked`], for a request without other parameters.
    pub(crate) fn only_asked<'a>(query: Option<&str>, store: &'a str) -> Result<AskedStore<'a>, Problem> {
        let mut params = Self::parse(query)?;
        let asked = params.asked(store)?;
        params.finish()?;
        Ok(asked)
    }

    /// A value that is itself a JSON object.
    pub(crate) fn json<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, Problem> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        let refuse = |error| Problem::invalid(format!("parameter {name:?}: {error}"));
        serde_json::from_str::<Object<T>>(&text).map(|Object(parsed)| Some(parsed)).map_err(refuse)
    }

    /// All remaining parameters.
    pub(crate) fn rest(self) -> Vec<(String, String)> {
        self.0
    }

    /// Rejects remaining parameters.
    pub(crate) fn finish(self) -> Result<(), Problem> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(Problem::invalid(format!("unknown parameter {name:?}"))),
        }
    }
}

fn decode(text: &str) -> Result<String, Problem> {
    let refuse = || Problem::invalid(format!("{text:?} in the query string is not percent-encoded UTF-8"));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
                let (high, low) = (digit().ok_or_else(refuse)?, digit().ok_or_else(refuse)?);
                (high * 16 + low) as u8
            }
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| refuse())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_strictly() {
        let mut params = Params::parse(Some("tag=a%3Ab+c&tag=%C3%A4&limit=5&backwards&&x=")).unwrap();
        assert_eq!(params.all("tag"), ["a:b c", "ä"]);
        assert_eq!(params.number("limit").unwrap(), Some(5));
        assert!(params.flag("backwards").unwrap());
        assert!(!params.flag("missing").unwrap());
        assert!(params.finish().unwrap_err().detail().contains("unknown parameter \"x\""));
        for bad in ["a=%", "a=%4", "a=%zz", "a=%ff", "%+1=2"] {
            assert!(Params::parse(Some(bad)).is_err(), "{bad}");
        }
        assert!(Params::parse(Some("n=-1")).unwrap().number("n").is_err());
        assert!(Params::parse(Some("n=1&n=1")).unwrap().number("n").is_err());
        assert!(Params::parse(Some("b=yes")).unwrap().flag("b").is_err());
    }
}
