//! A layer as a registry may send it: whatever it holds, nothing happens beside its directory.
#![no_main]

use belljar_images::{Limits, unpack};
use libfuzzer_sys::fuzz_target;
use std::fs;

fuzz_target!(|bytes: &[u8]| {
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
