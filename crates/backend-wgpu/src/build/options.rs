//! What compiling depends on beside the graph.

use crate::{adapters::Caps, tune::Way};
use nibble_backend::Limits;
use std::collections::{BTreeMap, BTreeSet};

/// How to compile.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// What the device can do.
    pub caps: &'a Caps,
    /// What the plan must hold.
    pub limits: &'a Limits,
    /// Whether sums may not depend on the number of rows.
    pub strict: bool,
    /// Whether nodes may become one call.
    pub fuse: bool,
    /// Codecs that need their widest form.
    pub wide: &'a [&'static str],
    /// Keys of kernels that are wrong on this device.
    pub wrong: &'a BTreeSet<String>,
    /// What is left out.
    pub plain: Plain,
    /// The fastest ways of kernels.
    pub tuned: &'a BTreeMap<String, Way>,
    /// Whether kernels whose fastest way is not known are to be listed.
    pub tune: bool,
}

impl<'a> Options<'a> {
    /// Everything that makes it fast.
    pub fn new(caps: &'a Caps, limits: &'a Limits) -> Self {
        static NONE: BTreeSet<String> = BTreeSet::new();
        static USUAL: BTreeMap<String, Way> = BTreeMap::new();
        let (wrong, plain) = (&NONE, Plain::default());
        Self { caps, limits, strict: false, fuse: true, wide: &[], wrong, plain, tuned: &USUAL, tune: false }
    }
}

/// What is left out because no kernel for it is right on a device, the more the plainer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Plain {
    /// Nothing.
    #[default]
    Nothing,
    /// Rounding by the kernel that makes a value.
    Rounding,
    /// Products of codes.
    Codes,
}

impl Plain {
    /// The next plainer one.
    pub fn next(self) -> Option<Self> {
        match self {
            Self::Nothing => Some(Self::Rounding),
            Self::Rounding => Some(Self::Codes),
            Self::Codes => None,
        }
    }
}
