//! Asking for cache lines before they are needed. A hint: it changes nothing but time.

/// Asks for the two lines at `at`, to write to them.
///
/// (`_mm_prefetch` asks so only where the target has the feature; every x86-64 takes the instruction.)
#[inline(always)]
pub(super) fn to_write(_at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: a prefetch touches nothing, wherever it points.
    unsafe {
        std::arch::asm!(
            "prefetchw [{0}]",
            "prefetchw [{0} + 64]",
            in(reg) _at,
            options(nostack, preserves_flags, readonly)
        );
    }
}

/// Asks for the two lines at `at`, which another core may have written, to read them.
#[inline(always)]
pub(super) fn to_read(_at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let at = _at.cast();
        // SAFETY: a prefetch touches nothing, wherever it points.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(at);
            _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(64));
        }
    }
}
