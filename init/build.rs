//! Link arguments of the freestanding binary: no start files, no libraries, fixed address, no tables for unwinding.
//!
//! They go to binaries only: the library's tests are ordinary programs.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=link.ld");
    let directory = env!("CARGO_MANIFEST_DIR");
    println!("cargo::rustc-link-arg-bins=-Wl,--script={directory}/link.ld,--no-eh-frame-hdr");
    for argument in ["-nostartfiles", "-nodefaultlibs", "-static", "-no-pie"] {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
}
