//! Decimals compared with the crate `bson` for printing and parsing, and with integers for arithmetic.

use bson::Decimal128;
use proptest::prelude::*;
use ropewalk_documents::lang::{
    Decimal, DocBuf, LangError, Options, Pipeline, Source, Stream, Value, Writer,
};

/// Bit patterns that are often numbers near the limits.
fn bits() -> impl Strategy<Value = [u8; 16]> {
    let near = (any::<bool>(), prop_oneof![0i32..12_288, 6_170i32..6_190], 0u128..1 << 114, 0u32..113);
    let packed = near.prop_map(|(negative, exponent, coefficient, shift)| {
        (u128::from(negative) << 127 | (exponent as u128) << 113 | coefficient >> shift).to_le_bytes()
    });
    prop_oneof![4 => packed, 1 => any::<[u8; 16]>()]
}

struct Nowhere;

impl Source for Nowhere {
    type Error = LangError;

    fn find(
        &self,
        _: &str,
        _: &ropewalk_documents::lang::Filter,
    ) -> Result<Stream<'_, LangError>, LangError> {
        Ok(Box::new(std::iter::empty()))
    }
}

/// `{ operator: [a, b] }`
fn calculated(operator: &str, a: Value<'_>, b: Value<'_>) -> Result<String, LangError> {
    let mut stage = Writer::array();
    stage.open_document("");
    stage.open_document("$replaceWith");
    stage.open_document("r");
    stage.open_array(operator);
    stage.put("", a);
    stage.put("", b);
    let stage = stage.into_owned();
    let pipeline = Pipeline::parse(stage.value().as_array().unwrap(), &Options::default())?;
    let mut stream = pipeline.run(Box::new(std::iter::once(Ok(DocBuf::empty()))), &Nowhere, 1 << 20)?;
    Ok(stream.next().unwrap()?.doc().get("r").unwrap().to_string())
}

fn decimal(text: &str) -> Value<'static> {
    Value::Decimal(Decimal::parse(text).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    #[test]
    fn text_is_that_of_the_crate_bson(bytes in bits()) {
        let ours = Decimal::from_bytes(bytes).to_string();
        let theirs = Decimal128::from_bytes(bytes).to_string();
        prop_assert_eq!(&ours, &theirs);
        // Compares texts: zeros and non-canonical coefficients parse to other bits.
        prop_assert_eq!(Decimal::parse(&ours).unwrap().to_string(), ours);
    }

    /// Integers of up to sixteen digits: sums and products fit 34 digits and are exact.
    #[test]
    fn arithmetic_is_that_of_integers(a in -10i64.pow(16)..10i64.pow(16), b in -10i64.pow(16)..10i64.pow(16), point in 0u32..20) {
        let (x, y) = (decimal(&format!("{a}E-{point}")), decimal(&format!("{b}E-{point}")));
        let shown = |number: i128, point: u32| format!("NumberDecimal({})", Decimal::parse(&format!("{number}E-{point}")).unwrap());
        prop_assert_eq!(calculated("$add", x, y).unwrap(), shown(i128::from(a) + i128::from(b), point));
        prop_assert_eq!(calculated("$subtract", x, y).unwrap(), shown(i128::from(a) - i128::from(b), point));
        if a != 0 && b != 0 {
            prop_assert_eq!(calculated("$multiply", x, y).unwrap(), shown(i128::from(a) * i128::from(b), 2 * point));
            prop_assert_eq!(calculated("$mod", x, y).unwrap(), shown(i128::from(a) % i128::from(b), point));
        }
    }

    /// A quotient times the divisor is the dividend, except for the last digits.
    #[test]
    fn quotients_are_near(a in 1i64..10i64.pow(16), b in 1i64..10i64.pow(16)) {
        let quotient = calculated("$divide", decimal(&a.to_string()), decimal(&b.to_string())).unwrap();
        let quotient = quotient.strip_prefix("NumberDecimal(").unwrap().strip_suffix(')').unwrap().to_owned();
        let back = calculated("$multiply", decimal(&quotient), decimal(&b.to_string())).unwrap();
        let off = calculated("$subtract", decimal(back.strip_prefix("NumberDecimal(").unwrap().strip_suffix(')').unwrap()), decimal(&a.to_string())).unwrap();
        let off: f64 = off.strip_prefix("NumberDecimal(").unwrap().strip_suffix(')').unwrap().parse().unwrap();
        prop_assert!(off.abs() <= a as f64 * 1e-33, "{a} / {b} = {quotient}, off by {off}");
    }
}
