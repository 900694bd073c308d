//! Turns `confine/syscalls.table` and `confine/landlock.table` into the seccomp filters that the guest installs.
//!
//! What is allowed is the tables' business alone. Writes `default.bpf` and `nested.bpf`, and `supervised.bpf` and
//! `supervised-signals.bpf` of the backend `landlock`, to `OUT_DIR`, each an array of the kernel's `struct sock_filter`. A bad table fails the build and every bad line is named.

#[path = "build/bpf.rs"]
mod bpf;
#[path = "build/table.rs"]
mod table;

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

use bpf::{Instruction, Signals};
use table::{Arch, SUPERVISED, TABLE, Variant};

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed={TABLE}");
    println!("cargo::rerun-if-changed={SUPERVISED}");
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problems) => {
            for problem in problems {
                println!("cargo::error={problem}");
            }
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), Vec<String>> {
    let target = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target architecture");
    let out = env::var_os("OUT_DIR").expect("cargo sets the output directory");
    let arch = Arch::named(&target).ok_or_else(|| {
        let known = Arch::ALL.map(Arch::name).join("`, `");
        vec![format!("no seccomp filter for `{target}`: the guest runs on `{known}`")]
    })?;

    let read =
        |table: &str| fs::read_to_string(table).map_err(|error| vec![format!("read {table}: {error}")]);
    let write = |program: Vec<Instruction>, file: &str| {
        write_filter(&program, &Path::new(&out).join(file)).map_err(|problem| vec![problem])
    };
    let rows = table::parse(&read(TABLE)?)?;
    write(bpf::filter(&rows, arch, Variant::Default), "default.bpf")?;
    write(bpf::filter(&rows, arch, Variant::Nested), "nested.bpf")?;
    let rows = table::parse_supervised(&read(SUPERVISED)?)?;
    write(bpf::supervised(&rows, arch, Signals::Scoped), "supervised.bpf")?;
    write(bpf::supervised(&rows, arch, Signals::Notified), "supervised-signals.bpf")
}

fn write_filter(program: &[Instruction], path: &Path) -> Result<(), String> {
    if program.len() > bpf::MAX_INSTRUCTIONS {
        let (length, limit) = (program.len(), bpf::MAX_INSTRUCTIONS);
        return Err(format!("{}: {length} instructions, and the kernel takes {limit}", path.display()));
    }
    let bytes: Vec<u8> = program.iter().flat_map(Instruction::to_bytes).collect();
    fs::write(path, bytes).map_err(|error| format!("write {}: {error}", path.display()))
}
