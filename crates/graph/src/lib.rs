//! nibble-graph
