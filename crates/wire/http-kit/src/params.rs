//! Query strings and forms, decoded strictly: every name and value is percent-encoded UTF-8.

/// A part that is not percent-encoded UTF-8.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not percent-encoded UTF-8")]
pub struct NotDecoded(pub String);

/// Decodes `a=1&b=two+words&b=%C3%A4`: names and values in their order.
///
/// # Errors
/// [`NotDecoded`].
pub fn pairs(text: Option<&str>) -> Result<Vec<(String, String)>, NotDecoded> {
    let pairs = text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let decoded = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Ok((decode(name)?, decode(value)?))
    };
    pairs.map(decoded).collect()
}

fn decode(text: &str) -> Result<String, NotDecoded> {
    let refuse = || NotDecoded(text.to_owned());
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
    fn pairs_are_decoded_strictly() {
        let pairs_of = |text| pairs(Some(text)).unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            pairs_of("tag=a%3Ab+c&tag=%C3%A4&bare&&x="),
            [pair("tag", "a:b c"), pair("tag", "ä"), pair("bare", ""), pair("x", "")]
        );
        assert_eq!(pairs(None).unwrap(), []);
        for bad in ["a=%", "a=%4", "a=%zz", "a=%ff", "%+1=2"] {
            assert!(pairs(Some(bad)).is_err(), "{bad}");
        }
    }
}
