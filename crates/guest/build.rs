//! Turns `confine/syscalls.table` into the seccomp filters that the guest installs on itself.
//!
//! What is allowed is the table's business alone. Writes `default.bpf` and `nested.bpf` to `OUT_DIR`, each an
//! array of the kernel's `struct sock_filter`. A bad table fails the build and every bad line is named.

#[path = "build/bpf.rs"]
mod bpf;
#[path = "build/table.rs"]
mod table;

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

use bpf::Instruction;
use table::{Arch, Row, TABLE, Variant};

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed={TABLE}");
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

    let text = fs::read_to_string(TABLE).map_err(|error| vec![format!("read {TABLE}: {error}")])?;
    let rows = table::parse(&text)?;
    for (variant, file) in [(Variant::Default, "default.bpf"), (Variant::Nested, "nested.bpf")] {
        write_filter(&rows, arch, variant, &Path::new(&out).join(file)).map_err(|problem| vec![problem])?;
    }
    Ok(())
}

fn write_filter(rows: &[Row], arch: Arch, variant: Variant, path: &Path) -> Result<(), String> {
    let program = bpf::filter(rows, arch, variant);
    if program.len() > bpf::MAX_INSTRUCTIONS {
        let (length, limit) = (program.len(), bpf::MAX_INSTRUCTIONS);
        return Err(format!("{TABLE}: the filter has {length} instructions, the kernel takes {limit}"));
    }
    let bytes: Vec<u8> = program.iter().flat_map(Instruction::to_bytes).collect();
    fs::write(path, bytes).map_err(|error| format!("write {}: {error}", path.display()))
}
