//! Trees of small files, as package managers leave them.

use crate::Outcome;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

/// Makes `count` files below `root`: packages of fifty, in two folders each.
pub(crate) fn make(root: &Path, count: usize) -> io::Result<()> {
    for package in 0..count.div_ceil(PACKAGE) {
        let folder = root.join(format!("package-{package}"));
        fs::create_dir_all(folder.join("lib"))?;
        for file in 0..PACKAGE.min(count - package * PACKAGE) {
            let inner = if file % 2 == 0 { &folder } else { &folder.join("lib") };
            fs::write(inner.join(format!("file-{file}.js")), text(package, file))?;
        }
    }
    Ok(())
}

/// Lists and reads every file below `root`; how many there are.
pub(crate) fn read(root: &Path) -> io::Result<usize> {
    let mut buffer = Vec::new();
    let mut found = 0;
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if entry.metadata()?.is_dir() {
            found += read(&entry.path())?;
        } else {
            buffer.clear();
            fs::File::open(entry.path())?.read_to_end(&mut buffer)?;
            found += 1;
        }
    }
    Ok(found)
}

/// Writes every file below `root` anew, as an editor or a formatter does: the whole text, a line longer.
pub(crate) fn change(root: &Path) -> Outcome<()> {
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if entry.metadata()?.is_dir() {
            change(&entry.path())?;
        } else {
            let mut text = fs::read(entry.path())?;
            text.extend_from_slice(b"// changed\n");
            fs::write(entry.path(), text)?;
        }
    }
    Ok(())
}

/// From some hundred bytes to some thousand, the same in every tree.
fn text(package: usize, file: usize) -> Vec<u8> {
    let length = 200 + (package * 131 + file * 977) % 3800;
    let mut text = format!("module.exports = [{package}, {file}];\n").into_bytes();
    text.resize(length, b' ');
    text
}

const PACKAGE: usize = 50;
