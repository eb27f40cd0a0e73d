//! The rows that a matrix is multiplied with, as they are and rounded to eight bits.
//!
//! A row is cut into groups of 32 numbers, each rounded to `i8` codes under its own scale: `scale = max|x| / 127`,
//! `code = x * (127 / max|x|)` to the nearest integer, ties to even. A group whose numbers are all below 1e-30 is 0. A
//! group with an infinity or a NaN gets the scale NaN and codes 0, so that every output that it enters is NaN.
//!
//! Eight groups are a chunk of 256 codes. Groups `2i` and `2i + 1` share a line of 64 bytes: the first 16 codes of both,
//! then the last 16 of both ([`code_place`]). A row holds the first lines of all chunks, then the second ones, and so on,
//! so that work on every eighth group reads one stretch of memory.
//!
//! What is lost in rounding can be a row of its own, rounded like any other ([`Activations::fill_pair`]): the products of
//! both rows add up to that of about sixteen bits, by the same kernels.
//!
//! Where the processor has registers for matrices, codes are kept a second time, by panels of sixteen rows ([`Panel`]).
//!
//! For weights that are integers of 16 bits, a row is rounded to twelve bits instead, with 2047 in place of 127: [`Wide`].
//!
//! Scales and sums are kept twice. Kernels for few rows take them by chunks, in the order in which a transposing addition
//! of four vectors of two groups leaves its sums: [`COARSE_ORDER`], and [`FINE_ORDER`] for groups of 16. Kernels for many
//! rows take every eighth group. The last chunk of a row is filled up with zeros.

#[cfg(target_arch = "x86_64")]
mod avx512;

use super::Isa;
use nibble_quant::exl3;
use std::cell::UnsafeCell;

/// Numbers in a chunk.
pub const CHUNK: usize = 256;

/// Which group of 32 of a chunk lies at each place.
pub const COARSE_ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

/// Which group of 16 of half a chunk lies at each place.
pub const FINE_ORDER: [usize; 8] = [0, 1, 4, 5, 2, 3, 6, 7];

/// Where code `i` of a chunk lies, counting through its four lines.
pub const fn code_place(i: usize) -> usize {
    let (group, half, within) = (i / 32, i / 16 % 2, i % 16);
    group / 2 * 64 + half * 32 + group % 2 * 16 + within
}

/// 64 codes of a row, see [`code_place`].
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Line(pub [i8; 64]);

/// Lines of a chunk.
const LINES: usize = 4;

/// What belongs to one group.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(16))]
pub struct Side {
    /// Its scale.
    pub scale: f32,
    /// -128 times the sum of its codes: what turns a dot product with codes + 128 into the right one.
    pub bias: i32,
    /// The sum of its codes times its scale: what an offset multiplies.
    pub sum: f32,
}

/// What belongs to the eight groups of 32 of a chunk, in [`COARSE_ORDER`].
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(32))]
pub struct Coarse {
    /// As in [`Side`].
    pub scale: [f32; 8],
    /// As in [`Side`].
    pub bias: [i32; 8],
    /// As in [`Side`].
    pub sum: [f32; 8],
}

/// What belongs to the sixteen groups of 16 of a chunk, in [`FINE_ORDER`] for each half.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct Fine {
    /// As in [`Side`].
    pub scale: [[f32; 8]; 2],
    /// As in [`Side`].
    pub bias: [[i32; 8]; 2],
    /// As in [`Side`].
    pub sum: [[f32; 8]; 2],
}

/// 32 codes of twelve bits: two tiles of sixteen numbers, each in the order of [`exl3::input`].
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Wide(pub [i16; 32]);

/// The largest code of [`Wide`]: the most with which 32 products with numbers of 16 bits below 2^15 - 15 add up in 32 bits.
const WIDE_TOP: f32 = 2047.0;

/// Which forms of a row are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forms {
    /// Eight-bit codes, for integer codecs.
    pub codes: bool,
    /// The numbers as they are, for float codecs and for exact work.
    pub floats: bool,
    /// Eight-bit codes by panels besides, where there are rows enough: only together with `codes`.
    pub panels: bool,
    /// Twelve-bit codes, for trellises.
    pub wide: bool,
}

impl Forms {
    /// Only codes.
    pub const CODES: Self = Self { codes: true, floats: false, panels: false, wide: false };
    /// Codes also by panels.
    pub const PANELS: Self = Self { panels: true, ..Self::CODES };
    /// Only floats.
    pub const FLOATS: Self = Self { codes: false, floats: true, panels: false, wide: false };
    /// Only twelve-bit codes.
    pub const WIDE: Self = Self { codes: false, floats: false, panels: false, wide: true };
    /// All of them.
    pub const ALL: Self = Self { codes: true, floats: true, panels: true, wide: true };

