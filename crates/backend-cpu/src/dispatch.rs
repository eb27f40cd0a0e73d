//! Choosing the vector type of generic code by instruction set.

/// Calls `$function::<L>($args)` for the vector type `L` of `$isa`, compiled for that instruction set.
///
/// The function must be `#[inline(always)]` and generic over [`crate::lanes::Lanes`] alone.
macro_rules! by_isa {
    ($isa:expr, $function:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)?) => {
        match $isa {
            #[cfg(target_arch = "x86_64")]
            $crate::kernels::Isa::Avx512(_) => {
                #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
                fn compiled($($arg: $type),*) $(-> $result)? {
                    // SAFETY: this function has the features.
                    unsafe { $function::<std::arch::x86_64::__m512>($($arg),*) }
                }
                // SAFETY: the value of `isa` proves that the instructions were detected.
                unsafe { compiled($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            $crate::kernels::Isa::Avx2(_) => {
                #[target_feature(enable = "avx2,fma,f16c")]
                fn compiled($($arg: $type),*) $(-> $result)? {
                    // SAFETY: this function has the features.
                    unsafe { $function::<std::arch::x86_64::__m256>($($arg),*) }
                }
                // SAFETY: as above.
                unsafe { compiled($($arg),*) }
            }
            #[cfg(target_arch = "aarch64")]
            $crate::kernels::Isa::Neon(_) | $crate::kernels::Isa::NeonI8mm(_) => {
                // SAFETY: the value of `isa` proves that the instructions were detected.
                unsafe { $function::<std::arch::aarch64::float32x4_t>($($arg),*) }
            }
            // SAFETY: plain code runs everywhere.
            _ => unsafe { $function::<$crate::lanes::Plain>($($arg),*) },
        }
    };
}
pub(crate) use by_isa;
