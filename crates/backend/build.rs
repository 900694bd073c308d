//! Builds the guest, statically, and embeds it: a plain `cargo build` gives one file that is a whole install.
//!
//! The guest has a profile and flags of its own, so it is built by a cargo of its own, into a directory that all
//! profiles share. Everything it depends on is in the same lock file. Where the musl target is
//! installed (`rustup target add`), the guest uses it: half the size, and it starts in half the time; else glibc,
//! statically.

#[path = "build/seccomp.rs"]
mod seccomp;
// The guest's own reading of its table: there is one list of system calls.
#[allow(dead_code)]
#[path = "../guest/build/table.rs"]
mod table;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

fn main() {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let crates = here.parent().expect("crates/backend has a parent").to_path_buf();
    for part in ["guest", "wire", "sys", "../Cargo.toml", "../Cargo.lock"] {
        println!("cargo:rerun-if-changed={}", crates.join(part).display());
    }
    let out = PathBuf::from(variable("OUT_DIR"));
    write_seccomp(&crates, &out);
    let guest = build(&crates, &target_directory(&out));
    let embedded = out.join("guest");
    // Written anew, not over: where a target directory was copied by links, the file is in several of them.
    let _ = std::fs::remove_file(&embedded);
    if let Err(error) = std::fs::copy(&guest, &embedded) {
        fail(&format!("copy {} to {}: {error}", guest.display(), embedded.display()));
    }
}

/// The filter that a container starts with.
fn write_seccomp(crates: &Path, out: &Path) {
    let table = crates.join("guest").join(table::TABLE);
    let text = std::fs::read_to_string(&table)
        .unwrap_or_else(|error| fail(&format!("read {}: {error}", table.display())));
    let rows = table::parse(&text).unwrap_or_else(|problems| fail(&problems.join("; ")));
    let target = variable("CARGO_CFG_TARGET_ARCH");
    let arch =
        table::Arch::named(&target).unwrap_or_else(|| fail(&format!("no seccomp filter for `{target}`")));
    let profile = out.join("seccomp.json");
    let _ = std::fs::remove_file(&profile);
    if let Err(error) = std::fs::write(&profile, seccomp::profile(&rows, arch)) {
        fail(&format!("write {}: {error}", profile.display()));
    }
}

fn build(crates: &Path, target_directory: &Path) -> PathBuf {
    let target = target();
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .current_dir(crates)
        .args(["build", "--package", "belljar-guest", "--profile", "guest", "--locked", "--target", &target])
        .arg("--target-dir")
        .arg(target_directory)
        .env("CARGO_ENCODED_RUSTFLAGS", rustflags(crates))
        .env_remove("RUSTFLAGS");
    // Linters and coverage tools put themselves in front of the compiler; the guest is not theirs.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("CARGO_FEATURE_") || name.ends_with("_WRAPPER") || name.starts_with("CARGO_CFG_")
        {
            cargo.env_remove(name);
        }
    }
    match cargo.status() {
        Ok(status) if status.success() => target_directory.join(target).join("guest/belljar-guest"),
        Ok(status) => fail(&format!("building the guest ended with {status}")),
        Err(error) => fail(&format!("cannot run cargo to build the guest: {error}")),
    }
}

/// The guest names sources by the same paths wherever it is built, so that two checkouts give the same bytes.
fn rustflags(crates: &Path) -> String {
    let mut flags = vec!["-Ctarget-feature=+crt-static".to_string()];
    let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    if let Some(cargo) = env::var_os("CARGO_HOME").map(PathBuf::from).or(home) {
        flags.push(format!("--remap-path-prefix={}/registry=/cargo", cargo.display()));
    }
    let checkout = crates.parent().expect("`crates` lies in the checkout");
    flags.push(format!("--remap-path-prefix={}=/belljar", checkout.display()));
    flags.join("\u{1f}")
}

/// The musl twin of the target if its standard library is installed, else the target itself.
fn target() -> String {
    let target = variable("TARGET");
    let musl = target.replace("-gnu", "-musl");
    let listed =
        Command::new(variable("RUSTC")).args(["--print", "target-libdir", "--target", &musl]).output();
    let directory = listed.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string());
    match directory {
        Ok(directory) if Path::new(&directory).is_dir() => musl,
        _ => target,
    }
}

/// `target/guest`, beside the profiles' own directories: OUT_DIR is `target[/TRIPLE]/PROFILE/build/NAME/out`.
fn target_directory(out: &Path) -> PathBuf {
    let profile = out.ancestors().nth(3).expect("OUT_DIR lies four levels below the target directory");
    profile.parent().expect("a profile's directory lies in the target directory").join("guest-build")
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| fail(&format!("cargo did not set {name}")))
}

fn fail(message: &str) -> ! {
    println!("cargo:warning={message}");
    exit(1);
}
