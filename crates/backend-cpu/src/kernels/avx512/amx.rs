//! Many rows of activations on processors with registers for matrices of bytes (AMX-INT8).
//!
//! A [`tile`](super::tile) of 32 rows of weights is multiplied with two [panels](Panel) of sixteen rows of activations: one
//! instruction makes the 256 dot products of a group. They leave the registers by way of the L1 cache, where scales meet them,
//! in the order of the contract; that takes longer than the products, so it is what limits the speed. Some groups are
//! multiplied, then scaled, so that neither waits for the other at every group.
//!
//! These instructions take signed codes as well as unsigned ones: a bias is taken from the codes of a tile ([`centre`])
//! instead of from every sum. The compiler has no matrix registers yet, so instructions are assembly; nothing but this file touches
//! these registers, so what they hold stays from one piece of assembly to the next.

use super::tile::{Ahead, groups};
use super::{load_floats, store_floats};
use crate::kernels::activations::{GroupCodes, PANEL_ROWS, Panel, chunks};
use crate::kernels::format::Format;
use crate::kernels::matmul::{Fours, Job, Sixteen, TILE_ROWS, Tile, TileMut};
use std::arch::asm;
use std::arch::x86_64::*;

/// Whether this processor multiplies matrices of bytes, and the system lets this process use their registers.
///
/// Linux lets a process use registers of that size once it asks; other systems are not asked.
pub fn detect() -> bool {
    #[cfg(target_os = "linux")]
    {
        const TILES_AND_INT8: u32 = 1 << 24 | 1 << 25;
        const STATES: u64 = 1 << 17 | 1 << 18;
        const OS_SAVES_STATES: u32 = 1 << 27;
        if __cpuid(0).eax < 7
            || __cpuid(1).ecx & OS_SAVES_STATES == 0
            || __cpuid_count(7, 0).edx & TILES_AND_INT8 != TILES_AND_INT8
        {
            return false;
        }
        let (low, high): (u32, u32);
        // SAFETY: the processor has the instruction, as the bit above says; it writes two registers.
        unsafe {
            asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags));
        }
        (u64::from(high) << 32 | u64::from(low)) & STATES == STATES && permitted()
    }
    #[cfg(not(target_os = "linux"))]
    false
}

/// Asks Linux for the registers: `arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)`, for all threads of the process.
#[cfg(target_os = "linux")]
fn permitted() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: i64 = 0x1023;
    const XFEATURE_XTILEDATA: i64 = 18;
    let result: i64;
    // SAFETY: the call changes what the process may use and touches no memory; the kernel changes these three registers.
    unsafe {
        asm!("syscall", inlateout("rax") ARCH_PRCTL => result, in("rdi") ARCH_REQ_XCOMP_PERM, in("rsi") XFEATURE_XTILEDATA,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result == 0
}

/// Whether tiles of this format are multiplied here. Groups of 16 with offsets are not: panels have no sums of them.
#[inline(always)]
pub fn takes<F: Format>(job: &Job<'_>) -> bool {
    job.panels && !(F::FINE && F::OFFSET)
}

/// Takes the bias from the codes of a tile.
#[target_feature(enable = "avx512f,avx512bw")]
pub fn centre<F: Format>(tile: &mut TileMut<'_>, row_len: usize) {
    if F::BIAS == 0 {
        return;
    }
    let bias = _mm512_set1_epi8(F::BIAS as i8);
    let used = tile.filled().lane(7) * 16 + chunks(row_len) * 16;
    for codes in &mut tile.codes[..used] {
        let codes = codes.0.as_mut_ptr().cast();
        // SAFETY: the reference covers the 64 bytes read and written, and neither asks for alignment.
        unsafe { _mm512_storeu_si512(codes, _mm512_sub_epi8(_mm512_loadu_si512(codes), bias)) }
    }
}

/// Multiplies a tile, which holds the rows from `first` on, with all rows of activations.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn product<F: Format>(job: &Job<'_>, first: usize, tile: &Tile<'_>) {
    match (F::FINE, F::OFFSET, F::BIAS > 0) {
        (true, _, true) => whole::<true, false, true>(job, first, tile),
        (true, _, false) => whole::<true, false, false>(job, first, tile),
        (false, true, true) => whole::<false, true, true>(job, first, tile),
        (false, true, false) => whole::<false, true, false>(job, first, tile),
        (false, false, true) => whole::<false, false, true>(job, first, tile),
        (false, false, false) => whole::<false, false, false>(job, first, tile),
    }
}