    /// What kernels for eight-bit codes read.
    pub fn of_codes(isa: Isa) -> Self {
        if isa.has_matrices() { Self::PANELS } else { Self::CODES }
    }
}

/// One row in its forms. A form that is not kept is empty.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Line `i` of chunk `q` is at `i * chunks + q`.
    pub lines: &'a [Line],
    /// The groups of 32 of each chunk.
    pub coarse: &'a [Coarse],
    /// The groups of 16 of each chunk.
    pub fine: &'a [Fine],
    /// Groups of 32: number `lane` of chunk `q` is at `lane * chunks + q`.
    pub coarse_lanes: &'a [Side],
    /// Groups of 16: number `lane` of half `h` of chunk `q` is at `lane * 2 * chunks + 2 * q + h`.
    pub fine_lanes: &'a [Side],
    /// The numbers.
    pub floats: &'a [f32],
    /// Twelve-bit codes, by groups of 32; the last one is filled up with zeros.
    pub wide: &'a [Wide],
    /// Their scales, and behind them what all the codes add up to.
    pub wide_scales: &'a [f32],
}

impl Row<'_> {
    /// Line `i` of chunk `q`.
    #[inline(always)]
    pub fn line(&self, q: usize, i: usize) -> &Line {
        &self.lines[i * self.coarse.len() + q]
    }

    /// Code `k` of the row.
    pub fn code(&self, k: usize) -> i8 {
        let place = code_place(k % CHUNK);
        self.line(k / CHUNK, place / 64).0[place % 64]
    }
}

/// What of a row the kernels for many rows read.
#[derive(Clone, Copy, Debug)]
pub struct Lanes<'a> {
    /// As in [`Row`]: four lines for each chunk.
    pub lines: &'a [Line],
    /// [`Row::coarse_lanes`] or [`Row::fine_lanes`].
    pub sides: &'a [Side],
}

/// Rows in a [`Panel`].
pub const PANEL_ROWS: usize = 16;

/// Rows from which on panels are made: kernels for fewer do not read them.
pub const PANELS_FROM: usize = 2 * PANEL_ROWS + 1;

/// The codes of one group of 32 of one row.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub struct GroupCodes(pub [i8; 32]);

/// Sixteen rows: what kernels with matrix registers read, who load a group of all of them at once.
#[derive(Clone, Copy, Debug)]
pub struct Panel<'a> {
    /// Of row `t`, group `lane` of chunk `q` is at `(lane * chunks + q) * 16 + t`.
    pub codes: &'a [GroupCodes],
    /// Scales, in the same places.
    pub scales: &'a [f32],
    /// Sums of codes times scales, in the same places.
    pub sums: &'a [f32],
}

/// The same, to be written.
struct RowMut<'a> {
    lines: &'a mut [Line],
    coarse: &'a mut [Coarse],
    fine: &'a mut [Fine],
    coarse_lanes: &'a mut [Side],
    fine_lanes: &'a mut [Side],
}

/// The same of twelve-bit codes.
struct WideMut<'a> {
    codes: &'a mut [Wide],
    /// One more than there are groups.
    scales: &'a mut [f32],
}

/// A buffer of rows. It allocates when it is made and never again.
pub struct Activations {
    lines: Shared<Line>,
    coarse: Shared<Coarse>,
    fine: Shared<Fine>,
    coarse_lanes: Shared<Side>,
    fine_lanes: Shared<Side>,
    floats: Shared<f32>,
    panel_codes: Shared<GroupCodes>,
    panel_scales: Shared<f32>,
    panel_sums: Shared<f32>,
    wide: Shared<Wide>,
    wide_scales: Shared<f32>,
    forms: Forms,
    in_panels: bool,
    rows: usize,
    row_len: usize,
}

/// A slice whose parts are written by several threads, each its own rows.
struct Shared<T>(Box<[UnsafeCell<T>]>);

// SAFETY: only `fill_shared` writes without `&mut`, and its callers promise that no row is written while it is used.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T: Copy> Shared<T> {
    fn new(len: usize, value: T) -> Self {
        Self((0..len).map(|_| UnsafeCell::new(value)).collect())
    }

    fn row(&self, row: usize, stride: usize, len: usize) -> &[T] {
        let cells = &self.0[row * stride..row * stride + len];
        // SAFETY: `UnsafeCell<T>` is laid out as `T`; nobody writes this row meanwhile, as `fill_shared` asks for.
        unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), cells.len()) }
    }

    /// # Safety
    /// Nobody else may use the element meanwhile.
    #[inline]
    unsafe fn set(&self, at: usize, value: T) {
        // SAFETY: `UnsafeCell<T>` allows the write, and the caller promises that the element is its own.
        unsafe { *self.0[at].get() = value }
    }

    /// # Safety
    /// Nobody else may use the row while the result lives.
    #[allow(clippy::mut_from_ref, reason = "the caller promises that the row is its own")]
    unsafe fn row_mut(&self, row: usize, stride: usize, len: usize) -> &mut [T] {
        let cells = &self.0[row * stride..row * stride + len];
        // SAFETY: `UnsafeCell<T>` allows the write, and the caller promises that the row is its own.
        unsafe { std::slice::from_raw_parts_mut(UnsafeCell::raw_get(cells.as_ptr()), cells.len()) }
    }
}

