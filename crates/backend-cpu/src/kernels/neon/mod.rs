//! Kernels for NEON with the 8-bit dot product and matrix instructions.
