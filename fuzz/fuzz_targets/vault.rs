//! The vault's file: any bytes are understood or not, and none of them is a value.
#![no_main]

use belljar_vault::{Contents, Key};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // A key that the fuzzer does not know how to seal with.
    let _ = Key::parse(bytes);
    let Ok(contents) = Contents::read(bytes) else { return };
    let key = Key::random().expect("there are random bytes");
    assert!(contents.entries().all(|(name, entry)| key.open(name, entry).is_none()));
    assert_eq!(Contents::read(&contents.written()).as_ref(), Ok(&contents));
});
