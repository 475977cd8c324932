//! Cost limits of a query, and the errors beyond them.

use std::cell::Cell;

use ropewalk_labels::{Labels, Samples};
use ropewalk_promql::script::{Memory, Storage};
use ropewalk_promql::{
    BudgetError, Error, Limits, Options, ParseOptions, Query, Share, SharedMemory, StopReason, parse,
};

/// Ten series of a hundred samples.
fn memory() -> Memory {
    let mut memory = Memory::default();
    for series in 0..10 {
        let mut samples = Samples::default();
        for sample in 0..100 {
            samples.push(sample * 1000, sample as f64);
        }
        let labels = Labels::from_pairs([("__name__", "m"), ("s", &series.to_string())]);
        memory.load(&[(labels, samples)]).unwrap();
    }
    memory
}

fn ask(query: &str, limits: Limits, stop: &dyn Fn() -> Option<StopReason>) -> Result<(), Error> {
    let options = Options { parse: ParseOptions::ALL, limits, ..Options::default() };
    let query = Query::parse(query, options)?;
    query.range(&memory(), 0, 99_000, 1000, stop).map(|_| ())
}

#[test]
fn every_limit_has_its_error() {
    let all = Limits::default();
    let go = || None;
    let cases = [
        (Limits { samples_max: 999, ..all }, "sum(m)", BudgetError::Samples { max: 999 }),
        (Limits { series_max: 9, ..all }, "sum(m)", BudgetError::Series { max: 9 }),
        (Limits { steps_max: 99, ..all }, "sum(m)", BudgetError::Steps { steps: 100, max: 99 }),
        (
            Limits { steps_max: 150, ..all },
            "sum(max_over_time(m[1h:100ms]))",
            BudgetError::Steps { steps: 36_990, max: 150 },
        ),
        (Limits { memory_bytes_max: 12_000, ..all }, "m + m", BudgetError::Memory { max: 12_000 }),
    ];
    for (limits, query, wanted) in cases {
        match ask(query, limits, &go) {
            Err(Error::Budget(error)) => assert_eq!(error, wanted, "{query}"),
            other => panic!("{query}: {other:?}"),
        }
    }
    // Exactly at the limits the query passes, and a stream of series does not hold all of them.
    let tight = Limits { samples_max: 1000, series_max: 10, steps_max: 100, memory_bytes_max: 12_000 };
    ask("sum(m)", tight, &go).unwrap();
}

#[test]
fn stop_ends_query_soon() {
    for (stop, wanted) in
        [(StopReason::Cancelled, BudgetError::Cancelled), (StopReason::TimedOut, BudgetError::TimedOut)]
    {
        let asked = Cell::new(0);
        let after = |limit: u32| {
            asked.set(0);
            let ask_stop = || {
                asked.set(asked.get() + 1);
                (asked.get() > limit).then_some(stop)
            };
            ask("sum by (s) (quantile_over_time(0.5, m[1h]) + on(s) m * 2)", Limits::default(), &ask_stop)
        };
        after(u32::MAX).unwrap();
        let times = asked.get();
        assert!(times > 5, "asked {times} times");
        for limit in 0..times {
            match after(limit) {
                Err(Error::Budget(error)) => assert_eq!(error, wanted),
                other => panic!("{other:?}"),
            }
            assert_eq!(asked.get(), limit + 1);
        }
    }
}

/// The windows of one series hold more than the series does, and take long before the next series.
#[test]
fn stop_ends_query_between_windows_of_a_series() {
    let mut memory = Memory::default();
    let mut samples = Samples::default();
    for sample in 0..10_000 {
        samples.push(sample, sample as f64);
    }
    memory.load(&[(Labels::from_pairs([("__name__", "m")]), samples)]).unwrap();
    let query = Query::parse("quantile_over_time(0.5, m[10s])", Options::default()).unwrap();
    let asked = Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        None
    };
    query.range(&memory, 9_900, 9_999, 1, &stop).unwrap();
    assert!(asked.get() > 100, "asked {} times in 100 windows of 10,000 samples", asked.get());
}

#[test]
fn deep_and_long_texts_are_refused() {
    for (open, inner, close) in
        [("(", "1", ")"), ("-", "foo", ""), ("abs(", "foo", ")"), ("1 + (", "1", ")"), ("2^", "2", "")]
    {
        let query = |n: usize| format!("{}{inner}{}", open.repeat(n), close.repeat(n));
        parse(&query(90), ParseOptions::ALL).unwrap();
        let error = parse(&query(100_000), ParseOptions::ALL).unwrap_err().to_string();
        assert!(error.contains("nested too deeply"), "{error}");
    }
    // Chains grow a tree, too.
    let chain = |n: usize| vec!["foo"; n].join(" or ");
    parse(&chain(190), ParseOptions::ALL).unwrap();
    assert!(parse(&chain(10_000), ParseOptions::ALL).is_err());
    assert!(parse(&format!("foo{}", "[5m:]".repeat(10_000)), ParseOptions::ALL).is_err());
    assert!(parse(&format!("foo[{}1]", "(".repeat(10_000)), ParseOptions::ALL).is_err());
    let long = "a".repeat(2 << 20);
    assert!(parse(&long, ParseOptions::ALL).unwrap_err().to_string().contains("exceeds the limit"));
}

