//! Products of an encoded matrix with rows of activations: which kernel runs, on which rows, with which buffers.

#[cfg(target_arch = "x86_64")]
use super::activations::Lanes;
use super::activations::{Activations, Forms, Panel, Row, chunks};
use super::format::{BlockBuffer, Chunk, Format, unpack_row};
use super::strips::{self, STRIP_ROWS};
use super::trellis::Trellis;
use super::{Isa, float, scalar};
use nibble_quant::{CODECS, Codec, Kind, families};
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::Range;

#[cfg(target_arch = "aarch64")]
use super::neon;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};

/// Rows of weights in a tile.
pub const TILE_ROWS: usize = 32;

/// One matrix of encoded rows.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    /// Row after row, or strip after strip ([`Codec::rows`]), without padding; or what [`Kernel::write_strip`] made of it.
    pub bytes: &'a [u8],
    /// Rows: the outputs.
    pub rows: usize,
    /// Numbers in a row: the inputs.
    pub row_len: usize,
}

/// The rows of activations that take part.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    activations: &'a Activations,
    first: usize,
    count: usize,
    picked: Option<&'a [u32]>,
}

impl<'a> Input<'a> {
    /// Rows `rows` of `activations`.
    pub fn rows(activations: &'a Activations, rows: Range<usize>) -> Self {
        assert!(rows.start <= rows.end && rows.end <= activations.rows(), "rows {rows:?} of the activations");
        Self { activations, first: rows.start, count: rows.len(), picked: None }
    }

    /// The rows that `picked` lists, in that order: what an expert works on.
    pub fn picked(activations: &'a Activations, picked: &'a [u32]) -> Self {
        assert!(picked.iter().all(|&row| (row as usize) < activations.rows()), "a picked row is not there");
        Self { activations, first: 0, count: picked.len(), picked: Some(picked) }
    }

    /// The same of the first half of the rows, then the rows that lie half of all behind them.
    pub fn picked_pairs(activations: &'a Activations, picked: &'a [u32]) -> Self {
        let half = activations.rows() / 2;
        assert!(picked.iter().all(|&row| (row as usize) < half), "a picked row has no second half");
        Self { activations, first: 0, count: 2 * picked.len(), picked: Some(picked) }
    }

    /// Where row `t` of them is.
    #[inline]
    fn place(&self, t: usize) -> usize {
        match self.picked {
            None => self.first + t,
            Some(picked) if t < picked.len() => picked[t] as usize,
            Some(picked) => picked[t - picked.len()] as usize + self.activations.rows() / 2,
        }
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Row `t` of them.
    #[inline]
    pub fn row(&self, t: usize) -> Row<'a> {
        self.activations.row(self.place(t))
    }

    /// The panels that they lie in, and which rows of these they are; rows that were picked lie in none.
    pub fn panels(&self) -> Option<Range<usize>> {
        let kept = self.activations.in_panels() && self.picked.is_none();
        kept.then_some(self.first..self.first + self.count)
    }

    /// Panel `i` of all activations.
    #[inline]
    pub fn panel(&self, i: usize) -> Panel<'a> {
        self.activations.panel(i)
    }

    /// What the kernels for many rows read of row `t`.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub fn lanes<const FINE: bool>(&self, t: usize) -> Lanes<'a> {
        self.activations.lanes::<FINE>(self.place(t))
    }
}

/// Where products go: row `t` of the input to row `t` here, or to the row that `scattered` lists.
#[derive(Clone, Copy)]
pub struct Output<'a> {
    cells: *const UnsafeCell<f32>,
    len: usize,
    stride: usize,
    first_column: usize,
    scattered: Option<&'a [u32]>,
    life: PhantomData<&'a UnsafeCell<f32>>,
}

// SAFETY: the maker of a shared output promises that threads write different columns or rows of it.
unsafe impl Send for Output<'_> {}
// SAFETY: as above.
unsafe impl Sync for Output<'_> {}

