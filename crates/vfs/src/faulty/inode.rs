//! The bytes of one simulated file: visible bytes, bytes that survive a power cut for sure, and the states
//! between.
//!
//!   write ─▶ cache (reads see it) + images of the touched sectors ─▶ sync ─▶ durable
//!                                                                └─▶ crash: any image of each sector, any length
//!
//! A disk writes sectors, not writes: an unsynced sector survives in one of the states it went through,
//! complete. So each write leaves an image of every sector it touched, and a crash picks one image per
//! sector, which covers writes that survive, are dropped, torn or reordered, and nothing that cannot happen.

use std::collections::BTreeMap;

use crate::{Random, SeededRandom};

/// Bytes that a disk writes atomically.
pub(super) const SECTOR_BYTES: usize = 512;

type Image = Box<[u8; SECTOR_BYTES]>;

#[derive(Clone, Default)]
pub(super) struct Inode {
    cache: Vec<u8>,
    durable: Vec<u8>,
    /// Lengths taken since the last sync, in order.
    lengths: Vec<usize>,
    /// Sector number to its states since the last sync, in order, each with the number of its write.
    dirty: BTreeMap<usize, Vec<(u64, Image)>>,
    writes: u64,
}

/// Fate of one unsynced write.
#[derive(Clone, Copy)]
enum Fate {
    Kept,
    Lost,
    Torn,
}

/// Copies the bytes that both have; returns how many.
fn copy(to: &mut [u8], from: &[u8]) -> usize {
    let bytes = to.len().min(from.len());
    if let (Some(to), Some(from)) = (to.get_mut(..bytes), from.get(..bytes)) {
        to.copy_from_slice(from);
    }
    bytes
}

impl Inode {
    pub(super) fn len(&self) -> usize {
        self.cache.len()
    }

    /// Fills as much of `buf` as the file has at `offset`; returns how much.
    pub(super) fn read(&self, buf: &mut [u8], offset: usize) -> usize {
        copy(buf, self.cache.get(offset..).unwrap_or(&[]))
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: usize) {
        let end = offset + bytes.len();
        if self.cache.len() < end {
            self.cache.resize(end, 0);
            self.lengths.push(end);
        }
        if let Some(place) = self.cache.get_mut(offset..end) {
            place.copy_from_slice(bytes);
        }
        self.note(offset, end);
    }

    pub(super) fn set_len(&mut self, len: usize) {
        let old = self.cache.len();
        self.cache.resize(len, 0);
        self.lengths.push(len);
        if len < old {
            // Bytes cut off are gone, and the rest of the last sector reads as zeros when the file grows
            // again.
            drop(self.dirty.split_off(&len.div_ceil(SECTOR_BYTES)));
            if !len.is_multiple_of(SECTOR_BYTES) {
                self.note(len - 1, len);
            }
        }
    }