#[test]
fn regular_expressions_cannot_explode() {
    // Exponential in backtracking engines; linear here.
    let query = format!("m{{s=~\"{}\"}}", "(a*)*".repeat(50));
    ask(&query, Limits::default(), &|| None).unwrap();
    // Too large when compiled.
    let error = parse("m{s=~\"((a{100}){100}){100}\"}", ParseOptions::ALL).unwrap_err().to_string();
    assert!(error.contains("error parsing regexp"), "{error}");
    // Not made valid by the anchors around it.
    assert!(parse("m{s=~\"a)|(b\"}", ParseOptions::ALL).is_err());
}

#[test]
fn extreme_times_do_not_overflow() {
    let memory = memory();
    let options = Options { parse: ParseOptions::ALL, ..Options::default() };
    for query in [
        "m",
        "rate(m[292y])",
        "m @ 9e15",
        "m @ -9e15 offset 292y",
        "max_over_time(m[1y:292y])",
        "m offset -292y",
        "timestamp(m) + hour(vector(1e300))",
        "year(vector(-1e300))",
        "increase(m[292y] smoothed)",
    ] {
        let query = Query::parse(query, options).unwrap();
        for at in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 1, i64::MAX] {
            let _ = query.instant(&memory, at, &|| None);
        }
        let _ = query.range(&memory, i64::MIN, i64::MAX, 1, &|| None);
        let _ = query.range(&memory, i64::MIN, i64::MAX, i64::MAX, &|| None);
        let _ = query.range(&memory, i64::MAX, i64::MIN, 1, &|| None);
    }
    let query = Query::parse("m", options).unwrap();
    assert!(query.range(&memory, 0, 1, 0, &|| None).is_err());
    assert!(query.range(&memory, 0, 1, -5, &|| None).is_err());
}

fn refusal(query: &str) -> String {
    ask(query, Limits::default(), &|| None).unwrap_err().to_string()
}

#[test]
fn h7_conditions_of_templates_are_counted() {
    let chain: String = (1..40).map(|n| format!(", c{n}={{c{0},c{0}}}", n - 1)).collect();
    let query = format!("WITH (c0={{a=\"1\",b=\"2\"}}{chain}) m{{c39}}");
    assert!(query.len() < 800);
    assert!(refusal(&query).contains("templates stand for too much"), "{}", refusal(&query));
    // Strings count, too, by their length.
    let text =
        format!("WITH (t=\"{}\") union({}m)", "x".repeat(100_000), "label_set(m, \"a\", t), ".repeat(100));
    assert!(refusal(&text).contains("templates stand for too much"));
    ask("WITH (c={s=\"1\"}, d={c,s!=\"2\"}) m{d,c}", Limits::default(), &|| None).unwrap();
}

#[test]
fn h7_label_join_is_bounded() {
    let nested = |open: &str, close: &str| format!("{}m{}", open.repeat(150), close.repeat(150));
    let join = nested("label_join(", ", \"s\", \"\", \"s\", \"s\")");
    assert!(refusal(&join).contains("exceeds the limit of 65536 bytes"), "{}", refusal(&join));
    let replace = nested("label_replace(", ", \"s\", \"$1$1\", \"s\", \"(.*)\")");
    assert!(refusal(&replace).contains("exceeds the limit of 65536 bytes"));
    let template = format!("label_replace(m, \"s\", \"{}\", \"s\", \"(.*)\")", "$1".repeat(100_000));
    assert!(refusal(&template).contains("exceeds the limit of 65536 bytes"));
    let set = format!("label_set(m, \"l\", \"{}\", \"a\", \"b\")", "x".repeat(60_000));
    ask(&set, Limits::default(), &|| None).unwrap();
    let many: String = (0..10).map(|n| format!("\"l{n}\", \"{}\", ", "x".repeat(60_000))).collect();
    assert!(
        refusal(&format!("label_set(m, {many}\"a\", \"b\")")).contains("exceed the limit of 262144 bytes")
    );
    // Their results count in the query's memory.
    let tight = Limits { memory_bytes_max: 100_000, ..Limits::default() };
    ask("label_set(m, \"a\", \"short\")", tight, &|| None).unwrap();
    let error = ask(&set, tight, &|| None).unwrap_err().to_string();
    assert!(error.contains("query needs too much memory"), "{error}");
}

