//! What the processor can do.
//!
//! Owns: running a computation compiled for wide registers where the processor has them.

cpufeatures::new!(avx2, "avx2");

/// Runs a computation compiled for AVX2 if the processor has it. Only what is inlined into the closure gains.
#[inline]
pub fn wide<R>(work: impl FnOnce() -> R) -> R {
    if avx2::get() {
        // SAFETY: 1. The processor has AVX2, and the system saves its registers: both were asked.
        unsafe { with_avx2(work) }
    } else {
        work()
    }
}

#[target_feature(enable = "avx2")]
fn with_avx2<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_result_is_the_computations() {
        let numbers: Vec<u64> = (0..100).collect();
        assert_eq!(super::wide(|| numbers.iter().map(|n| n * n).sum::<u64>()), 328_350);
    }
}
