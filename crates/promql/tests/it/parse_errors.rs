//! Texts and positions of syntax errors.

use ropewalk_promql::{Options, ParseOptions, Query, parse, parse_selector};

/// The error of PromQL alone: in MetricsQL some of these texts are valid.
fn error(query: &str) -> String {
    let promql = ParseOptions { metricsql: false, ..ParseOptions::ALL };
    parse(query, promql).map(|expr| expr.to_string()).expect_err(query).to_string()
}

#[test]
fn error_texts_and_positions() {
    for (query, wanted) in [
        ("", "unknown position: parse error: no expression found in input"),
        ("# only a comment", "1:1: parse error: no expression found in input"),
        ("1+", "1:3: parse error: unexpected end of input"),
        (".", "1:1: parse error: unexpected character: '.'"),
        ("2.5.", "1:1: parse error: bad number or duration syntax: \"2.5.\""),
        ("100..4", "1:1: parse error: bad number or duration syntax: \"100..\""),
        ("0deadbeef", "1:1: parse error: bad number or duration syntax: \"0de\""),
        ("1 /", "1:4: parse error: unexpected end of input"),
        ("*1", "1:1: parse error: unexpected <op:*>"),
        ("(1))", "1:5: parse error: unexpected right parenthesis ')'"),
        ("((1)", "1:5: parse error: unclosed left parenthesis"),
        ("(", "1:2: parse error: unclosed left parenthesis"),
        ("1 and 1", "1:1: parse error: set operator \"and\" not allowed in binary scalar expression"),
        ("1 == 1", "1:3: parse error: comparisons between scalars must use BOOL modifier"),
        ("1 + bool 1", "1:3: parse error: bool modifier can only be used on comparison operators"),
        (
            "-\"string\"",
            "1:1: parse error: unary expression only allowed on expressions of type scalar or instant vector, got \"string\"",
        ),
        (
            "-test[5m]",
            "1:1: parse error: unary expression only allowed on expressions of type scalar or instant vector, got \"range vector\"",
        ),
        ("foo and 1", "1:1: parse error: set operator \"and\" not allowed in binary scalar expression"),
        ("foo or on(bar) group_left(baz) bar", "1:1: parse error: no grouping allowed for \"or\" operation"),
        ("foo == on(bar) 10", "1:1: parse error: vector matching only allowed between instant vectors"),
        ("foo + group_left(baz) bar", "1:7: parse error: unexpected <group_left>"),
        (
            "foo * on(bar) group_left(bar) baz",
            "1:5: parse error: label \"bar\" must not occur in ON and GROUP clause at once",
        ),
        (
            "foo[5m] + foo",
            "1:1: parse error: binary expression must contain only scalar and instant vector types",
        ),
        ("{", "1:2: parse error: unexpected end of input inside braces"),
        ("}", "1:1: parse error: unexpected character: '}'"),
        ("some{", "1:6: parse error: unexpected end of input inside braces"),
        ("some}", "1:5: parse error: unexpected character: '}'"),
        (
            "some_metric{a=b}",
            "1:15: parse error: unexpected identifier \"b\" in label matching, expected string",
        ),
        ("some_metric{a:b=\"b\"}", "1:14: parse error: unexpected character inside braces: ':'"),
        ("foo{a*\"b\"}", "1:6: parse error: unexpected character inside braces: '*'"),
        (
            "foo{gibberish}",
            "1:14: parse error: unexpected \"}\" in label matching, expected label matching operator",
        ),
        ("foo{1}", "1:5: parse error: unexpected character inside braces: '1'"),
        ("{}", "1:1: parse error: vector selector must contain at least one non-empty matcher"),
        ("{x=\"\"}", "1:1: parse error: vector selector must contain at least one non-empty matcher"),
        ("{x=~\".*\"}", "1:1: parse error: vector selector must contain at least one non-empty matcher"),
        ("foo{__name__=\"bar\"}", "1:1: parse error: metric name must not be set twice: \"foo\" or \"bar\""),
        ("foo{__name__= =\"bar\"}", "1:15: parse error: unexpected \"=\" in label matching, expected string"),
        ("foo[5mm]", "1:5: parse error: bad number or duration syntax: \"5mm\""),
        ("foo[5m1]", "1:5: parse error: bad number or duration syntax: \"5m1\""),
        ("foo[0]", "1:5: parse error: duration must be greater than 0"),
        ("foo[-5m]", "1:5: parse error: duration must be greater than 0"),
        ("foo[\"5m\"]", "1:5: parse error: unexpected character in duration expression: '\"'"),
        (
            "foo[]",
            "1:5: parse error: unexpected \"]\" in subquery or range selector, expected number, duration, step(), or range()",
        ),
        ("foo[5m:", "1:8: parse error: unclosed left bracket"),
        ("foo[5m", "1:7: parse error: unclosed left bracket"),
        ("foo[:5m]", "1:6: parse error: unexpected colon before duration in duration expression"),
        ("foo[5y1hs]", "1:5: parse error: unknown unit \"hs\" in duration \"5y1hs\""),
        (
            "foo[step]",
            "1:9: parse error: unexpected \"]\" in subquery or range selector, expected number, duration, step(), or range()",
        ),
        (
            "1e999",
            "1:1: parse error: error parsing number: strconv.ParseFloat: parsing \"1e999\": value out of range",
        ),
        (
            "foo[5m 6m]",
            "1:8: parse error: unexpected duration \"6m\" in subquery or range, expected \":\" or \"]\"",
        ),
        ("foo[9999999999999y]", "1:5: parse error: duration out of range"),
        ("foo[5m] OFFSET 1h30", "1:16: parse error: bad number or duration syntax: \"1h30\""),
        (
            "foo offset",
            "1:11: parse error: unexpected end of input in offset, expected number, duration, step(), or range()",
        ),
        (
            "1 offset 1d",
            "1:1: parse error: offset modifier must be preceded by an instant vector selector or range vector selector or a subquery",
        ),
        ("foo offset 5m offset 6m", "1:1: parse error: offset may not be set multiple times"),
        ("foo @ xyz", "1:7: parse error: unexpected identifier \"xyz\" in @, expected timestamp"),
        ("foo @ 1 @ 2", "1:1: parse error: @ <timestamp> may not be set multiple times"),
        ("foo @ inf", "1:1: parse error: timestamp out of bounds for @ modifier: +Inf"),
        ("foo @ 1 [5m]", "1:9: parse error: no @ modifiers allowed before range"),
        ("foo offset 1m [5m]", "1:15: parse error: no offset modifiers allowed before range"),
        ("(foo + bar)[5m]", "1:12: parse error: ranges only allowed for vector selectors"),
        ("sum(other) by (a, , b)", "1:19: parse error: unexpected \",\" in grouping opts, expected label"),
        ("sum by (a", "1:10: parse error: unclosed left parenthesis"),
        ("sum foo by (a)", "1:5: parse error: unexpected identifier \"foo\""),
        ("sum(foo bar)", "1:9: parse error: unexpected identifier \"bar\" in aggregation"),
        ("sum()", "1:1: parse error: no arguments for aggregate expression provided"),
        ("sum(1)", "1:5: parse error: expected type instant vector in aggregation expression, got scalar"),
        (
            "topk(some, foo)",
            "1:6: parse error: expected type scalar in aggregation parameter, got instant vector",
        ),
        (
            "topk(foo)",
            "1:1: parse error: wrong number of arguments for aggregate expression provided, expected 2, got 1",
        ),
        (
            "count_values(5, other)",
            "1:14: parse error: expected type string in aggregation parameter, got scalar",
        ),
        ("floor()", "1:1: parse error: expected 1 argument(s) in call to \"floor\", got 0"),
        ("floor(foo, 1)", "1:1: parse error: expected 1 argument(s) in call to \"floor\", got 2"),
        ("hour(a, b, c)", "1:1: parse error: expected at most 1 argument(s) in call to \"hour\", got 3"),
        (
            "label_join(a)",
            "1:1: parse error: expected at least 3 argument(s) in call to \"label_join\", got 1",
        ),
        (
            "floor(1)",
            "1:7: parse error: expected type instant vector in call to function \"floor\", got scalar",
        ),
        (
            "rate(foo)",
            "1:6: parse error: expected type range vector in call to function \"rate\", got instant vector",
        ),
        ("nothing_like_it(1)", "1:1: parse error: unknown function with name \"nothing_like_it\""),
        (
            "rate(avg)",
            "1:6: parse error: expected type range vector in call to function \"rate\", got instant vector",
        ),
        ("rate(foo[5m],)", "1:13: parse error: trailing commas not allowed in function call args"),
        (
            "info(rate(foo[5m]), bar)",
            "1:21: parse error: expected label selectors only, got vector selector instead",
        ),
        ("\"a", "1:1: parse error: unterminated quoted string"),
        ("'\\xzz'", "1:1: parse error: illegal character U+007A 'z' in escape sequence"),
        ("a\n+ b[", "2:5: parse error: unexpected end of input in duration expression"),
        ("foo ! bar", "1:5: parse error: unexpected character after '!': ' '"),
        ("foo =~ bar", "1:5: parse error: unexpected character after '=': '~'"),
        ("test[5d]\n  + sum(\n  &)", "3:3: parse error: unexpected character: '&'"),
    ] {
        assert_eq!(error(query), wanted, "{query}");
    }
}

