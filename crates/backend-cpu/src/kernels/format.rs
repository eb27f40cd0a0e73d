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
}

/// [`Chunk`]s with groups of 16.
pub struct FineChunk;

impl Format for FineChunk {
    const CHUNK_BYTES: usize = size_of::<Chunk>();
    const FINE: bool = true;
    const OFFSET: bool = true;
    const BIAS: i32 = 128;
    const TOP: i32 = 255;
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

/// Where each group lies among those of its order.
const fn places(order: [usize; 8]) -> [usize; 8] {
    let mut places = [0; 8];
    let mut place = 0;
    while place < 8 {
        places[order[place]] = place;
        place += 1;
    }
    places
}

/// Unpacks a row of any integer codec, block by block; the last chunk is filled up with zeros.
pub fn unpack_row(codec: &dyn Codec, row: &[u8], chunks: &mut [Chunk], block: &mut BlockBuffer) {
    let spec = codec.spec();
    let (group_len, places) = if codec.kind() == Kind::Group16 {
        (16, const { places(FINE_ORDER) })
    } else {
        (32, const { places(COARSE_ORDER) })
    };
    if let Some(last) = chunks.last_mut() {
        *last = Chunk::ZERO;
    }
    let codes = &mut block.codes[..spec.block_len];
    let groups = &mut block.groups[..spec.block_len / group_len];
    let mut at = 0;
    for bytes in row.chunks_exact(spec.block_bytes) {
        groups.fill(Group::default());
        codec.unpack(bytes, &mut Unpacked { codes, groups });
        for (codes, group) in codes.chunks_exact(group_len).zip(groups.iter()) {
            let (chunk, within) = (&mut chunks[at / CHUNK], at % CHUNK);
            let index = within / group_len;
            let place = index / 8 * 8 + places[index % 8];
            (chunk.scale[place], chunk.offset[place]) = (group.scale, group.offset);
            for (half, codes) in codes.as_chunks::<16>().0.iter().enumerate() {
                let place = code_place(within + 16 * half);
                let out: &mut [u8; 16] = chunk.codes[place..].first_chunk_mut().expect("half a group");
                *out = codes.map(|code| (code as u8) ^ 0x80);
            }
            at += group_len;
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
