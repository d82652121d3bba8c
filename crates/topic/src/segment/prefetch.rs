//! Prefetches cache lines. A prefetch can only change the speed of a program, never its results.

/// Prefetches two cache lines at `at` for writing.
///
/// Uses inline assembly, because `_mm_prefetch` gives the instruction `prefetchw` only if the target has this feature.
/// Every x86-64 processor accepts the instruction.
#[inline(always)]
pub(super) fn for_write(_at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: a prefetch does not access memory, whatever the address.
    unsafe {
        std::arch::asm!(
            "prefetchw [{0}]",
            "prefetchw [{0} + 64]",
            in(reg) _at,
            options(nostack, preserves_flags, readonly)
        );
    }
}

/// Prefetches two cache lines at `at` for reading. Another core may have written them last.
#[inline(always)]
pub(super) fn for_read(_at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let at = _at.cast();
        // SAFETY: a prefetch does not access memory, whatever the address.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(at);
            _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(64));
        }
    }
}
