//! The standard library's `BTreeMap`: the cost of ordered rows without disk, versions and threads.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use ropewalk_bench::workloads::kernel::ordered::{OrderedReader, OrderedStore, touch};
use ropewalk_bench::workloads::kernel::rows::{Rows, VALUE_BYTES};

/// `u64` key → 100 bytes inline.
pub(crate) struct Map(BTreeMap<u64, [u8; VALUE_BYTES]>);

impl OrderedStore for Map {
    type Reader<'a> = &'a Map;

    const ON_DISK: bool = false;

    fn create(_dir: &Path) -> Result<Self> {
        Ok(Self(BTreeMap::new()))
    }

    fn load(&mut self, rows: Rows) -> Result<()> {
        for (key, value) in rows.iter() {
            self.0.insert(key, value);
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn reader(&self) -> Result<&Map> {
        Ok(self)
    }
}

impl OrderedReader for &Map {
    fn get(&mut self, key: u64) -> Result<Option<u64>> {
        Ok(self.0.get(&key).map(|value| touch(value)))
    }

    fn scan(&mut self, from: u64, limit: usize) -> Result<(u64, usize)> {
        let (mut sum, mut rows) = (0u64, 0);
        for (_, value) in self.0.range(from..).take(limit) {
            sum = sum.wrapping_add(touch(value));
            rows += 1;
        }
        Ok((sum, rows))
    }
}
