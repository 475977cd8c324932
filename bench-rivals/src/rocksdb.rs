//! RocksDB 7.8.3 (Debian's librocksdb through its C interface): 3 GB LRU cache, full Bloom filter of 10 bits, 256 MB
//! memtable, no compression, WAL on. Load in batches of 10k, synced at the end; then flush and full compaction. The
//! commit rows use the same settings with a synced write per commit; RocksDB groups concurrent writers by itself.
//!
//! The OmenDB rows use that report's own settings ([`Settings::Report`]) and one batch for all rows, synced at the end.
//!
//! This file may use `unsafe` for one thing: calling the C library. The bindings are the twenty-odd functions below,
//! written after rocksdb/c.h.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_double, c_int, c_uchar, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::slice;

use anyhow::{Context, Result, bail};
use ropewalk_bench::workloads::kernel::commit::DurableStore;
use ropewalk_bench::workloads::kernel::ordered::{OrderedReader, OrderedStore, touch};
use ropewalk_bench::workloads::kernel::rows::{Order, Rows, VALUE_BYTES, unsigned};
use ropewalk_bench::workloads::omendb::run::{IntegerRows, value};
use ropewalk_bench::workloads::ycsb::run::{Session, SharedStore};

const CACHE_BYTES: usize = 3 << 30;
const REPORT_CACHE_BYTES: usize = 512 << 20;
const LZ4: c_int = 4;
const ZSTD: c_int = 7;
const MEMTABLE_BYTES: usize = 256 << 20;
const ROWS_PER_BATCH: usize = 10_000;

/// Any object of the library; the type is opaque to us.
pub(crate) type Object = *mut c_void;

#[link(name = "rocksdb")]
unsafe extern "C" {
    fn rocksdb_options_create() -> Object;
    pub(crate) fn rocksdb_options_destroy(options: Object);
    fn rocksdb_options_set_create_if_missing(options: Object, on: c_uchar);
    fn rocksdb_options_set_write_buffer_size(options: Object, bytes: usize);
    fn rocksdb_options_set_compression(options: Object, kind: c_int);
    fn rocksdb_options_set_bottommost_compression(options: Object, kind: c_int);
    fn rocksdb_options_set_max_write_buffer_number(options: Object, count: c_int);
    fn rocksdb_options_set_target_file_size_base(options: Object, bytes: u64);
    fn rocksdb_options_set_level0_file_num_compaction_trigger(options: Object, count: c_int);
    fn rocksdb_options_set_max_bytes_for_level_base(options: Object, bytes: u64);
    fn rocksdb_options_set_level_compaction_dynamic_level_bytes(options: Object, on: c_uchar);
    fn rocksdb_options_set_block_based_table_factory(options: Object, table: Object);
    fn rocksdb_block_based_options_create() -> Object;
    fn rocksdb_block_based_options_destroy(table: Object);
    fn rocksdb_block_based_options_set_block_size(table: Object, bytes: usize);
    fn rocksdb_block_based_options_set_cache_index_and_filter_blocks(table: Object, on: c_uchar);
    fn rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(table: Object, on: c_uchar);
    fn rocksdb_block_based_options_set_filter_policy(table: Object, policy: Object);
    fn rocksdb_block_based_options_set_block_cache(table: Object, cache: Object);
    fn rocksdb_filterpolicy_create_bloom_full(bits_per_key: c_double) -> Object;
    fn rocksdb_cache_create_lru(bytes: usize) -> Object;
    fn rocksdb_cache_destroy(cache: Object);
    fn rocksdb_open(options: Object, name: *const c_char, error: *mut *mut c_char) -> Object;
    fn rocksdb_close(db: Object);
    pub(crate) fn rocksdb_writeoptions_create() -> Object;
    pub(crate) fn rocksdb_writeoptions_destroy(options: Object);
    pub(crate) fn rocksdb_writeoptions_set_sync(options: Object, on: c_uchar);
    fn rocksdb_put(
        db: Object,
        options: Object,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
        error: *mut *mut c_char,
    );
    pub(crate) fn rocksdb_writebatch_create() -> Object;
    fn rocksdb_writebatch_clear(batch: Object);
    pub(crate) fn rocksdb_writebatch_destroy(batch: Object);
    pub(crate) fn rocksdb_writebatch_put(
        batch: Object,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
    );
    fn rocksdb_write(db: Object, options: Object, batch: Object, error: *mut *mut c_char);
    fn rocksdb_flush_wal(db: Object, sync: c_uchar, error: *mut *mut c_char);
    fn rocksdb_flushoptions_create() -> Object;
    fn rocksdb_flushoptions_destroy(options: Object);
    fn rocksdb_flush(db: Object, options: Object, error: *mut *mut c_char);
    fn rocksdb_compact_range(
        db: Object,
        start: *const c_char,
        start_len: usize,
        limit: *const c_char,
        limit_len: usize,
    );
    pub(crate) fn rocksdb_readoptions_create() -> Object;
    pub(crate) fn rocksdb_readoptions_destroy(options: Object);
    fn rocksdb_get_pinned(
        db: Object,
        options: Object,
        key: *const c_char,
        key_len: usize,
        error: *mut *mut c_char,
    ) -> Object;
    fn rocksdb_pinnableslice_value(slice: Object, len: *mut usize) -> *const c_char;
    fn rocksdb_pinnableslice_destroy(slice: Object);
    fn rocksdb_create_iterator(db: Object, options: Object) -> Object;
    pub(crate) fn rocksdb_iter_seek_to_first(iterator: Object);
    fn rocksdb_iter_seek(iterator: Object, key: *const c_char, key_len: usize);
    pub(crate) fn rocksdb_iter_valid(iterator: Object) -> c_uchar;
    pub(crate) fn rocksdb_iter_next(iterator: Object);
    pub(crate) fn rocksdb_iter_key(iterator: Object, len: *mut usize) -> *const c_char;
    pub(crate) fn rocksdb_iter_value(iterator: Object, len: *mut usize) -> *const c_char;
    pub(crate) fn rocksdb_iter_destroy(iterator: Object);
    pub(crate) fn rocksdb_free(memory: *mut c_void);
}

