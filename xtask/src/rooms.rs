//! Rooms: the top-level modules of a crate, in an order in which each may use only those below it.
//!
//! A crate declares its rooms from top to bottom in its `Cargo.toml`; a room is a folder or a file of `src`:
//!
//! ```toml
//! [package.metadata.rooms]
//! order = ["session", "plan", "types", "error"]
//! upward = ["types -> plan"]
//! ```
//! Rules
//! 1. Every top-level module is in `order` once, and every name in `order` is a module.
//! 2. A file of a room uses `crate::ROOM` of the same room or of a lower one. The crate's root is above all
//!    rooms, so a file names an item by its module and not by a re-export of `lib.rs`.
//! 3. `upward` lists the exceptions that are left. An entry without such an edge is an error, so the list only shrinks.
//! 4. A crate has at most [`ROOMS_MAX`] top-level modules.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::cargo::Package;
use crate::layering::{Problem, relative, rust_files};
use crate::source::{paths_from, tokens, without_tests};

/// Most top-level modules of a crate: the rooms and a few single files.
const ROOMS_MAX: usize = 14;

/// Crates above that number which are still to be divided. The list only shrinks.
const STILL_FLAT: &[&str] = &[];

/// The rooms that a crate declares.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rooms {
    pub(crate) order: Vec<String>,
    pub(crate) upward: Vec<String>,
}

/// Checks the rooms of one crate. Returns each broken rule once for each pair of rooms, with the first place of it.
pub(crate) fn check(root: &Path, package: &Package) -> Result<Vec<Problem>> {
    let source = package.dir.join("src");
    if !source.is_dir() {
        return Ok(Vec::new());
    }
    let mut modules = BTreeSet::new();
    let mut upward: BTreeMap<String, String> = BTreeMap::new();
    for file in rust_files(&source)? {
        let inside = relative(&source, &file);
        let Some(module) = Module::of(&inside) else { continue };
        modules.insert(module.room.to_owned());
        let Some(rooms) = &package.rooms else { continue };
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        for (path, line) in paths_from(&without_tests(&tokens(&text)), &["crate", "super"]) {
            let Some(target) = module.target(&path) else { continue };
            let to = if rooms.order.iter().any(|name| name == target) { target } else { "lib" };
            if rooms.is_upward(module.room, to) {
                let place = format!("{}:{line}", relative(root, &file));
                upward.entry(format!("{} -> {to}", module.room)).or_insert(place);
            }
        }
    }
    let mut problems = flat(package, modules.len());
    let Some(rooms) = &package.rooms else { return Ok(problems) };
    problems.extend(misnamed(package, rooms, &modules));
    for (edge, place) in &upward {
        if !rooms.upward.contains(edge) {
            problems.push(Problem::new(place, format!("{edge}: a room may use only rooms below it")));
        }
    }
    for edge in rooms.upward.iter().filter(|edge| !upward.contains_key(*edge)) {
        problems.push(Problem::new(
            &package.name,
            format!("{edge}: no such edge is left, remove it from `upward`"),
        ));
    }
    Ok(problems)
}

/// Rule 4.
fn flat(package: &Package, modules: usize) -> Vec<Problem> {
    let listed = STILL_FLAT.contains(&package.name.as_str());
    let problem = match (modules > ROOMS_MAX, listed) {
        (true, false) => format!("{modules} top-level modules, at most {ROOMS_MAX}: divide them into rooms"),
        (false, true) => "is listed in STILL_FLAT of xtask/src/rooms.rs and is not flat".to_owned(),
        _ => return Vec::new(),
    };
    vec![Problem::new(&package.name, problem)]
}

/// Rule 1.
fn misnamed(package: &Package, rooms: &Rooms, modules: &BTreeSet<String>) -> Vec<Problem> {
    let declared: BTreeSet<String> = rooms.order.iter().cloned().collect();
    let missing = modules.difference(&declared).map(|name| format!("room {name} is not in `order`"));
    let stale = declared.difference(modules).map(|name| format!("`order` names {name}, which is no module"));
    let twice = (declared.len() < rooms.order.len()).then(|| "`order` names a room twice".to_owned());
    missing.chain(stale).chain(twice).map(|what| Problem::new(&package.name, what)).collect()
}

