//! Media types: that of a request, and the form of a response that a client prefers.

use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};

/// A media type with its parameters: `application/json; charset=utf-8`.
#[derive(Debug, Clone, Copy)]
pub struct MediaType<'t>(pub &'t str);

impl<'t> MediaType<'t> {
    /// The header `Content-Type`; empty when it is missing or not a text.
    pub fn of(headers: &'t HeaderMap) -> Self {
        Self(headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default())
    }

    /// The type without parameters.
    pub fn kind(self) -> &'t str {
        self.0.split(';').next().unwrap_or_default().trim()
    }

    /// True for the type `kind`, whatever its parameters.
    pub fn is(self, kind: &str) -> bool {
        self.kind().eq_ignore_ascii_case(kind)
    }

    /// The values of a parameter, without their quotes.
    pub fn parameters(self, name: &str) -> impl Iterator<Item = &'t str> {
        let pairs = self.0.split(';').skip(1).filter_map(|part| part.split_once('='));
        let named = pairs.filter(move |(given, _)| given.trim().eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.trim().trim_matches('"'))
    }
}

/// The offer that the client prefers (RFC 9110, section 12.5.1); `None`: it accepts none.
///
/// Of equals, and without a preference, it is the first.
pub fn accepted<'o>(headers: &HeaderMap, offers: &[&'o str]) -> Option<&'o str> {
    let ranges: Vec<(&str, f32)> = headers
        .get_all(ACCEPT)
        .iter()
        .flat_map(|value| value.to_str().unwrap_or_default().split(','))
        .map(range)
        .collect();
    let mut best = None;
    for offer in offers {
        let liked = if ranges.is_empty() { 1.0 } else { quality(&ranges, offer) };
        if liked > best.map_or(0.0, |(_, most)| most) {
            best = Some((*offer, liked));
        }
    }
    best.map(|(offer, _)| offer)
}

fn range(text: &str) -> (&str, f32) {
    let mut parts = text.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default();
    let quality = parts.find_map(|part| part.strip_prefix("q=")).and_then(|q| q.parse().ok()).unwrap_or(1.0);
    (kind, quality)
}

/// The most specific range that covers the offer decides.
fn quality(ranges: &[(&str, f32)], offer: &str) -> f32 {
    let family = offer.split_once('/').map_or(offer, |(family, _)| family);
    let of = |wanted: &dyn Fn(&str) -> bool| ranges.iter().find(|(kind, _)| wanted(kind)).map(|(_, q)| *q);
    of(&|kind| kind.eq_ignore_ascii_case(offer))
        .or_else(|| of(&|kind| kind.strip_suffix("/*").is_some_and(|f| f.eq_ignore_ascii_case(family))))
        .or_else(|| of(&|kind| kind == "*/*"))
        .unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_offer_wins() {
        let accepted = |accept: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(ACCEPT, value.parse().unwrap());
            }
            accepted(&headers, &["application/json", "application/x-ndjson"])
        };
        let (json, lines) = (Some("application/json"), Some("application/x-ndjson"));
        assert_eq!(accepted(&[]), json);
        assert_eq!(accepted(&["*/*"]), json);
        assert_eq!(accepted(&["application/*"]), json);
        assert_eq!(accepted(&["application/x-ndjson"]), lines);
        assert_eq!(accepted(&["text/html, application/x-ndjson;q=0.9, */*;q=0.8"]), lines);
        assert_eq!(accepted(&["text/html", "Application/JSON; q=0.1"]), json);
        assert_eq!(accepted(&["*/*, application/json;q=0"]), lines);
        assert_eq!(accepted(&["text/html"]), None);
    }

    #[test]
    fn media_types_have_parameters() {
        let media = MediaType("Application/JSON ; Charset=\"UTF-8\";x; charset = latin1");
        assert!(media.is("application/json") && !media.is("application/jsonx"));
        assert_eq!(media.parameters("charset").collect::<Vec<_>>(), ["UTF-8", "latin1"]);
        assert_eq!(MediaType::of(&HeaderMap::new()).kind(), "");
    }
}
