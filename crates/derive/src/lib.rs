//! The derive macro of `ropewalk::Event`.
//!
//! ```text
//! tokens ─▶ parse: types, tags, versions, personal fields ─▶ expand: ToEvent, FromEvent, PersonalData
//! ```
//! Not here: the traits (`ropewalk-events`), and a payload format: applications bring `serde` and `serde_json`,
//! or name another format.
#![deny(missing_docs)]

mod expand;
mod parse;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

use crate::parse::Definition;

/// Makes a struct, or each variant of an enum, a type of events.
///
/// It implements `ToEvent`, `FromEvent` and `PersonalData` of `ropewalk::events`; the documentation of that
/// module has an example. The data of an event is the fields of the struct or variant, encoded by serde as a
/// struct with these fields would be. `#[serde(...)]` attributes of the struct or variant and of the fields
/// apply, those of an enum do not. The crate needs the dependencies `serde`, with the feature `derive`, and
/// `serde_json`.
///
/// All keys are written in `#[event(...)]`.
///
/// On a struct or a variant:
///
/// | Key | Meaning |
/// |---|---|
/// | `name = "OrderPlaced"` | the type of the event; by default the name of the struct or variant |
/// | `version = 2` | the version of the data, 1 by default; stored as metadata from 2 on |
/// | `upcast_from(1) = path` | a function from the data of version 1, any type that serde decodes, to this type |
///
/// On a struct or an enum:
///
/// | Key | Meaning |
/// |---|---|
/// | `codec = path` | a module with `to_vec(&T)` and `from_slice(&[u8])`, each returning a `Result`; by default `serde_json` |
///
/// On a field:
///
/// | Key | Meaning |
/// |---|---|
/// | `tag` | adds the tag `FIELD:VALUE`; the value implements `Display` |
/// | `tag = "order"` | adds the tag `order:VALUE` |
/// | `tag, each` | adds a tag for each value of an `Option`, `Vec` or set, without repetition |
/// | `tag, each = path` | the same for the result of a function of each value, such as `Line::sku` |
/// | `personal` | the field is personal data: `redacted()` hides it, and `PERSONAL` lists it |
///
/// Fields that are not personal implement `Debug`. Types of fields are not `Self` and have no lifetimes.
///
/// # Errors
/// At compile time, at the attribute: an unknown or repeated key, a version without an upcast from each earlier
/// one, a personal field that is a tag, two variants of the same event type, fields without names, generics.
#[proc_macro_derive(Event, attributes(event, serde))]
pub fn derive_event(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    match Definition::parse(&input) {
        Ok(definition) => expand::expand(&definition).into(),
        Err(error) => error.into_compile_error().into(),
    }
}
