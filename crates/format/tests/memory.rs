//! Small files that claim to be large cost no memory: in a process of its own, whose peak is measured.

use nibble_format::open_bytes;
use nibble_quant::Registry;
use nibble_testkit::gguf::Builder;

/// The most memory this process has had, in bytes.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[test]
fn claims_of_huge_sizes_cost_no_memory() {
    let Some(before) = peak() else {
        eprintln!("SKIPPED: this system does not tell the peak of a process's memory");
        return;
    };
    let mut files = Vec::new();
    for len in [1u64 << 30, 1 << 40, u64::MAX] {
        let mut b = Builder::llama();
        b.entry(b"a", 8, &len.to_le_bytes());
        files.push(b.build());
        for element in [0, 6, 8, 10] {
            let mut b = Builder::llama();
            b.list("a", element, len, &[0; 64]);
            files.push(b.build());
        }
        for dims in [&[len][..], &[4, len / 4], &[1152, (1 << 42) + 1]] {
            let mut b = Builder::llama();
            b.info(b"output.weight", dims, 0, 0);
            files.push(b.build());
        }
        let mut b = Builder::llama();
        (b.entry_count, b.tensor_count) = (Some(len), Some(len));
        files.push(b.build());
        let mut b = Builder::llama();
        b.u32("llama.block_count", len as u32).list("llama.feed_forward_length", 4, 1, &[1; 4]);
        files.push(b.build());
    }
    for file in files {
        assert!(file.len() < 400);
        assert!(open_bytes(file.into(), "small", &Registry::default()).is_err());
    }
    let grown = peak().unwrap() - before;
    assert!(grown < 16 << 20, "{grown} bytes");
}
