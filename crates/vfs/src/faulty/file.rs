//! Reads, writes and syncs of an open file of a simulated disk.

use std::io;
use std::path::Path;
use std::sync::{Arc, MutexGuard};

use crate::faulty::FaultyVfs;
use crate::faulty::disk::{Decision, Disk, DiskOp, full, power_is_off, too_large};
use crate::{File, Mapping};

/// An open file of a simulated disk.
pub(super) struct FaultyFile {
    pub(super) disk: FaultyVfs,
    pub(super) boot: u64,
    pub(super) inode: u64,
    pub(super) name: Arc<Path>,
    pub(super) writable: bool,
}

impl Drop for FaultyFile {
    fn drop(&mut self) {
        let mut disk = self.disk.disk();
        if disk.boot == self.boot {
            disk.open_files -= 1;
        }
    }
}

impl FaultyFile {
    fn disk(&self) -> io::Result<MutexGuard<'_, Disk>> {
        let disk = self.disk.disk();
        if disk.boot == self.boot && !disk.off { Ok(disk) } else { Err(power_is_off()) }
    }

    fn writable(&self) -> io::Result<MutexGuard<'_, Disk>> {
        if self.writable { self.disk() } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }
}

impl File for FaultyFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let disk = &mut *self.disk()?;
        let what = format_args!("{} {offset}+{}", self.name.display(), buf.len());
        let failure = match disk.begin(DiskOp::Read, what)? {
            Decision::Go => None,
            Decision::Fail(error) => Some((disk.below(buf.len() as u64) as usize, error)),
        };
        let inode = disk.inode(self.inode)?;
        let offset = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        match failure {
            Some((part, error)) => {
                inode.read(buf.get_mut(..part).unwrap_or(&mut []), offset);
                Err(error)
            }
            None if inode.read(buf, offset) < buf.len() => Err(io::ErrorKind::UnexpectedEof.into()),
            None => {
                disk.pass_on(buf);
                Ok(())
            }
        }
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let disk = &mut *self.writable()?;
        let what = format_args!("{} {offset}+{}", self.name.display(), bytes.len());
        let decision = disk.begin(DiskOp::Write, what)?;
        let start = usize::try_from(offset).map_err(too_large)?;
        start.checked_add(bytes.len()).ok_or(()).map_err(too_large)?;
        let len = disk.inode(self.inode)?.len();
        let mut fits = disk.room(len).max(len).saturating_sub(start).min(bytes.len());
        if disk.copies_on_write {
            fits = fits.min(disk.free());
        }
        let (written, result) = match decision {
            // Of a write in a power cut everything may arrive; of a refused one, a part.
            Decision::Fail(error) if disk.off => (fits, Err(error)),
            Decision::Fail(error) => (disk.below(fits as u64 + 1) as usize, Err(error)),
            Decision::Go if fits < bytes.len() => (fits, Err(full())),
            Decision::Go => (fits, Ok(())),
        };
        if let Some(part) = bytes.get(..written).filter(|part| !part.is_empty()) {
            disk.inode(self.inode)?.write(part, start);
        }
        result
    }

    fn sync_data(&self) -> io::Result<()> {
        let disk = &mut *self.disk()?;
        let number = disk.counts.get(&DiskOp::Sync).copied().unwrap_or(0);
        let decision = disk.begin(DiskOp::Sync, format_args!("{}", self.name.display()))?;
        let lie = disk.lies.contains(&number);
        let inode = disk.inodes.get_mut(&self.inode).ok_or(io::ErrorKind::NotFound)?;
        match decision {
            Decision::Fail(error) if disk.off => Err(error),
            Decision::Fail(error) => {
                inode.fail_sync(&disk.random);
                Err(error)
            }
            Decision::Go => {
                if !lie {
                    inode.sync();
                }
                Ok(())
            }
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk()?.inode(self.inode)?.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let disk = &mut *self.writable()?;
        let decision = disk.begin(DiskOp::SetLen, format_args!("{} {len}", self.name.display()))?;
        let len = usize::try_from(len).map_err(too_large)?;
        let old = disk.inode(self.inode)?.len();
        match decision {
            Decision::Fail(error) if !disk.off => Err(error),
            _ if len > old && len > disk.room(old) => Err(full()),
            decision => {
                disk.inode(self.inode)?.set_len(len);
                match decision {
                    Decision::Go => Ok(()),
                    Decision::Fail(error) => Err(error),
                }
            }
        }
    }

    fn map(&self) -> io::Result<Option<Mapping>> {
        let disk = &mut *self.disk()?;
        if !disk.maps {
            return Ok(None);
        }
        let mut bytes = disk.inode(self.inode)?.bytes().to_vec();
        disk.pass_on(&mut bytes);
        Ok(Some(Mapping::from_heap(bytes.into())))
    }
}
