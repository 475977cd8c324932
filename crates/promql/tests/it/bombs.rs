//! Hostile queries: short texts that need much memory or time. Each ends in a result or a typed error, within
//! its memory limit.
//!
//!   bombs/hand.txt, families × sizes, nested functions ─▶ parse ─▶ instant and range over hostile series ─▶ most bytes held
//!
//! Only memory is measured, by the allocator, never time: the stop function ends a query after a number of
//! calls, so that a loop that never calls it is noticed.

use std::cell::Cell;
use std::fmt::Write as _;
use std::sync::Arc;

use ropewalk_labels::{Bucket, Histogram, Labels, Samples};
use ropewalk_promql::script::{Memory, Storage};
use ropewalk_promql::{Error, Limits, Options, PATTERNS_BYTES_MAX, Query, StopReason, Value};

use crate::allocations::most_held;
use crate::hostile_texts::{Numbers, written_out};

/// Memory limit of one query's evaluation.
const QUERY_BYTES: u64 = 16 << 20;
/// Memory that no budget counts: one allocation that was made before it was counted, and the double
/// allocation while a list grows.
const SLACK_BYTES: u64 = 8 << 20;
/// Memory limit of parsing: a tree of the largest text, and all regular expressions.
const PARSE_BYTES: u64 = PATTERNS_BYTES_MAX as u64 + (40 << 20);
/// Number of calls of the stop function after which it stops the query.
const ASKED_MAX: u32 = 1_000;
const SERIES: usize = 1_000;
const END_MS: i64 = 2_000_000;

fn hand_written() -> impl Iterator<Item = String> {
    let lines = include_str!("../bombs/hand.txt").lines();
    lines.filter(|line| !line.starts_with('#')).map(written_out)
}

/// Functions nested at random around a hostile middle.
fn nested(numbers: &mut Numbers) -> String {
    const MIDDLES: [&str; 9] = [
        "m",
        "h",
        "long",
        "rand",
        "{__name__=~\".+\"}",
        "vector(time())",
        "m{c=~\".*1.*\"}",
        "label_replace(m, \"big\", \"$1$1$1$1\", \"c\", \"(.*)\")",
        "m * on () group_left () sum(m)",
    ];
    /// `@` is the expression inside.
    const AROUND: [&str; 44] = [
        "label_join(@, \"c\", \"<<100*x>>\", \"c\", \"c\")",
        "label_replace(@, \"c\", \"$1$1\", \"c\", \"(.*)\")",
        "label_replace(@, \"d\", \"$2-$1\", \"c\", \"(.)(.*)\")",
        "label_set(@, \"s\", \"<<1000*y>>\")",
        "label_copy(@, \"c\", \"e\", \"e\", \"f\")",
        "label_transform(@, \"c\", \".\", \"$0$0\")",
        "label_uppercase(@, \"c\")",
        "label_match(@, \"c\", \"(\\\\w{20})?.*\")",
        "sort(@)",
        "sort_by_label(@, \"c\")",
        "abs(@)",
        "-@",
        "round(@, time())",
        "clamp(@, -time(), time())",
        "timestamp(@)",
        "absent(@)",
        "sum(@)",
        "sum by (c) (@)",
        "avg without (c) (@)",
        "topk(100, @)",
        "quantile(0.5, @)",
        "count_values(\"v\", @)",
        "median(@)",
        "zscore(@)",
        "quantiles(\"q\", 0.1, 0.5, 0.9, @)",
        "outliers_iqr(@)",
        "topk_avg(10, @, \"rest\")",
        "histogram_quantile(0.9, @)",
        "histogram_quantiles(@, \"q\", 0.1, 0.9)",
        "info(@)",
        "(@ + @)",
        "(@ or @)",
        "(@ and on (c) @)",
        "(@ * on (c) group_left (d) long)",
        "(@ default 1)",
        "(@ > bool 1)",
        "vector(scalar(@))",
        "union(@, m)",
        "running_sum(@)",
        "max_over_time((@)[100s:100ms])",
        "rate((@)[1000s:1s])",
        "quantile_over_time(0.5, (@)[20s:1s])",
        "rollup((@)[100s:1s])",
        "last_over_time((@)[10s:1ms])",
    ];
    let mut query = numbers.one_of(&MIDDLES).to_owned();
    for _ in 0..1 + numbers.below(12) {
        let around = numbers.one_of(&AROUND);
        query = around.replace('@', &query);
        if query.len() > 200_000 {
            break;
        }
    }
    written_out(&query)
}

