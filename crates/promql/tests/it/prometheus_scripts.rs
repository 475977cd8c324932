//! Prometheus' query tests, read from a folder outside of the repository.

use std::path::{Path, PathBuf};

use ropewalk_promql::script::{Storage, run};

/// The folder with the scripts, if it is there.
fn scripts() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let candidates = [std::env::var_os("ROPEWALK_SHARED").map(PathBuf::from)];
    let above = root.ancestors().map(|dir| Some(dir.join("shared")));
    candidates.into_iter().chain(above).flatten().map(|dir| dir.join("promqltest")).find(|dir| dir.is_dir())
}

/// Runs all scripts, or those whose names contain the variable `ONLY`, each over a new storage.
#[allow(clippy::print_stderr)] // a skip must be seen
pub(crate) fn conformance<S: Storage>(new: impl Fn() -> S) {
    let Some(folder) = scripts() else {
        eprintln!("SKIPPED: no folder shared/promqltest above {}", env!("CARGO_MANIFEST_DIR"));
        return;
    };
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "test"));
    files.sort();
    let only = std::env::var("ONLY").unwrap_or_default();
    let (mut passed, mut failed) = (0, 0);
    for path in files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.contains(&only) {
            continue;
        }
        let report = run(&std::fs::read_to_string(&path).unwrap(), &mut new());
        eprintln!("{name}: {} passed, {} failed", report.passed, report.failures.len());
        for failure in &report.failures {
            eprintln!("  {name}:{}: {}", failure.line, failure.message);
        }
        passed += report.passed;
        failed += report.failures.len();
    }
    eprintln!("{passed} evals passed, {failed} failed");
    assert_eq!(failed, 0);
}
