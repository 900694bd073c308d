//! Systems that roots are made of: of busybox, as directories and as images.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use belljar_images::{Limits, Silent, Store};
use belljar_spec::BackendName;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Those that can have such a root.
pub fn has_roots(backend: BackendName) -> bool {
    matches!(backend, BackendName::Native | BackendName::Bwrap)
}

/// A system of busybox.
pub fn system(root: &Path) {
    for directory in ["bin", "sbin", "etc/apk", "usr/bin", "lib/apk/db", "root"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
    fs::copy(busybox.expect("busybox-static is installed: `./dev setup`"), root.join("bin/busybox")).unwrap();
    for name in [
        "sh", "cat", "ls", "id", "touch", "mkdir", "rm", "echo", "wget", "tar", "gzip", "stat", "readlink",
        "test", "dd", "chown", "env", "mv", "chmod",
    ] {
        symlink("busybox", root.join("bin").join(name)).unwrap();
    }
    fs::write(root.join("etc/alpine-release"), "3.24.9\n").unwrap();
    fs::write(
        root.join("etc/passwd"),
        "root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\n",
    )
    .unwrap();
    fs::write(root.join("etc/group"), "root:x:0:\n").unwrap();
}

/// Every path below a directory, with what it holds.
pub fn everything(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(root).unwrap().flatten() {
        let path = entry.path();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => all.extend(everything(&path)),
            kind if kind.is_symlink() => {
                all.push((path.clone(), fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()))
            }
            kind if kind.is_file() => all.push((path.clone(), fs::read(&path).unwrap())),
            // The mark of what a layer removed.
            _ => all.push((path, Vec::new())),
        }
    }
    all.sort();
    all
}

/// A directory as an archive of root's.
pub fn packed(directory: &Path) -> Vec<u8> {
    let output = Command::new("tar")
        .args(["--owner=0", "--group=0", "-czf", "-", "-C"])
        .arg(directory)
        .arg(".")
        .output()
        .unwrap();
    assert!(output.status.success(), "tar works");
    output.stdout
}

/// As `sha256sum` says it.
pub fn sha256(bytes: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    let output = Command::new("sha256sum").arg(file.path()).output().unwrap();
    crate::text(&output.stdout)[..64].to_string()
}

/// Imports an image of these layers, the lowest first, into the store of a state directory, with these variables.
pub fn import(state: &Path, name: &str, layers: &[&Path], variables: &[&str]) {
    let archives: Vec<Vec<u8>> = layers.iter().map(|layer| unzipped(layer)).collect();
    import_archives(state, name, &archives, variables);
}

/// The same, of archives.
pub fn import_archives(state: &Path, name: &str, layers: &[Vec<u8>], variables: &[&str]) {
    let folder = TempDir::new().unwrap();
    let ids: Vec<String> = layers.iter().map(|layer| format!("sha256:{}", sha256(layer))).collect();
    let config = serde_json::json!({ "rootfs": { "type": "layers", "diff_ids": ids }, "config": { "Env": variables } });
    let members: Vec<String> = (0..layers.len()).map(|number| format!("{number}.tar")).collect();
    let manifest = serde_json::json!([{ "Config": "config.json", "RepoTags": [name], "Layers": members }]);
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    fs::write(folder.path().join("manifest.json"), manifest.to_string()).unwrap();
    for (member, layer) in members.iter().zip(layers) {
        fs::write(folder.path().join(member), layer).unwrap();
    }
    let archive = tempfile::NamedTempFile::new().unwrap();
    fs::write(archive.path(), packed(folder.path())).unwrap();
    let store = Store::open(&state.join("images")).unwrap();
    store.import(archive.path(), &name.parse().unwrap(), &Limits::default(), &Silent).unwrap();
}

fn unzipped(directory: &Path) -> Vec<u8> {
    let words = ["--owner=0", "--group=0", "-cf", "-", "-C"];
    let output = Command::new("tar").args(words).arg(directory).arg(".").output().unwrap();
    assert!(output.status.success(), "tar works");
    output.stdout
}
