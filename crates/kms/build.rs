//! Compiles the .proto file without protoc.
//!
//! Fails by: stopping the build with the compiler's message, file and line.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["kms/kms.proto"], ["proto"])?;
    Ok(tonic_prost_build::configure().compile_fds(descriptors)?)
}
