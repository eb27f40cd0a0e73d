//! The memory of this process as the kernel accounts for it.
//!
//! Linux: `/proc/self/smaps_rollup` (proportional set size) and `/proc/self/status`. macOS: `proc_pid_rusage`
//! (`phys_footprint`, what the activity monitor shows). Elsewhere there is no figure.

use serde::{Deserialize, Serialize};

/// Bytes that this process takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    /// In all: the proportional set size on Linux, `phys_footprint` on macOS.
    pub total: u64,
    /// Of these, memory of its own. On macOS all of it, as mapped files do not count there.
    pub own: u64,
    /// Of these, pages of mapped files, which the system may drop and read again.
    pub mapped: u64,
    /// The most that was ever resident (Linux, since the last [`reset_peak`]) or the most that `total` ever was (macOS).
    pub peak: u64,
}

/// The memory of this process now; `None` where the system does not say.
pub fn footprint() -> Option<Footprint> {
    system::footprint()
}

/// Lets [`Footprint::peak`] start anew; whether the system could.
pub fn reset_peak() -> bool {
    system::reset_peak()
}

#[cfg(target_os = "linux")]
mod system {
    use super::Footprint;
    use std::fs;

    pub fn footprint() -> Option<Footprint> {
        let rollup = fs::read_to_string("/proc/self/smaps_rollup").ok()?;
        let status = fs::read_to_string("/proc/self/status").ok()?;
        super::linux(&rollup, &status)
    }

    pub fn reset_peak() -> bool {
        fs::write("/proc/self/clear_refs", "5").is_ok()
    }
}

#[cfg(target_os = "macos")]
mod system {
    use super::Footprint;
    use libproc::pid_rusage::{RUsageInfoV4, pidrusage};

    pub fn footprint() -> Option<Footprint> {
        let usage: RUsageInfoV4 = pidrusage(i32::try_from(std::process::id()).ok()?).ok()?;
        let total = usage.ri_phys_footprint;
        Some(Footprint { total, own: total, mapped: 0, peak: usage.ri_lifetime_max_phys_footprint })
    }

    pub fn reset_peak() -> bool {
        false
    }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
mod system {
    pub fn footprint() -> Option<super::Footprint> {
        None
    }

    pub fn reset_peak() -> bool {
        false
    }
}

/// From the two files of the kernel.
#[cfg(any(target_os = "linux", test))]
fn linux(rollup: &str, status: &str) -> Option<Footprint> {
    let field = |text: &str, name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    let total = field(rollup, "Pss")?;
    // Kernels before 5.4 do not split the proportional size.
    let own = match (field(rollup, "Pss_Anon"), field(rollup, "Pss_Shmem")) {
        (Some(anonymous), Some(shared)) => anonymous + shared,
        _ => field(rollup, "Anonymous")?,
    };
    Some(Footprint {
        total,
        own,
        mapped: total.saturating_sub(own),
        peak: field(status, "VmHWM").unwrap_or(total),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read_field_by_field() {
        let rollup = "55-7f ---p 0 00:00 0 [rollup]\nRss: 900 kB\nPss:   700 kB\nPss_Dirty: 1 kB\n\
                      Pss_Anon:  300 kB\nPss_File: 390 kB\nPss_Shmem: 10 kB\nAnonymous: 300 kB\n";
        let found = linux(rollup, "Name:\tx\nVmHWM:\t   1000 kB\n").unwrap();
        let expected = Footprint { total: 700 << 10, own: 310 << 10, mapped: 390 << 10, peak: 1000 << 10 };
        assert_eq!(found, expected);
        let old = "Pss: 700 kB\nAnonymous: 300 kB\n";
        assert_eq!(linux(old, "").map(|f| (f.own, f.peak)), Some((300 << 10, 700 << 10)));
        assert_eq!(linux("", ""), None);
    }
}