/// An open database.
pub(crate) struct Rocks {
    db: Object,
    synced: Object,
    unsynced: Object,
    reads: Object,
}

// SAFETY: rocksdb/c.h: a database may be used from several threads without locking; the write options are only read.
unsafe impl Sync for Rocks {}

/// Calls a function with an error slot and converts the library's message to an error.
pub(crate) fn checked<T>(call: impl FnOnce(*mut *mut c_char) -> T) -> Result<T> {
    let mut error = ptr::null_mut();
    let answer = call(&raw mut error);
    if error.is_null() {
        return Ok(answer);
    }
    // SAFETY: the library sets the slot to a NUL-terminated text that the caller frees.
    let text = unsafe { CStr::from_ptr(error).to_string_lossy().into_owned() };
    // SAFETY: as above; not used after.
    unsafe { rocksdb_free(error.cast()) };
    bail!("rocksdb: {text}")
}

/// Configuration of the database.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Settings {
    /// See the module's header.
    Tuned,
    /// The OmenDB report's: block cache 512 MB, index and filter blocks cached and pinned in level 0, blocks of 16 KB; three
    /// memtables of 256 MB, files of 128 MB, level 0 up to 8, level base 512 MB with dynamic levels, LZ4, Zstd at the bottom.
    Report,
}

/// Options with a new table format, cache and filter; the caller destroys them.
pub(crate) fn options(settings: Settings) -> Object {
    let report = settings == Settings::Report;
    // SAFETY: objects are made, configured and handed over as the header says: the filter policy passes to the table options,
    // the cache and the table options are shared and may be destroyed by their maker.
    unsafe {
        let (options, table) = (rocksdb_options_create(), rocksdb_block_based_options_create());
        let cache = rocksdb_cache_create_lru(if report { REPORT_CACHE_BYTES } else { CACHE_BYTES });
        rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom_full(10.0));
        rocksdb_block_based_options_set_block_cache(table, cache);
        if report {
            rocksdb_block_based_options_set_block_size(table, 16 << 10);
            rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 1);
            rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(table, 1);
            rocksdb_options_set_max_write_buffer_number(options, 3);
            rocksdb_options_set_target_file_size_base(options, 128 << 20);
            rocksdb_options_set_level0_file_num_compaction_trigger(options, 8);
            rocksdb_options_set_max_bytes_for_level_base(options, 512 << 20);
            rocksdb_options_set_level_compaction_dynamic_level_bytes(options, 1);
            rocksdb_options_set_bottommost_compression(options, ZSTD);
        }
        rocksdb_options_set_block_based_table_factory(options, table);
        rocksdb_options_set_create_if_missing(options, 1);
        rocksdb_options_set_write_buffer_size(options, MEMTABLE_BYTES);
        rocksdb_options_set_compression(options, if report { LZ4 } else { 0 });
        rocksdb_block_based_options_destroy(table);
        rocksdb_cache_destroy(cache);
        options
    }
}

