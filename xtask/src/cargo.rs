//! Calls cargo, and reads its metadata of the workspace.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::rooms::Rooms;

/// How a dependency is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Compiled into the crate, or run while building it.
    Normal,
    /// For tests, examples and benches only.
    Dev,
}

/// One declared dependency.
#[derive(Debug, Clone)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

/// One package of the workspace.
#[derive(Debug, Clone)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) dir: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    /// `[package.metadata.rooms]`, where the crate has it.
    pub(crate) rooms: Option<Rooms>,
}

impl Package {
    /// True when `name` is declared, in whatever way.
    pub(crate) fn uses(&self, name: &str) -> bool {
        self.dependencies.iter().any(|d| d.name == name)
    }
}

/// All packages of the workspace, the non-default members included.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
}

/// The cargo that runs this, or the one of the path.
pub(crate) fn command() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs cargo with the terminal as it is; anything but success is an error.
pub(crate) fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let status =
        command().args(arguments).envs(environment.iter().copied()).status().context("starting cargo")?;
    if status.success() { Ok(()) } else { bail!("cargo {}: {status}", arguments.join(" ")) }
}

/// Reads the manifests as cargo sees them. Needs no network.
pub(crate) fn workspace() -> Result<Workspace> {
    let output = command()
        .args(["metadata", "--no-deps", "--format-version", "1", "--locked"])
        .output()
        .context("starting cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    parse(&serde_json::from_slice(&output.stdout).context("cargo metadata")?)
}

/// Files that git tracks, as paths below the root.
pub(crate) fn tracked_files(root: &Path) -> Result<Vec<String>> {
    let output =
        Command::new("git").arg("-C").arg(root).args(["ls-files", "-z"]).output().context("starting git")?;
    if !output.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let list = String::from_utf8(output.stdout).context("git ls-files")?;
    Ok(list.split_terminator('\0').map(str::to_owned).collect())
}

fn parse(metadata: &Value) -> Result<Workspace> {
    let packages = list(metadata, "packages")?.iter().map(package).collect::<Result<_>>()?;
    let (root, target) = (text(metadata, "workspace_root")?, text(metadata, "target_directory")?);
    Ok(Workspace { root: root.into(), target: target.into(), packages })
}

fn package(value: &Value) -> Result<Package> {
    let manifest = PathBuf::from(text(value, "manifest_path")?);
    let dependencies = list(value, "dependencies")?.iter().map(dependency).collect::<Result<_>>()?;
    let dir = manifest.parent().context("a manifest lies in a directory")?.to_path_buf();
    let rooms = value.pointer("/metadata/rooms").map(rooms).transpose()?;
    Ok(Package { name: text(value, "name")?.to_owned(), dir, dependencies, rooms })
}

fn rooms(value: &Value) -> Result<Rooms> {
    let names = |key: &'static str| -> Result<Vec<String>> {
        let names = value.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let name = |name: &Value| name.as_str().map(str::to_owned);
        names
            .iter()
            .map(name)
            .collect::<Option<_>>()
            .with_context(|| format!("rooms: {key} is a list of texts"))
    };
    Ok(Rooms { order: names("order")?, upward: names("upward")? })
}

fn dependency(value: &Value) -> Result<Dependency> {
    let kind =
        if value.get("kind").and_then(Value::as_str) == Some("dev") { Kind::Dev } else { Kind::Normal };
    Ok(Dependency { name: text(value, "name")?.to_owned(), kind })
}

fn text<'a>(value: &'a Value, key: &'static str) -> Result<&'a str> {
    value.get(key).and_then(Value::as_str).with_context(|| format!("cargo metadata has no text {key}"))
}

fn list<'a>(value: &'a Value, key: &'static str) -> Result<&'a Vec<Value>> {
    value.get(key).and_then(Value::as_array).with_context(|| format!("cargo metadata has no list {key}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_are_read_with_the_kind_of_each_dependency() {
        let metadata = serde_json::json!({
            "workspace_root": "/clone",
            "target_directory": "/clone/target",
            "packages": [{
                "name": "ropewalk-log",
                "manifest_path": "/clone/crates/log/Cargo.toml",
                "metadata": { "rooms": { "order": ["copy", "format"] } },
                "dependencies": [
                    { "name": "ropewalk-vfs", "kind": null },
                    { "name": "proptest", "kind": "dev" },
                    { "name": "cc", "kind": "build" },
                ],
            }],
        });
        let workspace = parse(&metadata).unwrap();
        let package = &workspace.packages[0];
        assert_eq!(package.dir, PathBuf::from("/clone/crates/log"));
        let kinds: Vec<_> = package.dependencies.iter().map(|d| (d.name.as_str(), d.kind)).collect();
        assert_eq!(kinds, [("ropewalk-vfs", Kind::Normal), ("proptest", Kind::Dev), ("cc", Kind::Normal)]);
        let rooms = package.rooms.as_ref().unwrap();
        assert_eq!((rooms.order.join(" ").as_str(), rooms.upward.len()), ("copy format", 0));
        assert!(package.uses("proptest") && !package.uses("tokio"));
    }
}
