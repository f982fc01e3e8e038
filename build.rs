//! How the commands are linked: where the C library can read them, packed relocations. They are read whole at each start, and make up 2.6 MiB
//! of a release build otherwise (`readelf -SW`: `.rela.dyn`).

use std::env::var;
use std::process::Command;

/// The first glibc that reads packed relocations (its NEWS for 2.36).
const READS_PACKED: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is_native = var("HOST") == var("TARGET") && var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("gnu");
    if is_native && glibc().is_some_and(|version| version >= READS_PACKED) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// This machine's glibc. A command that is built here runs with the same or a later one; an older one refuses it, and says which version it needs.
fn glibc() -> Option<(u32, u32)> {
    let said = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?.stdout;
    let (major, minor) = std::str::from_utf8(&said).ok()?.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
