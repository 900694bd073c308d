//! Belljar's refs, which keep `git gc` on the host from removing objects that a sandbox borrows.

use crate::quarantine::{HostRepository, QuarantineError};
use belljar_git::ObjectId;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

/// Pins the commit that a sandbox starts from, as `refs/belljar/ID/base`. If refs are stored as files, this writes a file and needs
/// no call of git.
pub fn pin(repository: &HostRepository, id: &str, commit: &ObjectId) -> Result<(), QuarantineError> {
    let name = base(id);
    let common = repository.directory();
    if common.join("reftable").exists() {
        return order(repository, &format!("update {name} {commit}\n"));
    }
    let path = common.join(&name);
    let mut folder = common.to_path_buf();
    for part in Path::new(&name).parent().into_iter().flat_map(Path::components) {
        folder.push(part);
        match fs::create_dir(&folder) {
            Ok(()) => repository.owner().take(&folder)?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(QuarantineError::file("make", &folder)(error)),
        }
    }
    let lock = common.join(format!("{name}.lock"));
    let mut file = create(&lock)?;
    let written = file.write_all(format!("{commit}\n").as_bytes());
    let moved = written.map_err(QuarantineError::file("write", &lock)).and_then(|()| {
        repository.owner().take(&lock)?;
        fs::rename(&lock, &path).map_err(QuarantineError::file("write", &path))
    });
    if moved.is_err() {
        let _ = fs::remove_file(&lock);
    }
    moved
}

/// Removes the pins of a sandbox; its commits that were set aside keep their refs.
pub fn unpin(repository: &HostRepository, id: &str) -> Result<(), QuarantineError> {
    delete(repository, id, |name| name == "base" || name.starts_with("bases/"))
}

/// Removes all refs of a sandbox, including its commits that were set aside: the user discarded its work.
pub fn forget(repository: &HostRepository, id: &str) -> Result<(), QuarantineError> {
    delete(repository, id, |_| true)
}

fn delete(
    repository: &HostRepository,
    id: &str,
    is_meant: impl Fn(&str) -> bool,
) -> Result<(), QuarantineError> {
    let prefix = format!("refs/belljar/{id}/");
    let refs = repository.refs()?;
    let names = refs.iter().filter_map(|one| std::str::from_utf8(&one.name).ok());
    let meant = names.filter(|name| name.strip_prefix(&prefix).is_some_and(&is_meant));
    let orders = meant.map(|name| format!("delete {name}\n")).collect::<String>();
    if orders.is_empty() { Ok(()) } else { order(repository, &orders) }
}

/// The ref that pins the commit where a sandbox started.
pub(super) fn base(id: &str) -> String {
    format!("refs/belljar/{id}/base")
}

/// The ref that pins the commit that a sandbox switched to.
pub(super) fn switched(id: &str, commit: &ObjectId) -> String {
    format!("refs/belljar/{id}/bases/{commit}")
}

fn order(repository: &HostRepository, orders: &str) -> Result<(), QuarantineError> {
    let call = repository.moving_refs(repository.call(), "belljar: pin");
    call.output_with(orders.as_bytes())?;
    Ok(())
}

fn create(path: &Path) -> Result<File, QuarantineError> {
    let opened = File::options().write(true).create_new(true).open(path);
    opened.map_err(QuarantineError::file("write", path))
}