#[test]
fn parts_of_the_language_can_be_switched_off() {
    for (query, wanted) in [
        ("mad_over_time(foo[5m])", "1:1: parse error: function \"mad_over_time\" is not enabled"),
        (
            "limitk(1, foo)",
            "1:1: parse error: limitk() is experimental and must be enabled with \
             --enable-feature=promql-experimental-functions",
        ),
        ("foo[5m] anchored", "1:1: parse error: anchored modifier is experimental and not enabled"),
        ("foo + fill(1) bar", "1:1: parse error: binop fill modifiers are experimental and not enabled"),
    ] {
        let plain = Options { parse: ParseOptions::PLAIN, ..Options::default() };
        let error = Query::parse(query, plain).map(|_| ()).expect_err(query);
        assert_eq!(error.to_string(), wanted);
        Query::parse(query, Options::default()).unwrap_or_else(|error| panic!("{query}: {error}"));
    }
}

#[test]
fn calculated_durations_can_be_switched_off() {
    let off = ParseOptions { duration_expressions: false, ..ParseOptions::default() };
    for query in ["foo[5m * 2]", "foo[step()]", "foo[(5m)]", "foo[5m:(1m)]"] {
        parse(query, ParseOptions::default()).unwrap_or_else(|error| panic!("{query}: {error}"));
        let error = parse(query, off).expect_err(query).to_string();
        assert!(error.ends_with("parse error: experimental duration expression is not enabled"), "{error}");
    }
    parse("foo[5m:1m] offset -1m", off).unwrap();
}

#[test]
fn selectors_alone() {
    let matchers = parse_selector("foo{a=\"1\", b!~\"x|y\"}").unwrap();
    assert_eq!(
        matchers.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["a=\"1\"", "b!~\"x|y\"", "__name__=\"foo\""]
    );
    assert!(parse_selector("foo offset 5m").is_err());
    assert!(parse_selector("foo + bar").is_err());
}
