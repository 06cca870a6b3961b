//! Link arguments of the freestanding binary: no start files, no libraries, fixed address.
//!
//! They go to binaries only: the library's tests are ordinary programs.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for argument in ["-nostartfiles", "-nodefaultlibs", "-static", "-no-pie"] {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
}
