//! A layer as a registry may send it: whatever it holds, nothing happens beside its directory.
#![no_main]

use belljar_images::{Limits, unpack};
use libfuzzer_sys::fuzz_target;
use std::fs;

fuzz_target!(|given: &[u8]| {
    let mended = with_right_checksums(given);
    let bytes = mended.as_slice();
    let cage = std::env::temp_dir().join(format!("belljar-fuzz-layer-{}", std::process::id()));
    let (layer, canary) = (cage.join("layer"), cage.join("canary"));
    fs::create_dir_all(&layer).expect("a directory of ours");
    fs::write(&canary, "untouched").expect("a file of ours");
    let limits = Limits { layer_bytes: 1 << 20, entries: 200, reserve: 0, ..Limits::default() };
    let _ = unpack(bytes, bytes.len() as u64, &layer, &limits);
    assert_eq!(fs::read(&canary).expect("it is still there"), b"untouched");
    assert_eq!(fs::read_dir(&cage).expect("it is still there").count(), 2);
    belljar_sys::remove_tree::remove(&cage).expect("all of it is ours");
});

/// An archive whose headers were changed would be refused at the first of them. What is compressed stays as it is.
fn with_right_checksums(given: &[u8]) -> Vec<u8> {
    let mut bytes = given.to_vec();
    let mut at = if COMPRESSED.iter().any(|magic| given.starts_with(magic)) { bytes.len() } else { 0 };
    while let Some(header) = bytes.get_mut(at..at.saturating_add(BLOCK)) {
        // The end of an archive.
        if header.iter().all(|byte| *byte == 0) {
            break;
        }
        header[CHECKSUM].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let digits = header[SIZE].iter().filter(|byte| (b'0'..=b'7').contains(byte));
        let size =
            digits.fold(0_usize, |size, digit| size.wrapping_mul(8).wrapping_add(usize::from(digit - b'0')));
        let has_content = matches!(header[TYPE], 0 | b'0' | b'7' | b'L' | b'K' | b'x' | b'g');
        let content = if has_content { size.checked_next_multiple_of(BLOCK) } else { Some(0) };
        at = content.map_or(usize::MAX, |content| at.saturating_add(BLOCK).saturating_add(content));
    }
    bytes
}

/// gzip and zstd.
const COMPRESSED: [&[u8]; 2] = [&[0x1f, 0x8b], &[0x28, 0xb5, 0x2f, 0xfd]];
/// Of a header: tar(5).
const BLOCK: usize = 512;
const SIZE: std::ops::Range<usize> = 124..136;
const CHECKSUM: std::ops::Range<usize> = 148..156;
const TYPE: usize = 156;