impl Rooms {
    /// True when `to` is above `from`. The crate's root is above all; an undeclared room is reported by its name.
    fn is_upward(&self, from: &str, to: &str) -> bool {
        let place = |room: &str| self.order.iter().position(|name| name == room);
        match (place(from), place(to)) {
            (Some(from), Some(to)) => to < from,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }
}

/// Where a file is in its crate.
struct Module<'a> {
    room: &'a str,
    /// Modules from the crate's root down to the file's own.
    depth: usize,
}

impl<'a> Module<'a> {
    /// `None` for the root and for files of tests.
    fn of(inside: &'a str) -> Option<Self> {
        let stem = inside.strip_suffix(".rs")?;
        let name = stem.rsplit('/').next().unwrap_or(stem);
        if matches!(stem, "lib" | "main") || name == "tests" || stem.starts_with("bin/") {
            return None;
        }
        let room = stem.split('/').next().unwrap_or(stem);
        let depth = stem.split('/').count() - usize::from(name == "mod");
        Some(Self { room, depth })
    }

    /// The first name below the crate's root that `path` goes through; `None` where it does not reach the root.
    fn target<'p>(&self, path: &'p str) -> Option<&'p str> {
        let mut names = path.split("::");
        if path.starts_with("crate::") {
            return names.nth(1);
        }
        let up = path.split("::").take_while(|name| *name == "super").count();
        (up == self.depth).then(|| names.nth(up).unwrap_or("lib"))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn problems(files: &[(&str, &str)], order: &[&str], upward: &[&str]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join("src").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let rooms = (!order.is_empty()).then(|| Rooms { order: texts(order), upward: texts(upward) });
        let package =
            Package { name: "a".to_owned(), dir: PathBuf::from(dir.path()), dependencies: Vec::new(), rooms };
        check(dir.path(), &package).unwrap().iter().map(Problem::to_string).collect()
    }

    #[test]
    fn upward_use_is_refused_in_every_form() {
        let order = ["top", "low"];
        let of =
            |text: &str| problems(&[("top.rs", ""), ("low/mod.rs", ""), ("low/a.rs", text)], &order, &[]);
        let refused = ["src/low/a.rs:1: low -> top: a room may use only rooms below it"];
        assert_eq!(of("use crate::top::X;"), refused);
        assert_eq!(of("use crate::{low::Y, top::{X, Z}};"), refused);
        assert_eq!(of("fn f() { super::super::top::x() }"), refused);
        assert_eq!(of("use super::top::X;"), Vec::<String>::new(), "a module of the same room");
        assert_eq!(of("use crate::low::b; pub(crate) fn f() {}"), Vec::<String>::new());
        assert_eq!(of("#[cfg(test)] mod tests { use crate::top::X; }"), Vec::<String>::new());
        assert_eq!(of("use crate::X;"), ["src/low/a.rs:1: low -> lib: a room may use only rooms below it"]);
    }

    #[test]
    fn listed_exception_is_allowed_until_its_edge_is_gone() {
        let order = ["top", "low"];
        let listed = ["low -> top"];
        assert_eq!(
            problems(&[("top.rs", ""), ("low.rs", "use crate::top;")], &order, &listed),
            Vec::<String>::new()
        );
        let found = problems(&[("top.rs", "use crate::low;"), ("low.rs", "")], &order, &listed);
        assert_eq!(found, ["a: low -> top: no such edge is left, remove it from `upward`"]);
    }

    #[test]
    fn order_names_every_module_once() {
        let found = problems(
            &[("lib.rs", "use crate::low;"), ("top.rs", ""), ("new.rs", "")],
            &["top", "top", "old"],
            &[],
        );
        assert_eq!(
            found,
            [
                "a: room new is not in `order`",
                "a: `order` names old, which is no module",
                "a: `order` names a room twice"
            ]
        );
    }

    #[test]
    fn crate_with_many_modules_is_refused() {
        let names: Vec<String> = (0..=ROOMS_MAX).map(|n| format!("m{n}.rs")).collect();
        let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
        assert_eq!(
            problems(&files, &[], &[]),
            ["a: 15 top-level modules, at most 14: divide them into rooms"]
        );
        assert_eq!(problems(&files[1..], &[], &[]), Vec::<String>::new());
    }
}
