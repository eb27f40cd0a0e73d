//! Architectures, one file each: config and weights -> graph. No device, no container.
#![forbid(unsafe_code)]