impl<'a> Output<'a> {
    /// Rows of `stride` numbers in `y`.
    pub fn new(y: &'a mut [f32], stride: usize) -> Self {
        // SAFETY: `y` is borrowed for as long as the result lives.
        unsafe { Self::shared(y.as_mut_ptr(), y.len(), stride) }
    }

    /// The same for memory that several threads write.
    ///
    /// # Safety
    /// `y` must be valid for `len` numbers as long as the result lives, and while a product is written nobody else may
    /// use the columns that it writes.
    pub unsafe fn shared(y: *mut f32, len: usize, stride: usize) -> Self {
        Self {
            cells: y.cast_const().cast(),
            len,
            stride,
            first_column: 0,
            scattered: None,
            life: PhantomData,
        }
    }

    /// Sends row `t` to row `rows[t]`, and what comes after as many rows to those half of all behind them.
    pub fn scattered(self, rows: &'a [u32]) -> Self {
        Self { scattered: Some(rows), ..self }
    }

    /// Writes output `n` at column `column + n` instead of `n`.
    pub fn at_column(self, column: usize) -> Self {
        Self { first_column: self.first_column + column, ..self }
    }

    /// Writes `values` from column `n` of row `t` on.
    #[inline]
    pub fn write(&self, t: usize, n: usize, values: &[f32]) {
        let row = match self.scattered {
            None => t,
            Some(rows) if t < rows.len() => rows[t] as usize,
            Some(rows) => rows[t - rows.len()] as usize + self.len / self.stride / 2,
        };
        let column = self.first_column + n;
        let at = row * self.stride + column;
        assert!(
            column + values.len() <= self.stride && at + values.len() <= self.len,
            "outside of the output"
        );
        // SAFETY: the range lies inside the output by the assertion, and its maker promises that it is ours.
        unsafe {
            let to = UnsafeCell::raw_get(self.cells.add(at));
            std::ptr::copy_nonoverlapping(values.as_ptr(), to, values.len());
        }
    }
}

/// What one call of a kernel works on.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The matrix, row after row.
    pub bytes: &'a [u8],
    /// Bytes of a row, or of a strip of rows.
    pub row_bytes: usize,
    /// Numbers in a row.
    pub row_len: usize,
    /// The first row to multiply; it becomes output `first`.
    pub first: usize,
    /// The end of the rows.
    pub end: usize,
    /// Activations.
    pub x: Input<'a>,
    /// Outputs.
    pub y: Output<'a>,
    /// Whether tiles are multiplied in matrix registers: the processor has them, and the activations have panels.
    pub panels: bool,
}

impl<'a> Job<'a> {
    /// The bytes of a row, or of a strip.
    #[inline]
    pub fn row(&self, row: usize) -> &'a [u8] {
        &self.bytes[row * self.row_bytes..(row + 1) * self.row_bytes]
    }
}

/// Four codes of each of sixteen rows of weights.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Fours(pub [u8; 64]);

/// One number for each of sixteen rows of weights.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Sixteen(pub [f32; 16]);

/// [`TILE_ROWS`] rows of weights as a matrix core wants them: rows lie in vector lanes.
///
/// Groups are ordered by their lane of the contract, so that a lane is one stretch of memory. A group is as many
/// [`Fours`] as it has fours of codes, each twice: for rows 0 to 15 and 16 to 31. So are scales and offsets.
#[derive(Clone, Copy)]
pub struct Tile<'a> {
    /// Codes.
    pub codes: &'a [Fours],
    /// Scales.
    pub scale: &'a [Sixteen],
    /// Offsets.
    pub offset: &'a [Sixteen],
    chunks: usize,
}

impl Tile<'_> {
    /// Where a lane begins, in chunks.
    #[inline]
    pub fn lane(&self, lane: usize) -> usize {
        lane * lane_stride(self.chunks)
    }
}

