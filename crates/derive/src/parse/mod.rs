//! The input of the derive macro as a checked description of the events.
//!
//! Every error has the span of the attribute, key or field that causes it.

#[cfg(test)]
mod tests;

use proc_macro2::{Ident, Span};
use quote::ToTokens;
use syn::ext::IdentExt as _;
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned as _;
use syn::{
    Attribute, Data, DataEnum, DeriveInput, Error, Field, Fields, LitInt, LitStr, Path, Result, Token, Type,
};

/// A type that derives `Event`.
pub(crate) struct Definition {
    pub(crate) ident: Ident,
    /// Module with `to_vec` and `from_slice`.
    pub(crate) codec: Path,
    /// One for a struct, one for each variant of an enum.
    pub(crate) events: Vec<EventType>,
}

/// A type of events.
pub(crate) struct EventType {
    /// The variant; `None` for a struct.
    pub(crate) variant: Option<Ident>,
    /// Name of the struct or variant, for texts.
    pub(crate) shown: String,
    pub(crate) name: String,
    pub(crate) version: u32,
    pub(crate) upcasts: Vec<Upcast>,
    pub(crate) serde: Vec<Attribute>,
    pub(crate) fields: Vec<EventField>,
}

/// A function from the data of an earlier version.
pub(crate) struct Upcast {
    pub(crate) from: u32,
    pub(crate) function: Path,
    span: Span,
}

/// A field of the data.
pub(crate) struct EventField {
    pub(crate) ident: Ident,
    pub(crate) ty: Type,
    pub(crate) serde: Vec<Attribute>,
    pub(crate) tags: Vec<Tag>,
    pub(crate) is_personal: bool,
}

/// A tag, or tags with one prefix.
pub(crate) struct Tag {
    pub(crate) prefix: String,
    pub(crate) values: TagValues,
}

/// The values of a field's tags.
#[derive(Default)]
pub(crate) enum TagValues {
    /// The field itself.
    #[default]
    Field,
    /// Each value of the field.
    Each,
    /// A function of each value of the field.
    EachBy(Path),
}

/// The item that an attribute with keys belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Struct,
    Enum,
    Variant,
}

/// The keys of a struct, enum or variant.
#[derive(Default)]
struct Keys {
    name: Option<LitStr>,
    version: Option<LitInt>,
    upcasts: Vec<Upcast>,
    codec: Option<Path>,
}

impl Definition {
    /// Checks the input.
    pub(crate) fn parse(input: &DeriveInput) -> Result<Self> {
        if let Some(parameter) = input.generics.params.first() {
            return Err(Error::new_spanned(parameter, "an event has no generic parameters"));
        }
        let (codec, events) = match &input.data {
            Data::Struct(data) => {
                let mut keys = Keys::read_all(&input.attrs, Place::Struct)?;
                let codec = keys.codec.take();
                (codec, vec![EventType::parse(&input.ident, keys, &input.attrs, &data.fields)?])
            }
            Data::Enum(data) => {
                reject_enum_attributes(&input.attrs)?;
                if data.variants.is_empty() {
                    return Err(Error::new_spanned(&input.ident, "an enum of events needs a variant"));
                }
                (Keys::read_all(&input.attrs, Place::Enum)?.codec, variants(data)?)
            }
            Data::Union(data) => {
                return Err(Error::new_spanned(data.union_token, "an event is a struct or an enum"));
            }
        };
        let codec = codec.map_or_else(|| syn::parse_str("::serde_json"), Ok)?;
        Ok(Self { ident: input.ident.clone(), codec, events })
    }
}

fn variants(data: &DataEnum) -> Result<Vec<EventType>> {
    let mut events: Vec<EventType> = Vec::new();
    for variant in &data.variants {
        let keys = Keys::read_all(&variant.attrs, Place::Variant)?;
        let event = EventType::parse(&variant.ident, keys, &variant.attrs, &variant.fields)?;
        if events.iter().any(|other| other.name == event.name) {
            let message = format!("two variants have the event type {:?}", event.name);
            return Err(Error::new_spanned(&variant.ident, message));
        }
        events.push(EventType { variant: Some(variant.ident.clone()), ..event });
    }
    Ok(events)
}

/// Rejects serde's attributes of an enum that seem to concern the fields, and do not.
fn reject_enum_attributes(attributes: &[Attribute]) -> Result<()> {
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        let text = attribute.to_token_stream().to_string();
        if text.contains("rename_all_fields") || text.contains("deny_unknown_fields") {
            let message = "this attribute has no effect on the data of events; write `rename_all` or \
                           `deny_unknown_fields` on the variants";
            return Err(Error::new_spanned(attribute, message));
        }
    }
    Ok(())
}

impl EventType {
    fn parse(ident: &Ident, keys: Keys, attributes: &[Attribute], fields: &Fields) -> Result<Self> {
        if let Fields::Unnamed(unnamed) = fields {
            let message = "the fields of an event have names: write `{ field: Type }`";
            return Err(Error::new_spanned(unnamed, message));
        }
        let version = keys.checked_version()?;
        let shown = ident.unraw().to_string();
        Ok(Self {
            variant: None,
            name: keys.name.map_or_else(|| shown.clone(), |name| name.value()),
            shown,
            version,
            upcasts: keys.upcasts,
            serde: serde_attributes(attributes),
            fields: fields.iter().map(EventField::parse).collect::<Result<_>>()?,
        })
    }
}

impl Keys {
    fn read_all(attributes: &[Attribute], place: Place) -> Result<Self> {
        let mut keys = Self::default();
        for attribute in event_attributes(attributes) {
            attribute.parse_nested_meta(|meta| keys.read(&meta, place))?;
        }
        Ok(keys)
    }

