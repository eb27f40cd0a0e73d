//! nibble-backend-reference
