//! nibble-backend
