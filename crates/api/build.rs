//! Compiles the .proto files without protoc.
//!
//! Owns: the code under `api::proto` and the descriptor set that the wire test reads.
//! Fails by: stopping the build with the compiler's message, file and line.

use std::{env, error::Error, fs, path::PathBuf};

/// Every file of proto/, in dependency order.
const FILES: &[&str] = &[
    "google/rpc/status.proto",
    "common/common.proto",
    "machine/machine.proto",
    "resource/resource.proto",
    "cluster/cluster.proto",
    "health/health.proto",
    "network/network.proto",
    "inspect/inspect.proto",
    "security/security.proto",
    "storage/storage.proto",
    "time/time.proto",
    "cosi/resource/state.proto",
    "cosi/resource/meta.proto",
    "billet.proto",
];

/// What must not be printed: `proto` has another Debug for it.
const SECRET: &str = "billet.UnlockRequest";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(false).open_files(FILES)?;
    fs::write(out.join("wire.bin"), compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure().skip_debug([SECRET]).compile_fds(descriptors)?;
    Ok(())
}