/// Rows of weights whose products are one matrix register.
const COLUMNS: usize = 16;

/// Groups that are multiplied before their products are scaled.
const GROUPS: usize = 4;

/// Products of a panel and half a tile: a matrix register.
type Products<T> = [[T; COLUMNS]; PANEL_ROWS];

/// What leaves the registers: of [`GROUPS`] groups the products of two panels, each with both halves of a tile.
#[repr(C, align(64))]
struct Dots([[Products<i32>; 4]; GROUPS]);

/// Sums of lanes of the contract, in the order of [`Dots`].
///
/// A line more than they take, as what lies a multiple of 4096 bytes apart shares places of the L1 cache.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Sums([Products<f32>; 4], [f32; 16]);

impl Sums {
    const ZERO: Self = Self([[[0.0; COLUMNS]; PANEL_ROWS]; 4], [0.0; 16]);

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    fn add(&mut self, other: &Self) {
        let rows = self.0.as_flattened_mut().iter_mut().zip(other.0.as_flattened());
        for (sum, other) in rows {
            store_floats(_mm512_add_ps(load_floats(sum), load_floats(other)), sum);
        }
    }
}

/// The lanes of the contract in the order in which they are added: neighbours, then neighbouring pairs, then both fours.
const LANES: [usize; 8] = [0, 4, 2, 6, 1, 5, 3, 7];

/// Sums that wait for others, and the one that is made.
const WAITING: usize = LANES.len().ilog2() as usize + 1;

