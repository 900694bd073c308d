//! An image of this machine's busybox, which needs no registry.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Has the daemon at this address (a value of `DOCKER_HOST`) an image of this name, with a shell and what people expect of one.
pub fn busybox(host: &str, name: &str) {
    let folder = TempDir::new().unwrap();
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
    fs::copy(busybox.expect("busybox is here"), bin.join("busybox")).unwrap();
    for program in ["cat", "echo", "env", "id", "ls", "sh", "sleep", "touch", "true"] {
        symlink("busybox", bin.join(program)).unwrap();
    }
    for folder in ["etc", "tmp"].map(|name| folder.path().join(name)) {
        fs::create_dir(folder).unwrap();
    }
    fs::write(folder.path().join("etc/made-by"), "the tests\n").unwrap();
    let mut tar = Command::new("tar")
        .args(["--owner=0", "--group=0", "-C"])
        .arg(folder.path())
        .args(["-c", "."])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let packed = tar.stdout.take().unwrap();
    let output = Command::new("docker")
        .args(["import", "-", name])
        .env("DOCKER_HOST", host)
        .stdin(packed)
        .output()
        .unwrap();
    assert!(tar.wait().unwrap().success() && output.status.success(), "{output:?}");
}
