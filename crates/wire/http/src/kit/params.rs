//! Query strings, parsed strictly. Every parameter is known and given once unless it may repeat; any other is
//! rejected by name.

use ropewalk_http_kit::params::{NotDecoded, pairs};
use ropewalk_wire::{AskedStore, Page};
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use crate::kit::json::Object;
use crate::kit::problem::{Problem, Result};

/// The parameter that [`Params::asked`] reads. Only described here.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code)]
pub(crate) struct MustExist {
    /// A store that does not exist is refused with 404. Without it, it reads as empty.
    must_exist: Option<bool>,
}

/// The parameters that [`Params::page`] reads. Only described here.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code)]
pub(crate) struct PageParams {
    /// Only entries whose names come after this one: `next` of the page before.
    #[param(min_length = 1, max_length = 255)]
    after: Option<String>,
    /// At most so many entries, up to 1,000. Default 1,000.
    #[param(minimum = 1)]
    limit: Option<u64>,
}

/// Parameters that are a query of events, or one item of it. Only described here.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code)]
pub(crate) struct QueryParams {
    /// A query as JSON: `{"items":[{"types":["A"],"tags":["x"]}]}`.
    query: Option<String>,
    /// Instead of `query`: the event's type is one of these.
    r#type: Option<Vec<String>>,
    /// Instead of `query`: the event has all of these tags.
    tag: Option<Vec<String>>,
    /// Instead of `query`: the event's type begins with one of these.
    type_prefix: Option<Vec<String>>,
    /// Instead of `query`: for each of these the event has a tag that begins with it.
    tag_prefix: Option<Vec<String>>,
}

/// The parameters of a request that were not yet taken.
pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    /// Decodes `a=1&b=two+words&b=%C3%A4`.
    pub(crate) fn parse(query: Option<&str>) -> Result<Self> {
        let refuse = |NotDecoded(text)| {
            Problem::invalid_parameter(format!("{text:?} in the query string is not percent-encoded UTF-8"))
        };
        pairs(query).map(Self).map_err(refuse)
    }

    /// All values of a parameter that may repeat.
    pub(crate) fn all(&mut self, name: &str) -> Vec<String> {
        self.0.extract_if(.., |(given, _)| given == name).map(|(_, value)| value).collect()
    }

    /// The value of a parameter that may occur once.
    pub(crate) fn one(&mut self, name: &str) -> Result<Option<String>> {
        let mut values = self.all(name);
        if values.len() > 1 {
            return Err(Problem::invalid_parameter(format!(
                "parameter {name:?} is given {} times",
                values.len()
            )));
        }
        Ok(values.pop())
    }

    /// A whole number.
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<u64>> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        let refuse = |_| {
            Problem::invalid_parameter(format!(
                "parameter {name:?} is {text:?}; a whole number from 0 is needed"
            ))
        };
        text.parse().map(Some).map_err(refuse)
    }

    /// `true` or `false`; the bare name means true.
    pub(crate) fn flag(&mut self, name: &str) -> Result<bool> {
        match self.one(name)?.as_deref() {
            None | Some("false") => Ok(false),
            Some("" | "true") => Ok(true),
            Some(other) => Err(Problem::invalid_parameter(format!(
                "parameter {name:?} is {other:?}; true or false are allowed"
            ))),
        }
    }

    /// `must_exist=true`: an event store that does not exist is rejected instead of read as empty.
    pub(crate) fn asked<'a>(&mut self, store: &'a str) -> Result<AskedStore<'a>> {
        Ok(AskedStore { name: store, must_exist: self.flag("must_exist")? })
    }

    /// `after` and `limit`: a page of a list that is sorted by name.
    pub(crate) fn page(&mut self) -> Result<Page> {
        let (after, limit) = (self.one("after")?, self.number("limit")?);
        Page::new(after, limit).map_err(|error| Problem::invalid_parameter(error.message))
    }

    /// As [`Params::page`], for a request without other parameters.
    pub(crate) fn only_page(query: Option<&str>) -> Result<Page> {
        let mut params = Self::parse(query)?;
        let page = params.page()?;
        params.finish()?;
        Ok(page)
    }

    /// A value that is itself a JSON object.
    pub(crate) fn json<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        let refuse = |error| Problem::invalid_parameter(format!("parameter {name:?}: {error}"));
        serde_json::from_str::<Object<T>>(&text).map(|Object(parsed)| Some(parsed)).map_err(refuse)
    }

    /// All remaining parameters.
    pub(crate) fn rest(self) -> Vec<(String, String)> {
        self.0
    }

    /// Rejects remaining parameters.
    pub(crate) fn finish(self) -> Result<()> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(Problem::invalid_parameter(format!("unknown parameter {name:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_taken_strictly() {
        let mut params = Params::parse(Some("tag=a%3Ab+c&tag=%C3%A4&limit=5&backwards&&x=")).unwrap();
        assert_eq!(params.all("tag"), ["a:b c", "ä"]);
        assert_eq!(params.number("limit").unwrap(), Some(5));
        assert!(params.flag("backwards").unwrap());
        assert!(!params.flag("missing").unwrap());
        assert!(params.finish().unwrap_err().detail().contains("unknown parameter \"x\""));
        let undecoded = Params::parse(Some("a=%zz")).map(Params::rest).unwrap_err();
        assert!(undecoded.detail().starts_with("\"%zz\" in the query string"));
        assert!(Params::parse(Some("n=-1")).unwrap().number("n").is_err());
        assert!(Params::parse(Some("n=1&n=1")).unwrap().number("n").is_err());
        assert!(Params::parse(Some("b=yes")).unwrap().flag("b").is_err());
        let page = Params::parse(Some("after=a%2Fb&limit=2")).unwrap().page().unwrap();
        assert_eq!((page.after(), page.sought()), (Some("a/b"), 3));
        for invalid in ["after=", "after=a%00", "limit=0", "limit=-1", "limit=", "after=a&after=b"] {
            assert!(Params::parse(Some(invalid)).unwrap().page().is_err(), "{invalid}");
        }
    }
}
