//! Parameters of a request: of a form in the body, then of the query string.
//!
//! Unknown parameters are ignored, as in Prometheus: its clients send additional ones.

use axum::extract::{FromRef, FromRequest, Request};
use axum::http::Method;
use ropewalk_http_kit::media::MediaType;
use ropewalk_http_kit::params::pairs;
use ropewalk_monitoring::notation::parse_duration;
use ropewalk_wire::Service;

use crate::request::body;
use crate::request::response::{ApiError, Kind};
use crate::request::time;
use crate::request::time::NotTime;

/// Names and values in the order of the request.
#[derive(Debug, Default)]
pub(crate) struct Params(Vec<(String, String)>);

impl<S: Send + Sync> FromRequest<S> for Params
where
    Service: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let mut query = pairs(request.uri().query())?;
        let mut all = Vec::new();
        if *request.method() == Method::POST {
            let kind = MediaType::of(request.headers()).kind().to_owned();
            let body = body::plain(&Service::from_ref(state), request).await?;
            if !body.is_empty() && !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
                let message = format!("the body is {kind:?}; application/x-www-form-urlencoded is needed");
                return Err(ApiError::new(Kind::MediaType, message));
            }
            let form = std::str::from_utf8(&body).map_err(|_| ApiError::bad("the body is not UTF-8"))?;
            all = pairs(Some(form))?;
        }
        all.append(&mut query);
        Ok(Self(all))
    }
}

impl Params {
    /// The first value of `name`; an empty one counts as absent.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).filter(|v| !v.is_empty())
    }

    /// Every value of `name`.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// An optional time in milliseconds.
    ///
    /// # Errors
    /// It is not a time.
    pub(crate) fn time(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let parse = |text| {
            time::parse_time(text).map_err(|NotTime(why)| {
                ApiError::parameter(name, format!("invalid time value for '{name}': {why}"))
            })
        };
        self.get(name).map(parse).transpose()
    }

    /// A required time.
    ///
    /// # Errors
    /// It is missing, or not a time.
    pub(crate) fn needed_time(&self, name: &str) -> Result<i64, ApiError> {
        let text = self.get(name).unwrap_or_default();
        time::parse_time(text).map_err(|NotTime(why)| ApiError::parameter(name, why))
    }

    /// `lookback_delta` in milliseconds; `None`, zero or less for the default.
    ///
    /// # Errors
    /// It is not a duration.
    pub(crate) fn lookback_delta(&self) -> Result<Option<i64>, ApiError> {
        let parse = |text| {
            parse_duration(text)
                .map_err(|why| ApiError::bad(format!("error parsing lookback delta duration: {why}")))
        };
        Ok(self.get("lookback_delta").map(parse).transpose()?.filter(|ms| *ms > 0))
    }

    /// A duration in milliseconds.
    ///
    /// # Errors
    /// It is not a duration.
    pub(crate) fn duration(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let parse = |text| parse_duration(text).map_err(|why| ApiError::parameter(name, why));
        self.get(name).map(parse).transpose()
    }

    /// An integer.
    ///
    /// # Errors
    /// It is not an integer.
    pub(crate) fn whole(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let parse =
            |text: &str| text.parse::<i64>().map_err(|_| ApiError::bad(format!("{name} must be a number")));
        self.get(name).map(parse).transpose()
    }

    /// `limit`; absent or 0 for no limit.
    ///
    /// # Errors
    /// It is not an integer from 0.
    pub(crate) fn limit(&self, name: &str) -> Result<usize, ApiError> {
        let Some(text) = self.get(name) else { return Ok(usize::MAX) };
        match text.parse::<i64>() {
            Ok(0) => Ok(usize::MAX),
            Ok(number) => {
                usize::try_from(number).map_err(|_| ApiError::parameter(name, "limit must be non-negative"))
            }
            Err(error) => {
                use std::num::IntErrorKind::{NegOverflow, PosOverflow};
                let what = match error.kind() {
                    PosOverflow | NegOverflow => "value out of range",
                    _ => "invalid syntax",
                };
                Err(ApiError::parameter(name, format!("strconv.Atoi: parsing {text:?}: {what}")))
            }
        }
    }
}
