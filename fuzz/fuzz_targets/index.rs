//! An index of git as an agent may write it: what is listed as a repository is what git's own rules list, and not a name more.
//!
//! The rules are written down here a second time, after `create_from_disk` of git's read-cache.c, as plainly as they can be.
#![no_main]

use belljar_workspace::protect::{Gitlinks, Unread, gitlinks};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeSet;

fuzz_target!(|given: &[u8]| {
    let as_it_is = with_header(given, false);
    let mended = with_header(given, true);
    for bytes in [&as_it_is, &mended] {
        let expected: Vec<BTreeSet<Vec<u8>>> =
            [20, 32].into_iter().filter_map(|hash| rules(bytes, hash)).collect();
        match gitlinks(bytes) {
            Ok(Gitlinks { names, .. }) => {
                let all: BTreeSet<Vec<u8>> = expected.into_iter().flatten().collect();
                assert_eq!(names, all);
                assert!(names.iter().map(Vec::len).sum::<usize>() <= MOST);
            }
            Err(Unread::Malformed) => assert!(expected.is_empty(), "git reads it"),
            Err(Unread::TooLarge) => {}
        }
    }
});

/// Most inputs begin with something else, and would be refused at once; and most have more entries than bytes.
fn with_header(given: &[u8], mend: bool) -> Vec<u8> {
    let mut bytes = given.to_vec();
    if mend && bytes.len() >= 12 {
        bytes[..4].copy_from_slice(b"DIRC");
        bytes[4..7].fill(0);
        bytes[7] = 2 + bytes[7] % 3;
        bytes[8..11].fill(0);
        bytes[11] %= 8;
    }
    bytes
}

/// The repositories in an index with names of objects of this length; nothing where git gives up or reads past the end.
fn rules(bytes: &[u8], hash: usize) -> Option<BTreeSet<Vec<u8>>> {
    let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?));
    let version = word(4)?;
    if bytes.get(..4)? != b"DIRC" || !(2..=4).contains(&version) {
        return None;
    }
    let count = word(8)?;
    let mut found = BTreeSet::new();
    block(bytes, 12, count, version, hash, &mut found)?;
    // Threads read blocks, where an extension at the end says that there are some.
    let mut left = count;
    for (at, entries) in blocks(bytes, hash).unwrap_or_default() {
        left = left.checked_sub(entries)?;
        block(bytes, at as usize, entries, version, hash, &mut found)?;
    }
    Some(found)
}

fn blocks(bytes: &[u8], hash: usize) -> Option<Vec<(u32, u32)>> {
    let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?));
    let last = bytes.len().checked_sub(hash + 12 + hash)?;
    if &bytes[last..last + 4] != b"EOIE" {
        return None;
    }
    let mut at = word(last + 8)? as usize;
    while at < last {
        let size = word(at + 4)? as usize;
        let content = bytes.get(at + 8..at + 8 + size);
        if &bytes[at..at + 4] == b"IEOT" {
            let content = content?;
            let pairs = content.get(4..).unwrap_or_default().chunks_exact(8);
            let number = |four: &[u8]| u32::from_be_bytes([four[0], four[1], four[2], four[3]]);
            return Some(pairs.map(|pair| (number(&pair[..4]), number(&pair[4..]))).collect());
        }
        at += 8 + size;
    }
    None
}

fn block(
    bytes: &[u8],
    mut at: usize,
    count: u32,
    version: u32,
    hash: usize,
    found: &mut BTreeSet<Vec<u8>>,
) -> Option<()> {
    let mut previous: Option<Vec<u8>> = None;
    for _ in 0..count {
        let entry = at;
        let mode = u32::from_be_bytes(bytes.get(entry + 24..entry + 28)?.try_into().ok()?);
        let mut cursor = entry + 40 + hash;
        let flags = u16::from_be_bytes(bytes.get(cursor..cursor + 2)?.try_into().ok()?);
        cursor += 2;
        if flags & 0x4000 != 0 {
            let more = u16::from_be_bytes(bytes.get(cursor..cursor + 2)?.try_into().ok()?);
            if more & !0x6000 != 0 {
                return None;
            }
            cursor += 2;
        }
        let mut copy = 0;
        if version == 4 {
            let strip = varint(bytes, &mut cursor)?;
            if let Some(previous) = &previous {
                copy = (previous.len() as u64).checked_sub(strip)? as usize;
            }
        }
        let mut length = usize::from(flags & 0xfff);
        if length == 0xfff {
            length = copy + bytes.get(cursor..)?.iter().position(|byte| *byte == 0)?;
        }
        let fresh = length.checked_sub(copy)?;
        let mut name = previous.unwrap_or_default()[..copy].to_vec();
        name.extend_from_slice(bytes.get(cursor..cursor + fresh + 1)?);
        if mode & 0o170_000 == 0o160_000 {
            // What git believes, and what a C string of it is.
            for end in [length, length + 1] {
                let text = name[..end].split(|byte| *byte == 0).next().unwrap_or_default();
                if !text.is_empty() {
                    found.insert(text.to_vec());
                }
            }
        }
        name.truncate(length);
        at = if version == 4 { cursor + fresh + 1 } else { entry + ((cursor - entry + length + 8) & !7) };
        previous = Some(name);
    }
    Some(())
}

/// `decode_varint` of git's varint.c.
fn varint(bytes: &[u8], cursor: &mut usize) -> Option<u64> {
    let mut at = *cursor;
    let mut byte = *bytes.get(at)?;
    at += 1;
    let mut value = u64::from(byte & 127);
    while byte & 128 != 0 {
        value += 1;
        if value == 0 || value & (0x7f << 57) != 0 {
            return Some(0);
        }
        byte = *bytes.get(at)?;
        at += 1;
        value = (value << 7) + u64::from(byte & 127);
    }
    *cursor = at;
    Some(value)
}

/// Of all names together, in bytes.
const MOST: usize = 64 << 20;