#[test]
fn h7_label_functions_stop_between_series() {
    for function in [
        "label_join(m, \"a\", \"-\", \"s\")",
        "label_replace(m, \"a\", \"$1\", \"s\", \"(.*)\")",
        "label_set(m, \"a\", \"b\")",
        "label_transform(m, \"s\", \"z\", \"2\")",
    ] {
        let mut memory = Memory::default();
        let long = "x".repeat(10_000);
        for series in 0..50 {
            let mut samples = Samples::default();
            samples.push(0, 1.0);
            let labels = Labels::from_pairs([("__name__", "m"), ("s", &series.to_string()), ("long", &long)]);
            memory.load(&[(labels, samples)]).unwrap();
        }
        let query = Query::parse(function, Options::default()).unwrap();
        let asked = Cell::new(0);
        let stop = || {
            asked.set(asked.get() + 1);
            None
        };
        query.instant(&memory, 0, &stop).unwrap();
        assert!(asked.get() > 50, "{function} asked {} times for 50 long series", asked.get());
    }
}

#[test]
fn h6_regular_expressions_of_a_query_have_one_sum() {
    let matchers = |pattern: &dyn Fn(usize) -> String| -> String {
        (0..100).map(|n| format!("l{n}=~\"{}\", ", pattern(n))).collect()
    };
    // Different ones; and one on different labels, which a source compiles for each.
    for pattern in [&|n| format!("(\\\\w{{60}}{n})") as String, &|_| "(\\\\w{60})".to_owned()]
        as [&dyn Fn(usize) -> String; 2]
    {
        let error = refusal(&format!("m{{{}s=\"1\"}}", matchers(pattern)));
        assert!(error.contains("regular expressions of the query are too large together"), "{error}");
    }
    let nested: String = (0..100).map(|_| "label_match(").collect();
    let close: String = (0..100).map(|n| format!(", \"s\", \"(\\\\w{{60}}{n})?.*\")")).collect();
    let error = refusal(&format!("{nested}m{close}"));
    assert!(error.contains("regular expressions of the query are too large together"), "{error}");
    // Small ones, and equal ones, as many as realistic queries have.
    ask(&format!("m{{{}s=\"1\"}}", matchers(&|n| format!("(x{n}.*)?"))), Limits::default(), &|| None)
        .unwrap();
    let same = "m{s=~\"(\\\\w{60})?.*\"} or ".repeat(100);
    ask(&format!("{same} m"), Limits::default(), &|| None).unwrap();
}

#[test]
fn h6_regular_expressions_are_compiled_within_the_deadline() {
    let many: String = (0..50).map(|n| format!("s=~\"x{n}.*\", ")).collect();
    let asked = Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        (asked.get() > 10).then_some(StopReason::TimedOut)
    };
    let error = Query::parse_until(&format!("m{{{many}s=\"1\"}}"), Options::default(), &stop).unwrap_err();
    assert!(matches!(error, Error::Budget(BudgetError::TimedOut)), "{error}");
}

#[test]
fn l7_long_alternation_is_a_mistake_of_the_query() {
    let numbers: Vec<String> = (0..100_000).map(|n| n.to_string()).collect();
    let error = parse(&format!("m{{s=~\"{}\"}}", numbers.join("|")), ParseOptions::ALL).unwrap_err();
    assert!(error.message.contains("exceeds the limit of 65536"), "{error}");
    let thousand = numbers.get(..1000).unwrap_or_default().join("|");
    ask(&format!("m{{s=~\"{thousand}\"}}"), Limits::default(), &|| None).unwrap();
}

#[test]
fn h12_tokens_are_bounded() {
    let list = |n: usize| format!("union({}m)", "m, ".repeat(n));
    parse(&list(10_000), ParseOptions::ALL).unwrap();
    assert!(parse(&list(100_000), ParseOptions::ALL).unwrap_err().message.contains("too many parts"));
}

#[test]
fn h7_queries_share_memory() {
    let memory = memory();
    let shared = SharedMemory::new(1 << 20);
    let query = Query::parse("m", Options::default()).unwrap().sharing(shared.clone());
    let run = || query.range(&memory, 0, 99_000, 1000, &|| None);
    assert_eq!(shared.used(), 0);
    let first = run().unwrap();
    let held = shared.used();
    assert!(held > 10 * 100 * 24 && held < 100_000, "{held} bytes for a thousand points");
    // While another query holds nearly all of it, none is left; dropping its result releases the memory.
    let mut other = Share::new(Some(shared.clone()));
    other.grow((1 << 20) - held as usize).unwrap();
    match run() {
        Err(Error::Budget(error)) => assert_eq!(error, BudgetError::Shared { max: 1 << 20 }),
        other => panic!("{other:?}"),
    }
    drop(other);
    drop(first);
    assert_eq!(shared.used(), 0);
    run().unwrap();
    assert_eq!(shared.used(), 0);
}
