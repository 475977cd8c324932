//! A global allocator that counts the bytes held by each thread, so that a test can bound the memory of a
//! query or a command. Shared by the tests of PromQL and of documents.
//!
//! This file may use `unsafe` for one thing: `GlobalAlloc` is an unsafe trait. Every call goes to the system
//! allocator unchanged.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
    static MOST: Cell<i64> = const { Cell::new(0) };
}

/// The system allocator with two counters for each thread.
struct CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn count(bytes: i64) {
    // A thread that ends may free memory after its counters are gone.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: every method passes its arguments to `System` unchanged and returns its result; counting touches no
// memory of the caller and does not allocate.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller upholds the contract of `GlobalAlloc::alloc`, which is System's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: as above; the pointer came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both blocks may exist while the bytes are copied.
        count(size as i64);
        // SAFETY: as above; the pointer came from `System`.
        let moved = unsafe { System.realloc(pointer, layout, size) };
        count(-(layout.size() as i64));
        moved
    }
}

/// Runs `body`: the peak of bytes that it held on this thread in addition to those held before, and its
/// result.
pub(crate) fn most_held<T>(body: impl FnOnce() -> T) -> (u64, T) {
    let before = HELD.get();
    MOST.set(before);
    let answer = body();
    (u64::try_from(MOST.get() - before).unwrap_or(0), answer)
}
