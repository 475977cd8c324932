//! Metadata queries: label names, label values and series, for pickers and completion.
//!
//! With `start` or `end`, a series counts when it has a sample between them: exactly, not at the granularity
//! of blocks.

use std::collections::BTreeSet;

use axum::extract::{Path, State};
use axum::response::Response;
use ropewalk::promql::{self, BudgetError, PATTERNS_BYTES_MAX, Share};
use ropewalk::series::{Labels, LabelsRef, Matcher, Samples, SeriesAt};

use crate::app::App;
use crate::query::stream;
use crate::request::params::Params;
use crate::request::response::{ApiError, HEAD, Kind, Notes, put_labels, put_tail, put_text};

/// The requested series.
pub(crate) struct Wanted {
    /// One list of matchers for each selector; a series has to match one of the lists. Without a selector
    /// every series matches.
    pub(crate) selectors: Vec<Vec<Matcher>>,
    /// Times between which there must be a sample.
    pub(crate) between: Option<(i64, i64)>,
}

/// The matchers of a selector such as `up{job="a"}`, as in `match[]`.
pub(crate) fn selector(text: &str) -> Result<Vec<Matcher>, ApiError> {
    of_text(text).map_err(|why| ApiError::parameter("match[]", why))
}

/// As [`selector`], with a text as the error.
fn of_text(text: &str) -> Result<Vec<Matcher>, String> {
    checked(promql::parse_selector(text).map_err(|error| error.to_string())?)
}

fn checked(matchers: Vec<Matcher>) -> Result<Vec<Matcher>, String> {
    if matchers.iter().all(|matcher| matcher.matches("")) {
        return Err("match[] must contain at least one non-empty matcher".to_owned());
    }
    Ok(matchers)
}

/// All selectors of a request, with a text as the error.
///
/// Each selector may have as many regular expressions as a query, and so may all together.
pub(crate) fn of_texts<'t>(texts: impl Iterator<Item = &'t str>) -> Result<Vec<Vec<Matcher>>, String> {
    let (mut all, mut bytes) = (Vec::new(), 0);
    for text in texts {
        let parsed = promql::parse_selector(text).map_err(|error| error.to_string())?;
        bytes += parsed.iter().map(Matcher::pattern_bytes).sum::<usize>();
        check_pattern_bytes(bytes).map_err(|error| error.message)?;
        all.push(checked(parsed)?);
    }
    Ok(all)
}

/// The selectors in `match[]`.
pub(crate) fn selectors(params: &Params) -> Result<Vec<Vec<Matcher>>, ApiError> {
    of_texts(params.all("match[]")).map_err(|why| ApiError::parameter("match[]", why))
}

/// Rejects a request whose regular expressions are too large together.
pub(crate) fn check_pattern_bytes(bytes: usize) -> Result<(), ApiError> {
    if bytes > PATTERNS_BYTES_MAX {
        return Err(BudgetError::Patterns { max: PATTERNS_BYTES_MAX as u64 }.into());
    }
    Ok(())
}

/// Times between which there must be a sample, if the request has them.
fn between(params: &Params) -> Result<Option<(i64, i64)>, ApiError> {
    Ok(match (params.time("start")?, params.time("end")?) {
        (None, None) => None,
        (start, end) => Some((start.unwrap_or(i64::MIN), end.unwrap_or(i64::MAX))),
    })
}

impl Wanted {
    /// Reads the parameters. No sample lies between an end and a later start. Compiles regular expressions,
    /// which takes CPU time.
    fn of(params: &Params) -> Result<Self, ApiError> {
        let between = between(params)?;
        Ok(Self { selectors: of_texts(params.all("match[]")).map_err(ApiError::bad)?, between })
    }

    /// Passes the labels of each series to `look`; one that matches two selectors may come twice.
    fn each(
        &self,
        series: &SeriesAt<'_>,
        mut look: impl FnMut(LabelsRef<'_>) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        let (from, to) = self.between.unwrap_or((0, -1));
        let mut samples = Samples::default();
        if self.between.is_some_and(|(from, to)| to < from) {
            return Ok(());
        }
        let all = [Vec::new()];
        let selectors = if self.selectors.is_empty() { &all[..] } else { &self.selectors };
        for matchers in selectors {
            let mut selection = series.select(matchers, from, to)?;
            while selection.next().is_some() {
                if self.between.is_some() && selection.aggregate()?.is_none() {
                    // No aggregate: no samples, or samples other than floats. Read them.
                    samples.clear();
                    if selection.samples(&mut samples)? == 0 {
                        continue;
                    }
                }
                selection.with_labels(&mut look).transpose()?;
            }
        }
        Ok(())
    }
}

/// Runs `work` on a snapshot, on a thread that may block.
pub(crate) async fn on_snapshot<T: Send + 'static>(
    app: &App,
    work: impl FnOnce(&SeriesAt<'_>) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let (store, snapshot) = (app.store()?, app.service.database().snapshot());
    app.off_thread(move || work(&snapshot.series(&store))).await?
}

/// Reserves memory for a label or a set of labels from the limit shared by all queries.
pub(crate) fn take(share: &mut Share, bytes: usize) -> Result<(), ApiError> {
    Ok(share.grow(LISTED_BYTES + bytes)?)
}

/// Memory of a string or a label set in a list or tree, in addition to its bytes.
const LISTED_BYTES: usize = 64;

/// Different texts, sorted, whose memory counts until the response is sent.
struct Texts {
    all: BTreeSet<String>,
    share: Share,
}

impl Texts {
    fn new(app: &App) -> Self {
        Self { all: BTreeSet::new(), share: Share::new(Some(app.memory.clone())) }
    }