impl Rocks {
    fn open(dir: &Path, settings: Settings) -> Result<Self> {
        let name = CString::new(dir.as_os_str().as_bytes())?;
        // SAFETY: the name lives through the call, which copies what it needs of the options.
        unsafe {
            let options = options(settings);
            let db = checked(|error| rocksdb_open(options, name.as_ptr(), error));
            rocksdb_options_destroy(options);
            let synced = rocksdb_writeoptions_create();
            rocksdb_writeoptions_set_sync(synced, 1);
            let (unsynced, reads) = (rocksdb_writeoptions_create(), rocksdb_readoptions_create());
            Ok(Self { db: db?, synced, unsynced, reads })
        }
    }

    fn get<R>(&self, key: u64, look: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.get_with(self.reads, key, look)
    }

    fn get_with<R>(&self, options: Object, key: u64, look: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        let key = key.to_be_bytes();
        // SAFETY: the key lives through the call; the value is read before its slice is destroyed.
        unsafe {
            let slice =
                checked(|error| rocksdb_get_pinned(self.db, options, key.as_ptr().cast(), key.len(), error))?;
            if slice.is_null() {
                return Ok(None);
            }
            let mut len = 0;
            let value = rocksdb_pinnableslice_value(slice, &raw mut len);
            let seen = look(slice::from_raw_parts(value.cast(), len));
            rocksdb_pinnableslice_destroy(slice);
            Ok(Some(seen))
        }
    }

    fn put(&self, options: Object, key: u64, value: &[u8; VALUE_BYTES]) -> Result<()> {
        let key = key.to_be_bytes();
        // SAFETY: both slices live through the call, which copies them.
        checked(|error| unsafe {
            let (key_at, value_at) = (key.as_ptr().cast(), value.as_ptr().cast());
            rocksdb_put(self.db, options, key_at, key.len(), value_at, value.len(), error);
        })
    }
}

impl Drop for Rocks {
    fn drop(&mut self) {
        // SAFETY: all were made in `open` and nothing borrows them any more.
        unsafe {
            rocksdb_writeoptions_destroy(self.synced);
            rocksdb_writeoptions_destroy(self.unsynced);
            rocksdb_readoptions_destroy(self.reads);
            rocksdb_close(self.db);
        }
    }
}

impl DurableStore for Rocks {
    fn create(dir: &Path) -> Result<Self> {
        Self::open(dir, Settings::Tuned)
    }

    fn commit(&self, key: u64, value: &[u8; VALUE_BYTES]) -> Result<()> {
        self.put(self.synced, key, value)
    }

    fn rows(&self) -> Result<u64> {
        let reader = Reader::new(self);
        let mut rows = 0;
        // SAFETY: the iterator was made with the reader and lives as long.
        unsafe {
            rocksdb_iter_seek_to_first(reader.iterator);
            while rocksdb_iter_valid(reader.iterator) != 0 {
                rows += 1;
                rocksdb_iter_next(reader.iterator);
            }
        }
        Ok(rows)
    }
}

impl OrderedStore for Rocks {
    type Reader<'a> = Reader<'a>;

    fn create(dir: &Path) -> Result<Self> {
        Self::open(dir, Settings::Tuned)
    }

    fn load(&mut self, rows: Rows) -> Result<()> {
        // SAFETY: the batch is used by this thread alone and copies what it is given.
        unsafe {
            let batch = rocksdb_writebatch_create();
            for (i, (key, value)) in (1..).zip(rows.iter()) {
                let key = key.to_be_bytes();
                rocksdb_writebatch_put(batch, key.as_ptr().cast(), 8, value.as_ptr().cast(), VALUE_BYTES);
                if i % ROWS_PER_BATCH == 0 {
                    checked(|error| rocksdb_write(self.db, self.unsynced, batch, error))?;
                    rocksdb_writebatch_clear(batch);
                }
            }
            checked(|error| rocksdb_write(self.db, self.unsynced, batch, error))?;
            rocksdb_writebatch_destroy(batch);
            checked(|error| rocksdb_flush_wal(self.db, 1, error))
        }
    }

    fn settle(&mut self) -> Result<bool> {
        // SAFETY: the options live through the call; null bounds mean everything.
        unsafe {
            let options = rocksdb_flushoptions_create();
            let flushed = checked(|error| rocksdb_flush(self.db, options, error));
            rocksdb_flushoptions_destroy(options);
            flushed?;
            rocksdb_compact_range(self.db, ptr::null(), 0, ptr::null(), 0);
        }
        Ok(true)
    }

    fn reader(&self) -> Result<Reader<'_>> {
        Ok(Reader::new(self))
    }
}

/// With the settings of the OmenDB report.
pub(crate) struct ReportRocks(Rocks);