    fn note(&mut self, start: usize, end: usize) {
        self.writes += 1;
        for sector in start / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES) {
            let mut image = Box::new([0; SECTOR_BYTES]);
            let state = self.cache.get(sector * SECTOR_BYTES..).unwrap_or(&[]);
            copy(image.as_mut_slice(), state);
            self.dirty.entry(sector).or_default().push((self.writes, image));
        }
    }

    fn put(durable: &mut [u8], sector: usize, image: &Image) {
        let place = durable.get_mut(sector * SECTOR_BYTES..).unwrap_or(&mut []);
        copy(place, image.as_slice());
    }

    /// Everything written so far is durable.
    pub(super) fn sync(&mut self) {
        for len in self.lengths.drain(..) {
            self.durable.resize(len, 0);
        }
        for (sector, images) in std::mem::take(&mut self.dirty) {
            if let Some((_, image)) = images.last() {
                Self::put(&mut self.durable, sector, image);
            }
        }
    }

    /// Some of what was unsynced reaches the disk, the rest never will.
    fn scatter(&mut self, random: &SeededRandom) {
        let below = |n: u64| random.next_u64() % n;
        // Whole files that survive or vanish are as likely as the mixed case: many bugs need one of the pure ones.
        let all = match below(4) {
            0 => Some(Fate::Kept),
            1 => Some(Fate::Lost),
            _ => None,
        };
        let lengths = match all {
            Some(Fate::Kept) => self.lengths.len(),
            Some(_) => 0,
            None => below(self.lengths.len() as u64 + 1) as usize,
        };
        for len in self.lengths.drain(..).take(lengths) {
            self.durable.resize(len, 0);
        }
        let mut fates: BTreeMap<u64, Fate> = BTreeMap::new();
        for (sector, images) in std::mem::take(&mut self.dirty) {
            let kept = images.iter().rev().find(|(write, _)| {
                let fate = fates.entry(*write).or_insert_with(|| {
                    all.unwrap_or_else(|| match below(3) {
                        0 => Fate::Kept,
                        1 => Fate::Lost,
                        _ => Fate::Torn,
                    })
                });
                match fate {
                    Fate::Kept => true,
                    Fate::Lost => false,
                    Fate::Torn => below(2) == 0,
                }
            });
            if let Some((_, image)) = kept {
                Self::put(&mut self.durable, sector, image);
            }
        }
    }

    /// A sync that failed, as on Linux: the dirty pages count as clean afterwards, whether they reached the
    /// disk or not, and the cache may or may not hold what was lost (Rebello et al., USENIX ATC 2020).
    pub(super) fn fail_sync(&mut self, random: &SeededRandom) {
        self.scatter(random);
        if random.next_u64().is_multiple_of(2) {
            self.cache.clone_from(&self.durable);
        }
    }

    pub(super) fn crash(&mut self, random: &SeededRandom) {
        self.scatter(random);
        self.cache.clone_from(&self.durable);
    }

    /// Flips one bit of the stored bytes without a write.
    pub(super) fn flip(&mut self, offset: usize, bit: u8) {
        for bytes in [&mut self.cache, &mut self.durable] {
            if let Some(byte) = bytes.get_mut(offset) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }

    /// Replaces stored bytes without a write, as far as the file goes.
    pub(super) fn overwrite(&mut self, offset: usize, new: &[u8]) {
        for bytes in [&mut self.cache, &mut self.durable] {
            let place = bytes.get_mut(offset..).unwrap_or_default();
            copy(place, new);
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.cache
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn outcomes(build: impl Fn() -> Inode) -> BTreeSet<Vec<u8>> {
        (0..400)
            .map(|seed| {
                let mut inode = build();
                inode.crash(&SeededRandom::new(seed));
                inode.bytes().to_vec()
            })
            .collect()
    }

    #[test]
    fn synced_bytes_survive_every_crash() {
        let build = || {
            let mut inode = Inode::default();
            inode.write(&[1; 700], 100);
            inode.sync();
            inode
        };
        assert_eq!(outcomes(build), BTreeSet::from([build().bytes().to_vec()]));
    }

    #[test]
    fn unsynced_overwrite_survives_is_lost_or_torn_at_sectors() {
        let found = outcomes(|| {
            let mut inode = Inode::default();
            inode.write(&[1; 1024], 0);
            inode.sync();
            inode.write(&[2; 1024], 0);
            inode
        });
        let expect = [(1, 1), (1, 2), (2, 1), (2, 2)].map(|(a, b)| [[a; 512], [b; 512]].concat());
        assert_eq!(found, BTreeSet::from(expect));
    }

    #[test]
    fn unsynced_writes_survive_in_any_order_but_a_sector_never_goes_back() {
        let found = outcomes(|| {
            let mut inode = Inode::default();
            inode.write(&[0; 1024], 0);
            inode.sync();
            inode.write(&[1], 0);
            inode.write(&[2], 512);
            inode.write(&[3], 1);
            inode
        });
        let seen: BTreeSet<_> = found.iter().map(|b| (b[0], b[1], b[512])).collect();
        // 3 without 1 cannot be: both lie in one sector, and the disk got the sector after both.
        let sectors = [(0, 0), (1, 0), (1, 3)];
        assert_eq!(seen, sectors.iter().flat_map(|&(a, b)| [(a, b, 0), (a, b, 2)]).collect());
    }

    #[test]
    fn an_unsynced_length_survives_without_its_bytes_and_the_other_way_round() {
        let found = outcomes(|| {
            let mut inode = Inode::default();
            inode.write(&[7; 10], 0);
            inode
        });
        assert_eq!(found, BTreeSet::from([vec![], vec![0; 10], vec![7; 10]]));
    }

    #[test]
    fn a_cut_file_grows_with_zeros() {
        let mut inode = Inode::default();
        inode.write(&[7; 600], 0);
        inode.sync();
        inode.set_len(3);
        inode.set_len(600);
        let mut expect = vec![0; 600];
        expect[..3].fill(7);
        assert_eq!(inode.bytes(), expect);
        inode.sync();
        inode.crash(&SeededRandom::new(1));
        assert_eq!(inode.bytes(), expect);
    }

    #[test]
    fn after_a_failed_sync_another_sync_proves_nothing() {
        let lost = (0..100).any(|seed| {
            let mut inode = Inode::default();
            inode.write(&[7; 10], 0);
            inode.fail_sync(&SeededRandom::new(seed));
            inode.sync();
            inode.crash(&SeededRandom::new(seed));
            inode.bytes() != [7; 10]
        });
        assert!(lost);
    }
}
