//! Lists the built files of the web console for `src/console.rs`. Without them the server has no console.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The built files, from the folder of this crate.
const DIST: &str = "../../console/dist";

fn main() -> Result<(), Box<dyn Error>> {
    let crate_dir =
        PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo sets CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    println!("cargo:rerun-if-changed={DIST}");
    let dist = crate_dir.join(DIST);
    let mut files = Vec::new();
    if dist.is_dir() {
        collect(&dist, "", &mut files)?;
    }
    // So that the same files make the same program.
    files.sort();
    let mut text = String::from("pub(crate) const FILES: &[ConsoleFile] = &[\n");
    for file in &files {
        let path = file.strip_suffix(".gz").ok_or("a file without .gz in console/dist")?;
        let place = dist.join(file);
        writeln!(text, "    ConsoleFile {{ path: {path:?}, gzip: include_bytes!({place:?}) }},")?;
    }
    text.push_str("];\n");
    std::fs::write(out.join("console_files.rs"), text)?;
    Ok(())
}

/// Paths of the files below a folder, with slashes.
fn collect(folder: &Path, prefix: &str, files: &mut Vec<String>) -> Result<(), Box<dyn Error>> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().into_string().map_err(|_| "a name that is not UTF-8 in console/dist")?;
        let path = format!("{prefix}{name}");
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{path}/"), files)?;
        } else if !name.starts_with('.') {
            files.push(path);
        }
    }
    Ok(())
}