    fn read(&mut self, meta: &ParseNestedMeta<'_>, place: Place) -> Result<()> {
        let key = meta.path.to_token_stream().to_string();
        match (key.as_str(), place) {
            ("codec", Place::Variant) => {
                Err(meta.error("`codec` belongs on the enum: its events have one format"))
            }
            ("name" | "version" | "upcast_from", Place::Enum) => {
                Err(meta.error(format!("`{key}` belongs on a variant: each variant is a type of events")))
            }
            ("name", _) => {
                let name: LitStr = meta.value()?.parse()?;
                if name.value().is_empty() {
                    return Err(Error::new_spanned(&name, "the type of an event is not empty"));
                }
                set(&mut self.name, name, meta)
            }
            ("version", _) => {
                let version: LitInt = meta.value()?.parse()?;
                set(&mut self.version, version, meta)
            }
            ("upcast_from", _) => {
                let content;
                syn::parenthesized!(content in meta.input);
                let version: LitInt = content.parse()?;
                let function: Path = meta.value()?.parse()?;
                self.upcasts.push(Upcast { from: version.base10_parse()?, function, span: version.span() });
                Ok(())
            }
            ("codec", _) => {
                let codec: Path = meta.value()?.parse()?;
                set(&mut self.codec, codec, meta)
            }
            (_, Place::Enum) => Err(meta.error(format!("unknown key `{key}`; an enum has `codec`"))),
            (_, Place::Struct) => Err(meta.error(format!(
                "unknown key `{key}`; a struct has `name`, `version`, `upcast_from(N)` and `codec`"
            ))),
            (_, Place::Variant) => Err(meta
                .error(format!("unknown key `{key}`; a variant has `name`, `version` and `upcast_from(N)`"))),
        }
    }

    /// The version; every earlier one needs an upcast, since its events may be stored.
    fn checked_version(&self) -> Result<u32> {
        let version: u32 = self.version.as_ref().map_or(Ok(1), LitInt::base10_parse)?;
        let span = self.version.as_ref().map_or_else(Span::call_site, LitInt::span);
        if version == 0 {
            return Err(Error::new(span, "versions begin at 1"));
        }
        for (index, upcast) in self.upcasts.iter().enumerate() {
            let from = upcast.from;
            if from == 0 || from >= version {
                let message =
                    format!("`upcast_from({from})`: the version is {version}, and earlier ones begin at 1");
                return Err(Error::new(upcast.span, message));
            }
            if self.upcasts.iter().take(index).any(|other| other.from == from) {
                return Err(Error::new(upcast.span, format!("two upcasts from version {from}")));
            }
        }
        match (1..version).find(|old| self.upcasts.iter().all(|upcast| upcast.from != *old)) {
            None => Ok(version),
            Some(old) => {
                let message = format!(
                    "events of version {old} may be stored: add `upcast_from({old}) = function_of_their_data`"
                );
                Err(Error::new(span, message))
            }
        }
    }
}

impl EventField {
    fn parse(field: &Field) -> Result<Self> {
        let Some(ident) = field.ident.clone() else {
            return Err(Error::new_spanned(field, "the fields of an event have names"));
        };
        let (mut tags, mut is_personal) = (Vec::new(), false);
        for attribute in event_attributes(&field.attrs) {
            let (mut prefix, mut each) = (None, None);
            attribute.parse_nested_meta(|meta| {
                let key = meta.path.to_token_stream().to_string();
                let has_value = meta.input.peek(Token![=]);
                match key.as_str() {
                    "tag" if has_value => set(&mut prefix, prefix_of(&meta)?, &meta),
                    "tag" => set(&mut prefix, ident.unraw().to_string(), &meta),
                    "each" if has_value => {
                        let function: Path = meta.value()?.parse()?;
                        set(&mut each, TagValues::EachBy(function), &meta)
                    }
                    "each" => set(&mut each, TagValues::Each, &meta),
                    "personal" => {
                        is_personal = true;
                        Ok(())
                    }
                    _ => {
                        Err(meta
                            .error(format!("unknown key `{key}`; a field has `tag`, `each` and `personal`")))
                    }
                }
            })?;
            match (prefix, each) {
                (Some(prefix), values) => tags.push(Tag { prefix, values: values.unwrap_or_default() }),
                (None, Some(_)) => {
                    return Err(Error::new_spanned(attribute, "`each` needs `tag` in the same attribute"));
                }
                (None, None) => {}
            }
        }
        if is_personal && !tags.is_empty() {
            let message = "a personal field is not a tag: tags are indexed, listed and logged; tag a key without \
                           personal data";
            return Err(Error::new(ident.span(), message));
        }
        let (ty, serde) = (field.ty.clone(), serde_attributes(&field.attrs));
        Ok(Self { ident, ty, serde, tags, is_personal })
    }

    /// Its name for texts.
    pub(crate) fn shown(&self) -> String {
        self.ident.unraw().to_string()
    }

    /// Where errors about the type of the field are shown.
    pub(crate) fn type_span(&self) -> Span {
        self.ty.span().resolved_at(Span::call_site())
    }
}

fn prefix_of(meta: &ParseNestedMeta<'_>) -> Result<String> {
    let prefix: LitStr = meta.value()?.parse()?;
    if prefix.value().is_empty() {
        return Err(Error::new_spanned(&prefix, "the prefix of a tag is not empty"));
    }
    Ok(prefix.value())
}

/// Sets a key that may be given once.
fn set<T>(slot: &mut Option<T>, value: T, meta: &ParseNestedMeta<'_>) -> Result<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(meta.error(format!("`{}` is given twice", meta.path.to_token_stream()))),
    }
}

fn event_attributes(attributes: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("event"))
}

fn serde_attributes(attributes: &[Attribute]) -> Vec<Attribute> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("serde")).cloned().collect()
}
