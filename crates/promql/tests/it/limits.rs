//! What a query may cost, and how it ends when it costs more.

use std::cell::Cell;

use ropewalk_promql::script::{Memory, Storage};
use ropewalk_promql::{
    BudgetError, Error, Labels, Limits, Options, ParseOptions, Query, Samples, Stop, parse,
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

fn ask(query: &str, limits: Limits, stop: &dyn Fn() -> Option<Stop>) -> Result<(), Error> {
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
    // Right at the limits all is well, and a stream of series needs no memory for all of them.
    let tight = Limits { samples_max: 1000, series_max: 10, steps_max: 100, memory_bytes_max: 12_000 };
    ask("sum(m)", tight, &go).unwrap();
}

#[test]
fn a_stop_is_heard_soon() {
    for (stop, wanted) in [(Stop::Cancelled, BudgetError::Cancelled), (Stop::TimedOut, BudgetError::TimedOut)]
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

/// The windows of one series hold more than the series does, and take long between one series and the next.
#[test]
fn a_stop_is_heard_between_the_windows_of_a_series() {
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
    // Exponential for engines that try alternatives; here linear.
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