/// The families of growing texts, at several sizes.
fn grown() -> Vec<String> {
    let mut all = Vec::new();
    for size in [10, 100, 1_000, 15_000] {
        for family in [
            "m{<<N*a!=\"%i\", >>c=\"1\"}",
            "m{<<N*c=~\".*%i\", >>c=\"1\"}",
            "m{<<N*c=~\"%i\" or >>c=\"1\"}",
            "union(<<N*m offset %is, >>m)",
            "union(<<N*sum by (c) (m), >>m)",
            "union(<<N*label_set(m, \"a\", \"%i\"), >>m)",
            "label_set(m, <<N*\"l%i\", \"v\", >>\"a\", \"b\")",
            "label_replace(long, \"d\", \"<<N*$1-%i>>\", \"long\", \"(.*)\")",
            "label_replace(m, \"d\", \"$1\", \"c\", \"<<N*(.?)>>\")",
            "label_join(long, \"d\", \"-\", <<N*\"long\", >>\"c\")",
            "sum by (<<N*l%i, >>c) (m)",
            "m + on (<<N*l%i, >>c) m",
            "m + on (c) group_left (<<N*l%i, >>long) long",
            "quantiles(\"q\", <<N*0.%i, >>1, m)",
            "WITH (c = {<<N*a!=\"%i\", >>c=\"1\"}) union(<<N*m{c}, >>m)",
            "WITH (f(a) = a + <<N*a, >>a) f(m)",
            "WITH (t = \"<<N*t>>\") label_join(m, \"d\", t, <<N*t, >>\"c\")",
            "max_over_time(m[<<N*1+>>1])",
        ] {
            all.push(written_out(&family.replace('N', &size.to_string())));
        }
    }
    all
}

fn corpus() -> Vec<String> {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut all: Vec<String> = hand_written().chain(grown()).collect();
    all.extend((0..200).map(|_| nested(&mut numbers)));
    all
}

fn histogram(seed: usize) -> Arc<Histogram> {
    let positive: Vec<Bucket> =
        (0..160).map(|index| Bucket { index, count: (1 + (seed + index as usize) % 7) as f64 }).collect();
    let count = positive.iter().map(|bucket| bucket.count).sum();
    Arc::new(Histogram { schema: 3, count, sum: count, positive, ..Histogram::default() })
}

/// `m`: a thousand series; `h`: histograms; `long`: labels of 60 KB; `rand`: values that are all different;
/// names of all kinds.
fn memory() -> Memory {
    let mut memory = Memory::default();
    let mut load = |labels: &[(&str, &str)], sample: &dyn Fn(i64, &mut Samples)| {
        let mut samples = Samples::default();
        (0..20).for_each(|step| sample(step * END_MS / 20, &mut samples));
        memory.load(&[(Labels::from_pairs(labels.iter().copied()), samples)]).unwrap();
    };
    for series in 0..SERIES {
        let (c, job) = (series.to_string(), (series % 10).to_string());
        let float =
            |time: i64, samples: &mut Samples| samples.push(time, (time % 977) as f64 + series as f64);
        load(&[("__name__", "m"), ("a", "1"), ("b", "2"), ("c", &c), ("job", &job), ("le", &c)], &float);
        if series % 5 == 0 {
            load(&[("__name__", "rand"), ("c", &c)], &|time, samples| {
                samples.push(time, (time as f64 + 0.1) * (series as f64 + 0.7));
            });
            load(&[("__name__", &format!("name_{series}")), ("c", &c)], &float);
        }
        if series % 20 == 0 {
            load(&[("__name__", "h"), ("c", &c)], &|time, samples| {
                samples.push_histogram(time, histogram(series + time as usize / 1000));
            });
            load(&[("__name__", "long"), ("c", &c), ("long", &"x".repeat(60_000))], &float);
        }
    }
    memory
}

fn options() -> Options {
    let limits = Limits { memory_bytes_max: QUERY_BYTES, ..Limits::default() };
    Options { limits, ..Options::default() }
}

/// The kind of an error, in one word; every one of them is typed.
fn kind(error: &Error) -> &'static str {
    match error {
        Error::Parse(_) => "parse",
        Error::Times(_) => "times",
        Error::Execution(_) => "execution",
        Error::Budget(_) => "budget",
        Error::Storage(_) => "storage",
        _ => "other",
    }
}

