//! Small files of /proc. They say that they are empty: [`std::fs::read`] begins with a few bytes and reads again and again.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The text of one; no more than [`MAX_BYTES`].
pub fn text(path: impl AsRef<Path>) -> io::Result<String> {
    let mut text = String::with_capacity(USUAL_BYTES);
    File::open(path)?.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// The text of one that holds a single line, which the kernel gives at once.
pub fn line(path: impl AsRef<Path>) -> io::Result<String> {
    let mut text = vec![0; USUAL_BYTES];
    let length = File::open(path)?.read(&mut text)?;
    text.truncate(length);
    String::from_utf8(text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// A page, which is what the kernel gives at once.
const USUAL_BYTES: usize = 4096;
const MAX_BYTES: u64 = 1 << 20;
