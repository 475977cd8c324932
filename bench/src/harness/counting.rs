//! A counting global allocator for the rows about memory. Off by default, so that other rows pay one relaxed
//! load.
//!
//! This file may use `unsafe` for one thing: `GlobalAlloc` is an unsafe trait. Every call goes to the system allocator
//! unchanged.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static ON: AtomicBool = AtomicBool::new(false);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// The system allocator with a counter of all threads' requested bytes.
#[derive(Debug)]
pub struct CountingAllocator;

#[inline]
fn count(bytes: usize) {
    if ON.load(Ordering::Relaxed) {
        BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

// SAFETY: every method passes its arguments to `System` unchanged and returns its result; counting touches no
// memory of the caller and does not allocate.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller upholds the contract of `GlobalAlloc::alloc`, which is System's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; the pointer came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size.saturating_sub(layout.size()));
        // SAFETY: as above; the pointer came from `System`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Bytes that all threads requested from the allocator during `body`, whether freed or not; and its result.
/// Always 0 in a program that does not install [`CountingAllocator`].
pub fn bytes_allocated<T>(body: impl FnOnce() -> T) -> (u64, T) {
    let before = BYTES.load(Ordering::Relaxed);
    ON.store(true, Ordering::Relaxed);
    let answer = body();
    ON.store(false, Ordering::Relaxed);
    (BYTES.load(Ordering::Relaxed) - before, answer)
}
