//! EXL3's trellis in WGSL: states from a unit of bits, numbers from states.
//!
//! What the codec rounds to half precision in the end is exact here, so that whoever reads it rounds once, or it is the sum of
//! two halves in half precision, which is rounded at once.

use crate::shader::Source;
use nibble_quant::exl3::{Codebook, input};

/// Whether `numbers_of` rounds. A fused multiplication and addition in half precision is not to be had for sure.
pub fn is_rounded(book: Codebook, half: bool) -> bool {
    half && book != Codebook::Mul1
}

/// Declares the function from states to numbers, and the one that rounds those that are not; `half`: with additions in half
/// precision.
pub fn declare(s: &mut Source, book: Codebook, half: bool) {
    // Two halves in each word.
    let pairs = ["x", "y", "z", "w"].map(|c| format!("let {c} = unpack2x16float(m.{c});\n")).concat();
    let side = |c: &str| format!("vec4<f32>(x.{c}, y.{c}, z.{c}, w.{c})");
    let sum = match half {
        true => format!("vec4<f32>(vec4<f16>({}) + vec4<f16>({}))", side("x"), side("y")),
        false => format!("{} + {}", side("x"), side("y")),
    };
    let halves =
        format!("let m = (product & vec4<u32>(0x8fff8fffu)) ^ vec4<u32>(0x3b603b60u);\n{pairs}return {sum};");
    let body = match book {
        Codebook::ThreeInst => {
            format!("let product = states * 89226354u + vec4<u32>(64248484u);\n{halves}")
        }
        Codebook::Mcg => format!("let product = states * 0xcbac1fedu;\n{halves}"),
        // Half-precision 0x1eee, and 1024 times that plus 0xc931: in multiples of 2^-18.
        Codebook::Mul1 => {
            let sum = ["x", "y", "z", "w"].map(|c| format!("dot4U8Packed(x.{c}, 0x01010101u)")).join(", ");
            format!(
                "let x = states * 0x83dcd12du;
let sums = vec4<f32>(vec4<u32>({sum}));
return fma(sums, vec4<f32>({:?}), vec4<f32>({:?}));",
                1774.0 / 262_144.0,
                -884.0 / 256.0
            )
        }
    };
    if is_rounded(book, half) {
        s.enable("f16");
    } else {
        // Drivers leave out a mere conversion there and back. Numbers are 0 or normal in half precision.
        s.item(
            "fn in_half(x: vec4<f32>) -> vec4<f32> {
let u = bitcast<vec4<u32>>(x);
let even = (u >> vec4<u32>(13u)) & vec4<u32>(1u);
return bitcast<vec4<f32>>((u + vec4<u32>(0xfffu) + even) & vec4<u32>(0xffffe000u));
}",
        );
    }
    s.item(&format!("fn numbers_of(states: vec4<u32>) -> vec4<f32> {{\n{body}\n}}"));
}

/// Words that are read at once, and how often for a unit.
pub fn reads(bits: u32) -> (u32, u32) {
    let width = [4, 2, 1].into_iter().find(|w| bits.is_multiple_of(*w)).expect("one divides all");
    (width, bits / width)
}

/// What words are read as.
pub fn element(bits: u32) -> &'static str {
    match reads(bits).0 {
        4 => "vec4<u32>",
        2 => "vec2<u32>",
        _ => "u32",
    }
}

/// Component `i` of what is read at once.
pub fn component(bits: u32, i: u32) -> &'static str {
    if reads(bits).0 == 1 { "" } else { [".x", ".y", ".z", ".w"][i as usize] }
}

/// Four numbers, from `4 * j` on, of the first or the `second` result of a unit whose words are `{v}w0` and so on; the word
/// before them is `{v}wp`.
pub fn four(bits: u32, v: &str, second: bool, j: usize) -> String {
    let states = (4 * j..4 * j + 4).map(|i| {
        let number = (0..16).find(|&n| input(n) == i).expect("a number for every input");
        let element = 8 * (number / 4) + 4 * usize::from(second) + number % 4;
        state(bits, v, element as u32)
    });
    format!("numbers_of(vec4<u32>({}))", states.collect::<Vec<_>>().join(", "))
}

/// The 16 bits that end with those of an element.
fn state(bits: u32, v: &str, element: u32) -> String {
    let (width, _) = reads(bits);
    let word = |at: u32| match at.checked_sub(1) {
        None => format!("{v}wp"),
        Some(at) => format!("{v}w{}{}", at / width, component(bits, at % width)),
    };
    // Counted from the word before.
    let end = 32 + (element + 1) * bits;
    let (at, used) = ((end - 1) / 32, (end - 1) % 32 + 1);
    match used {
        32 => format!("{} & 0xffffu", word(at)),
        16..32 => format!("({} >> {}u) & 0xffffu", word(at), 32 - used),
        _ => format!("(({} << {used}u) | ({} >> {}u)) & 0xffffu", word(at - 1), word(at), 32 - used),
    }
}
