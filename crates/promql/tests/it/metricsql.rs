//! Syntax of MetricsQL that the scripts do not cover.

use ropewalk_labels::{Labels, Samples};
use ropewalk_promql::script::Memory;
use ropewalk_promql::script::Storage as _;
use ropewalk_promql::{Options, ParseOptions, Query, Value, parse};

#[test]
fn promql_rejects_metricsql() {
    for query in [
        "median(foo)",
        "any by (a) (foo)",
        "sum(foo, bar)",
        "sum(foo) limit 3",
        "foo default 0",
        "foo if bar",
        "foo ifnot bar",
        "abs(foo) keep_metric_names",
        "foo{a=\"1\" or a=\"2\"}",
        "sum(foo) offset 5m",
        "(foo) @ 5",
        "rate(foo)",
        "foo > 8Ki",
        "WITH (x = foo) x",
        "range_sum(foo)",
    ] {
        let printed =
            parse(query, ParseOptions::ALL).unwrap_or_else(|error| panic!("{query}: {error}")).to_string();
        let again = parse(&printed, ParseOptions::ALL).unwrap_or_else(|error| panic!("{printed}: {error}"));
        assert_eq!(again.to_string(), printed);
        parse(query, ParseOptions { metricsql: false, ..ParseOptions::ALL }).map(drop).expect_err(query);
    }
}

#[test]
fn one_form() {
    for (query, wanted) in [
        ("sum(a,b)by(c)limit 2", "sum by (c) (a, b) limit 2"),
        ("quantiles(\"q\",0.5,0.9,a)", "quantiles(\"q\", 0.5, 0.9, a)"),
        ("topk_max(3,a,\"x=y\")", "topk_max(3, a, \"x=y\")"),
        ("a{b=\"1\",a=\"2\" or c=\"3\"}", "a{a=\"2\",b=\"1\" or c=\"3\"}"),
        ("rate(a offset 5m)", "rate(a offset 5m)"),
        ("rate(a[5m])keep_metric_names", "rate(a[5m]) keep_metric_names"),
        ("(a+b)keep_metric_names", "(a + b) keep_metric_names"),
        ("sum(a)offset 5m@10", "sum(a) @ 10.000 offset 5m"),
        ("1Ki", "1024"),
        ("WITH (x = a + b, f(y) = y * x) f(c)", "(c * (a + b))"),
        ("a DEFAULT b IF c or d", "a default b if c or d"),
    ] {
        let printed =
            parse(query, ParseOptions::ALL).unwrap_or_else(|error| panic!("{query}: {error}")).to_string();
        assert_eq!(printed, wanted, "{query}");
    }
}

#[test]
fn metricsql_keywords_are_valid_names() {
    for query in [
        "any",
        "default",
        "median{limit=\"1\"}",
        "sum by (default, if, or) (with)",
        "foo + default",
        "{if=\"a\",or=\"b\"}",
        "limit / keep_metric_names",
        "sum(default) by (median)",
        "mode offset 5m",
    ] {
        let everything = parse(query, ParseOptions::ALL).unwrap_or_else(|error| panic!("{query}: {error}"));
        assert_eq!(everything, parse(query, ParseOptions::PLAIN).unwrap(), "{query}");
    }
}

#[test]
fn mistakes() {
    let error = |query: &str| parse(query, ParseOptions::ALL).map(drop).expect_err(query).to_string();
    for (query, wanted) in [
        ("WITH (x) x", "1:8: parse error: unexpected \")\" in WITH, expected \"=\""),
        ("WITH (f(a, a) = a) f(1, 2)", "1:12: parse error: name \"a\" is given twice"),
        ("WITH (f(a) = a) f(1, 2)", "1:17: parse error: expected 1 argument(s) in call to \"f\", got 2"),
        ("sum(foo) limit x", "1:16: parse error: unexpected identifier \"x\" in limit, expected number"),
        ("sum(foo) limit 1.5", "1:16: parse error: limit must be a whole number from 0"),
        ("foo{a=\"b\" or}", "1:13: parse error: unexpected \"}\" in label matching, expected identifier"),
        ("quantiles(\"a\", foo)", "1:1: parse error: quantiles needs a label, quantiles and a vector"),
        (
            "topk_max(1, foo, 2)",
            "1:18: parse error: expected type string in aggregation parameter, got scalar",
        ),
        (
            "foo keep_metric_names",
            "1:5: parse error: keep_metric_names belongs after a function, or an operator in parentheses",
        ),
        (
            "{a=\"b\" or c=\"\"}",
            "1:1: parse error: vector selector must contain at least one non-empty matcher",
        ),
    ] {
        assert_eq!(error(query), wanted, "{query}");
    }
}

#[test]
fn templates_are_bounded() {
    let mut text = "WITH (x0 = foo".to_owned();
    for n in 1..64 {
        text += &format!(", x{n} = x{} + x{}", n - 1, n - 1);
    }
    let error = parse(&format!("{text}) x63"), ParseOptions::ALL).unwrap_err().to_string();
    assert!(error.contains("templates stand for too much"), "{error}");
    let mut text = "WITH (f0(a) = a + a".to_owned();
    for n in 1..64 {
        text += &format!(", f{n}(a) = f{}(f{}(a))", n - 1, n - 1);
    }
    assert!(parse(&format!("{text}) f63(foo)"), ParseOptions::ALL).is_err());
    let mut text = "WITH (x0 = foo".to_owned();
    for n in 1..1000 {
        text += &format!(", x{n} = -x{}", n - 1);
    }
    let error = parse(&format!("{text}) x999"), ParseOptions::ALL).unwrap_err().to_string();
    assert!(error.contains("nested too deeply"), "{error}");
}

/// An omitted range is the look-back where there is one step, and the step where there are several.
#[test]
fn ranges_that_are_not_written() {
    let mut memory = Memory::default();
    let mut samples = Samples::default();
    (0..20).for_each(|minute| samples.push(minute * 60_000, 1.0));
    memory.load(&[(Labels::from_pairs([("__name__", "up")]), samples)]).unwrap();
    let query = Query::parse("count_over_time(up)", Options::default()).unwrap();
    memory
        .read(&mut |source| {
            let answer = query.instant(source, 900_000, &|| None).unwrap();
            let Value::Vector(rows) = answer.value else { panic!("no vector") };
            assert_eq!(format!("{:?}", rows[0].1), "Float(5.0)");
            let answer = query.range(source, 600_000, 900_000, 150_000, &|| None).unwrap();
            let Value::Matrix(rows) = answer.value else { panic!("no matrix") };
            assert_eq!(rows[0].samples.len(), 3);
            assert_eq!(format!("{:?}", rows[0].samples[2].1), "Float(3.0)");
        })
        .unwrap();
}
