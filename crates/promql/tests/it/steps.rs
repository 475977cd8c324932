//! A range query returns at each step the result of an instant query at that time; and the effect of the
//! default options.

use proptest::prelude::*;
use ropewalk_labels::{Labels, STALE, Samples};
use ropewalk_promql::script::{Memory, Storage, options};
use ropewalk_promql::{Options, Query, Sample, Value};

/// Counters with resets, gauges with gaps and staleness markers, on four labels.
fn memory() -> Memory {
    let mut memory = Memory::default();
    let mut random = 42u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for name in ["c_total", "g"] {
        for (a, b) in [("x", "1"), ("x", "2"), ("y", "1"), ("", "2")] {
            let mut samples = Samples::default();
            let (mut time, mut value) = (0i64, 0.0);
            for _ in 0..60 {
                time += 5_000 + next(30_000) as i64;
                match next(20) {
                    0 => samples.push(time, STALE),
                    1 => value = 0.0,
                    _ if name == "g" => {
                        value = next(100) as f64 - 50.0;
                        samples.push(time, value);
                    }
                    _ => {
                        value += next(50) as f64;
                        samples.push(time, value);
                    }
                }
            }
            let labels = Labels::from_pairs([("__name__", name), ("a", a), ("b", b)]);
            memory.load(&[(labels, samples)]).unwrap();
        }
    }
    memory
}

fn expressions() -> impl Strategy<Value = String> {
    let selector = prop::sample::select(vec![
        "c_total",
        "g",
        "g{a=\"x\"}",
        "c_total{a!=\"x\"}",
        "g offset 90s",
        "g @ 300",
    ]);
    let range = prop::sample::select(vec![
        "[1m]",
        "[5m]",
        "[90s] offset 1m",
        "[2m] @ 400",
        "[3m:20s]",
        "[4m:1m] offset 30s",
    ]);
    let over = prop::sample::select(vec![
        "rate",
        "increase",
        "delta",
        "irate",
        "idelta",
        "changes",
        "resets",
        "sum_over_time",
        "avg_over_time",
        "max_over_time",
        "min_over_time",
        "count_over_time",
        "stddev_over_time",
        "last_over_time",
        "first_over_time",
        "present_over_time",
        "deriv",
        "mad_over_time",
        "ts_of_max_over_time",
        "absent_over_time",
    ]);
    let ranged = (over, prop::sample::select(vec!["c_total", "g", "g{b=\"1\"}"]), range)
        .prop_map(|(f, s, r)| format!("{f}({s}{r})"));
    let leaf = prop_oneof![selector.prop_map(str::to_owned), ranged];
    leaf.prop_recursive(3, 12, 2, |inner| {
        let how = prop::sample::select(vec![
            "sum",
            "avg by (a)",
            "max without (b)",
            "count by (b)",
            "topk by (a)(1,",
            "quantile(0.3,",
            "abs",
            "-",
            "sgn",
            "limitk(2,",
            "stddev by (a)",
            "timestamp",
            "absent",
            "sort",
            "bottomk(2,",
        ]);
        let op = prop::sample::select(vec![
            "+",
            "*",
            "> bool",
            "<",
            "and",
            "or",
            "unless",
            "/ on (a, b)",
            "- on (a, b) fill(3)",
        ]);
        prop_oneof![
            (how, inner.clone()).prop_map(|(how, v)| if how.ends_with(',') {
                format!("{how} {v})")
            } else {
                format!("{how}({v})")
            }),
            (inner.clone(), op, inner.clone()).prop_map(|(a, op, b)| format!("({a}) {op} ({b})")),
            (
                inner.clone(),
                prop::sample::select(vec!["2 -", "1.5 <", "scalar(g{a=\"x\",b=\"1\"}) *", "time() -"])
            )
                .prop_map(|(v, op)| format!("{op} ({v})")),
            inner.prop_map(|v| format!("max_over_time(({v})[2m:30s])")),
        ]
    })
}

fn shown(sample: &Sample) -> String {
    format!("{sample:?}")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn ranges_are_made_of_instants(expr in expressions(), start in 0i64..600_000, step in 1_000i64..70_000, delayed: bool) {
        let memory = memory();
        let query = Query::parse(&expr, Options { delayed_name_removal: delayed, ..options() }).unwrap();
        let times: Vec<i64> = (0..8).map(|i| start + i * step).collect();
        let Ok(all) = query.range(&memory, start, times[7], step, &|| None) else {
            // Then an instant query must fail as well.
            let fails = times.iter().any(|at| query.instant(&memory, *at, &|| None).is_err());
            // (Or series become equal over time, though never at one.)
            prop_assert!(fails || !delayed, "{expr}");
            return Ok(());
        };
        let Value::Matrix(series) = all.value else { panic!("no matrix") };
        for at in times {
            let answer = query.instant(&memory, at, &|| None).unwrap_or_else(|error| panic!("{expr} at {at}: {error}"));
            let Value::Vector(samples) = answer.value else { panic!("no vector") };
            let mut one: Vec<(Labels, String)> = samples.iter().map(|(l, s)| (l.clone(), shown(s))).collect();
            one.sort();
            let mut middle: Vec<(Labels, String)> = series
                .iter()
                .filter_map(|s| s.samples.iter().find(|(t, _)| *t == at).map(|(_, v)| (s.labels.clone(), shown(v))))
                .collect();
            middle.sort();
            prop_assert_eq!(one, middle, "{} at {}", expr, at);
        }
    }
}

/// The result under default options, as text.
fn ask(query: &str) -> String {
    let mut memory = Memory::default();
    for (name, value) in [("a", 1.0), ("b", 2.0)] {
        let mut samples = Samples::default();
        samples.push(0, value);
        samples.push(60_000, value + 1.0);
        memory.load(&[(Labels::from_pairs([("__name__", name), ("x", "1")]), samples)]).unwrap();
    }
    let query = Query::parse(query, Options::default()).unwrap();
    match query.instant(&memory, 60_000, &|| None) {
        Ok(answer) => match answer.value {
            Value::Vector(samples) => samples
                .iter()
                .map(|(labels, sample)| format!("{labels:#} {sample:?}"))
                .collect::<Vec<_>>()
                .join("; "),
            other => format!("{other:?}"),
        },
        Err(error) => error.to_string(),
    }
}

#[test]
fn names_go_at_once_by_default() {
    let same = "vector cannot contain metrics with the same labelset";
    assert_eq!(ask("a"), "{__name__=\"a\", x=\"1\"} Float(2.0)");
    assert_eq!(ask("-a"), "{x=\"1\"} Float(-2.0)");
    assert_eq!(ask("sum by (__name__) (abs(a))"), "{} Float(2.0)");
    assert_eq!(ask("last_over_time(a[2m])"), "{__name__=\"a\", x=\"1\"} Float(2.0)");
    assert_eq!(ask("max_over_time(a[2m])"), "{x=\"1\"} Float(2.0)");
    // Two series that differ only in their names.
    for query in [
        "abs({x=\"1\"})",
        "rate({x=\"1\"}[2m])",
        "-{x=\"1\"}",
        "{x=\"1\"} * 2",
        "sum(abs({x=\"1\"}))",
        "timestamp({x=\"1\"})",
    ] {
        assert_eq!(ask(query), same, "{query}");
    }
    assert_eq!(ask("sum({x=\"1\"})"), "{} Float(5.0)");
    assert_eq!(
        ask("label_replace(a, \"__name__\", \"b\", \"\", \"\") or b"),
        "{__name__=\"b\", x=\"1\"} Float(2.0)"
    );
}
