//! The names of a simulated disk. A name is durable once its directory was synced; until then a crash
//! preserves or drops each change independently, but the changes of one name in order, and a rename
//! atomically.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::{Random, SeededRandom};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    Dir,
    File(u64),
}

#[derive(Debug, Clone)]
enum Change {
    Link(PathBuf, Node),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf),
}

impl Change {
    fn names(&self) -> [&Path; 2] {
        match self {
            Self::Link(name, _) | Self::Unlink(name) => [name, name],
            Self::Rename(from, to) => [from, to],
        }
    }

    fn apply(self, tree: &mut BTreeMap<PathBuf, Node>) {
        match self {
            Self::Link(name, node) => {
                tree.insert(name, node);
            }
            Self::Unlink(name) => {
                tree.remove(&name);
            }
            Self::Rename(from, to) => {
                // A directory takes along what is in it.
                let moved: Vec<PathBuf> =
                    tree.keys().filter(|path| path.starts_with(&from)).cloned().collect();
                for path in moved {
                    let rest = path.strip_prefix(&from).unwrap_or(&path);
                    let name = if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) };
                    if let Some(node) = tree.remove(&path) {
                        tree.insert(name, node);
                    }
                }
            }
        }
    }
}

#[derive(Clone, Default)]
pub(super) struct Names {
    current: BTreeMap<PathBuf, Node>,
    durable: BTreeMap<PathBuf, Node>,
    pending: Vec<Change>,
}

impl Names {
    pub(super) fn get(&self, path: &Path) -> Option<Node> {
        if path.parent().is_none() { Some(Node::Dir) } else { self.current.get(path).copied() }
    }

    pub(super) fn is_dir(&self, path: &Path) -> bool {
        self.get(path) == Some(Node::Dir)
    }

    pub(super) fn list(&self, dir: &Path) -> Vec<String> {
        let inside = self.current.keys().filter(|path| path.parent() == Some(dir));
        inside.filter_map(|path| path.file_name()?.to_str().map(str::to_owned)).collect()
    }

    pub(super) fn files(&self) -> impl Iterator<Item = (&Path, u64)> {
        self.current.iter().filter_map(|(path, node)| match node {
            Node::File(inode) => Some((path.as_path(), *inode)),
            Node::Dir => None,
        })
    }

    pub(super) fn link(&mut self, path: &Path, node: Node) {
        self.change(Change::Link(path.to_owned(), node), Change::Link(path.to_owned(), node));
    }

    pub(super) fn unlink(&mut self, path: &Path) {
        self.change(Change::Unlink(path.to_owned()), Change::Unlink(path.to_owned()));
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) {
        let change = || Change::Rename(from.to_owned(), to.to_owned());
        self.change(change(), change());
    }

    /// Everything below `dir`, and `dir`, was never there.
    pub(super) fn wipe(&mut self, dir: &Path) {
        self.current.retain(|path, _| !path.starts_with(dir));
        self.durable.retain(|path, _| !path.starts_with(dir));
        self.pending.retain(|change| !change.names().iter().any(|name| name.starts_with(dir)));
    }

    fn change(&mut self, now: Change, later: Change) {
        now.apply(&mut self.current);
        self.pending.push(later);
    }

    /// Makes the changes of names in `dir` durable, and earlier changes that they depend on.
    pub(super) fn sync(&mut self, dir: &Path) {
        let mut wanted: BTreeSet<PathBuf> = BTreeSet::new();
        let mut synced = Vec::new();
        let mut left = Vec::new();
        for change in std::mem::take(&mut self.pending).into_iter().rev() {
            let names = change.names();
            if names.iter().any(|name| name.parent() == Some(dir) || wanted.contains(*name)) {
                wanted.extend(names.map(Path::to_owned));
                synced.push(change);
            } else {
                left.push(change);
            }
        }
        left.reverse();
        self.pending = left;
        synced.into_iter().rev().for_each(|change| change.apply(&mut self.durable));
    }

    pub(super) fn crash(&mut self, random: &SeededRandom) {
        let mode = random.next_u64() % 4;
        let mut lost: BTreeSet<PathBuf> = BTreeSet::new();
        for change in self.pending.drain(..) {
            let keep = mode == 0 || (mode > 1 && random.next_u64().is_multiple_of(2));
            let names = change.names();
            if keep && !names.iter().any(|name| lost.contains(*name)) {
                change.apply(&mut self.durable);
            } else {
                lost.extend(names.map(Path::to_owned));
            }
        }
        // The contents of a lost directory are lost with it.
        let tree = std::mem::take(&mut self.durable);
        let reachable = |path: &Path| {
            path.ancestors().skip(1).filter(|a| a.parent().is_some()).all(|a| tree.get(a) == Some(&Node::Dir))
        };
        self.durable =
            tree.iter().filter(|(path, _)| reachable(path)).map(|(p, n)| (p.clone(), *n)).collect();
        self.current.clone_from(&self.durable);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> PathBuf {
        PathBuf::from(name)
    }

    fn outcomes(build: impl Fn(&mut Names)) -> BTreeSet<Vec<(String, u64)>> {
        (0..300)
            .map(|seed| {
                let mut names = Names::default();
                build(&mut names);
                names.crash(&SeededRandom::new(seed));
                names.files().map(|(p, inode)| (p.display().to_string(), inode)).collect()
            })
            .collect()
    }

    #[test]
    fn a_replacing_rename_is_there_or_not_but_never_half() {
        let found = outcomes(|names| {
            names.link(&path("/d"), Node::Dir);
            names.link(&path("/d/m"), Node::File(1));
            names.sync(&path("/d"));
            names.sync(&path("/"));
            names.link(&path("/d/new"), Node::File(2));
            names.rename(&path("/d/new"), &path("/d/m"));
        });
        let m = |inode| ("/d/m".to_owned(), inode);
        let expect = [vec![m(1)], vec![m(2)], vec![m(1), ("/d/new".to_owned(), 2)]];
        assert_eq!(found, BTreeSet::from(expect));
    }

    #[test]
    fn renamed_directory_survives_under_one_name_with_synced_contents() {
        let found = outcomes(|names| {
            names.link(&path("/new"), Node::Dir);
            names.link(&path("/new/in"), Node::Dir);
            names.link(&path("/new/in/a"), Node::File(1));
            for dir in ["/new/in", "/new", "/"] {
                names.sync(&path(dir));
            }
            names.link(&path("/new/b"), Node::File(2));
            names.rename(&path("/new"), &path("/d"));
        });
        let old = ("/new/in/a".to_owned(), 1);
        let new = ("/d/in/a".to_owned(), 1);
        let (old_b, new_b) = (("/new/b".to_owned(), 2), ("/d/b".to_owned(), 2));
        assert_eq!(
            found,
            BTreeSet::from([vec![old.clone()], vec![old_b, old], vec![new.clone()], vec![new_b, new]])
        );
    }

    #[test]
    fn synced_names_survive_unless_their_directory_was_never_synced() {
        let found = outcomes(|names| {
            names.link(&path("/d"), Node::Dir);
            names.link(&path("/d/a"), Node::File(1));
            names.sync(&path("/d"));
        });
        assert_eq!(found, BTreeSet::from([vec![], vec![("/d/a".to_owned(), 1)]]));
        let found = outcomes(|names| {
            names.link(&path("/d"), Node::Dir);
            names.link(&path("/d/a"), Node::File(1));
            names.sync(&path("/d"));
            names.sync(&path("/"));
            names.unlink(&path("/d/a"));
        });
        assert_eq!(found, BTreeSet::from([vec![], vec![("/d/a".to_owned(), 1)]]));
    }
}
