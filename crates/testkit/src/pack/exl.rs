//! ExLlama's encodings: groups of inputs with bits of their own (EXL2), trellises (EXL3).

use super::*;
use nibble_quant::exl3::{Codebook, Exl3, input};

/// `plan`: bits and number of stored rows of each group, for an input of that width.
fn exl2(plain: &Plain, plan: &dyn Fn(usize) -> Vec<(usize, usize)>) -> Written {
    let settings = json!({"quant_method": "exl2", "version": "0.3.2", "bits": 4.0, "head_bits": 6});
    plain.with_head().directory(("quantization_config", settings), |m| {
        if m.is_embedding() {
            return None;
        }
        let place = shuffled(m.columns); // of each input among the stored rows
        let mut stored = vec![0; m.columns];
        place.iter().enumerate().for_each(|(input, &row)| stored[row] = input);
        let (mut words, mut groups, mut scales, mut most) = (vec![], vec![], vec![], vec![]);
        let (mut at, mut first_word) = (0, 0usize);
        for (bits, count) in plan(m.columns) {
            let middle = (1u32 << (bits - 1)) as f32;
            let inputs = &stored[at..at + count];
            let peak = |row: usize| inputs.iter().fold(0f32, |p, &i| p.max(m.row(row)[i].abs())) / middle;
            let peaks: Vec<f32> = (0..m.rows).map(peak).collect();
            let top = half(largest(&peaks)).max(6e-5);
            let step = half(top / 256.0);
            let codes: Vec<u8> = peaks
                .iter()
                .map(|p| ((p / top * 256.0).sqrt().round() - 1.0).clamp(0.0, 15.0) as u8)
                .collect();
            let stream_of = |row: usize| {
                let root = f32::from(codes[row] + 1);
                let scale = half(root * root * step);
                let code = |&i: &usize| {
                    ((m.row(row)[i] / scale).round() + middle).clamp(0.0, 2.0 * middle - 1.0) as u8
                };
                stream(inputs.iter().map(code), bits)
            };
            let streams: Vec<_> = (0..m.rows).map(stream_of).collect();
            groups.extend([bits as u16, first_word as u16].map(u16::to_le_bytes).concat());
            first_word += streams[0].len() / 4;
            words.extend(side_by_side(&streams));
            scales.extend(stream(codes, 4));
            most.push(top);
            at += count;
        }
        assert_eq!(at, m.columns, "a plan for all rows");
        Some(vec![
            (".q_weight", "I32", vec![first_word, m.rows], words),
            (".q_groups", "I16", vec![groups.len() / 2], groups),
            (".q_scale", "I32", vec![most.len(), m.rows / 8], scales),
            (".q_scale_max", "F16", vec![most.len()], f16s(&most)),
            (".q_invperm", "I32", vec![m.columns], i32s(place)),
        ])
    })
}

/// Bits in falling order, as ExLlamaV2 chooses them.
fn mixed(width: usize) -> Vec<(usize, usize)> {
    match width {
        256 => vec![(6, 32), (5, 64), (4, 96), (3, 32), (2, 16), (2, 16)],
        _ => vec![(8, 32), (6, 96), (5, 128), (4, 256), (3, width - 544), (2, 32)],
    }
}

/// Codes of a codebook by what came before: for the `16 - bits` bits that a state shares with the one before it, the
/// numbers of all states that follow, rising, and the new bits of each.
struct Book {
    bits: usize,
    numbers: Vec<f32>,
    codes: Vec<u8>,
}

impl Book {
    fn new(bits: usize, book: Codebook) -> Self {
        let mut all = Self { bits, numbers: vec![], codes: vec![] };
        for before in 0..1u32 << (16 - bits) {
            let state = |code: u32| (book.value((before << bits | code) as u16).to_f32(), code as u8);
            let mut next: Vec<_> = (0..1 << bits).map(state).collect();
            next.sort_by(|a, b| a.0.total_cmp(&b.0));
            all.numbers.extend(next.iter().map(|n| n.0));
            all.codes.extend(next.iter().map(|n| n.1));
        }
        all
    }

