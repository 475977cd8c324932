//! `./run test` counts the results of its runners.
//!
//! A script in the place of cargo starts xtask and nothing else.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Runs `./run test` in a directory where `cargo` is the given shell script; returns the last line and the success.
fn run_test(cargo: &str) -> (String, bool) {
    let dir = tempfile::tempdir().unwrap();
    let script = |path: &Path, text: &str| {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../run");
    script(&dir.path().join("run"), &fs::read_to_string(run).unwrap());
    fs::write(dir.path().join("Cargo.toml"), "rust-version = \"1.95\"\n").unwrap();
    let bin = dir.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let xtask = env!("CARGO_BIN_EXE_xtask");
    let start = format!("if [ \"$*\" = 'xtask test' ]; then CARGO=$0 exec '{xtask}' test; fi");
    script(&bin.join("cargo"), &format!("#!/usr/bin/env bash\n{cargo}\n{start}\n"));
    for tool in ["cc", "git"] {
        script(&bin.join(tool), "#!/usr/bin/env bash\n");
    }
    script(&bin.join("rustc"), "#!/usr/bin/env bash\necho 'rustc 1.95.0 (pretended)'\n");
    // The clients, whose runner is a Python script.
    script(
        &bin.join("python3"),
        "#!/usr/bin/env bash\n[ \"$1\" = -c ] || echo 'test result: ok. 5 passed; 0 failed; 0 ignored; clients'\n",
    );
    let target = dir.path().join("target");
    fs::create_dir_all(target.join("debug")).unwrap();
    script(&target.join("debug/ropewalk"), "#!/usr/bin/env bash\n[ \"$*\" = 'demo --once' ]\n");
    for program in ["sim", "kill"] {
        script(&target.join("debug").join(program), "#!/usr/bin/env bash\n[ $# -ge 2 ]\n");
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let output = Command::new(dir.path().join("run"))
        .arg("test")
        .env("PATH", path)
        .env("CARGO_TARGET_DIR", &target)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (text.lines().last().unwrap_or_default().to_owned(), output.status.success())
}

const RESULT: &str =
    "test result: ok. 20 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s";

/// Number of steps of `./run test` that count in this way, `Whole` or `Tests`, and run this program.
fn count(kind: &str, program: &str) -> usize {
    let steps = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/steps.rs");
    let text = fs::read_to_string(steps).unwrap();
    let starts = ["Always", "Test"].map(|when| format!("    step({when}, {kind}, "));
    let steps = text.lines().filter(|line| starts.iter().any(|start| line.starts_with(start)));
    let count = steps.filter(|line| line.contains(program)).count();
    assert!(count > 2, "xtask/src/steps.rs has {count} steps of {kind} that run {program:?}");
    count
}

/// The last line and the success of a run whose cargo tests gave these counts. Five tests pass in each step of clients,
/// and every other step passes except `bad` of them.
fn ending(passed: usize, failed: usize, bad: usize) -> (String, bool) {
    let runners = count("Tests", "\"cargo test ");
    let passed = passed * runners + 5 * count("Tests", "\"python3 ") + count("Whole", "") - bad;
    let failed = failed * runners + bad;
    (format!("{passed} passed, {failed} failed"), failed == 0)
}

#[test]
fn results_of_all_runners_are_summed() {
    let found = run_test(&format!("[ \"$1\" != test ] || {{ echo '{RESULT}'; echo '{RESULT}'; }}"));
    assert_eq!(found, ending(40, 0, 0));
}

#[test]
fn failed_tests_are_counted() {
    let failed = RESULT.replace("ok. 20 passed; 0", "FAILED. 17 passed; 3");
    let found = run_test(&format!("[ \"$1\" != test ] || {{ echo '{failed}'; echo '{RESULT}'; exit 101; }}"));
    assert_eq!(found, ending(37, 3, 0));
}

#[test]
fn a_compile_error_is_a_failure_even_without_a_result_line() {
    let found = run_test("[ \"$1\" != test ] || { echo 'error: could not compile'; exit 101; }");
    assert_eq!(found, ending(0, 1, 0));
}

#[test]
fn a_compile_error_of_xtask_is_a_failure() {
    assert_eq!(run_test("[ \"$1\" != xtask ] || exit 101"), ("0 passed, 1 failed".to_owned(), false));
}

#[test]
fn a_runner_that_ran_nothing_is_a_failure() {
    assert_eq!(run_test("true"), ending(0, 1, 0));
}

#[test]
fn a_runner_that_dies_after_good_results_is_a_failure() {
    let found = run_test(&format!("[ \"$1\" != test ] || {{ echo '{RESULT}'; exit 134; }}"));
    assert_eq!(found, ending(20, 1, 0));
}

#[test]
fn a_failing_check_is_a_failure() {
    let found = run_test(&format!("[ \"$1\" != build ] || exit 1; echo '{RESULT}'"));
    assert_eq!(found, ending(20, 0, 1));
}
