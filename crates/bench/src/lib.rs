//! nibble-bench
