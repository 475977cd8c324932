//! Printing and parsing are inverse.

use proptest::prelude::*;
use ropewalk_promql::{ParseOptions, parse};

fn printed(query: &str) -> String {
    parse(query, ParseOptions::ALL).unwrap_or_else(|error| panic!("{query}: {error}")).to_string()
}

#[test]
fn one_form() {
    for (query, wanted) in [
        ("sum(task:errors:rate10s{job=\"s\"})BY()", "sum(task:errors:rate10s{job=\"s\"})"),
        ("sum(foo) BY(code,status)", "sum by (code, status) (foo)"),
        ("sum without(instance)(foo)", "sum without (instance) (foo)"),
        ("sum without()(foo)", "sum without () (foo)"),
        ("topk(5,foo)", "topk(5, foo)"),
        ("count_values(\"value\",foo)", "count_values(\"value\", foo)"),
        ("a-on()c", "a - on () c"),
        ("a-on(b)group_left()c", "a - on (b) group_left () c"),
        ("a-ignoring(b)group_right(d,e)c", "a - ignoring (b) group_right (d, e) c"),
        ("a==bool 1", "a == bool 1"),
        ("a+fill(1)b", "a + fill (1) b"),
        ("a+fill_right(2)fill_left(1)b", "a + fill_left (1) fill_right (2) b"),
        ("up>/0", "up >/ 0"),
        ("foo[5m]offset 1m@start()", "foo[5m] @ start() offset 1m"),
        ("foo@100", "foo @ 100.000"),
        ("foo@-1.5", "foo @ -1.500"),
        ("foo offset -1h30m", "foo offset -1h30m"),
        ("foo[90m:]", "foo[1h30m:]"),
        ("foo[1h:30s]@end()", "foo[1h:30s] @ end()"),
        ("foo[5m]smoothed", "foo[5m] smoothed"),
        ("foo[step()*2+1m]", "foo[step() * 2 + 1m]"),
        ("foo[max_of(1m,(step()))]", "foo[max_of(1m, (step()))]"),
        ("foo offset -(5m*2)", "foo offset -(5m * 2)"),
        ("foo[-step()]", "foo[-step()]"),
        ("foo[-(step())]", "foo[-(step())]"),
        ("foo offset +(5)", "foo offset (5)"),
        ("foo offset -(5)", "foo offset -(5)"),
        ("foo offset ((5m))", "foo offset (5m)"),
        ("foo[(5s)]", "foo[(5s)]"),
        ("foo[(5m):(1m)]", "foo[(5m):(1m)]"),
        ("foo offset +min_of(10s,20s)", "foo offset min_of(10s, 20s)"),
        ("foo offset -min_of(10s,+max_of(step()^2,2))", "foo offset -min_of(10s, max_of(step() ^ 2, 2))"),
        ("foo[200-min_of(-step()^+step(),1)]", "foo[200 - min_of(-step() ^ step(), 1)]"),
        ("foo[max_of(range(),5s)]", "foo[max_of(range(), 5s)]"),
        ("foo offset -range()", "foo offset -range()"),
        ("{__name__=\"\",a=\"x\"}", "{__name__=\"\",a=\"x\"}"),
        ("{\"foo\",b='c'}", "{__name__=\"foo\",b=\"c\"}"),
        ("{\"a.b\"=\"c\"}", "{\"a.b\"=\"c\"}"),
        ("foo{b=\"1\",a=\"2\"}", "foo{a=\"2\",b=\"1\"}"),
        ("sum by (\"a.b\")(foo)", "sum by (\"a.b\") (foo)"),
        ("-(1+2)^2", "-(1 + 2) ^ 2"),
        ("-foo", "-foo"),
        ("1e3", "1000"),
        ("0x1F", "31"),
        ("1_000", "1000"),
        ("Inf", "+Inf"),
        ("nan", "NaN"),
        ("5m", "5m"),
        ("\"a\\n\\\"b\"", "\"a\\n\\\"b\""),
        ("`raw\\`", "\"raw\\\\\""),
    ] {
        assert_eq!(printed(query), wanted, "{query}");
        assert_eq!(printed(wanted), wanted, "{query}, again");
    }
}

/// Texts of vector expressions, by construction valid.
fn vector() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["up", "a:b", "sum", "offset", "fill", "start"]);
    let matcher = ("[a-c]{1,2}", prop::sample::select(vec!["=", "!=", "=~", "!~"]), "[a-z]{0,3}")
        .prop_map(|(name, op, value)| format!("{name}{op}\"{value}\""));
    let modifier =
        prop::sample::select(vec!["", "", " offset 5m", " offset -1h", " @ 12.5", " @ end() offset 1m"]);
    let leaf = (name, prop::collection::vec(matcher, 0..3), modifier)
        .prop_map(|(name, matchers, modifier)| format!("{name}{{{}}}{modifier}", matchers.join(",")));
    leaf.prop_recursive(4, 24, 3, |inner| {
        let range =
            prop::sample::select(vec!["[5m:]", "[1h:1m] offset 2m", "[step() * 3:]", "[30s:5s] @ start()"]);
        let op = prop::sample::select(vec![
            "+", "-", "*", "/", "%", "^", "==", "> bool", "and", "or", "unless", "atan2",
        ]);
        prop_oneof![
            inner.clone().prop_map(|v| format!("({v})")),
            inner.clone().prop_map(|v| format!("-{v}")),
            (inner.clone(), range).prop_map(|(v, range)| format!("max_over_time(({v}){range})")),
            (inner.clone(), prop::sample::select(vec!["sum", "topk 3,", "avg by (a)", "max without (b)"]))
                .prop_map(|(v, how)| match how.split_once(' ') {
                    Some((op, param)) if param.ends_with(',') => format!("{op}({param} {v})"),
                    _ => format!("{how}({v})"),
                }),
            (inner.clone(), op, inner.clone()).prop_map(|(a, op, b)| format!("{a} {op} {b}")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("{a} * on (a) group_left (b) {b}")),
            Just("vector(1.5)".to_owned()),
        ]
    })
}

proptest! {
    #[test]
    fn printing_and_parsing_are_inverse(query in vector()) {
        let tree = parse(&query, ParseOptions::ALL).unwrap_or_else(|error| panic!("{query}: {error}"));
        let once = tree.to_string();
        let again = parse(&once, ParseOptions::ALL).unwrap_or_else(|error| panic!("{query} -> {once}: {error}"));
        prop_assert_eq!(again.to_string(), once);
    }

    #[test]
    fn any_text_gives_a_tree_or_an_error(query in "\\PC{0,60}") {
        let _ = parse(&query, ParseOptions::ALL);
    }

    #[test]
    fn any_mix_of_words_gives_a_tree_or_an_error(
        words in prop::collection::vec(prop::sample::select(vec![
            "foo", "sum", "by", "(", ")", "[", "]", "{", "}", "5m", ":", "1", "-", "+", "*", "^", "offset", "@", "start",
            "end", "step", "()", "and", "or", "on", "ignoring", "group_left", "bool", "fill", "\"x\"", "=", "=~", "!~",
            ",", "rate", "topk", "anchored", "smoothed", "max_of", "#", "\n", "inf", "0x", "1e", "'", "`", "é", "__name__",
        ]), 0..24),
        glue in prop::sample::select(vec!["", " "]),
    ) {
        if let Ok(tree) = parse(&words.join(glue), ParseOptions::ALL) {
            let once = tree.to_string();
            let again = parse(&once, ParseOptions::ALL).unwrap_or_else(|error| panic!("{words:?} -> {once}: {error}"));
            prop_assert_eq!(again.to_string(), once);
        }
    }
}