/// Chunks from one lane of a tile to the next: an odd number, as lanes four chunks apart would share places of a cache.
const fn lane_stride(chunks: usize) -> usize {
    chunks | 1
}

/// A [`Tile`] to be filled.
pub struct TileMut<'a> {
    /// Codes.
    pub codes: &'a mut [Fours],
    /// Scales.
    pub scale: &'a mut [Sixteen],
    /// Offsets.
    pub offset: &'a mut [Sixteen],
    /// Chunks of a row.
    pub chunks: usize,
}

impl TileMut<'_> {
    /// The tile, to be read.
    pub fn filled(&self) -> Tile<'_> {
        Tile { codes: self.codes, scale: self.scale, offset: self.offset, chunks: self.chunks }
    }

    /// Where the codes of chunk `q` of a format with groups of 32 go, for rows 0 to 15 or, with `half` 1, 16 to 31.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub fn chunk_codes(&mut self, q: usize, half: usize) -> ChunkCodes<'_> {
        let codes = &mut self.codes[q * 16 + half..];
        let stride = lane_stride(self.chunks) * 16;
        assert!(codes.len() > 7 * stride + 2 * 7, "eight lanes of eight fours");
        ChunkCodes { first: codes.as_mut_ptr(), stride, life: PhantomData }
    }

    /// Where the fours `v` (of eight) of group `group` of 32 of chunk `q` lie.
    #[inline]
    pub fn codes_at<F: Format>(&self, q: usize, group: usize, v: usize) -> usize {
        if F::FINE {
            self.group_at::<F>(q, group / 4, group % 4 * 2 + v / 4) * 4 + v % 4 * 2
        } else {
            self.group_at::<F>(q, 0, group) * 8 + v * 2
        }
    }

    /// Where the scales of the group of `lane` in part `part` of chunk `q` lie.
    #[inline]
    pub fn group_at<F: Format>(&self, q: usize, part: usize, lane: usize) -> usize {
        let parts = if F::FINE { 2 } else { 1 };
        (lane * lane_stride(self.chunks) * parts + q * parts + part) * 2
    }
}

/// The codes of a chunk of sixteen rows of a [`TileMut`].
#[cfg(target_arch = "x86_64")]
pub struct ChunkCodes<'a> {
    first: *mut Fours,
    stride: usize,
    life: PhantomData<&'a mut Fours>,
}

#[cfg(target_arch = "x86_64")]
impl ChunkCodes<'_> {
    /// Sets the fours `v` of group `group`, eight of each.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub fn put(&mut self, group: usize, v: usize, codes: std::arch::x86_64::__m512i) {
        assert!(group < 8 && v < 8, "eight groups of eight fours");
        // SAFETY: eight lanes of eight fours lie inside the tile, as was seen when this was made, and it is ours.
        unsafe {
            std::arch::x86_64::_mm512_storeu_si512(self.first.add(group * self.stride + 2 * v).cast(), codes)
        }
    }
}

/// What a thread needs besides input and output. It allocates when it is made and never again.
pub struct Scratch {
    codes: Box<[Fours]>,
    scale: Box<[Sixteen]>,
    offset: Box<[Sixteen]>,
    rows: Box<[Chunk]>,
    floats: Box<[f32]>,
    quads: Box<[Quad]>,
    block: BlockBuffer,
}

impl Scratch {
    /// Room for matrices with rows of up to `row_len` numbers.
    pub fn new(row_len: usize) -> Self {
        let chunks = chunks(row_len);
        Self {
            codes: vec![Fours([0; 64]); 128 * lane_stride(chunks)].into(),
            scale: vec![Sixteen([0.0; 16]); 32 * lane_stride(chunks)].into(),
            offset: vec![Sixteen([0.0; 16]); 32 * lane_stride(chunks)].into(),
            rows: vec![Chunk::ZERO; TILE_ROWS * chunks].into(),
            floats: vec![0.0; float::TILE_ROWS * row_len].into(),
            quads: vec![Quad([0; 32]); CHUNK_QUADS * chunks].into(),
            block: BlockBuffer::new(),
        }
    }

