//! Our scripts, which read as a tour of the language, and the runner itself.

use ropewalk_promql::script::{Memory, run};

#[test]
fn own_scripts() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let report = run(&std::fs::read_to_string(&path).unwrap(), &mut Memory::default());
        assert_eq!(report.failures, [], "{}", path.display());
        count += report.passed;
    }
    assert!(count > 80, "{count} evals");
}

/// The first message of a script that must fail.
fn failure(script: &str) -> String {
    let report = run(script, &mut Memory::default());
    assert_eq!(report.failures.len(), 1, "{script}");
    report.failures[0].message.clone()
}

#[test]
fn runner_reports_wrong_results() {
    let load = "load 1m\n  a{x=\"1\"} 1 2\n  h {{count:1 sum:2 buckets:[1]}}\n\n";
    for (eval, wanted) in [
        ("eval instant at 0 a\n  a{x=\"1\"} 2", "expected {__name__=\"a\", x=\"1\"} 2, got 1"),
        ("eval instant at 0 a", "unexpected {__name__=\"a\", x=\"1\"} 1"),
        (
            "eval instant at 0 a\n  a{x=\"1\"} 1\n  a{x=\"2\"} 1",
            "expected {__name__=\"a\", x=\"2\"}, which is missing",
        ),
        ("eval range from 0 to 1m step 1m a\n  a{x=\"1\"} 1", "got 0=1 60000=2"),
        ("eval range from 0 to 1m step 1m a\n  a{x=\"1\"} 1 2 3", "after the end"),
        ("eval instant at 0 a\n  expect fail\n", "expected a failure"),
        ("eval instant at 0 a\n  expect warn\n  a{x=\"1\"} 1", "found []"),
        ("eval instant at 0 rate(a[2m])\n  expect no_info", ""),
        ("eval instant at 1m rate(a[2m])\n  expect no_info\n  {x=\"1\"} 0.016666666", "unexpected Info"),
        ("eval instant at 0 h\n  h {{count:1 sum:3 buckets:[1]}}", "expected {__name__=\"h\"}"),
        (
            "eval instant at 0 h\n  h {{count:1 sum:2 buckets:[1] counter_reset_hint:gauge}}",
            "expected {__name__=\"h\"}",
        ),
        ("eval instant at 0 1\n  2", "expected Some(2.0), got scalar 1"),
        ("eval instant at 0 sort(a)\n  expect ordered\n  b 1\n  a{x=\"1\"} 1", "at position 1"),
        ("eval instant at 0 a +", "parse error"),
        ("evil", "unknown command"),
    ] {
        if wanted.is_empty() {
            assert_eq!(run(&format!("{load}{eval}"), &mut Memory::default()).passed, 1);
        } else {
            let message = failure(&format!("{load}{eval}"));
            assert!(message.contains(wanted), "{eval}: {message}");
        }
    }
}