/// Elements from one row to the next. One line more than a row holds, as rows a power of two apart would share few
/// places of a cache.
struct Strides {
    lines: usize,
    sides: usize,
    fine_sides: usize,
}

impl Strides {
    const fn of(row_len: usize) -> Self {
        let chunks = chunks(row_len);
        Self { lines: LINES * chunks + 1, sides: 8 * chunks + 4, fine_sides: 16 * chunks + 4 }
    }
}

/// Chunks that a row of `row_len` numbers takes.
pub const fn chunks(row_len: usize) -> usize {
    row_len.div_ceil(CHUNK)
}

/// Groups that the panels of `rows` rows have.
const fn panel_groups(rows: usize, row_len: usize) -> usize {
    rows.next_multiple_of(PANEL_ROWS) * 8 * chunks(row_len)
}

/// Groups of 32 that a row of `row_len` numbers takes.
pub const fn groups(row_len: usize) -> usize {
    row_len.div_ceil(32)
}

impl Activations {
    /// A buffer for `rows` rows of up to `row_len` numbers in `forms`.
    pub fn new(rows: usize, row_len: usize, forms: Forms) -> Self {
        let (coded, strides) = (if forms.codes { rows } else { 0 }, Strides::of(row_len));
        let in_panels = forms.panels && rows >= PANELS_FROM;
        let panels = if in_panels { panel_groups(rows, row_len) } else { 0 };
        Self {
            lines: Shared::new(coded * strides.lines, Line([0; 64])),
            coarse: Shared::new(coded * chunks(row_len), Coarse::default()),
            fine: Shared::new(coded * chunks(row_len), Fine::default()),
            coarse_lanes: Shared::new(coded * strides.sides, Side::default()),
            fine_lanes: Shared::new(coded * strides.fine_sides, Side::default()),
            floats: Shared::new(if forms.floats { rows * row_len } else { 0 }, 0.0),
            panel_codes: Shared::new(panels, GroupCodes([0; 32])),
            panel_scales: Shared::new(panels, 0.0),
            panel_sums: Shared::new(panels, 0.0),
            wide: Shared::new(if forms.wide { rows * groups(row_len) } else { 0 }, Wide([0; 32])),
            wide_scales: Shared::new(if forms.wide { rows * (groups(row_len) + 1) } else { 0 }, 0.0),
            forms,
            in_panels,
            rows,
            row_len,
        }
    }

    /// Bytes that [`Activations::new`] reserves.
    pub fn bytes(rows: usize, row_len: usize, forms: Forms) -> usize {
        let strides = Strides::of(row_len);
        let codes = strides.lines * size_of::<Line>()
            + chunks(row_len) * (size_of::<Coarse>() + size_of::<Fine>())
            + (strides.sides + strides.fine_sides) * size_of::<Side>();
        let floats = row_len * size_of::<f32>();
        let panels = panel_groups(rows, row_len) * (size_of::<GroupCodes>() + 2 * size_of::<f32>());
        let wide = groups(row_len) * (size_of::<Wide>() + size_of::<f32>()) + size_of::<f32>();
        let kept = [(forms.codes, codes), (forms.floats, floats), (forms.wide, wide)];
        rows * kept.into_iter().map(|(kept, bytes)| if kept { bytes } else { 0 }).sum::<usize>()
            + if forms.panels && rows >= PANELS_FROM { panels } else { 0 }
    }

    /// Uses the buffer for rows of another length from now on; what it holds is lost.
    ///
    /// # Panics
    /// If fewer than `rows` rows of that length fit.
    pub fn reshape(&mut self, rows: usize, row_len: usize) {
        let strides = Strides::of(row_len);
        let coded = rows * strides.lines <= self.lines.0.len()
            && rows * strides.sides <= self.coarse_lanes.0.len()
            && rows * chunks(row_len) <= self.coarse.0.len();
        let floats = rows * row_len <= self.floats.0.len();
        let wide = rows * groups(row_len) <= self.wide.0.len()
            && rows * (groups(row_len) + 1) <= self.wide_scales.0.len();
        let forms = self.forms;
        let kept = [(forms.codes, coded), (forms.floats, floats), (forms.wide, wide)];
        let fit = kept.into_iter().all(|(kept, fits)| fits || !kept);
        assert!(fit, "{rows} rows of {row_len} numbers do not fit");
        (self.rows, self.row_len) = (rows, row_len);
        // Kernels do without them, with the same results.
        self.in_panels = self.forms.panels
            && rows >= PANELS_FROM
            && panel_groups(rows, row_len) <= self.panel_codes.0.len();
    }

