//! Compiles the .proto files without protoc.
//!
//! Owns: the code under `api::proto`, the descriptor set that the wire test reads, and the one that the encoder
//! of resources reads.
//! Fails by: stopping the build with the compiler's message, file and line.

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
};

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

/// The binary forms of resources: one file for each package, read from here for clients and for the encoder.
const DEFINITIONS: &str = "proto/definitions";

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
    definitions(&out)
}

/// Compiles the messages of resources apart: the wire test compares the API's own descriptor set only.
fn definitions(out: &Path) -> Result<(), Box<dyn Error>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(DEFINITIONS)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path.strip_prefix("proto")?.to_path_buf());
        }
    }
    files.sort();
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(false).open_files(&files)?;
    fs::write(out.join("definitions.bin"), compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure().compile_fds(protox::compile(&files, ["proto"])?)?;
    Ok(())
}
