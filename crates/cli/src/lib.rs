//! nibble-cli
