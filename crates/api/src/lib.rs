//! nibble-api
