//! An image with this machine's node and npm, and a program by the name of each tool that a base has: what `build-base` needs no
//! network for.

use belljar_tests_docker::Dockerd;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

pub(crate) const NEEDED: [&str; 6] = ["node", "npm", "busybox", "useradd", "usermod", "ldd"];

/// Has the daemon such an image. Its user with the number 1000 is called `node`, as in images of node.
pub(crate) fn image(docker: &Dockerd, name: &str) {
    let root = TempDir::new().unwrap();
    let root = root.path();
    for folder in [
        "usr/bin",
        "usr/sbin",
        "usr/lib",
        "usr/lib64",
        "usr/local/lib",
        "etc/ssl/certs",
        "tmp",
        "home/node",
        "root",
    ] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for folder in ["bin", "sbin", "lib", "lib64"] {
        symlink(format!("usr/{folder}"), root.join(folder)).unwrap();
    }
    copy(&found("busybox"), &root.join("usr/bin/busybox"));
    for applet in ["awk", "cat", "chown", "env", "id", "ls", "mkdir", "rm", "sh"] {
        symlink("busybox", root.join("usr/bin").join(applet)).unwrap();
    }
    for program in ["node", "groupadd", "groupmod", "useradd", "usermod"] {
        with_libraries(&found(program), root);
    }
    // `npm` is a link into the folder that it needs.
    let npm = fs::canonicalize(found("npm")).unwrap();
    let npm = npm.ancestors().find(|folder| folder.join("package.json").exists()).unwrap();
    let copied = Command::new("cp").args(["-rL"]).arg(npm).arg(root.join("usr/lib/npm")).status().unwrap();
    assert!(copied.success());
    script(&root.join("usr/bin/npm"), "exec node /usr/lib/npm/bin/npm-cli.js \"$@\"");
    for tool in TOOLS {
        script(&root.join("usr/bin").join(tool), &format!("echo {tool} 1.0"));
    }
    fs::write(root.join("etc/ssl/certs/ca-certificates.crt"), "none\n").unwrap();
    fs::write(
        root.join("etc/passwd"),
        "root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\n",
    )
    .unwrap();
    fs::write(root.join("etc/group"), "root:x:0:\nnode:x:1000:\n").unwrap();
    fs::write(root.join("etc/shadow"), "root:*:1:0:99999:7:::\nnode:!:1:0:99999:7:::\n").unwrap();
    import(docker, root, name);
}

fn import(docker: &Dockerd, root: &Path, name: &str) {
    let mut tar = Command::new("tar")
        .args(["--owner=0", "--group=0", "-C"])
        .arg(root)
        .args(["-c", "."])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let packed = tar.stdout.take().unwrap();
    let changes = [
        "--change",
        "ENTRYPOINT [\"/usr/bin/env\"]",
        "--change",
        "ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin",
    ];
    let mut import = docker.command(&["import"]);
    let output = import.args(changes).args(["-", name]).stdin(packed).output().unwrap();
    assert!(tar.wait().unwrap().success() && output.status.success(), "{output:?}");
}

/// A program and what it is linked with, where it is here.
fn with_libraries(program: &Path, root: &Path) {
    let real = fs::canonicalize(program).unwrap();
    copy(&real, &root.join("usr/bin").join(program.file_name().unwrap()));
    let output = Command::new("ldd").arg(&real).output().unwrap();
    for word in
        String::from_utf8_lossy(&output.stdout).split_whitespace().filter(|word| word.starts_with('/'))
    {
        let below = word.trim_start_matches('/');
        // `/lib` is `/usr/lib` there.
        let below = if below.starts_with("usr/") { below.to_string() } else { format!("usr/{below}") };
        let to = root.join(below);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        copy(&fs::canonicalize(word).unwrap(), &to);
    }
}

fn copy(from: &Path, to: &Path) {
    // Several programs have the same libraries.
    if !to.exists() {
        fs::copy(from, to).unwrap();
    }
}

fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn found(program: &str) -> PathBuf {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(["/usr/sbin", "/sbin"]);
    let found = folders.map(|folder| Path::new(folder).join(program)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("there is no {program}"))
}

const TOOLS: [&str; 19] = [
    "aggregate",
    "bash",
    "curl",
    "delta",
    "dig",
    "fzf",
    "gh",
    "git",
    "gpg",
    "ip",
    "jq",
    "less",
    "man",
    "nano",
    "ps",
    "rg",
    "ssh",
    "unzip",
    "vim",
];
