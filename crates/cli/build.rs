//! Links `belljar` at a fixed address: see docs/decisions/0028-fixed-address.md.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| {
        std::env::var(name).is_ok_and(|found| found.split(',').any(|found| found == value))
    };
    // Only where the executable is static anyway (.cargo/config.toml): the last of these options counts.
    if is("CARGO_CFG_TARGET_ENV", "gnu") && is("CARGO_CFG_TARGET_FEATURE", "crt-static") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
        println!("cargo::rustc-link-arg-bins=-static");
    }
}
