//! TPC-B on RocksDB's pessimistic transactions (`TransactionDB`), settings as in [`crate::rocksdb`], every
//! commit synced. Balances are read for update in one order, so there are no deadlocks; a transaction that
//! exceeds RocksDB's lock timeout of one second is retried.
//!
//! This file may use `unsafe` for one thing: calling the C library.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_uchar};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::slice;

use anyhow::{Context, Result, bail};
use ropewalk_bench::workloads::tpcb::run::{BRANCHES, Bank as Shape, TELLERS, Teller, Transfer};

use crate::rocksdb::rocksdb_writeoptions_set_sync;
use crate::rocksdb::{Object, Settings, checked, options, rocksdb_free, rocksdb_options_destroy};
use crate::rocksdb::{
    rocksdb_iter_destroy, rocksdb_iter_next, rocksdb_iter_seek_to_first, rocksdb_iter_valid,
};
use crate::rocksdb::{rocksdb_iter_key, rocksdb_iter_value, rocksdb_readoptions_create};
use crate::rocksdb::{rocksdb_readoptions_destroy, rocksdb_writebatch_create, rocksdb_writebatch_destroy};
use crate::rocksdb::{rocksdb_writebatch_put, rocksdb_writeoptions_create, rocksdb_writeoptions_destroy};

#[link(name = "rocksdb")]
unsafe extern "C" {
    fn rocksdb_transactiondb_options_create() -> Object;
    fn rocksdb_transactiondb_options_destroy(options: Object);
    fn rocksdb_transactiondb_open(
        options: Object,
        transactions: Object,
        name: *const c_char,
        error: *mut *mut c_char,
    ) -> Object;
    fn rocksdb_transactiondb_close(db: Object);
    fn rocksdb_transactiondb_write(db: Object, options: Object, batch: Object, error: *mut *mut c_char);
    fn rocksdb_transactiondb_create_iterator(db: Object, options: Object) -> Object;
    fn rocksdb_transaction_options_create() -> Object;
    fn rocksdb_transaction_options_destroy(options: Object);
    fn rocksdb_transaction_begin(db: Object, write: Object, options: Object, old: Object) -> Object;
    fn rocksdb_transaction_commit(transaction: Object, error: *mut *mut c_char);
    fn rocksdb_transaction_destroy(transaction: Object);
    fn rocksdb_transaction_get_for_update(
        transaction: Object,
        options: Object,
        key: *const c_char,
        key_len: usize,
        value_len: *mut usize,
        exclusive: c_uchar,
        error: *mut *mut c_char,
    ) -> *mut c_char;
    fn rocksdb_transaction_put(
        transaction: Object,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
        error: *mut *mut c_char,
    );
}

/// Lock timeouts before the benchmark fails.
const ATTEMPTS: usize = 1000;

/// An open database: keys are a kind (0 account, 1 teller, 2 branch, 3 history) and a number, big-endian.
pub(crate) struct Bank {
    db: Object,
    synced: Object,
    reads: Object,
    transactions: Object,
}

// SAFETY: rocksdb/c.h: a database may be used from several threads without locking; the options are only read.
unsafe impl Sync for Bank {}

impl Drop for Bank {
    fn drop(&mut self) {
        // SAFETY: all were made in `create` and nothing borrows them any more.
        unsafe {
            rocksdb_transaction_options_destroy(self.transactions);
            rocksdb_readoptions_destroy(self.reads);
            rocksdb_writeoptions_destroy(self.synced);
            rocksdb_transactiondb_close(self.db);
        }
    }
}

fn key(kind: u8, number: u64) -> [u8; 9] {
    let mut key = [kind; 9];
    for (to, from) in key.iter_mut().skip(1).zip(number.to_be_bytes()) {
        *to = from;
    }
    key
}

impl Shape for Bank {
    type Session<'a> = &'a Bank;

