//! `counters`: the values of one shim, written whole at each change and read while that may happen.
//!
//! Numbers of eight bytes, little end first: what the table looks like, the values, and a sum of both that shows a reader that it read
//! between two writes. A file of a build with another table is not understood, and not counted.

use super::family::{BUCKETS_US, Family};
use super::{Values, zeros};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;

/// A new one, with nothing counted: another one than that of an earlier life, which may still be open.
pub(super) fn create(path: &Path) -> io::Result<File> {
    let _ = fs::remove_file(path);
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(path)?;
    write(&file, &zeros())?;
    Ok(file)
}

pub(super) fn write(file: &File, values: &Values) -> io::Result<()> {
    let mut bytes = layout().to_le_bytes().to_vec();
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    let sum = hash(&bytes);
    bytes.extend(sum.to_le_bytes());
    file.write_all_at(&bytes, 0)
}

/// What is in it; nothing where it cannot be understood.
pub(super) fn read(file: &File) -> Option<Values> {
    (0..TRIES).find_map(|_| read_once(file))
}

fn read_once(file: &File) -> Option<Values> {
    let mut bytes = vec![0; (zeros().len() + 2) * 8];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let mut numbers: Values = bytes.as_chunks().0.iter().copied().map(u64::from_le_bytes).collect();
    let is_whole = numbers.pop() == Some(hash(&bytes[..bytes.len() - 8]));
    (is_whole && numbers.remove(0) == layout()).then_some(numbers)
}

/// Changes with the table.
fn layout() -> u64 {
    static LAYOUT: OnceLock<u64> = OnceLock::new();
    *LAYOUT.get_or_init(|| {
        let table = Family::ALL.map(|family| (family.about().0, family.labels()));
        hash(format!("{table:?}{BUCKETS_US:?}").as_bytes())
    })
}

/// FNV-1a: it is to tell half a write from a whole one, and is no protection against forgery.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// A write takes microseconds.
const TRIES: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_write_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counters");
        let file = create(&path).unwrap();
        let mut values = zeros();
        assert_eq!(read(&file), Some(values.clone()));
        values[3] = 7;
        write(&file, &values).unwrap();
        assert_eq!(read(&file), Some(values.clone()));
        file.write_all_at(&9_u64.to_le_bytes(), 8).unwrap();
        assert_eq!(read(&file), None);
        // Another life has another file, and the old one can still be read.
        write(&file, &values).unwrap();
        let next = create(&path).unwrap();
        assert_eq!((read(&file), read(&next)), (Some(values), Some(zeros())));
    }
}
