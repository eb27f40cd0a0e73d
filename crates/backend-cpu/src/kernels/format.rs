//! What kernels know of an encoding: where a chunk of 256 numbers of a row ends and how its codes are biased.

use super::activations::{CHUNK, COARSE_ORDER, FINE_ORDER, code_place};
use nibble_quant::{Codec, Group, Kind, Unpacked};

/// The constants of an encoding that has kernels of its own.
pub trait Format {
    /// Bytes of 256 numbers.
    const CHUNK_BYTES: usize;
    /// Whether scales belong to 16 numbers rather than 32.
    const FINE: bool = false;
    /// Whether numbers have offsets.
    const OFFSET: bool = false;
    /// What is added to each code to make it unsigned: 0 or a power of two up to 128.
    const BIAS: i32;
    /// The largest unsigned code.
    #[cfg_attr(target_arch = "aarch64", allow(dead_code, reason = "NEON sums in 32 bits"))]
    const TOP: i32;

    /// Expands 256 numbers: codes, biased, and the scales and offsets of their groups. Plain Rust, which the compiler
    /// turns into the vectors of the kernel that it becomes part of.
    #[cfg_attr(target_arch = "aarch64", allow(dead_code, reason = "every format has a file for NEON"))]
    fn expand(bytes: &[u8], out: &mut Chunk);
}

/// 256 numbers of any integer codec, unpacked: codes + 128 in the order of [`code_place`], then the scales and the
/// offsets of the groups, in [`COARSE_ORDER`] or twice [`FINE_ORDER`]. Rows of these are a format like any other.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Chunk {
    pub codes: [u8; CHUNK],
    pub scale: [f32; 16],
    pub offset: [f32; 16],
}

/// [`Chunk`]s with groups of 32.
pub struct CoarseChunk;

impl Format for CoarseChunk {
    const CHUNK_BYTES: usize = size_of::<Chunk>();
    const OFFSET: bool = true;
    const BIAS: i32 = 128;
    const TOP: i32 = 255;

    #[inline(always)]
    fn expand(bytes: &[u8], out: &mut Chunk) {
        expand_chunk(bytes, out);
    }
}

/// [`Chunk`]s with groups of 16.
pub struct FineChunk;

impl Format for FineChunk {
    const CHUNK_BYTES: usize = size_of::<Chunk>();
    const FINE: bool = true;
    const OFFSET: bool = true;
    const BIAS: i32 = 128;
    const TOP: i32 = 255;

    #[inline(always)]
    fn expand(bytes: &[u8], out: &mut Chunk) {
        expand_chunk(bytes, out);
    }
}

#[inline(always)]
fn expand_chunk(bytes: &[u8], out: &mut Chunk) {
    let float = |at: usize| f32::from_ne_bytes(*bytes[at..].first_chunk().expect("the bytes of a chunk"));
    out.codes.copy_from_slice(&bytes[..CHUNK]);
    for i in 0..16 {
        out.scale[i] = float(CHUNK + 4 * i);
        out.offset[i] = float(CHUNK + 64 + 4 * i);
    }
}

impl Chunk {
    /// A chunk of zeros.
    pub const ZERO: Self = Self { codes: [128; CHUNK], scale: [0.0; 16], offset: [0.0; 16] };

    /// The bytes of a row of chunks.
    pub fn bytes(chunks: &[Self]) -> &[u8] {
        // SAFETY: a chunk is bytes and floats without padding, and any alignment is fine for bytes.
        unsafe { std::slice::from_raw_parts(chunks.as_ptr().cast(), size_of_val(chunks)) }
    }
}

/// The most numbers in a block that the generic path takes; registries refuse nothing below it.
pub const MAX_BLOCK: usize = 4096;

/// Unpacks a row of any integer codec, block by block; the last chunk is filled up with zeros.
pub fn unpack_row(codec: &dyn Codec, row: &[u8], chunks: &mut [Chunk], block: &mut BlockBuffer) {
    let spec = codec.spec();
    let group_len = if codec.kind() == Kind::Group16 { 16 } else { 32 };
    let order = if group_len == 16 { &FINE_ORDER } else { &COARSE_ORDER };
    chunks.fill(Chunk::ZERO);
    let codes = &mut block.codes[..spec.block_len];
    let groups = &mut block.groups[..spec.block_len / group_len];
    let mut group_index = 0;
    for bytes in row.chunks_exact(spec.block_bytes) {
        groups.fill(Group::default());
        codec.unpack(bytes, &mut Unpacked { codes, groups });
        for (codes, group) in codes.chunks_exact(group_len).zip(groups.iter()) {
            let at = group_index * group_len;
            let chunk = &mut chunks[at / CHUNK];
            let within = group_index % (CHUNK / group_len);
            let place = order.iter().position(|&g| g == within % 8).expect("an order holds every group");
            chunk.scale[within / 8 * 8 + place] = group.scale;
            chunk.offset[within / 8 * 8 + place] = group.offset;
            for (half, codes) in codes.chunks_exact(16).enumerate() {
                let place = code_place(at % CHUNK + 16 * half);
                for (out, &code) in chunk.codes[place..place + 16].iter_mut().zip(codes) {
                    *out = (code as u8) ^ 0x80;
                }
            }
            group_index += 1;
        }
    }
}

/// Room for one unpacked block.
pub struct BlockBuffer {
    codes: Box<[i8]>,
    groups: Box<[Group]>,
}

impl BlockBuffer {
    /// Room for blocks of up to [`MAX_BLOCK`] numbers.
    pub fn new() -> Self {
        Self { codes: vec![0; MAX_BLOCK].into(), groups: vec![Group::default(); MAX_BLOCK / 16].into() }
    }
}
