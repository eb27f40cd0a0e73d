//! A stack deep enough for whatever a template within its limits can nest.
//!
//! The engine compiles templates, and compares and drops values, by recursion. The caller's stack may be small, so this
//! is done on one of known size. It is reserved address space: memory is taken as far as it is used.

use crate::{Error, Result};

/// Runs `work` on a thread with `bytes` of stack. A panic of the engine becomes an error.
pub fn run<T: Send>(bytes: usize, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("chat template".into()).stack_size(bytes);
        match thread.spawn_scoped(scope, work) {
            Ok(thread) => thread.join().unwrap_or_else(|_| failed("expected a result, found a panic".into())),
            Err(error) => failed(format!("expected a stack of {bytes} bytes, found: {error}")),
        }
    })
}

fn failed<T>(problem: String) -> Result<T> {
    Err(Error::Failed { line: 0, problem })
}