    /// Rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers in a row.
    pub fn row_len(&self) -> usize {
        self.row_len
    }

    /// The forms that are kept.
    pub fn forms(&self) -> Forms {
        self.forms
    }

    /// One row.
    pub fn row(&self, row: usize) -> Row<'_> {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let strides = Strides::of(self.row_len);
        let chunks = if self.forms.codes { chunks(self.row_len) } else { 0 };
        let floats = if self.forms.floats { self.row_len } else { 0 };
        let wide = if self.forms.wide { groups(self.row_len) } else { 0 };
        let wide_scales = wide + usize::from(self.forms.wide);
        Row {
            lines: self.lines.row(row, if chunks > 0 { strides.lines } else { 0 }, LINES * chunks),
            coarse: self.coarse.row(row, chunks, chunks),
            fine: self.fine.row(row, chunks, chunks),
            coarse_lanes: self.coarse_lanes.row(row, if chunks > 0 { strides.sides } else { 0 }, 8 * chunks),
            fine_lanes: self.fine_lanes.row(
                row,
                if chunks > 0 { strides.fine_sides } else { 0 },
                16 * chunks,
            ),
            floats: self.floats.row(row, floats, floats),
            wide: self.wide.row(row, wide, wide),
            wide_scales: self.wide_scales.row(row, wide_scales, wide_scales),
        }
    }

    /// What of a row the kernels for many rows read, with groups of 16 or of 32.
    #[inline]
    pub fn lanes<const FINE: bool>(&self, row: usize) -> Lanes<'_> {
        assert!(row < self.rows && self.forms.codes, "row {row} of {}", self.rows);
        let (strides, chunks) = (Strides::of(self.row_len), chunks(self.row_len));
        Lanes {
            lines: self.lines.row(row, strides.lines, LINES * chunks),
            sides: if FINE {
                self.fine_lanes.row(row, strides.fine_sides, 16 * chunks)
            } else {
                self.coarse_lanes.row(row, strides.sides, 8 * chunks)
            },
        }
    }

    /// Whether rows lie in panels now.
    pub fn in_panels(&self) -> bool {
        self.in_panels
    }

    /// The panel that has rows `16 * i` and following; what it has past the last row means nothing.
    ///
    /// # Panics
    /// If rows do not lie in panels.
    #[inline]
    pub fn panel(&self, i: usize) -> Panel<'_> {
        assert!(self.in_panels && i * PANEL_ROWS < self.rows, "panel {i} of {} rows", self.rows);
        let len = panel_groups(PANEL_ROWS, self.row_len);
        Panel {
            codes: self.panel_codes.row(i, len, len),
            scales: self.panel_scales.row(i, len, len),
            sums: self.panel_sums.row(i, len, len),
        }
    }

    /// Sets one row.
    pub fn fill(&mut self, isa: Isa, row: usize, x: &[f32]) {
        // SAFETY: `&mut self` proves that nobody else uses any row.
        unsafe { self.fill_shared(isa, row, x) }
    }

    /// Sets one row while other threads set others.
    ///
    /// # Safety
    /// Until it returns, no other thread may read or set this row, nor read its panel.
    pub unsafe fn fill_shared(&self, isa: Isa, row: usize, x: &[f32]) {
        assert!(row < self.rows && x.len() == self.row_len, "{} numbers in row {row}", x.len());
        if self.forms.floats {
            // SAFETY: the caller promises that this row is its own.
            unsafe { self.floats.row_mut(row, self.row_len, self.row_len) }.copy_from_slice(x);
        }
        if self.forms.codes {
            // SAFETY: as above.
            round(isa, x, unsafe { self.codes_mut(row) }, None);
        }
        // SAFETY: as above.
        unsafe { self.set_in_panel(row) }
        if self.forms.wide {
            // SAFETY: as above.
            round_wide(isa, x, unsafe { self.wide_mut(row) }, None);
        }
    }

    /// Sets the codes of row `row` to `x` and those of row `rest` to what the first lose, while other threads set others.
    ///
    /// # Safety
    /// Until it returns, no other thread may read or set these rows, which differ, nor read their panels.
    pub unsafe fn fill_pair(&self, isa: Isa, row: usize, rest: usize, x: &[f32]) {
        assert!(row != rest && row.max(rest) < self.rows && x.len() == self.row_len, "rows {row} and {rest}");
        // SAFETY: the caller promises that these rows are its own, and they are two.
        unsafe {
            if self.forms.codes {
                round(isa, x, self.codes_mut(row), Some(self.codes_mut(rest)));
            }
            self.set_in_panel(row);
            self.set_in_panel(rest);
            if self.forms.wide {
                round_wide(isa, x, self.wide_mut(row), Some(self.wide_mut(rest)));
            }
        }
    }

    /// # Safety
    /// Nobody else may use the row while the result lives.
    unsafe fn wide_mut(&self, row: usize) -> WideMut<'_> {
        let groups = groups(self.row_len);
        // SAFETY: the caller promises that this row is its own.
        unsafe {
            WideMut {
                codes: self.wide.row_mut(row, groups, groups),
                scales: self.wide_scales.row_mut(row, groups + 1, groups + 1),
            }
        }
    }

    /// Copies the codes of a row to its panel, if rows lie in panels.
    ///
    /// # Safety
    /// Until it returns, no other thread may set this row or read its panel.
    unsafe fn set_in_panel(&self, row: usize) {
        if !self.in_panels {
            return;
        }
        let (chunks, Lanes { lines, sides }) = (chunks(self.row_len), self.lanes::<false>(row));
        let first = panel_groups(row / PANEL_ROWS * PANEL_ROWS, self.row_len) + row % PANEL_ROWS;
        for (i, side) in sides.iter().enumerate() {
            let (lane, q) = (i / chunks, i % chunks);
            let (line, at) = (&lines[lane / 2 * chunks + q].0, code_place(32 * lane) % 64);
            let mut codes = [0; 32];
            codes[..16].copy_from_slice(&line[at..at + 16]);
            codes[16..].copy_from_slice(&line[at + 32..at + 48]);
            let at = first + i * PANEL_ROWS;
            // SAFETY: these elements belong to this row, which the caller promises to be its own.
            unsafe {
                self.panel_codes.set(at, GroupCodes(codes));
                self.panel_scales.set(at, side.scale);
                self.panel_sums.set(at, side.sum);
            }
        }
    }

    /// # Safety
    /// Nobody else may use the row while the result lives.
    unsafe fn codes_mut(&self, row: usize) -> RowMut<'_> {
        let (chunks, strides) = (chunks(self.row_len), Strides::of(self.row_len));
        // SAFETY: the caller promises that this row is its own.
        unsafe {
            RowMut {
                lines: self.lines.row_mut(row, strides.lines, LINES * chunks),
                coarse: self.coarse.row_mut(row, chunks, chunks),
                fine: self.fine.row_mut(row, chunks, chunks),
                coarse_lanes: self.coarse_lanes.row_mut(row, strides.sides, 8 * chunks),
                fine_lanes: self.fine_lanes.row_mut(row, strides.fine_sides, 16 * chunks),
            }
        }
    }
}

