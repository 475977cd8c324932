"""Disks of machines whose power can be cut: a file system in an image for each.

    processes ─ write ─▶ page cache ─▶ ext4 ─▶ loop device: the image        cut: ext4 accepts nothing more, the cache is lost
                                                     └ copy, mounted instead: ext4 recovers its journal

The copy has what the block device had: writes that were neither synced nor written back are lost, also in part of a file.
"""

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess

#: EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH, from the kernel's fs/ext4/ext4.h: the file system ends at once, and writes
#: neither data nor its journal any more.
EXT4_IOC_SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2
#: Most bytes of a disk; the image has only those that were written.
SIZE = "4G"
PROGRAMS = ("mount", "umount", "mkfs.ext4", "truncate")


def unavailable(place):
    """The reason why there are no power cuts on this machine, or `None`. `place` is a directory for a probe."""
    if os.geteuid() != 0:
        return "loop devices need root"
    if missing := [program for program in PROGRAMS if not shutil.which(program)]:
        return f"there is no program {', '.join(missing)}"
    disks = Disks(place)
    try:
        disks.mounted(0)
        disks.cut(0)
        disks.restore(0)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"loop devices do not work: {error} {getattr(error, 'stderr', '')}".strip()
    finally:
        disks.close()
    return None


def run(*command):
    subprocess.run([*map(str, command)], check=True, capture_output=True, text=True)


class Disks:
    """A mounted image for each machine."""

    def __init__(self, place):
        self._place = place
        #: Image and mount point by the number of the machine.
        self._disks = {}

    def mounted(self, number):
        """The directory of a machine's file system, which is made for its first process."""
        if number not in self._disks:
            image, mount = self._place / f"disk{number}.image", self._place / f"disk{number}"
            run("truncate", "--size", SIZE, image)
            run("mkfs.ext4", "-q", "-F", "-m", "0", image)
            mount.mkdir()
            run("mount", "-o", "loop", image, mount)
            self._disks[number] = image, mount
        return self._disks[number][1]

    def cut(self, number):
        """Ends a file system as a power cut does. The processes that use it should have been killed just before."""
        place = os.open(self._disks[number][1], os.O_RDONLY)
        try:
            fcntl.ioctl(place, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(place)

    def restore(self, number):
        """Mounts a copy of what the disk held, after its processes have ended."""
        image, mount = self._disks[number]
        copy = image.with_suffix(".copy")
        run("cp", "--sparse=always", image, copy)
        run("umount", mount)
        image.unlink()
        copy.rename(image)
        run("mount", "-o", "loop", image, mount)

    def close(self):
        for image, mount in self._disks.values():
            with contextlib.suppress(subprocess.CalledProcessError):
                run("umount", mount)
            image.unlink(missing_ok=True)
        self._disks.clear()
