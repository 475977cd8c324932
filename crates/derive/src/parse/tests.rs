//! Attributes that are read, and those that are rejected with a message.

use super::*;

fn parse(source: &str) -> Result<Definition> {
    Definition::parse(&syn::parse_str(source)?)
}

fn error(source: &str) -> String {
    parse(source).err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn struct_without_attributes_is_version_one_of_its_name() {
    let definition = parse("struct OrderPaid { order: String, r#type: u8 }").unwrap();
    let event = &definition.events[0];
    assert_eq!((definition.events.len(), event.name.as_str(), event.version), (1, "OrderPaid", 1));
    assert!(event.variant.is_none() && event.fields.iter().all(|field| field.tags.is_empty()));
    assert_eq!(definition.codec.to_token_stream().to_string(), ":: serde_json");
    assert_eq!(parse("struct Closed;").unwrap().events[0].fields.len(), 0);
}

#[test]
fn keys_of_structs_variants_and_fields_are_read() {
    let definition = parse(
        "#[event(codec = crate::packed)] enum Shop {
            #[event(name = \"placed\", version = 3, upcast_from(2) = Shop::second, upcast_from(1) = first)]
            #[serde(rename_all = \"camelCase\")]
            Placed {
                #[event(tag)] r#type: String,
                #[event(tag = \"sku\", each = Line::sku)] #[event(tag = \"line\", each)] lines: Vec<Line>,
                #[event(personal)] #[serde(default)] email: String,
            },
            Closed,
        }",
    )
    .unwrap();
    assert_eq!(definition.codec.to_token_stream().to_string(), "crate :: packed");
    let [placed, closed] = definition.events.as_slice() else { panic!("two events") };
    assert_eq!((placed.name.as_str(), placed.shown.as_str(), placed.version), ("placed", "Placed", 3));
    assert_eq!(placed.upcasts.iter().map(|upcast| upcast.from).collect::<Vec<_>>(), [2, 1]);
    assert_eq!((placed.serde.len(), closed.name.as_str(), closed.version), (1, "Closed", 1));
    let [kind, lines, email] = placed.fields.as_slice() else { panic!("three fields") };
    assert_eq!(kind.tags[0].prefix, "type");
    assert!(matches!(kind.tags[0].values, TagValues::Field));
    let prefixes: Vec<&str> = lines.tags.iter().map(|tag| tag.prefix.as_str()).collect();
    assert_eq!(prefixes, ["sku", "line"]);
    assert!(matches!(lines.tags[0].values, TagValues::EachBy(_)));
    assert!(matches!(lines.tags[1].values, TagValues::Each));
    assert!(email.is_personal && !lines.is_personal && email.serde.len() == 1);
}

#[test]
fn unknown_misplaced_and_repeated_keys_are_rejected_by_name() {
    for (source, expected) in [
        (
            "#[event(nmae = \"x\")] struct A {}",
            "unknown key `nmae`; a struct has `name`, `version`, `upcast_from(N)` and `codec`",
        ),
        ("#[event(tag)] enum A { B }", "unknown key `tag`; an enum has `codec`"),
        (
            "enum A { #[event(tag)] B }",
            "unknown key `tag`; a variant has `name`, `version` and `upcast_from(N)`",
        ),
        ("struct A { #[event(tags)] b: u8 }", "unknown key `tags`; a field has `tag`, `each` and `personal`"),
        (
            "#[event(name = \"x\")] enum A { B }",
            "`name` belongs on a variant: each variant is a type of events",
        ),
        ("enum A { #[event(codec = x)] B }", "`codec` belongs on the enum: its events have one format"),
        ("#[event(name = \"x\", name = \"y\")] struct A {}", "`name` is given twice"),
        ("struct A { #[event(tag, tag = \"x\")] b: u8 }", "`tag` is given twice"),
        ("#[event(name = 7)] struct A {}", "expected string literal"),
        ("#[event(name = \"\")] struct A {}", "the type of an event is not empty"),
        ("struct A { #[event(tag = \"\")] b: u8 }", "the prefix of a tag is not empty"),
        ("struct A { #[event(each)] b: Vec<u8> }", "`each` needs `tag` in the same attribute"),
    ] {
        assert_eq!(error(source), expected, "{source}");
    }
    assert!(error("#[event] struct A {}").contains("expected attribute arguments in parentheses"));
}

#[test]
fn versions_need_an_upcast_from_each_earlier_one() {
    for (source, expected) in [
        ("#[event(version = 0)] struct A {}", "versions begin at 1"),
        (
            "#[event(version = 3, upcast_from(1) = f)] struct A {}",
            "events of version 2 may be stored: add `upcast_from(2) = function_of_their_data`",
        ),
        (
            "#[event(version = 4294967295)] struct A {}",
            "events of version 1 may be stored: add `upcast_from(1) = function_of_their_data`",
        ),
        (
            "#[event(upcast_from(1) = f)] struct A {}",
            "`upcast_from(1)`: the version is 1, and earlier ones begin at 1",
        ),
        (
            "#[event(version = 2, upcast_from(0) = f)] struct A {}",
            "`upcast_from(0)`: the version is 2, and earlier ones begin at 1",
        ),
        (
            "#[event(version = 2, upcast_from(1) = f, upcast_from(1) = g)] struct A {}",
            "two upcasts from version 1",
        ),
    ] {
        assert_eq!(error(source), expected, "{source}");
    }
    assert!(!error("#[event(version = 4294967296)] struct A {}").is_empty());
    assert!(!error("#[event(version = 2, upcast_from(1, 2) = f)] struct A {}").is_empty());
}

#[test]
fn types_that_are_no_events_are_rejected() {
    for (source, expected) in [
        ("struct A<T> { b: T }", "an event has no generic parameters"),
        ("struct A<'a> { b: &'a str }", "an event has no generic parameters"),
        ("union A { b: u8 }", "an event is a struct or an enum"),
        ("enum A {}", "an enum of events needs a variant"),
        ("struct A(u8);", "the fields of an event have names: write `{ field: Type }`"),
        ("enum A { B(u8) }", "the fields of an event have names: write `{ field: Type }`"),
        ("enum A { B, #[event(name = \"B\")] C }", "two variants have the event type \"B\""),
        (
            "struct A { #[event(tag, personal)] email: String }",
            "a personal field is not a tag: tags are indexed, listed and logged; tag a key without personal data",
        ),
        (
            "#[serde(rename_all_fields = \"camelCase\")] enum A { B }",
            "this attribute has no effect on the data of events; write `rename_all` or \
             `deny_unknown_fields` on the variants",
        ),
    ] {
        assert_eq!(error(source), expected, "{source}");
    }
}
