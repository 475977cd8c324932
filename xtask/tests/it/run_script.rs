//! `./run test` counts what its runners say: tried here with a cargo that only pretends.

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
    script(&bin.join("cargo"), &format!("#!/usr/bin/env bash\n{cargo}\n"));
    for tool in ["cc", "git"] {
        script(&bin.join(tool), "#!/usr/bin/env bash\n");
    }
    script(&bin.join("rustc"), "#!/usr/bin/env bash\necho 'rustc 1.95.0 (pretended)'\n");
    // The clients of others, whose runner is a Python script.
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

#[test]
fn results_of_all_runners_are_summed() {
    let (last, ok) = run_test(&format!("[ \"$1\" != test ] || {{ echo '{RESULT}'; echo '{RESULT}'; }}"));
    // Two lines from each of three runners, five tests of clients, and ten steps that pass as a whole.
    assert_eq!((last.as_str(), ok), ("135 passed, 0 failed", true));
}

#[test]
fn failed_tests_are_counted() {
    let failed = RESULT.replace("ok. 20 passed; 0", "FAILED. 17 passed; 3");
    let (last, ok) =
        run_test(&format!("[ \"$1\" != test ] || {{ echo '{failed}'; echo '{RESULT}'; exit 101; }}"));
    assert_eq!((last.as_str(), ok), ("126 passed, 9 failed", false));
}

#[test]
fn a_compile_error_is_a_failure_even_without_a_result_line() {
    let (last, ok) = run_test("[ \"$1\" != test ] || { echo 'error: could not compile'; exit 101; }");
    assert_eq!((last.as_str(), ok), ("15 passed, 3 failed", false));
}

#[test]
fn a_runner_that_ran_nothing_is_a_failure() {
    let (last, ok) = run_test("true");
    assert_eq!((last.as_str(), ok), ("15 passed, 3 failed", false));
}

#[test]
fn a_runner_that_dies_after_good_results_is_a_failure() {
    let (last, ok) = run_test(&format!("[ \"$1\" != test ] || {{ echo '{RESULT}'; exit 134; }}"));
    assert_eq!((last.as_str(), ok), ("75 passed, 3 failed", false));
}

#[test]
fn a_failing_check_is_a_failure() {
    let (last, ok) =
        run_test(&format!("[ \"$1\" != clippy ] || [ \"$2\" = --version ] || exit 1; echo '{RESULT}'"));
    // A line from each of three runners, five tests of clients, and nine other steps.
    assert_eq!((last.as_str(), ok), ("74 passed, 1 failed", false));
}