    fn create(dir: &Path, accounts: u64) -> Result<Self> {
        let name = CString::new(dir.as_os_str().as_bytes())?;
        // SAFETY: objects are made, configured and handed over as the header says; the batch copies what it is given.
        unsafe {
            let (options, transactions) = (options(Settings::Tuned), rocksdb_transactiondb_options_create());
            let db = checked(|error| rocksdb_transactiondb_open(options, transactions, name.as_ptr(), error));
            rocksdb_options_destroy(options);
            rocksdb_transactiondb_options_destroy(transactions);
            let synced = rocksdb_writeoptions_create();
            rocksdb_writeoptions_set_sync(synced, 1);
            let bank = Self {
                db: db?,
                synced,
                reads: rocksdb_readoptions_create(),
                transactions: rocksdb_transaction_options_create(),
            };
            let batch = rocksdb_writebatch_create();
            for (kind, rows) in [(0, accounts), (1, TELLERS), (2, BRANCHES)] {
                for number in 0..rows {
                    let (key, value) = (key(kind, number), 0_i64.to_le_bytes());
                    rocksdb_writebatch_put(batch, key.as_ptr().cast(), 9, value.as_ptr().cast(), 8);
                }
            }
            let written = checked(|error| rocksdb_transactiondb_write(bank.db, bank.synced, batch, error));
            rocksdb_writebatch_destroy(batch);
            written.map(|()| bank)
        }
    }

    fn session(&self) -> Result<&Bank> {
        Ok(self)
    }

    fn sums(&self) -> Result<([i64; 4], u64)> {
        let (mut sums, mut lines) = ([0; 4], 0);
        // SAFETY: a valid iterator's key and value may be read until it moves.
        unsafe {
            let iterator = rocksdb_transactiondb_create_iterator(self.db, self.reads);
            rocksdb_iter_seek_to_first(iterator);
            while rocksdb_iter_valid(iterator) != 0 {
                let (mut key_len, mut len) = (0, 0);
                let key = rocksdb_iter_key(iterator, &raw mut key_len);
                let value = rocksdb_iter_value(iterator, &raw mut len);
                let key = slice::from_raw_parts(key.cast::<u8>(), key_len);
                let value = slice::from_raw_parts(value.cast::<u8>(), len);
                // The amount is the last number of a line of history, and the only one of a balance.
                let amount = value.last_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
                let kind = key.first().copied().unwrap_or_default();
                if let Some(sum) = sums.get_mut(usize::from(kind)) {
                    *sum += amount;
                }
                lines += u64::from(kind == 3);
                rocksdb_iter_next(iterator);
            }
            rocksdb_iter_destroy(iterator);
        }
        Ok((sums, lines))
    }
}

impl Bank {
    fn attempt(&self, transfer: Transfer) -> Result<()> {
        let Transfer { account, teller, branch, delta, number } = transfer;
        // SAFETY: keys and values live through the calls, which copy them; values are copied before they are
        // freed; the transaction is destroyed once, which releases its locks.
        unsafe {
            let transaction =
                rocksdb_transaction_begin(self.db, self.synced, self.transactions, ptr::null_mut());
            let work = || -> Result<()> {
                for (kind, id) in [(0, account), (1, teller), (2, branch)] {
                    let key = key(kind, id);
                    let mut len = 0;
                    let found = checked(|error| {
                        let at = key.as_ptr().cast();
                        rocksdb_transaction_get_for_update(
                            transaction,
                            self.reads,
                            at,
                            9,
                            &raw mut len,
                            1,
                            error,
                        )
                    })?;
                    if found.is_null() {
                        bail!("a row is missing");
                    }
                    let balance = slice::from_raw_parts(found.cast::<u8>(), len);
                    let balance = balance.first_chunk().map(|bytes| i64::from_le_bytes(*bytes));
                    rocksdb_free(found.cast());
                    let value = (balance.context("a short balance")? + delta).to_le_bytes();
                    put(transaction, &key, &value)?;
                }
                let line = [account, teller, branch, delta.cast_unsigned()].map(u64::to_le_bytes);
                put(transaction, &key(3, number), line.as_flattened())?;
                checked(|error| rocksdb_transaction_commit(transaction, error))
            };
            let done = work();
            rocksdb_transaction_destroy(transaction);
            done
        }
    }
}

fn put(transaction: Object, key: &[u8], value: &[u8]) -> Result<()> {
    // SAFETY: both slices live through the call, which copies them.
    checked(|error| unsafe {
        let (key_at, value_at) = (key.as_ptr().cast(), value.as_ptr().cast());
        rocksdb_transaction_put(transaction, key_at, key.len(), value_at, value.len(), error);
    })
}

impl Teller for &Bank {
    fn transfer(&mut self, transfer: Transfer) -> Result<()> {
        let mut attempt = 1;
        loop {
            match self.attempt(transfer) {
                Err(error) if attempt < ATTEMPTS && error.to_string().contains("time") => attempt += 1,
                done => return done,
            }
        }
    }
}
