//! The footprint beside another account of the same memory. One test, as others in this process would take memory too.
#![cfg(target_os = "linux")]

use nibble_measure::{Footprint, footprint, reset_peak};
use std::hint::black_box;

const MIB: u64 = 1 << 20;

/// A line of `/proc/self/status`, in bytes.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_matches([':', ' ', '\t']).strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() << 10
}

fn close(what: &str, found: u64, expected: u64) {
    assert!(found.abs_diff(expected) <= MIB, "{what}: {found} beside {expected}");
}

fn now() -> Footprint {
    footprint().expect("Linux tells")
}

#[test]
fn the_footprint_equals_the_kernels_own_account_within_a_mebibyte() {
    let before = now();
    close("own bytes", before.own, status("RssAnon") + status("RssShmem"));

    let touched = black_box(vec![1u8; 64 << 20]);
    let with = now();
    close("64 MiB more", with.own, before.own + 64 * MIB);
    close("64 MiB more", with.total, before.total + 64 * MIB);
    close("own bytes", with.own, status("RssAnon") + status("RssShmem"));
    assert!(with.peak >= 64 * MIB);

    drop(touched);
    let after = now();
    close("given back", after.own, before.own);
    assert!(after.peak >= with.own, "the peak stays");
    if reset_peak() {
        close("a new peak", now().peak, status("VmRSS"));
    } else {
        println!("SKIPPED: the peak cannot be reset here");
    }
}
