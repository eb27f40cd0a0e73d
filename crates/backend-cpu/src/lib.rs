//! The CPU backend: integer dot products on encoded weights, SIMD kernels, the thread pool.
