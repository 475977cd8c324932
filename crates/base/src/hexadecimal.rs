//! Bytes as hexadecimal digits.

/// The lower-case hexadecimal digits of `bytes`.
pub fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

/// The bytes of hexadecimal digits of either case; `None` for any other text.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |[high, low]: &[u8; 2]| u8::try_from(digit(*high)? << 4 | digit(*low)?).ok();
    rest.is_empty().then(|| pairs.iter().map(byte).collect()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_and_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(hex(&[0, 0x0f, 0xa0]), "000fa0");
        assert_eq!(from_hex(&hex(&bytes)), Some(bytes));
        assert_eq!((from_hex("00fF"), from_hex("")), (Some(vec![0, 255]), Some(Vec::new())));
        assert_eq!((from_hex("0"), from_hex("+1"), from_hex("é")), (None, None, None));
    }
}
