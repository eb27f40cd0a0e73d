//! nibble-format