    /// Bytes that [`Scratch::new`] reserves, some kilobytes aside.
    pub fn bytes(row_len: usize) -> usize {
        let chunk = 128 * size_of::<Fours>() + 64 * size_of::<Sixteen>();
        let (chunks, quads) = (chunks(row_len), CHUNK_QUADS * size_of::<Quad>());
        let rows = TILE_ROWS * size_of::<Chunk>() + quads;
        lane_stride(chunks) * chunk + chunks * rows + float::TILE_ROWS * row_len * size_of::<f32>()
    }

    fn tile(&mut self, row_len: usize) -> TileMut<'_> {
        TileMut {
            codes: &mut self.codes,
            scale: &mut self.scale,
            offset: &mut self.offset,
            chunks: chunks(row_len),
        }
    }
}

/// Half a vector of activations as kernels for few rows lay them out.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub struct Quad(pub [u8; 32]);

/// [`Quad`]s for which there is room in each chunk of 256.
pub const CHUNK_QUADS: usize = 224;

/// A kernel for few rows of activations: reads blocks in place. It may lay out activations in the quads.
pub type FewFn = unsafe fn(&Job<'_>, &mut [Quad]);

/// Unpacks up to [`TILE_ROWS`] rows from the given one on into a tile.
pub type FillFn = unsafe fn(&Job<'_>, usize, &mut TileMut<'_>);

/// Multiplies a tile, whose first row is the given one, with all rows of activations.
pub type TileFn = unsafe fn(&Job<'_>, usize, &Tile<'_>);

/// The kernels of one encoding.
#[derive(Clone, Copy)]
pub struct Blocks {
    /// The codec's name.
    pub name: &'static str,
    /// For few rows of activations.
    pub few: FewFn,
    /// For many rows, with the next one.
    pub fill: FillFn,
    /// For many rows.
    pub tile: TileFn,
}

#[derive(Clone, Copy)]
enum Path {
    Twin,
    Float,
    Direct(Blocks),
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(dead_code, reason = "kernels that read strips are for AVX-512")
    )]
    Strips(Blocks, strips::Layout),
    Unpacked(Blocks),
    Trellis(Trellis),
}

/// How a codec's matrices are multiplied on an instruction set: chosen once, when a plan is made.
#[derive(Clone, Copy)]
pub struct Kernel {
    codec: &'static dyn Codec,
    isa: Isa,
    path: Path,
    many: usize,
}

