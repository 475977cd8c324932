//! A checkpoint store in a directory, for a file system that all nodes share.
//!
//! ```text
//! write KIND/REST.RANDOM.new ─▶ sync ─▶ link as KIND/REST, which fails if there is one ─▶ remove the first name
//! ```
//! A rename would replace an object of another node.

use core::fmt;
use std::io;
use std::path::{Path, PathBuf};

use ropewalk_vfs::{Env, OpenMode, create_dir_durably};

use crate::checkpoint::store::{CheckpointStore, OBJECT_BYTES_MAX, ObjectError, check_name};

/// A directory with one subdirectory for each kind of object.
pub struct DirectoryStore {
    env: Env,
    root: PathBuf,
}

impl DirectoryStore {
    /// Opens the store in `root`, which is created if it does not exist.
    ///
    /// # Errors
    /// The directory cannot be written to, or its file system has no hard links: then two nodes could overwrite each other's
    /// objects.
    pub fn open(env: &Env, root: &Path) -> Result<Self, ObjectError> {
        let store = Self { env: env.clone(), root: root.to_owned() };
        let name = root.display().to_string();
        create_dir_durably(&*env.vfs, root).map_err(failed("create directory", &name))?;
        store.check_links().map_err(failed("create hard links in", &name))?;
        Ok(store)
    }

    fn check_links(&self) -> io::Result<()> {
        let vfs = &*self.env.vfs;
        let (file, link) = (self.root.join(self.unused("links")), self.root.join(self.unused("links")));
        vfs.open(&file, OpenMode::CreateNew)?;
        let linked = vfs.hard_link(&file, &link).and_then(|()| vfs.remove(&link));
        vfs.remove(&file)?;
        linked
    }

    /// A name that no other creation uses.
    fn unused(&self, name: &str) -> String {
        format!("{name}.{:016x}.new", self.env.random.next_u64())
    }

    fn path(&self, call: &'static str, name: &str) -> Result<PathBuf, ObjectError> {
        check_name(call, name)?;
        Ok(self.root.join(name))
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let file = self.env.vfs.open(path, OpenMode::CreateNew)?;
        file.write_all_at(bytes, 0)?;
        file.sync_data()
    }

    /// Creates the object at `path`, which lies in `dir`.
    fn create_in(&self, dir: &Path, path: &Path, bytes: &[u8]) -> io::Result<bool> {
        let vfs = &*self.env.vfs;
        if vfs.exists(path)? {
            // Its node may not have made the name durable yet.
            vfs.sync_dir(dir)?;
            return Ok(false);
        }
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let new = dir.join(self.unused(name));
        let linked = self.write(&new, bytes).and_then(|()| match vfs.hard_link(&new, path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        });
        // A leftover is deleted with the objects that no checkpoint needs.
        let removed = vfs.remove(&new);
        let is_created = linked?;
        removed?;
        vfs.sync_dir(dir)?;
        Ok(is_created)
    }
}

fn failed<'a>(call: &'static str, name: &'a str) -> impl FnOnce(io::Error) -> ObjectError + 'a {
    move |error| ObjectError { call, name: name.to_owned(), cause: error.to_string() }
}

impl CheckpointStore for DirectoryStore {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool, ObjectError> {
        let path = self.path("create", name)?;
        let dir = path.parent().unwrap_or(&self.root);
        create_dir_durably(&*self.env.vfs, dir).map_err(failed("create", name))?;
        self.create_in(dir, &path, bytes).map_err(failed("create", name))
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, ObjectError> {
        let path = self.path("read", name)?;
        let read = || {
            let file = self.env.vfs.open(&path, OpenMode::Read)?;
            let length = file.len()?;
            if length > OBJECT_BYTES_MAX {
                return Err(io::Error::from(io::ErrorKind::FileTooLarge));
            }
            let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
            file.read_exact_at(&mut bytes, 0)?;
            Ok(bytes)
        };
        match read() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", name)(error)),
        }
    }

    fn list(&self, kind: &str) -> Result<Vec<String>, ObjectError> {
        let dir = self.root.join(kind);
        match self.env.vfs.list(&dir) {
            Ok(names) => Ok(names.into_iter().map(|name| format!("{kind}/{name}")).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(failed("list", kind)(error)),
        }
    }

    fn delete(&self, name: &str) -> Result<(), ObjectError> {
        let path = self.path("delete", name)?;
        match self.env.vfs.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("delete", name)(error)),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for DirectoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DirectoryStore({})", self.root.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> DirectoryStore {
        DirectoryStore::open(&Env::memory(), "/checkpoints".as_ref()).unwrap()
    }

    #[test]
    fn created_object_is_read_listed_and_deleted_and_never_replaced() {
        let store = store();
        assert_eq!(store.read("blocks/1").unwrap(), None);
        assert!(store.list("blocks").unwrap().is_empty());
        assert!(store.create("blocks/1", b"one").unwrap());
        assert!(!store.create("blocks/1", b"other").unwrap());
        assert!(store.create("blocks/2", b"").unwrap());
        assert_eq!(store.read("blocks/1").unwrap().unwrap(), b"one");
        assert_eq!(store.list("blocks").unwrap(), ["blocks/1", "blocks/2"]);
        store.delete("blocks/1").unwrap();
        store.delete("blocks/1").unwrap();
        assert_eq!(store.read("blocks/1").unwrap(), None);
        assert_eq!(store.list("blocks").unwrap(), ["blocks/2"]);
    }

    #[test]
    fn names_outside_the_directory_are_refused() {
        let store = store();
        for name in
            ["", "blocks", "blocks/", "/1", "../1", "blocks/../1", "blocks/a/b", "blocks/A", "blocks/1.."]
        {
            assert!(store.create(name, b"").is_err(), "{name}");
            assert!(store.read(name).is_err(), "{name}");
            assert!(store.delete(name).is_err(), "{name}");
        }
    }

    #[test]
    fn one_of_many_threads_creates_an_object() {
        let (env, dir) = (Env::real(), tempfile::tempdir().unwrap());
        let create = |thread: u8| {
            let store = DirectoryStore::open(&env, dir.path()).unwrap();
            (0..50).filter(|number| store.create(&format!("a/{number}"), &[thread; 100]).unwrap()).count()
        };
        let created: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || create(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(created, 50);
        let store = DirectoryStore::open(&env, dir.path()).unwrap();
        for number in 0..50 {
            let bytes = store.read(&format!("a/{number}")).unwrap().unwrap();
            assert!(bytes.len() == 100 && bytes.iter().all(|byte| *byte == bytes[0]));
        }
        assert_eq!(store.list("a").unwrap().len(), 50, "no leftovers");
    }
}
