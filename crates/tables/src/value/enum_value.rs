//! Values of enum types in rows and keys.

use std::borrow::Cow;

/// A value of an enum type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnumValue<'a> {
    /// Number of the type.
    pub(crate) number: u32,
    pub(crate) order: i64,
    pub(crate) label: Cow<'a, str>,
}

impl EnumValue<'_> {
    /// Its label.
    pub fn label(&self) -> &str {
        &self.label
    }

    pub(crate) fn borrowed(&self) -> EnumValue<'_> {
        EnumValue { number: self.number, order: self.order, label: Cow::Borrowed(&self.label) }
    }

    pub(crate) fn into_owned(self) -> EnumValue<'static> {
        EnumValue { number: self.number, order: self.order, label: self.label.into_owned().into() }
    }

    pub(crate) fn put_row(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.order.to_le_bytes());
        out.extend_from_slice(self.label.as_bytes());
    }
}

impl<'a> EnumValue<'a> {
    pub(crate) fn from_row(number: u32, bytes: &'a [u8]) -> Option<Self> {
        let (order, label) = bytes.split_first_chunk()?;
        let label = std::str::from_utf8(label).ok()?.into();
        Some(Self { number, order: i64::from_le_bytes(*order), label })
    }
}