impl Kernel {
    /// The fastest way. With `exact`, activations stay floats for every codec.
    pub fn pick(isa: Isa, codec: &'static dyn Codec, exact: bool) -> Self {
        let path = match Trellis::of(codec) {
            _ if exact => Path::Float,
            Some(trellis) => Path::Trellis(trellis),
            None if codec.kind() == Kind::Float => Path::Float,
            None => integer_path(isa, codec),
        };
        let many = match (isa, path) {
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512(_), _) => avx512::MANY,
            (_, Path::Unpacked(_)) => 4,
            _ => 12,
        };
        Self { codec, isa, path, many }
    }

    /// The form of activations that it reads.
    pub fn forms(&self) -> Forms {
        match self.path {
            Path::Float => Forms::FLOATS,
            Path::Trellis(_) => Forms::WIDE,
            _ => Forms::of_codes(self.isa),
        }
    }

    /// Bytes that a matrix takes by strips, if this kernel reads those and not the file's.
    pub fn strips_len(&self, rows: usize, row_len: usize) -> Option<usize> {
        self.strips().map(|strips| rows.div_ceil(STRIP_ROWS) * strips.bytes(row_len))
    }

    /// Writes the strip that has the rows from `strip * STRIP_ROWS` on of a matrix of the file.
    ///
    /// # Panics
    /// If the kernel reads no strips, or `to` has not the bytes of one.
    pub fn write_strip(&self, file: Matrix<'_>, strip: usize, to: &mut [u8]) {
        let strips = self.strips().expect("a kernel that reads strips");
        assert_eq!(to.len(), strips.bytes(file.row_len), "bytes of a strip");
        let rows = file.bytes.chunks_exact((file.bytes.len() / file.rows).max(1));
        strips.write(self.codec, rows.skip(strip * STRIP_ROWS).take(STRIP_ROWS), to);
    }

    fn strips(&self) -> Option<strips::Layout> {
        if let Path::Strips(_, strips) = self.path { Some(strips) } else { None }
    }

    /// Computes the outputs `rows` of `weight` for all of `x`: `y[t, n] = sum over k of weight[n, k] * x[t, k]`.
    ///
    /// Every output has the same bits for every instruction set, split of the rows, and neighbours in `x`.
    ///
    /// # Panics
    /// If sizes do not fit together, or rows begin inside a strip.
    pub fn run(
        &self,
        weight: Matrix<'_>,
        rows: Range<usize>,
        x: Input<'_>,
        y: Output<'_>,
        scratch: &mut Scratch,
    ) {
        let (row_bytes, strips) = match self.strips() {
            Some(strips) => (strips.bytes(weight.row_len), weight.rows.div_ceil(STRIP_ROWS)),
            None => (self.codec.strip_bytes(weight.row_len), weight.rows / self.codec.rows()),
        };
        assert!(weight.rows.is_multiple_of(self.codec.rows()), "{} rows are no whole strips", weight.rows);
        assert_eq!(weight.bytes.len(), row_bytes * strips, "bytes of the matrix");
        assert!(rows.start <= rows.end && rows.end <= weight.rows, "rows {rows:?} of {}", weight.rows);
        assert_eq!(x.activations.row_len(), weight.row_len, "numbers in a row");
        let (first, end) = (rows.start, rows.end);
        let panels = self.isa.has_matrices() && x.panels().is_some();
        let job = Job { bytes: weight.bytes, row_bytes, row_len: weight.row_len, first, end, x, y, panels };
        if weight.row_len == 0 {
            for (t, n) in (0..x.count).flat_map(|t| rows.clone().map(move |n| (t, n))) {
                y.write(t, n, &[0.0]);
            }
        }
        if first == end || x.count == 0 || weight.row_len == 0 {
            return;
        }
        assert!(
            self.strips().is_none() || rows.start.is_multiple_of(STRIP_ROWS),
            "rows {rows:?} cut a strip"
        );
        match self.path {
            Path::Twin => scalar::product(self.codec, &job, &mut scratch.rows, &mut scratch.block),
            Path::Float => float::product(self.isa, self.codec, &job, &mut scratch.floats),
            Path::Trellis(trellis) => trellis.product(self.isa, &job, &mut scratch.codes),
            Path::Direct(blocks) | Path::Strips(blocks, _) if x.count < self.many => {
                // SAFETY: the kernels of an instruction set are only picked where it was detected.
                unsafe { (blocks.few)(&job, &mut scratch.quads) }
            }
            Path::Direct(blocks) | Path::Strips(blocks, _) => {
                many(&blocks, &job, &mut scratch.tile(job.row_len))
            }
            Path::Unpacked(blocks) => self.unpacked(&blocks, &job, scratch),
        }
    }

    /// Unpacks some rows at a time and multiplies them like any other format.
    fn unpacked(&self, blocks: &Blocks, job: &Job<'_>, scratch: &mut Scratch) {
        let stride = chunks(job.row_len);
        for first in (job.first..job.end).step_by(TILE_ROWS) {
            let count = TILE_ROWS.min(job.end - first);
            for (n, row) in scratch.rows.chunks_exact_mut(stride).take(count).enumerate() {
                unpack_row(self.codec, job.row(first + n), row, &mut scratch.block);
            }
            let Scratch { rows, codes, scale, offset, quads, .. } = scratch;
            let bytes = Chunk::bytes(&rows[..count * stride]);
            let row_bytes = stride * size_of::<Chunk>();
            let y = job.y.at_column(first);
            let part = Job { bytes, row_bytes, first: 0, end: count, y, ..*job };
            if job.x.count() < self.many {
                // SAFETY: the kernels of an instruction set are only picked where it was detected.
                unsafe { (blocks.few)(&part, quads) }
            } else {
                many(blocks, &part, &mut TileMut { codes, scale, offset, chunks: stride });
            }
        }
    }
}