/// Rounds a row, and what that loses if there is a place for it.
fn round(isa: Isa, x: &[f32], row: RowMut<'_>, rest: Option<RowMut<'_>>) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(_) => {
            // SAFETY: the value of `isa` proves that the instructions were detected.
            unsafe { quantize_avx512(x, row, rest) }
        }
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(_) => {
            // SAFETY: as above.
            unsafe { quantize_avx2(x, row, rest) }
        }
        _ => quantize(x, row, rest, quantize_chunk),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn quantize_avx2(x: &[f32], row: RowMut<'_>, rest: Option<RowMut<'_>>) {
    quantize(x, row, rest, quantize_chunk);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma")]
fn quantize_avx512(x: &[f32], row: RowMut<'_>, rest: Option<RowMut<'_>>) {
    quantize(x, row, rest, |x, q, row| avx512::quantize_chunk(x, q, row));
}

/// Rounds a row, chunk by chunk.
#[inline(always)]
fn quantize(
    x: &[f32],
    mut row: RowMut<'_>,
    mut rest: Option<RowMut<'_>>,
    chunk: impl Fn(&[f32; CHUNK], usize, &mut RowMut<'_>),
) {
    for (q, x) in x.chunks(CHUNK).enumerate() {
        let mut padded = [0.0; CHUNK];
        let x = x.try_into().unwrap_or_else(|_| {
            padded[..x.len()].copy_from_slice(x);
            &padded
        });
        chunk(x, q, &mut row);
        if let Some(rest) = &mut rest {
            chunk(&lost(x, q, &row), q, rest);
        }
    }
}

/// What the codes of a chunk differ by from its numbers.
#[inline(always)]
fn lost(x: &[f32; CHUNK], q: usize, row: &RowMut<'_>) -> [f32; CHUNK] {
    let chunks = row.coarse.len();
    let mut lost = *x;
    for (half, lost) in lost.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let (group, at) = (half / 2, code_place(16 * half) % 64);
        let scale = row.coarse_lanes[group * chunks + q].scale;
        let codes: &[i8; 16] =
            row.lines[group / 2 * chunks + q].0[at..].first_chunk().expect("a line has four halves");
        lost.iter_mut().zip(codes).for_each(|(x, &code)| *x -= scale * f32::from(code));
    }
    lost
}

/// Rounds a chunk; the same operations on every processor, so the compiler may use what vectors there are.
#[inline(always)]
fn quantize_chunk(x: &[f32; CHUNK], q: usize, row: &mut RowMut<'_>) {
    let chunks = row.coarse.len();
    for group in 0..8 {
        let x: &[f32; 32] = x[32 * group..].first_chunk().expect("a chunk has eight groups");
        let (scale, inverse) = scale_of(x, 127.0);
        let mut sums = [0i32; 2];
        let line = &mut row.lines[group / 2 * chunks + q];
        for (half, sum) in sums.iter_mut().enumerate() {
            let at = code_place(32 * group + 16 * half) % 64;
            let out: &mut [i8; 16] = line.0[at..].first_chunk_mut().expect("a line has four halves");
            for (code, x) in out.iter_mut().zip(&x[16 * half..]) {
                let rounded = (x * inverse).round_ties_even() as i32;
                *sum += rounded;
                *code = rounded as i8;
            }
        }
        let side = |sum: i32| Side { scale, bias: -128 * sum, sum: scale * sum as f32 };
        let whole = side(sums[0] + sums[1]);
        row.coarse_lanes[group * chunks + q] = whole;
        let (coarse, place) = (&mut row.coarse[q], group % 2 * 4 + group / 2);
        coarse.scale[place] = whole.scale;
        coarse.bias[place] = whole.bias;
        coarse.sum[place] = whole.sum;
        for (half, sum) in sums.into_iter().enumerate() {
            let part = side(sum);
            let (fine, at, within) = (&mut row.fine[q], group / 4, group % 4);
            row.fine_lanes[(2 * within + half) * 2 * chunks + 2 * q + at] = part;
            let place = within % 2 * 4 + within / 2 * 2 + half;
            fine.scale[at][place] = part.scale;
            fine.bias[at][place] = part.bias;
            fine.sum[at][place] = part.sum;
        }
    }
}

/// Rounds a row to twelve bits, and what that loses if there is a place for it.
fn round_wide(isa: Isa, x: &[f32], row: WideMut<'_>, rest: Option<WideMut<'_>>) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(_) => {
            // SAFETY: the value of `isa` proves that the instructions were detected.
            unsafe { wide_avx512(x, row, rest) }
        }
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(_) => {
            // SAFETY: as above.
            unsafe { wide_avx2(x, row, rest) }
        }
        _ => wide(x, row, rest),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn wide_avx2(x: &[f32], row: WideMut<'_>, rest: Option<WideMut<'_>>) {
    wide(x, row, rest);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,fma")]
fn wide_avx512(x: &[f32], row: WideMut<'_>, rest: Option<WideMut<'_>>) {
    wide(x, row, rest);
}

/// Rounds a row to twelve bits, with the same operations on every processor.
#[inline(always)]
fn wide(x: &[f32], mut row: WideMut<'_>, mut rest: Option<WideMut<'_>>) {
    let groups = groups(x.len());
    let (mut all, mut all_of_rest) = (0.0, 0.0);
    for (group, x) in x.chunks(32).enumerate() {
        let mut padded = [0.0; 32];
        padded[..x.len()].copy_from_slice(x);
        let lost = wide_group(&padded, group, &mut row, &mut all);
        if let Some(rest) = &mut rest {
            wide_group(&lost, group, rest, &mut all_of_rest);
        }
    }
    row.scales[groups] = all;
    if let Some(rest) = rest {
        rest.scales[groups] = all_of_rest;
    }
}

/// Rounds a group and adds up its codes; returns what that loses.
#[inline(always)]
fn wide_group(x: &[f32; 32], group: usize, row: &mut WideMut<'_>, all: &mut f32) -> [f32; 32] {
    let (scale, inverse) = scale_of(x, WIDE_TOP);
    let rounded = x.map(|x| (x * inverse).round_ties_even() as i32);
    row.codes[group].0 = std::array::from_fn(|i| rounded[i / 16 * 16 + exl3::input(i % 16)] as i16);
    row.scales[group] = scale;
    *all = (rounded.iter().sum::<i32>() as f32).mul_add(scale, *all);
    std::array::from_fn(|i| x[i] - scale * rounded[i] as f32)
}

/// The scale of a group whose largest code is `top`, and what its numbers are multiplied by.
#[inline(always)]
fn scale_of(x: &[f32; 32], top: f32) -> (f32, f32) {
    // As integers, magnitudes order like numbers, with infinity and NaN on top.
    let max = x.iter().fold(0, |max: u32, x| max.max(x.to_bits() & 0x7FFF_FFFF));
    let max = f32::from_bits(max);
    if max.is_finite() {
        if max < 1e-30 { (0.0, 0.0) } else { (max / top, top / max) }
    } else {
        (f32::NAN, 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nibble_testkit::{Rng, uniform};

    fn one_row(isa: Isa, x: &[f32]) -> Activations {
        let mut a = Activations::new(1, x.len(), Forms::ALL);
        a.fill(isa, 0, x);
        a
    }

    #[test]
    fn rows_lie_in_panels_where_they_are_many_and_fit() {
        let mut a = Activations::new(40, 512, Forms::PANELS);
        assert!(a.in_panels());
        // One row takes sixteen in a panel, which a few wide ones have no room for.
        for (rows, row_len, panels) in
            [(1, 20 * 512, false), (33, 512, true), (32, 512, false), (60, 256, true)]
        {
            a.reshape(rows, row_len);
            assert_eq!(a.in_panels(), panels, "{rows} rows of {row_len}");
            a.fill(Isa::Scalar, rows - 1, &vec![1.0; row_len]);
            assert_eq!(a.row(rows - 1).code(row_len - 1), 127);
        }
        assert!(!Activations::new(1, 512, Forms::PANELS).in_panels());
    }

    #[test]
    fn orders_and_places_are_permutations() {
        let sorted = |mut v: Vec<usize>| {
            v.sort_unstable();
            v
        };
        assert_eq!(sorted((0..CHUNK).map(code_place).collect()), (0..CHUNK).collect::<Vec<_>>());
        assert_eq!(sorted(COARSE_ORDER.to_vec()), (0..8).collect::<Vec<_>>());
        assert_eq!(sorted(FINE_ORDER.to_vec()), (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn codes_and_sums_are_as_documented() {
        for len in [32, 48, 256, 288, 1001] {
            let x = uniform(len as u64, len);
            let a = one_row(Isa::Scalar, &x);
            let row = a.row(0);
            for (g, x) in x.chunks(32).enumerate() {
                let max = x.iter().fold(0.0f32, |m, x| m.max(x.abs()));
                let (chunk, place) = (g / 8, COARSE_ORDER.iter().position(|&o| o == g % 8).unwrap());
                let code = |i: usize| row.code(32 * g + i);
                let coarse = &row.coarse[chunk];
                assert_eq!(coarse.scale[place], max / 127.0);
                for (i, x) in x.iter().enumerate() {
                    assert_eq!(i32::from(code(i)), (x * (127.0 / max)).round_ties_even() as i32);
                }
                let sum: i32 = (0..32).map(|i| i32::from(code(i))).sum();
                assert_eq!(coarse.bias[place], -128 * sum);
                assert_eq!(coarse.sum[place], coarse.scale[place] * sum as f32);
                let side = row.coarse_lanes[g % 8 * row.coarse.len() + chunk];
                assert_eq!(
                    (side.scale, side.bias, side.sum),
                    (max / 127.0, -128 * sum, max / 127.0 * sum as f32)
                );
                for half in 0..2 {
                    let sum: i32 = (0..16).map(|i| i32::from(code(16 * half + i))).sum();
                    let fine_group = 2 * (g % 8) + half;
                    let place = FINE_ORDER.iter().position(|&o| o == fine_group % 8).unwrap();
                    let fine = &row.fine[chunk];
                    assert_eq!(fine.bias[fine_group / 8][place], -128 * sum);
                    assert_eq!(fine.scale[fine_group / 8][place], max / 127.0);
                    assert_eq!(fine.sum[fine_group / 8][place], max / 127.0 * sum as f32);
                    let at = fine_group % 8 * 2 * row.coarse.len() + 2 * chunk + fine_group / 8;
                    assert_eq!(row.fine_lanes[at].bias, -128 * sum);
                }
            }
        }
    }

    #[test]
    fn every_isa_rounds_alike() {
        let mut rng = Rng::new(7);
        let x: Vec<f32> = (0..1120).map(|_| rng.uniform() * f32::exp2(rng.below(60) as f32 - 30.0)).collect();
        let scalar = one_row(Isa::Scalar, &x);
        for isa in Isa::available() {
            let other = one_row(isa, &x);
            assert_eq!(format!("{:?}", other.row(0)), format!("{:?}", scalar.row(0)), "{isa}");
        }
    }

    #[test]
    fn a_pair_of_rows_keeps_what_one_loses() {
        for len in [32, 48, 256, 1001] {
            let x = uniform(3 + len as u64, len);
            let mut seen = Vec::new();
            for isa in Isa::available() {
                let a = {
                    let mut a = Activations::new(3, len, Forms::CODES);
                    a.fill(isa, 1, &vec![0.0; len]);
                    // SAFETY: nobody else uses it.
                    unsafe { a.fill_pair(isa, 2, 0, &x) };
                    a
                };
                let mut one = Activations::new(1, len, Forms::CODES);
                one.fill(isa, 0, &x);
                assert_eq!(format!("{:?}", a.row(2)), format!("{:?}", one.row(0)), "{isa}");
                assert!((0..len).all(|i| a.row(1).code(i) == 0), "{isa}: another row was written");
                for (i, &x) in x.iter().enumerate() {
                    let place = COARSE_ORDER.iter().position(|&o| o == i / 32 % 8).unwrap();
                    let value = |row: usize| {
                        let row = a.row(row);
                        f64::from(row.coarse[i / 256].scale[place]) * f64::from(row.code(i))
                    };
                    // Half a step of each: 1 / 254 of the largest number, and of half the first step.
                    let (whole, bound) = (value(2) + value(0), 1.001 / 254.0 / 254.0);
                    assert!((whole - f64::from(x)).abs() <= bound, "{isa}: {whole} for {x}");
                }
                seen.push(format!("{:?}", a.row(0)));
            }
            assert!(seen.iter().all(|row| *row == seen[0]), "{len}");
        }
    }

    #[test]
    fn twelve_bit_codes_are_as_documented_and_a_pair_keeps_what_one_loses() {
        for len in [16, 48, 256, 1001] {
            let x = uniform(5 + len as u64, len);
            let mut seen = Vec::new();
            for isa in Isa::available() {
                let a = Activations::new(3, len, Forms::WIDE);
                // SAFETY: nobody else uses it.
                unsafe { a.fill_pair(isa, 2, 0, &x) };
                let code = |row: Row<'_>, k: usize| {
                    let place = (0..16).find(|&i| exl3::input(i) == k % 16).unwrap();
                    row.wide[k / 32].0[k % 32 / 16 * 16 + place]
                };
                let (row, rest) = (a.row(2), a.row(0));
                let mut all = 0.0;
                for (group, x) in x.chunks(32).enumerate() {
                    let max = x.iter().fold(0f32, |max, x| max.max(x.abs()));
                    assert_eq!(row.wide_scales[group], max / 2047.0);
                    for (i, &x) in x.iter().enumerate() {
                        let k = 32 * group + i;
                        assert_eq!(code(row, k), (x * (2047.0 / max)).round_ties_even() as i16, "{isa}");
                        let value =
                            |row: Row<'_>| f64::from(row.wide_scales[group]) * f64::from(code(row, k));
                        all += value(row);
                        // Half a step of the second, 1 / 4094 of half the first step, and what floats below 1 are rounded by.
                        let (whole, bound) =
                            (value(row) + value(rest), 1.01 / 4094.0 / 4094.0 + 2f64.powi(-24));
                        assert!((whole - f64::from(x)).abs() <= bound, "{isa}: {whole} for {x}");
                    }
                }
                let found = f64::from(*row.wide_scales.last().unwrap());
                assert!((found - all).abs() < 1e-5 * len as f64, "{isa}: {found} and {all}");
                assert!(
                    a.row(1).wide.iter().all(|codes| codes.0 == [0; 32]),
                    "{isa}: another row was written"
                );
                seen.push(format!("{row:?} {rest:?}"));
            }
            assert!(seen.iter().all(|row| *row == seen[0]), "{len}");
        }
    }

    #[test]
    fn tiny_and_broken_groups_are_safe() {
        for isa in Isa::available() {
            for (value, scale) in [(0.0, 0.0), (1e-38, 0.0), (f32::INFINITY, f32::NAN), (f32::NAN, f32::NAN)]
            {
                let mut x = [0.5f32; 64];
                x[3] = value;
                x[..3].fill(value);
                x[4..32].fill(value);
                let a = one_row(isa, &x);
                let row = a.row(0);
                assert_eq!(row.coarse[0].scale[0].to_bits(), f32::to_bits(scale), "{isa} {value}");
                assert!((0..32).all(|i| row.code(i) == 0), "{isa} {value}");
                assert_eq!(row.coarse[0].scale[4], 0.5 / 127.0);
            }
        }
    }
}
