//! Tensor types: their names, for messages, and where big-endian files swap bytes.

/// Names of tensor types by id; an engine that lacks one says so by name.
static NAMES: &[(u32, &str)] = &[
    (0, "F32"),
    (1, "F16"),
    (2, "Q4_0"),
    (3, "Q4_1"),
    (6, "Q5_0"),
    (7, "Q5_1"),
    (8, "Q8_0"),
    (9, "Q8_1"),
    (10, "Q2_K"),
    (11, "Q3_K"),
    (12, "Q4_K"),
    (13, "Q5_K"),
    (14, "Q6_K"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (30, "BF16"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
    (40, "NVFP4"),
    (41, "Q1_0"),
    (42, "Q2_0"),
    (43, "STQ1_0"),
    (142, "PQ2_0"),
    (143, "PTQ1_0"),
];

/// Removed types.
static REMOVED: &[(u32, &str)] = &[
    (4, "Q4_2"),
    (5, "Q4_3"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
];

/// Plain numbers that are never weights: they take this many bytes each and are passed over.
pub(super) fn plain_bytes(id: u32) -> Option<u64> {
    match id {
        24 => Some(1),
        25 => Some(2),
        26 => Some(4),
        27 | 28 => Some(8),
        _ => None,
    }
}

/// `i2_s`, of Microsoft's BitNet fork: one factor for the tensor follows its codes.
pub(super) const I2_S: u32 = 36;

/// Bytes after the blocks of a tensor: a factor in single precision and padding.
pub(super) fn tail_bytes(id: u32) -> u64 {
    if id == I2_S { 32 } else { 0 }
}

/// The type in words: `type 12 (Q4_K)`.
pub(super) fn describe(id: u32) -> String {
    let by_id = |names: &[(u32, &'static str)]| names.iter().find(|(n, _)| *n == id).map(|(_, name)| *name);
    if let Some(name) = by_id(NAMES) {
        return format!("tensor type {id} ({name})");
    }
    match by_id(REMOVED) {
        Some(name) if (36..=38).contains(&id) => format!(
            "tensor type {id}, which is {name} (removed) or, in files of Microsoft's BitNet fork, {}",
            ["I2_S", "I8_S", "TL1"][id as usize - 36]
        ),
        Some(name) => format!("tensor type {id} ({name}, removed from the format)"),
        None => format!("tensor type {id}, which is not known"),
    }
}

/// The multi-byte fields of a block, as (offset, width), of the types that big-endian files are known to hold.
pub(super) fn swapped_fields(id: u32) -> Option<&'static [(usize, usize)]> {
    Some(match id {
        0 => &[(0, 4)],
        1 | 30 => &[(0, 2)],
        2 | 8 => &[(0, 2)],
        12 => &[(0, 2), (2, 2)],
        14 => &[(208, 2)],
        28 => &[(0, 8)],
        39 | 40 => &[],
        _ => return None,
    })
}