/// Unpacks a tile, multiplies it with all rows of activations, and goes on.
fn many(blocks: &Blocks, job: &Job<'_>, tile: &mut TileMut<'_>) {
    for first in (job.first..job.end).step_by(TILE_ROWS) {
        // SAFETY: the kernels of an instruction set are only picked where it was detected.
        unsafe {
            (blocks.fill)(job, first, tile);
            (blocks.tile)(job, first, &tile.filled());
        }
    }
}

/// The codecs with kernels of their own for the widest instruction set of this architecture, and those whose numbers
/// are read as they are.
pub fn own_kernels() -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    let tables = [avx512::VBMI_KERNELS, avx512::VBMI_GROUPED, avx512::KERNELS, avx512::GROUPED];
    #[cfg(target_arch = "aarch64")]
    let tables = [neon::MATRIX.direct];
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let tables: [&[Blocks]; 0] = [];
    #[cfg(target_arch = "x86_64")]
    let strips = avx512::STRIPS;
    #[cfg(not(target_arch = "x86_64"))]
    let strips: &[(Blocks, strips::Layout)] = &[];
    let integer =
        tables.into_iter().flatten().chain(strips.iter().map(|(blocks, _)| blocks)).map(|blocks| blocks.name);
    let all = CODECS.iter().copied().chain(families());
    let reads_in_place = |codec: &&dyn Codec| {
        float::reads_in_place(*codec) || (cfg!(target_arch = "x86_64") && Trellis::of(*codec).is_some())
    };
    let stored = all.filter(reads_in_place).map(|codec| codec.spec().name);
    integer.chain(stored).collect()
}

fn integer_path(isa: Isa, codec: &'static dyn Codec) -> Path {
    let (tables, coarse, fine): ([&[Blocks]; 4], Blocks, Blocks) = match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(proof) => {
            let strips = avx512::STRIPS.iter().find(|(blocks, _)| blocks.name == codec.spec().name);
            if let Some((blocks, strips)) = strips.filter(|_| proof.has_vbmi()) {
                return Path::Strips(*blocks, *strips);
            }
            let vbmi = |table: &'static [Blocks]| if proof.has_vbmi() { table } else { &[] };
            let (vbmi, grouped) = (vbmi(avx512::VBMI_KERNELS), vbmi(avx512::VBMI_GROUPED));
            ([vbmi, grouped, avx512::KERNELS, avx512::GROUPED], avx512::COARSE, avx512::FINE)
        }
        #[cfg(target_arch = "aarch64")]
        Isa::Neon(_) => ([neon::DOT.direct, &[], &[], &[]], neon::DOT.coarse, neon::DOT.fine),
        #[cfg(target_arch = "aarch64")]
        Isa::NeonI8mm(_) => ([neon::MATRIX.direct, &[], &[], &[]], neon::MATRIX.coarse, neon::MATRIX.fine),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(_) => ([avx2::KERNELS, &[], &[], &[]], avx2::COARSE, avx2::FINE),
        _ => return Path::Twin,
    };
    match tables.into_iter().flatten().find(|blocks| blocks.name == codec.spec().name) {
        Some(blocks) => Path::Direct(*blocks),
        None if codec.kind() == Kind::Group16 => Path::Unpacked(fine),
        None => Path::Unpacked(coarse),
    }
}
