//! RocksDB 7.8.3 (Debian's librocksdb through its C interface): 3 GB LRU cache, full Bloom filter of 10 bits, 256 MB
//! memtable, no compression, WAL on. Load in batches of 10k, synced at the end; then flush and full compaction. The
//! commit rows use the same settings with a synced write per commit; RocksDB groups concurrent writers by itself.
//!
//! This file may use `unsafe` for one thing: calling the C library. The bindings are the twenty-odd functions below,
//! written after rocksdb/c.h.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_double, c_int, c_uchar, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::slice;

use anyhow::{Result, bail};
use ropewalk_bench::commit::DurableStore;
use ropewalk_bench::ordered::{OrderedReader, OrderedStore, touch};
use ropewalk_bench::rows::{Rows, VALUE_BYTES};

const CACHE_BYTES: usize = 3 << 30;
const MEMTABLE_BYTES: usize = 256 << 20;
const ROWS_PER_BATCH: usize = 10_000;

/// Any of the library's objects; it tells them apart, we only pass them on.
type Object = *mut c_void;

#[link(name = "rocksdb")]
unsafe extern "C" {
    fn rocksdb_options_create() -> Object;
    fn rocksdb_options_destroy(options: Object);
    fn rocksdb_options_set_create_if_missing(options: Object, on: c_uchar);
    fn rocksdb_options_set_write_buffer_size(options: Object, bytes: usize);
    fn rocksdb_options_set_compression(options: Object, kind: c_int);
    fn rocksdb_options_set_block_based_table_factory(options: Object, table: Object);
    fn rocksdb_block_based_options_create() -> Object;
    fn rocksdb_block_based_options_destroy(table: Object);
    fn rocksdb_block_based_options_set_filter_policy(table: Object, policy: Object);
    fn rocksdb_block_based_options_set_block_cache(table: Object, cache: Object);
    fn rocksdb_filterpolicy_create_bloom_full(bits_per_key: c_double) -> Object;
    fn rocksdb_cache_create_lru(bytes: usize) -> Object;
    fn rocksdb_cache_destroy(cache: Object);
    fn rocksdb_open(options: Object, name: *const c_char, error: *mut *mut c_char) -> Object;
    fn rocksdb_close(db: Object);
    fn rocksdb_writeoptions_create() -> Object;
    fn rocksdb_writeoptions_destroy(options: Object);
    fn rocksdb_writeoptions_set_sync(options: Object, on: c_uchar);
    fn rocksdb_put(
        db: Object,
        options: Object,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
        error: *mut *mut c_char,
    );
    fn rocksdb_writebatch_create() -> Object;
    fn rocksdb_writebatch_clear(batch: Object);
    fn rocksdb_writebatch_destroy(batch: Object);
    fn rocksdb_writebatch_put(
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
    fn rocksdb_readoptions_create() -> Object;
    fn rocksdb_readoptions_destroy(options: Object);
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
    fn rocksdb_iter_seek_to_first(iterator: Object);
    fn rocksdb_iter_seek(iterator: Object, key: *const c_char, key_len: usize);
    fn rocksdb_iter_valid(iterator: Object) -> c_uchar;
    fn rocksdb_iter_next(iterator: Object);
    fn rocksdb_iter_value(iterator: Object, len: *mut usize) -> *const c_char;
    fn rocksdb_iter_destroy(iterator: Object);
    fn rocksdb_free(memory: *mut c_void);
}

/// An open database.
pub(crate) struct Rocks {
    db: Object,
    synced: Object,
    unsynced: Object,
}

// SAFETY: rocksdb/c.h: a database may be used from several threads without locking; the write options are only read.
unsafe impl Sync for Rocks {}

/// Calls with an error slot and turns what the library puts there into an error.
fn checked<T>(call: impl FnOnce(*mut *mut c_char) -> T) -> Result<T> {
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

impl Rocks {
    fn open(dir: &Path) -> Result<Self> {
        let name = CString::new(dir.as_os_str().as_bytes())?;
        // SAFETY: objects are made, configured and handed over as the header says: the filter policy passes to the
        // table options, the cache and the table options are shared and may be destroyed by their maker.
        unsafe {
            let (options, table) = (rocksdb_options_create(), rocksdb_block_based_options_create());
            let cache = rocksdb_cache_create_lru(CACHE_BYTES);
            rocksdb_block_based_options_set_filter_policy(
                table,
                rocksdb_filterpolicy_create_bloom_full(10.0),
            );
            rocksdb_block_based_options_set_block_cache(table, cache);
            rocksdb_options_set_block_based_table_factory(options, table);
            rocksdb_options_set_create_if_missing(options, 1);
            rocksdb_options_set_write_buffer_size(options, MEMTABLE_BYTES);
            rocksdb_options_set_compression(options, 0);
            let db = checked(|error| rocksdb_open(options, name.as_ptr(), error));
            rocksdb_options_destroy(options);
            rocksdb_block_based_options_destroy(table);
            rocksdb_cache_destroy(cache);
            let synced = rocksdb_writeoptions_create();
            rocksdb_writeoptions_set_sync(synced, 1);
            Ok(Self { db: db?, synced, unsynced: rocksdb_writeoptions_create() })
        }
    }
}

impl Drop for Rocks {
    fn drop(&mut self) {
        // SAFETY: all three were made in `open` and nothing borrows them any more.
        unsafe {
            rocksdb_writeoptions_destroy(self.synced);
            rocksdb_writeoptions_destroy(self.unsynced);
            rocksdb_close(self.db);
        }
    }
}

impl DurableStore for Rocks {
    fn create(dir: &Path) -> Result<Self> {
        Self::open(dir)
    }

    fn commit(&self, key: u64, value: &[u8; VALUE_BYTES]) -> Result<()> {
        let key = key.to_be_bytes();
        // SAFETY: both slices live through the call, which copies them.
        checked(|error| unsafe {
            let (key_at, value_at) = (key.as_ptr().cast(), value.as_ptr().cast());
            rocksdb_put(self.db, self.synced, key_at, key.len(), value_at, value.len(), error);
        })
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
        Self::open(dir)
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

/// Read options and one iterator that every scan uses again.
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
        let key = key.to_be_bytes();
        // SAFETY: the key lives through the call; the value is read before its slice is destroyed.
        unsafe {
            let slice = checked(|error| {
                rocksdb_get_pinned(self.store.db, self.options, key.as_ptr().cast(), key.len(), error)
            })?;
            if slice.is_null() {
                return Ok(None);
            }
            let mut len = 0;
            let value = rocksdb_pinnableslice_value(slice, &raw mut len);
            let sum = touch(slice::from_raw_parts(value.cast(), len));
            rocksdb_pinnableslice_destroy(slice);
            Ok(Some(sum))
        }
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
