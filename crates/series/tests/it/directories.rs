//! Directories of stored databases.

use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, target) = {
            let entry = entry.unwrap();
            (entry.path(), to.join(entry.file_name()))
        };
        if path.is_dir() { copy(&path, &target) } else { fs::copy(&path, &target).map(|_| ()).unwrap() }
    }
}

/// Every file below `dir`.
pub(crate) fn files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, out) } else { out.push(path) }
    }
    out.sort();
}
