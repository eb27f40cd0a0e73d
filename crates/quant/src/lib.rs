//! Weight encodings: bytes <-> numbers, one file each, in plain Rust.
//!
//! Nothing above this crate knows a bit order. A codec is a [`Codec`]; the built-in ones are in [`CODECS`], and a
//! library user adds more to a [`Registry`] at run time.
#![forbid(unsafe_code)]

mod bf16;
mod codec;
mod encoded;
mod error;
pub mod exl3;
mod f16;
mod f32;
mod f64;
mod f8;
pub mod f8_scaled;
mod fields;
mod fp4;
pub mod grids;
pub mod grouped;
mod i2_s;
mod i8;
mod iq1_m;
mod iq1_s;
mod iq2_s;
mod iq2_xs;
mod iq2_xxs;
mod iq3_s;
mod iq3_xxs;
mod iq4_nl;
mod iq4_xs;
mod k_scales;
mod mxfp4;
mod nvfp4;
mod pq2_0;
mod ptq1_0;
mod q1_0;
mod q2_0;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod q8_1;
mod q8_k;
mod registry;
mod search;
mod stq1_0;
mod tq1_0;
mod tq2_0;
mod trits;
mod unpacked;

pub use codec::{Codec, Encode, Kind, Spec};
pub use encoded::{Encoded, byte_len};
pub use error::{Error, Problem};
pub use registry::Registry;
pub use unpacked::{GROUP, Group, Unpacked, decode_unpacked};

/// Every built-in codec that stands alone; see [`families`] for the others.
pub static CODECS: &[&dyn Codec] = &[
    &f32::F32,
    &f16::F16,
    &bf16::Bf16,
    &f64::F64,
    &q4_0::Q4_0,
    &q4_1::Q4_1,
    &q5_0::Q5_0,
    &q5_1::Q5_1,
    &q8_0::Q8_0,
    &q8_1::Q8_1,
    &q2_k::Q2K,
    &q3_k::Q3K,
    &q4_k::Q4K,
    &q5_k::Q5K,
    &q6_k::Q6K,
    &q8_k::Q8K,
    &iq1_s::Iq1S,
    &iq1_m::Iq1M,
    &iq2_xxs::Iq2Xxs,
    &iq2_xs::Iq2Xs,
    &iq2_s::Iq2S,
    &iq3_xxs::Iq3Xxs,
    &iq3_s::Iq3S,
    &iq4_nl::Iq4Nl,
    &iq4_xs::Iq4Xs,
    &tq1_0::Tq1_0,
    &tq2_0::Tq2_0,
    &mxfp4::Mxfp4,
    &nvfp4::Nvfp4,
    &q1_0::Q1_0,
    &q2_0::Q2_0,
    &stq1_0::Stq1_0,
    &pq2_0::Pq2_0,
    &ptq1_0::Ptq1_0,
    &i2_s::I2S,
    &i8::I8,
    &f8::F8E4M3,
    &f8::F8E5M2,
    &f8_scaled::F8_128,
    &f8_scaled::F8_64,
    &f8_scaled::F8_32,
    &f8_scaled::Mxfp8,
];

/// The built-in codecs that come in families: [`grouped`] and [`exl3`].
pub fn families() -> impl Iterator<Item = &'static dyn Codec> {
    let grouped = grouped::GROUPED.iter().map(|codec| codec as &'static dyn Codec);
    grouped.chain(exl3::EXL3.iter().map(|codec| codec as &'static dyn Codec))
}

/// The built-in codec of that name.
///
/// # Panics
/// If there is none: for names written in code. Use [`Registry::by_name`] for names that come from outside.
pub fn codec(name: &str) -> &'static dyn Codec {
    CODECS.iter().copied().chain(families()).find(|c| c.spec().name == name).expect("a built-in codec")
}
