//! Which instruction set the kernels use: found at run time, or chosen by name.

use std::fmt;

/// Proof that this processor has AVX2, FMA and F16C: only [`Isa::available`] makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx2(());

/// Proof that this processor has AVX-512 F, BW, VL, DQ and VNNI besides what [`Avx2`] proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx512 {
    has_vbmi: bool,
    has_fp16: bool,
    /// Registers for matrices of bytes (AMX-INT8), which the system lets this process use.
    has_amx: bool,
}

impl Avx512 {
    /// Whether it has VBMI and GFNI besides: permutations and affine maps of bytes.
    pub fn has_vbmi(self) -> bool {
        self.has_vbmi
    }

    /// Whether it has arithmetic in half precision besides.
    pub fn has_fp16(self) -> bool {
        self.has_fp16
    }

    /// Whether it has registers for matrices of bytes (AMX-INT8) besides, and the system lets this process use them.
    pub fn has_amx(self) -> bool {
        self.has_amx
    }
}

#[cfg(test)]
impl Isa {
    /// All of [`Self::available`], and what a processor without half precision or without matrix registers has of them.
    pub fn with_lesser() -> Vec<Self> {
        let lesser = |isa| match isa {
            Self::Avx512(proof) => {
                let fp16 = proof.has_fp16.then_some(Avx512 { has_fp16: false, ..proof });
                let amx = proof.has_amx.then_some(Avx512 { has_amx: false, ..proof });
                [fp16, amx].map(|proof| proof.map(Self::Avx512))
            }
            _ => [None; 2],
        };
        Self::available()
            .into_iter()
            .flat_map(|isa| [Some(isa)].into_iter().chain(lesser(isa)))
            .flatten()
            .collect()
    }
}

/// Proof that this processor has NEON with half-precision conversion and the dot product instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neon(());

/// Proof that this processor has the 8-bit matrix instructions besides what [`Neon`] proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeonI8mm(());

/// An instruction set for the kernels. All of them give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// Plain Rust: the twin that all others equal.
    Scalar,
    /// 256-bit vectors.
    Avx2(Avx2),
    /// 512-bit vectors with 8-bit dot products.
    Avx512(Avx512),
    /// 128-bit vectors with 8-bit dot products.
    Neon(Neon),
    /// The same with 8-bit 2x2 matrix products.
    NeonI8mm(NeonI8mm),
}

impl Isa {
    /// All that this processor runs, slowest first; [`Isa::Scalar`] is always there.
    pub fn available() -> Vec<Self> {
        let mut found = vec![Self::Scalar];
        found.extend(native());
        found
    }

    /// The fastest one.
    pub fn detect() -> Self {
        *Self::available().last().expect("the scalar twin is always there")
    }

    /// The one of that name, if this processor runs it: `scalar`, `avx2`, `avx512`, `neon`, `neon-i8mm`.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::available().into_iter().find(|isa| isa.name() == name)
    }

    /// Whether its kernels use matrix registers, and read panels of activations.
    pub fn has_matrices(self) -> bool {
        matches!(self, Self::Avx512(proof) if proof.has_amx)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2(_) => "avx2",
            Self::Avx512(_) => "avx512",
            Self::Neon(_) => "neon",
            Self::NeonI8mm(_) => "neon-i8mm",
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(target_arch = "x86_64")]
fn native() -> Vec<Isa> {
    let mut found = Vec::new();
    let has_avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c");
    if has_avx2 {
        found.push(Isa::Avx2(Avx2(())));
    }
    let has_avx512 = has_avx2
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vnni");
    if has_avx512 {
        let has_vbmi = is_x86_feature_detected!("avx512vbmi") && is_x86_feature_detected!("gfni");
        let has_fp16 = is_x86_feature_detected!("avx512fp16");
        found.push(Isa::Avx512(Avx512 { has_vbmi, has_fp16, has_amx: super::avx512::amx::detect() }));
    }
    found
}

#[cfg(target_arch = "aarch64")]
fn native() -> Vec<Isa> {
    use std::arch::is_aarch64_feature_detected;
    let mut found = Vec::new();
    if is_aarch64_feature_detected!("neon") && is_aarch64_feature_detected!("dotprod") {
        found.push(Isa::Neon(Neon(())));
        if is_aarch64_feature_detected!("i8mm") {
            found.push(Isa::NeonI8mm(NeonI8mm(())));
        }
    }
    found
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn native() -> Vec<Isa> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_available_isa_is_found_by_its_name() {
        for isa in Isa::available() {
            assert_eq!(Isa::by_name(isa.name()), Some(isa));
        }
        assert_eq!(Isa::by_name("mmx"), None);
    }
}
