//! Calls on names and directories of a simulated disk, and its locks.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::faulty::FaultyVfs;
use crate::faulty::disk::{Decision, DiskOp, not_found, power_is_off};
use crate::faulty::file::FaultyFile;
use crate::faulty::inode::Inode;
use crate::faulty::names::Node;
use crate::{File, LockGuard, OpenMode, Vfs};

impl Vfs for FaultyVfs {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let disk = &mut *self.live()?;
        disk.need_descriptor()?;
        if mode == OpenMode::CreateNew {
            let decision = disk.begin(DiskOp::Create, format_args!("{}", path.display()))?;
            if disk.names.get(path).is_some() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            if !path.parent().is_some_and(|dir| disk.names.is_dir(dir)) {
                return Err(not_found(path));
            }
            // A refused create leaves no name; one in a power cut may.
            match decision {
                Decision::Fail(error) if !disk.off => return Err(error),
                _ => {}
            }
            let id = disk.next_inode;
            disk.next_inode += 1;
            disk.inodes.insert(id, Inode::default());
            disk.names.link(path, Node::File(id));
            if let Decision::Fail(error) = decision {
                return Err(error);
            }
        }
        let inode = disk.file(path)?;
        let name: Arc<Path> = path.into();
        disk.open_files += 1;
        Ok(Arc::new(FaultyFile {
            disk: self.clone(),
            boot: disk.boot,
            inode,
            name,
            writable: mode != OpenMode::Read,
        }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut disk = self.live()?;
        disk.need_descriptor()?;
        if disk.names.is_dir(dir) { Ok(disk.names.list(dir)) } else { Err(not_found(dir)) }
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let disk = &mut *self.live()?;
        let mut missing: Vec<&Path> = dir.ancestors().take_while(|dir| !disk.names.is_dir(dir)).collect();
        while let Some(dir) = missing.pop() {
            let decision = disk.begin(DiskOp::Create, format_args!("{}/", dir.display()))?;
            if disk.names.get(dir).is_some() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            if let Decision::Fail(error) = decision {
                return Err(error);
            }
            disk.names.link(dir, Node::Dir);
        }
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.live()?.names.get(path).is_some())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let disk = &mut *self.live()?;
        let decision = disk.begin(DiskOp::Rename, format_args!("{} {}", from.display(), to.display()))?;
        let is_dir = disk.names.is_dir(from);
        if !is_dir {
            disk.file(from)?;
        }
        if disk.names.is_dir(to) || is_dir && disk.names.get(to).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        match decision {
            Decision::Fail(error) if !disk.off => return Err(error),
            _ => disk.names.rename(from, to),
        }
        if disk.off { Err(power_is_off()) } else { Ok(()) }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let disk = &mut *self.live()?;
        let decision = disk.begin(DiskOp::Remove, format_args!("{}", path.display()))?;
        disk.file(path)?;
        match decision {
            Decision::Fail(error) if !disk.off => return Err(error),
            _ => disk.names.unlink(path),
        }
        if disk.off { Err(power_is_off()) } else { Ok(()) }
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let disk = &mut *self.live()?;
        let decision = disk.begin(DiskOp::Create, format_args!("{} {}", from.display(), to.display()))?;
        let inode = disk.file(from)?;
        if disk.names.get(to).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if !to.parent().is_some_and(|dir| disk.names.is_dir(dir)) {
            return Err(not_found(to));
        }
        match decision {
            Decision::Fail(error) if !disk.off => return Err(error),
            _ => disk.names.link(to, Node::File(inode)),
        }
        if disk.off { Err(power_is_off()) } else { Ok(()) }
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let disk = &mut *self.live()?;
        let decision = disk.begin(DiskOp::Remove, format_args!("{}/", dir.display()))?;
        if !disk.names.is_dir(dir) {
            return Err(not_found(dir));
        }
        if !disk.names.list(dir).is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        match decision {
            Decision::Fail(error) if !disk.off => return Err(error),
            _ => disk.names.unlink(dir),
        }
        if disk.off { Err(power_is_off()) } else { Ok(()) }
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let disk = &mut *self.live()?;
        disk.need_descriptor()?;
        let decision = disk.begin(DiskOp::SyncDir, format_args!("{}", dir.display()))?;
        if !disk.names.is_dir(dir) {
            return Err(not_found(dir));
        }
        match decision {
            Decision::Fail(error) => Err(error),
            Decision::Go => {
                disk.names.sync(dir);
                Ok(())
            }
        }
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Box<dyn LockGuard>> {
        let disk = &mut *self.live()?;
        if let Some(other) = disk.locks.get(path) {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, other.clone()));
        }
        disk.locks.insert(path.to_owned(), holder.to_owned());
        Ok(Box::new(FaultyLock { disk: self.clone(), boot: disk.boot, path: path.to_owned() }))
    }
}

struct FaultyLock {
    disk: FaultyVfs,
    boot: u64,
    path: PathBuf,
}

impl LockGuard for FaultyLock {}

impl Drop for FaultyLock {
    fn drop(&mut self) {
        let mut disk = self.disk.disk();
        if disk.boot == self.boot {
            disk.locks.remove(&self.path);
        }
    }
}
