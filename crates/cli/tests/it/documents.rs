//! Import and export of documents.

use crate::Place;

#[test]
fn json_and_bson_round_trip() {
    let place = Place::with_database();
    let lines = concat!(
        r#"{"_id":1,"big":{"$numberLong":"5"},"when":{"$date":"2026-11-21T12:00:00Z"},"list":[1,2.5,null]}"#,
        "\n\n",
        r#"{"_id":{"$oid":"6565656565656565656565ab"},"text":"ä"}"#,
        "\n",
    );
    std::fs::write(place.path().join("in.ndjson"), lines).unwrap();
    assert_eq!(place.ok(&["doc", "import", "shop.orders", "in.ndjson"]).trim(), "2");
    let canonical = place.ok(&["doc", "export", "shop.orders", "--canonical"]);
    assert!(
        canonical.contains(r#""big":{"$numberLong":"5"}"#) && canonical.lines().count() == 2,
        "{canonical}"
    );
    let relaxed = place.ok(&["doc", "export", "shop.orders"]);
    assert!(relaxed.contains(r#""big":5"#), "{relaxed}");

    assert_eq!(place.ok(&["doc", "export", "shop.orders", "out.bson"]).trim(), "2");
    assert_eq!(place.ok(&["doc", "import", "copy.orders", "out.bson"]).trim(), "2");
    assert_eq!(place.ok(&["doc", "export", "copy.orders", "--canonical"]), canonical);
    let listed = place.ok(&["--mode", "ndjson", "doc", "collections"]);
    assert!(listed.contains(r#""database":"copy","collection":"orders","documents":2"#), "{listed}");
}

#[test]
fn failed_import_names_the_document() {
    let place = Place::with_database();
    place.run_with(&["doc", "import", "a.b", "-"], b"{\"_id\":1}\n{\"_id\":2}\n");
    let again = place.run_with(&["doc", "import", "a.b", "-"], b"{\"_id\":0}\n{\"_id\":2}\n{\"_id\":3}\n");
    assert_eq!(again.code, 4, "{}", again.err);
    assert!(again.err.contains("document 2") && again.err.contains("1 documents before it"), "{}", again.err);
    for (input, form, place_of) in [
        (&b"{\"_id\":8}\n{\n"[..], "ndjson", "document 2"),
        (b"[1]\n", "ndjson", "document 1"),
        (b"\x05\0\0\0\0\x09\0\0\0", "bson", "document 2"),
        (b"\x04\0\0\0\0", "bson", "document 1"),
        (b"\xff\xff\xff\x7f", "bson", "document 1"),
    ] {
        let refused = place.run_with(&["doc", "import", "a.c", "-", "--form", form], input);
        assert_eq!(refused.code, 2, "{}", refused.err);
        assert!(refused.err.contains(place_of), "{}", refused.err);
    }
    assert_eq!(place.run(&["doc", "import", "nodot", "-"]).code, 2);
    assert_eq!(place.run(&["doc", "export", "a.none"]).code, 3);
}
