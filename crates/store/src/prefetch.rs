//! Asks the processor for cache lines that will be needed soon.
//!
//! This file may use `unsafe` for one instruction that has no safe form: a prefetch reads nothing and cannot fault,
//! whatever the address.
#![allow(unsafe_code)]

const LINE_BYTES: usize = 64;

/// Starts loading `lines` cache lines of `items`, from item `at` on.
#[inline]
pub(crate) fn prefetch<T>(items: &[T], at: usize, lines: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..lines {
        if let Some(byte) = items.get(at + line * (LINE_BYTES / size_of::<T>())) {
            // SAFETY: a prefetch hint never faults and changes no memory; the address lies inside `items` anyway.
            unsafe {
                std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
                    std::ptr::from_ref(byte).cast(),
                )
            };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (items, at, lines);
}
