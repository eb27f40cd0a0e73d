//! nibble-backend-cpu