    /// The words of a tile whose elements are nearest to `wanted`, one after the other. The last ones are 0, as the first
    /// state begins where the string ends.
    fn tile(&self, wanted: &[f32; 256]) -> Vec<u16> {
        let bits = self.bits;
        let free = 256 - 16usize.div_ceil(bits);
        let (mut state, mut words, mut at) = (0usize, vec![0u16; 16 * bits], 0);
        for (element, &x) in wanted.iter().enumerate() {
            let first = (state << bits & 0xFFFF) >> bits << bits;
            let picked = first + nearest(&self.numbers[first..][..1 << bits], x);
            let code = if element < free { self.codes[picked] } else { 0 };
            state = (state << bits | usize::from(code)) & 0xFFFF;
            for bit in (0..bits).rev() {
                // Words lie in pairs, the second first; each from its highest bit down.
                words[(at / 16) ^ 1] |= u16::from(code >> bit & 1) << (15 - at % 16);
                at += 1;
            }
        }
        words
    }
}

/// The codebooks take turns by the kind of matrix: what a module's tensors say counts.
const BOOKS: [(Codebook, Option<(&str, u32)>); 3] = [
    (Codebook::ThreeInst, None),
    (Codebook::Mcg, Some((".mcg", 0xCBAC_1FED))),
    (Codebook::Mul1, Some((".mul1", 0x83DC_D12D))),
];

fn exl3(plain: &Plain, bits: usize) -> Written {
    let books = BOOKS.map(|(book, _)| Book::new(bits, book));
    let settings = json!({"quant_method": "exl3", "version": "0.0.1", "bits": bits, "head_bits": bits});
    plain.with_head().directory(("quantization_config", settings), |m| {
        if m.is_embedding() {
            return None;
        }
        let which = (m.name.len() + bits) % 3;
        let (input_signs, output_signs) = (signs(m.columns), signs(m.rows + 1));
        // Numbers of the codebooks have a spread of about 1.24.
        let mean_square = m.numbers.iter().map(|x| x * x).sum::<f32>() / m.numbers.len() as f32;
        let scale = half(mean_square.sqrt() / 1.24);
        let mut numbers = m.numbers.clone(); // [out, in]
        for (row, numbers) in numbers.chunks_exact_mut(m.columns).enumerate() {
            numbers.iter_mut().zip(&input_signs).for_each(|(x, sign)| *x *= sign * output_signs[row] / scale);
        }
        hadamard(&mut numbers, 128);
        let mut numbers = turned(&numbers, m.columns); // [in, out]
        hadamard(&mut numbers, 128);
        let mut trellis = vec![];
        for (a, b) in (0..m.columns / 16).flat_map(|a| (0..m.rows / 16).map(move |b| (a, b))) {
            let mut wanted = [0.0; 256];
            for (column, j) in (0..16).flat_map(|column| (0..16).map(move |j| (column, j))) {
                let place = (16 * a + input(j)) * m.rows + 16 * b + column;
                wanted[nibble_quant::exl3::element(column, j)] = numbers[place];
            }
            trellis.extend(books[which].tile(&wanted).into_iter().flat_map(u16::to_le_bytes));
        }
        let suh: Vec<f32> = input_signs.iter().map(|sign| sign * scale).collect();
        let mut parts: Parts = vec![
            (".trellis", "I16", vec![m.columns / 16, m.rows / 16, 16 * bits], trellis),
            (".suh", "F16", vec![m.columns], f16s(&suh)),
            (".svh", "F16", vec![m.rows], f16s(&output_signs[..m.rows])),
        ];
        if let Some((ending, value)) = BOOKS[which].1 {
            parts.push((ending, "I32", vec![], value.to_le_bytes().to_vec()));
        }
        Some(parts)
    })
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![Case::new("exl2-mixed", |p| exl2(p, &mixed))];
    for bits in [2, 3, 4, 5, 6, 8] {
        let plan = move |width| vec![(bits, width / 2), (bits, width / 2)];
        cases.push(Case::new(format!("exl2-{bits}"), move |p| exl2(p, &plan)));
    }
    for bits in 1..=8 {
        assert!(Exl3::find(bits, Codebook::Mul1).is_some());
        cases.push(Case::new(format!("exl3-{bits}"), move |p| exl3(p, bits)));
    }
    cases
}