/// The shapes of the matrix registers: rows and bytes of a row of each.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Shapes {
    /// Registers 0 to 3 hold products, 4 and 5 a group of panels, 6 and 7 a group of halves of a tile.
    const fn of(group: u8) -> Self {
        let mut shapes =
            Self { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        let mut i = 0;
        while i < 8 {
            (shapes.row_bytes[i], shapes.rows[i]) = match i {
                4 | 5 => (group as u16, PANEL_ROWS as u8),
                6 | 7 => (4 * COLUMNS as u16, group / 4),
                _ => (4 * COLUMNS as u16, PANEL_ROWS as u8),
            };
            i += 1;
        }
        shapes
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn whole<const FINE: bool, const OFFSET: bool, const SIGNED: bool>(
    job: &Job<'_>,
    first: usize,
    tile: &Tile<'_>,
) {
    let rows = job.x.panels().expect("activations with panels");
    let shapes = const { &Shapes::of(if FINE { 16 } else { 32 }) };
    // SAFETY: `Job::panels` is only set where the registers were detected; the reference covers the 64 bytes read.
    unsafe { asm!("ldtilecfg [{}]", in(reg) shapes, options(nostack, preserves_flags, readonly)) };
    let mut dots = Dots([[[[0; COLUMNS]; PANEL_ROWS]; 4]; GROUPS]);
    let mut sums = [Sums::ZERO; WAITING];
    let panels = rows.start / PANEL_ROWS..rows.end.div_ceil(PANEL_ROWS);
    let steps = panels.len().div_ceil(2) * groups::<FINE>(job.row_len);
    let mut ahead = Ahead::new(job, first + TILE_ROWS, TILE_ROWS, steps);
    for i in panels.clone().step_by(2) {
        // A last panel without a second one is multiplied twice.
        let pair = [i, (i + 1).min(panels.end - 1)];
        let x = pair.map(|i| job.x.panel(i));
        for (i, lane) in LANES.into_iter().enumerate() {
            // Every eighth group; the last chunk of a row may end before this lane.
            let groups = (groups::<FINE>(job.row_len) + 7 - lane) / 8;
            let mut at = i.count_ones() as usize;
            sum::<FINE, OFFSET, SIGNED>(tile, &x, (lane, groups), &mut dots, &mut sums[at], &mut ahead);
            for _ in 0..i.trailing_ones() {
                let (before, last) = sums.split_at_mut(at);
                before[at - 1].add(&last[0]);
                at -= 1;
            }
        }
        let count = TILE_ROWS.min(job.end - first);
        for (j, panel) in (i..panels.end.min(i + 2)).enumerate() {
            let inside = rows.start.max(panel * PANEL_ROWS)..rows.end.min((panel + 1) * PANEL_ROWS);
            for row in inside {
                let mut y = [0.0; TILE_ROWS];
                for (half, y) in y.as_chunks_mut::<16>().0.iter_mut().enumerate() {
                    let sum = load_floats(&sums[0].0[2 * j + half][row % PANEL_ROWS]);
                    store_floats(_mm512_add_ps(sum, _mm512_setzero_ps()), y);
                }
                job.y.write(row - rows.start, first, &y[..count]);
            }
        }
    }
    // SAFETY: as above; it leaves the registers unused, which the system then need not save.
    unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
}

/// The products of two panels with the `groups` groups of lane `lane` of a tile.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn sum<const FINE: bool, const OFFSET: bool, const SIGNED: bool>(
    tile: &Tile<'_>,
    x: &[Panel<'_>; 2],
    (lane, groups): (usize, usize),
    dots: &mut Dots,
    sums: &mut Sums,
    ahead: &mut Ahead,
) {
    // Groups of 16 share the places of their 32.
    let (parts, vectors) = if FINE { (2, 4) } else { (1, 8) };
    let first = tile.lane(lane) * parts;
    let codes = &tile.codes[first * vectors * 2..][..groups * vectors * 2];
    let scale = &tile.scale[first * 2..][..groups * 2];
    let offset = if OFFSET { &tile.offset[first * 2..][..groups * 2] } else { &[] };
    let chunks = x[0].scales.len() / (8 * PANEL_ROWS);
    let place = |g: usize| {
        let lane = if FINE { 4 * (g % 2) + lane / 2 } else { lane };
        (lane * chunks + g / parts) * PANEL_ROWS
    };
    let first_code = if FINE { lane % 2 * 16 } else { 0 };
    *sums = Sums::ZERO;
    for start in (0..groups).step_by(GROUPS) {
        let count = GROUPS.min(groups - start);
        let mut before = dots.0[0].as_mut_ptr();
        for (i, dots) in dots.0[..count].iter_mut().enumerate() {
            let g = start + i;
            let to = dots.as_mut_ptr();
            let weights: &[Fours] = &codes[g * vectors * 2..][..vectors * 2];
            let panels = [&x[0], &x[1]].map(|x| x.codes[place(g)..][..PANEL_ROWS].as_ptr());
            ahead.step();
            // SAFETY: the registers are set up for groups of this size. The slices cover sixteen rows of a group of each panel,
            // of 32 bytes each, and the vectors of both halves of the tile; `to` and `before` are four registers' room.
            unsafe { multiply::<SIGNED>(panels, first_code, weights, to, before) };
            before = to;
        }
        // SAFETY: as above.
        unsafe { store_last(before) };
        for (c, sums) in sums.0.iter_mut().enumerate() {
            // What is multiplied next comes into the L1 cache meanwhile.
            let next = start + GROUPS + c;
            if next < groups {
                let weights = &codes[next * vectors * 2..][..vectors * 2];
                prefetch(weights.as_ptr().cast(), size_of_val(weights));
                for x in x {
                    prefetch(x.codes[place(next)..].as_ptr().cast(), PANEL_ROWS * size_of::<GroupCodes>());
                }
            }
            let (x, half) = (&x[c / 2], c % 2);
            let mut now = [_mm512_setzero_ps(); PANEL_ROWS];
            for t in 0..PANEL_ROWS {
                now[t] = load_floats(&sums[t]);
            }
            for (i, dots) in dots.0[..count].iter().enumerate() {
                let g = start + i;
                let scales: &[f32; PANEL_ROWS] = x.scales[place(g)..].first_chunk().expect("a panel");
                let w_scale = load_floats(at(scale, 2 * g + half));
                for t in 0..PANEL_ROWS {
                    // SAFETY: the reference covers the 64 bytes read.
                    let dot = unsafe { _mm512_loadu_si512(dots[c][t].as_ptr().cast()) };
                    let by = _mm512_mul_ps(w_scale, _mm512_set1_ps(scales[t]));
                    now[t] = _mm512_fmadd_ps(by, _mm512_cvtepi32_ps(dot), now[t]);
                }
                if OFFSET {
                    let x_sums: &[f32; PANEL_ROWS] = x.sums[place(g)..].first_chunk().expect("a panel");
                    let w_offset = load_floats(at(offset, 2 * g + half));
                    for t in 0..PANEL_ROWS {
                        now[t] = _mm512_fmadd_ps(w_offset, _mm512_set1_ps(x_sums[t]), now[t]);
                    }
                }
            }
            for t in 0..PANEL_ROWS {
                store_floats(now[t], &mut sums[t]);
            }
        }
    }
}

/// Asks for `bytes` bytes.
#[inline(always)]
fn prefetch(at: *const u8, bytes: usize) {
    for line in (0..bytes).step_by(64) {
        // SAFETY: every processor with vectors has the instruction, and a prefetch may name any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(line).cast()) }
    }
}

/// Number `i` of the floats of a tile.
#[inline(always)]
fn at(floats: &[Sixteen], i: usize) -> &[f32; COLUMNS] {
    &floats[i].0
}

/// Multiplies a group of two panels with both halves of a tile. The products of the second panel stay in registers 2 and 3,
/// those of the group before are stored from there to `before`, so that no store waits for the product in front of it.
///
/// # Safety
/// The registers are set up. From `first_code` on, codes of a group can be read in sixteen rows of 32 bytes at each panel;
/// `to` and `before` are valid for four [`Products`] each.
#[inline(always)]
unsafe fn multiply<const SIGNED: bool>(
    panels: [*const GroupCodes; 2],
    first_code: usize,
    weights: &[Fours],
    to: *mut Products<i32>,
    before: *mut Products<i32>,
) {
    let [a, b] = panels.map(|panel| panel.cast::<u8>().wrapping_add(first_code));
    macro_rules! by {
        ($dot:literal) => {
            // SAFETY: the caller's promise.
            unsafe {
                asm!(
                    "tileloadd tmm4, [{a} + {row}*1]",
                    "tileloadd tmm6, [{w} + {two}*1]",
                    "tilezero tmm0",
                    concat!($dot, " tmm0, tmm4, tmm6"),
                    "tilestored [{before} + {one}*1 + 2048], tmm2",
                    "tileloadd tmm7, [{w} + {two}*1 + 64]",
                    "tilezero tmm1",
                    concat!($dot, " tmm1, tmm4, tmm7"),
                    "tilestored [{before} + {one}*1 + 3072], tmm3",
                    "tileloadd tmm5, [{b} + {row}*1]",
                    "tilezero tmm2",
                    concat!($dot, " tmm2, tmm5, tmm6"),
                    "tilestored [{to} + {one}*1], tmm0",
                    "tilezero tmm3",
                    concat!($dot, " tmm3, tmm5, tmm7"),
                    "tilestored [{to} + {one}*1 + 1024], tmm1",
                    a = in(reg) a, b = in(reg) b, w = in(reg) weights.as_ptr(), to = in(reg) to, before = in(reg) before,
                    row = in(reg) 32usize, one = in(reg) 64usize, two = in(reg) 128usize,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack, preserves_flags)
                )
            }
        };
    }
    if SIGNED { by!("tdpbssd") } else { by!("tdpbsud") }
}

/// Stores what the last group left in registers 2 and 3.
///
/// # Safety
/// As for [`multiply`], after which nothing else has used these registers.
#[inline(always)]
unsafe fn store_last(to: *mut Products<i32>) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "tilestored [{to} + {one}*1 + 2048], tmm2",
            "tilestored [{to} + {one}*1 + 3072], tmm3",
            to = in(reg) to, one = in(reg) 64usize, options(nostack, preserves_flags)
        )
    }
}