/// Runs a query: peak of bytes while it was parsed, while it was evaluated, and how it ended.
fn take(text: &str, memory: &Memory) -> (u64, u64, String) {
    let (parsing, query) = most_held(|| Query::parse(text, options()));
    let query = match query {
        Ok(query) => query,
        Err(_) => return (parsing, 0, "parse".to_owned()),
    };
    let mut ends = String::new();
    let mut evaluating = 0;
    for range in [false, true] {
        let asked = Cell::new(0);
        let stop = || {
            asked.set(asked.get() + 1);
            (asked.get() > ASKED_MAX).then_some(StopReason::TimedOut)
        };
        let (bytes, answer) = most_held(|| {
            if range {
                query.range(memory, 0, END_MS - 1, 2_000, &stop)
            } else {
                query.instant(memory, END_MS - 1, &stop)
            }
        });
        evaluating = evaluating.max(bytes);
        let end = answer.as_ref().map_or_else(kind, |_| "answer");
        assert_ne!(end, "storage");
        let _ = write!(ends, "{}{end}", if range { ", " } else { "" });
    }
    (parsing, evaluating, ends)
}

#[test]
fn h7_every_bomb_ends_within_its_budget() {
    let (memory, corpus) = (memory(), corpus());
    assert!(corpus.len() >= 300, "{} queries", corpus.len());
    let mut took: Vec<(u64, u64, String, String)> = Vec::new();
    for text in corpus {
        let start: String = text.chars().take(90).collect();
        let (parsing, evaluating, ends) = take(&text, &memory);
        took.push((parsing, evaluating, ends, format!("{start} ({} bytes)", text.len())));
    }
    took.sort_by_key(|(parsing, evaluating, ..)| std::cmp::Reverse(*parsing.max(evaluating)));
    for (parsing, evaluating, ends, text) in took.iter().take(10) {
        eprintln!("{:>6} KiB parsing {:>6} KiB evaluating: {ends}: {text}", parsing >> 10, evaluating >> 10);
    }
    took.sort_by_key(|(_, evaluating, ..)| std::cmp::Reverse(*evaluating));
    for (parsing, evaluating, ends, text) in took.iter().take(10) {
        eprintln!("{:>6} KiB parsing {:>6} KiB evaluating: {ends}: {text}", parsing >> 10, evaluating >> 10);
    }
    let over: Vec<_> = took
        .iter()
        .filter(|(parsing, evaluating, ..)| *parsing > PARSE_BYTES || *evaluating > QUERY_BYTES + SLACK_BYTES)
        .collect();
    assert!(over.is_empty(), "{over:#?}");
}

#[test]
fn aggregation_over_many_series_passes() {
    let mut memory = Memory::default();
    let series: Vec<(Labels, Samples)> = (0..100_000)
        .map(|number| {
            let (instance, job) = (format!("host-{number}:9100"), format!("job-{}", number % 100));
            let labels = Labels::from_pairs([("__name__", "up"), ("instance", &instance), ("job", &job)]);
            let mut samples = Samples::default();
            samples.push(1_000, 1.0);
            (labels, samples)
        })
        .collect();
    memory.load(&series).unwrap();
    // The default limits; and sums fit even into the memory of a single step for each group.
    for (text, rows, limits) in [
        ("sum(up)", 1, Limits { memory_bytes_max: 64 << 10, ..Limits::default() }),
        ("sum by (job) (up)", 100, Limits { memory_bytes_max: 256 << 10, ..Limits::default() }),
        ("count by (instance) (up)", 100_000, Limits::default()),
        ("up", 100_000, Limits::default()),
        ("topk(10, up)", 10, Limits::default()),
        ("up * on (instance) up", 100_000, Limits::default()),
        ("label_replace(up, \"host\", \"$1\", \"instance\", \"(.*):.*\")", 100_000, Limits::default()),
        ("sum by (job) (label_join(up, \"key\", \"/\", \"job\", \"instance\"))", 100, Limits::default()),
        ("up{instance=~\"host-.*\", job=~\"job-(1|2|3)\", instance!~\".*9\"}", 3_000, Limits::default()),
    ] {
        let query = Query::parse(text, Options { limits, ..Options::default() }).unwrap();
        let answer =
            query.instant(&memory, 1_000, &|| None).unwrap_or_else(|error| panic!("{text}: {error}"));
        let Value::Vector(list) = answer.value else { panic!("{text} gives no vector") };
        assert_eq!(list.len(), rows, "{text}");
    }
}