    fn add(&mut self, text: &str) -> Result<(), ApiError> {
        if !self.all.contains(text) {
            take(&mut self.share, text.len())?;
            self.all.insert(text.to_owned());
        }
        Ok(())
    }

    /// The response: a list of the first `limit` texts.
    fn into_response(self, limit: usize) -> Response {
        let is_truncated = self.all.len() > limit;
        let texts: Vec<String> = self.all.into_iter().take(limit).collect();
        list(texts, |out, text| put_text(out, text), is_truncated, self.share)
    }
}

/// A list as a response.
fn list<T: Send + 'static>(
    entries: Vec<T>,
    put: fn(&mut Vec<u8>, &T),
    is_truncated: bool,
    share: Share,
) -> Response {
    let mut tail = b"]".to_vec();
    put_tail(&mut tail, &if is_truncated { Notes::truncated() } else { Notes::default() });
    stream::list([HEAD, b"["].concat(), entries, put, tail, share).into_response()
}

/// `labels`: names of labels.
pub(crate) async fn names(State(app): State<App>, params: Params) -> Result<Response, ApiError> {
    let (limit, mut names) = (params.limit("limit")?, Texts::new(&app));
    let names = on_snapshot(&app, move |series| {
        let wanted = Wanted::of(&params)?;
        if wanted.between.is_none() && wanted.selectors.is_empty() {
            series.each_label_name(&[], |name| names.add(name))?;
        } else {
            wanted.each(series, |labels| labels.iter().try_for_each(|(name, _)| names.add(name)))?;
        }
        Ok(names)
    });
    Ok(names.await?.into_response(limit))
}

/// `label/…/values`: values of one label.
pub(crate) async fn values(
    State(app): State<App>,
    Path(name): Path<String>,
    params: Params,
) -> Result<Response, ApiError> {
    let name = unescape(&name).ok_or_else(|| ApiError::bad(format!("invalid label name: {name:?}")))?;
    let (limit, mut values) = (params.limit("limit")?, Texts::new(&app));
    let values = on_snapshot(&app, move |series| {
        let wanted = Wanted::of(&params)?;
        if wanted.between.is_none() && wanted.selectors.is_empty() {
            // They come in order: one more than the limit shows that there are more.
            let mut left = limit.saturating_add(1);
            let first = series.each_label_value(&name, &[], |value| {
                let Some(rest) = left.checked_sub(1) else { return Err(None) };
                left = rest;
                values.add(value).map_err(Some)
            });
            if let Err(Some(error)) = first {
                return Err(error);
            }
        } else {
            wanted.each(series, |labels| match labels.get(&name) {
                "" => Ok(()),
                value => values.add(value),
            })?;
        }
        Ok(values)
    });
    Ok(values.await?.into_response(limit))
}

/// Decodes a name in a path: after `U__`, `_xx_` is the character with that hexadecimal number, and `__` is
/// `_`. A name with invalid escapes is taken literally; an empty one is rejected.
fn unescape(name: &str) -> Option<String> {
    let plain = || Some(name.to_owned()).filter(|name| !name.is_empty());
    match name.strip_prefix("U__") {
        None => plain(),
        Some("") => None,
        Some(escaped) => escapes(escaped).or_else(plain),
    }
}

fn escapes(mut rest: &str) -> Option<String> {
    let mut out = String::new();
    while let Some((plain, tail)) = rest.split_once('_') {
        out.push_str(plain);
        if let Some(tail) = tail.strip_prefix('_') {
            out.push('_');
            rest = tail;
            continue;
        }
        let (hex, tail) = tail.split_once('_')?;
        let code = u32::from_str_radix(hex, 16).ok().filter(|_| hex.len() <= 6)?;
        out.push(char::from_u32(code)?);
        rest = tail;
    }
    out.push_str(rest);
    Some(out)
}

/// `series`: label sets.
pub(crate) async fn series(State(app): State<App>, params: Params) -> Result<Response, ApiError> {
    if params.all("match[]").next().is_none() {
        return Err(ApiError::bad("no match[] parameter provided"));
    }
    let limit = params.limit("limit")?;
    let mut share = Share::new(Some(app.memory.clone()));
    let found = on_snapshot(&app, move |series| {
        // The error text for selectors is Prometheus'.
        let selectors = selectors(&params)?;
        let wanted = Wanted { selectors, between: between(&params)? };
        let mut found: Vec<Labels> = Vec::new();
        wanted.each(series, |labels| {
            let labels = labels.to_owned();
            take(&mut share, labels.bytes())?;
            found.push(labels);
            Ok(())
        })?;
        found.sort();
        found.dedup();
        Ok((found, share))
    });
    let (mut found, share) = found.await?;
    let is_truncated = found.len() > limit;
    found.truncate(limit);
    Ok(list(found, |out, labels| put_labels(out, labels.iter()), is_truncated, share))
}

/// `DELETE /api/v1/series`, which Prometheus has removed.
pub(crate) async fn refuse_delete() -> ApiError {
    ApiError::new(Kind::Internal, "not implemented; see admin/tsdb/delete_series")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_paths() {
        for (escaped, name) in [
            ("job", Some("job")),
            ("U__a_2e_b", Some("a.b")),
            ("U__a__b", Some("a_b")),
            ("U___f6_", Some("ö")),
            ("a.b", Some("a.b")),
            ("", None),
            ("U__", None),
            ("U__a_zz_", Some("U__a_zz_")),
            ("U__a_d800_", Some("U__a_d800_")),
            ("U__a_2e", Some("U__a_2e")),
        ] {
            assert_eq!(unescape(escaped).as_deref(), name, "{escaped}");
        }
    }
}
