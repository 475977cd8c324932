//! Content negotiation: the form of a response that a client prefers (RFC 9110, section 12.5.1).

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

use crate::kit::problem::{Problem, Refusal};

/// The offer that the client prefers; the first of equals, and the first without a preference.
///
/// # Errors
/// It accepts none of them.
pub(crate) fn choose<'a>(headers: &HeaderMap, offers: &[&'a str]) -> Result<&'a str, Problem> {
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
    let refuse = || Problem::refused(Refusal::NotAcceptable, format!("there is {}", offers.join(" or ")));
    best.map(|(offer, _)| offer).ok_or_else(refuse)
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
        let choose = |accept: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(ACCEPT, value.parse().unwrap());
            }
            choose(&headers, &["application/json", "application/x-ndjson"]).ok()
        };
        let (json, lines) = (Some("application/json"), Some("application/x-ndjson"));
        assert_eq!(choose(&[]), json);
        assert_eq!(choose(&["*/*"]), json);
        assert_eq!(choose(&["application/*"]), json);
        assert_eq!(choose(&["application/x-ndjson"]), lines);
        assert_eq!(choose(&["text/html, application/x-ndjson;q=0.9, */*;q=0.8"]), lines);
        assert_eq!(choose(&["text/html", "Application/JSON; q=0.1"]), json);
        assert_eq!(choose(&["*/*, application/json;q=0"]), lines);
        assert_eq!(choose(&["text/html"]), None);
    }
}