impl IntegerRows for ReportRocks {
    fn create(dir: &Path) -> Result<Self> {
        Ok(Self(Rocks::open(dir, Settings::Report)?))
    }

    fn insert(&mut self, keys: &[i64], _order: Order) -> Result<()> {
        let mut text = String::new();
        // SAFETY: the batch is used by this thread alone and copies what it is given.
        unsafe {
            let batch = rocksdb_writebatch_create();
            for &key in keys {
                value(key, &mut text);
                let key = unsigned(key).to_be_bytes();
                rocksdb_writebatch_put(batch, key.as_ptr().cast(), 8, text.as_ptr().cast(), text.len());
            }
            let written = checked(|error| rocksdb_write(self.0.db, self.0.unsynced, batch, error));
            rocksdb_writebatch_destroy(batch);
            written?;
            checked(|error| rocksdb_flush_wal(self.0.db, 1, error))
        }
    }

    fn query(&mut self, keys: &[i64]) -> Result<u64> {
        let mut reader = Reader::new(&self.0);
        let mut sum = 0_u64;
        for &key in keys {
            sum = sum.wrapping_add(reader.get(unsigned(key))?.context("a row is missing")?);
        }
        Ok(sum)
    }
}

/// For many sessions: plain reads and writes, as in YCSB's driver for RocksDB. A read-modify-write is not
/// atomic.
pub(crate) struct Shared {
    rocks: Rocks,
    durable: bool,
}

impl SharedStore for Shared {
    type Session<'a> = &'a Shared;

    fn create(dir: &Path, durable: bool) -> Result<Self> {
        Ok(Self { rocks: Rocks::open(dir, Settings::Tuned)?, durable })
    }

    fn load(&mut self, rows: Rows) -> Result<()> {
        self.rocks.load(rows)?;
        self.rocks.settle().map(|_| ())
    }

    fn session(&self) -> Result<&Shared> {
        Ok(self)
    }
}

impl Session for &Shared {
    fn read(&mut self, key: u64) -> Result<Option<u64>> {
        self.rocks.get(key, touch)
    }

    fn update(&mut self, key: u64, value: &[u8; VALUE_BYTES]) -> Result<()> {
        let rocks = &self.rocks;
        rocks.put(if self.durable { rocks.synced } else { rocks.unsynced }, key, value)
    }

    fn insert(&mut self, key: u64, value: &[u8; VALUE_BYTES]) -> Result<()> {
        self.update(key, value)
    }

    fn modify(&mut self, key: u64, change: fn(&mut [u8; VALUE_BYTES])) -> Result<()> {
        let found = self.rocks.get(key, |value| <[u8; VALUE_BYTES]>::try_from(value))?;
        let mut value = found.context("a row is missing")??;
        change(&mut value);
        self.update(key, &value)
    }

    fn scan(&mut self, from: u64, limit: usize) -> Result<(u64, usize)> {
        // An iterator reads at the instant at which it was created.
        Reader::new(&self.rocks).scan(from, limit)
    }
}

/// Read options and one iterator that all scans share.
pub(crate) struct Reader<'a> {
    store: &'a Rocks,
    options: Object,
    iterator: Object,
}

impl<'a> Reader<'a> {
    fn new(store: &'a Rocks) -> Self {
        // SAFETY: the database outlives the reader by its lifetime; the options outlive the iterator, see `drop`.
        unsafe {
            let options = rocksdb_readoptions_create();
            Self { store, options, iterator: rocksdb_create_iterator(store.db, options) }
        }
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        // SAFETY: made in `new`; the iterator goes first.
        unsafe {
            rocksdb_iter_destroy(self.iterator);
            rocksdb_readoptions_destroy(self.options);
        }
    }
}

impl OrderedReader for Reader<'_> {
    fn get(&mut self, key: u64) -> Result<Option<u64>> {
        self.store.get_with(self.options, key, touch)
    }

    fn scan(&mut self, from: u64, limit: usize) -> Result<(u64, usize)> {
        let from = from.to_be_bytes();
        let (mut sum, mut rows) = (0u64, 0);
        // SAFETY: a valid iterator's value may be read until it moves.
        unsafe {
            rocksdb_iter_seek(self.iterator, from.as_ptr().cast(), from.len());
            while rows < limit && rocksdb_iter_valid(self.iterator) != 0 {
                let mut len = 0;
                let value = rocksdb_iter_value(self.iterator, &raw mut len);
                sum = sum.wrapping_add(touch(slice::from_raw_parts(value.cast(), len)));
                rows += 1;
                rocksdb_iter_next(self.iterator);
            }
        }
        Ok((sum, rows))
    }
}
