//! The implementations that the derive macro generates.
//!
//! Serde encodes the fields through a private struct of the same fields, inside the function that uses it.
//! Names that begin with two underscores cannot collide with those of the application.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::Path;

use crate::parse::{Definition, EventField, EventType, Tag, TagValues, Upcast};

pub(crate) fn expand(definition: &Definition) -> TokenStream {
    let Definition { ident, codec, events } = definition;
    let names = events.iter().map(|event| &event.name);
    let encoded = events.iter().map(|event| encode(event, codec));
    let decoded = events.iter().map(|event| decode(event, codec));
    let shown = events.iter().map(show);
    let personal = events.iter().filter_map(personal_fields);
    quote! {
        #[automatically_derived]
        impl ::ropewalk::events::ToEvent for #ident {
            fn to_event(&self) -> ::core::result::Result<::ropewalk::Event, ::ropewalk::events::ApplyError> {
                match self {
                    #(#encoded)*
                }
            }
        }

        #[automatically_derived]
        impl ::ropewalk::events::FromEvent for #ident {
            const TYPES: &'static [&'static str] = &[#(#names),*];

            fn from_event(
                __event: &impl ::ropewalk::events::Recorded,
            ) -> ::core::result::Result<Self, ::ropewalk::events::ApplyError> {
                match __event.event_type() {
                    #(#decoded)*
                    __other => ::core::result::Result::Err(::core::convert::Into::into(::std::format!(
                        "event type {__other:?} is not one of {:?}",
                        <Self as ::ropewalk::events::FromEvent>::TYPES
                    ))),
                }
            }
        }

        #[automatically_derived]
        impl ::ropewalk::events::PersonalData for #ident {
            const PERSONAL: &'static [(&'static str, &'static [&'static str])] = &[#(#personal),*];

            fn fmt_redacted(&self, __f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                match self {
                    #(#shown)*
                }
            }
        }
    }
}

/// The struct or variant as a pattern or expression without its fields.
fn path_of(event: &EventType) -> TokenStream {
    match &event.variant {
        Some(variant) => quote!(Self::#variant),
        None => quote!(Self),
    }
}

/// The names of the fields, and a variable for each.
fn fields_of(event: &EventType) -> (Vec<&Ident>, Vec<Ident>) {
    let variables = (0..event.fields.len()).map(|number| format_ident!("__field{}", number));
    (event.fields.iter().map(|field| &field.ident).collect(), variables.collect())
}

/// The arm of `to_event`.
fn encode(event: &EventType, codec: &Path) -> TokenStream {
    let (path, (fields, variables)) = (path_of(event), fields_of(event));
    let (name, attributes) = (&event.name, &event.serde);
    let lifetime = (!event.fields.is_empty()).then(|| quote!(<'__event>));
    let borrowed = event.fields.iter().map(|field| {
        let EventField { ident, ty, serde, .. } = field;
        quote!(#(#serde)* #ident: &'__event #ty,)
    });
    let version = (event.version > 1).then(|| {
        let version = event.version.to_string();
        quote!(.metadata(::ropewalk::events::VERSION_KEY, #version))
    });
    let tags = event.fields.iter().zip(&variables);
    let tags = tags.flat_map(|(field, variable)| field.tags.iter().map(move |tag| add(field, variable, tag)));
    quote! {
        #path { #(#fields: #variables,)* } => {
            #[derive(::serde::Serialize)]
            #(#attributes)*
            #[allow(dead_code)]
            struct __EventData #lifetime { #(#borrowed)* }
            let __data = #codec::to_vec(&__EventData { #(#fields: #variables,)* })?;
            #[allow(unused_mut)]
            let mut __event = ::ropewalk::Event::new(#name).data(__data)#version;
            #(#tags)*
            ::core::result::Result::Ok(__event)
        }
    }
}

/// The statements that add the tags of a field; a repeated tag is added once.
fn add(field: &EventField, variable: &Ident, tag: &Tag) -> TokenStream {
    let prefix = &tag.prefix;
    let add = |value: TokenStream| {
        // An error about `Display` is shown at the type of the field.
        quote_spanned! {field.type_span()=>
            let __tag = ::std::format!("{}:{}", #prefix, #value);
            if !__event.tags.contains(&__tag) {
                __event.tags.push(__tag);
            }
        }
    };
    let each = |value: TokenStream| {
        let add = add(value);
        quote_spanned! {field.type_span()=>
            for __value in ::core::iter::IntoIterator::into_iter(#variable) {
                #add
            }
        }
    };
    match &tag.values {
        TagValues::Field => add(quote!(#variable)),
        TagValues::Each => each(quote!(__value)),
        TagValues::EachBy(function) => each(quote!(#function(__value))),
    }
}

/// The arm of `from_event`.
fn decode(event: &EventType, codec: &Path) -> TokenStream {
    let (path, (fields, _)) = (path_of(event), fields_of(event));
    let (name, version, attributes) = (&event.name, event.version, &event.serde);
    let owned = event.fields.iter().map(|field| {
        let EventField { ident, ty, serde, .. } = field;
        quote!(#(#serde)* #ident: #ty,)
    });
    let upcasts = event.upcasts.iter().map(|Upcast { from, function, .. }| {
        quote!(#from => ::core::result::Result::Ok(#function(#codec::from_slice(__event.data())?)),)
    });
    quote! {
        #name => match ::ropewalk::events::event_version(__event)? {
            #(#upcasts)*
            #version => {
                #[derive(::serde::Deserialize)]
                #(#attributes)*
                #[allow(dead_code)]
                struct __EventData { #(#owned)* }
                let __data: __EventData = #codec::from_slice(__event.data())?;
                ::core::result::Result::Ok(#path { #(#fields: __data.#fields,)* })
            }
            __other => ::core::result::Result::Err(::core::convert::Into::into(::std::format!(
                "version {__other} of event type {:?} is unknown: versions 1 to {} can be read",
                #name, #version
            ))),
        },
    }
}

/// The event type and the names of its personal fields, if it has any.
fn personal_fields(event: &EventType) -> Option<TokenStream> {
    let name = &event.name;
    let personal = event.fields.iter().filter(|field| field.is_personal);
    let fields: Vec<String> = personal.map(EventField::shown).collect();
    (!fields.is_empty()).then(|| quote!((#name, &[#(#fields),*])))
}

/// The arm of `fmt_redacted`.
fn show(event: &EventType) -> TokenStream {
    let (path, (fields, variables)) = (path_of(event), fields_of(event));
    let shown = &event.shown;
    let patterns = event
        .fields
        .iter()
        .zip(&variables)
        .map(|(field, variable)| if field.is_personal { quote!(_) } else { quote!(#variable) });
    let parts = event.fields.iter().zip(&variables).map(|(field, variable)| {
        let name = field.shown();
        if field.is_personal {
            quote!(__shown.field(#name, &::core::format_args!("[personal]"));)
        } else {
            // An error about `Debug` is shown at the type of the field.
            quote_spanned!(field.type_span()=> __shown.field(#name, #variable);)
        }
    });
    quote! {
        #path { #(#fields: #patterns,)* } => {
            let mut __shown = __f.debug_struct(#shown);
            #(#parts)*
            __shown.finish()
        }
    }
}
