//! Compiles the .proto files without protoc.
//!
//! Owns: the code under `api::proto`, the descriptor set that the wire test reads, the one that the encoder of
//! resources reads, and the table of published types (proto/definitions/types.tsv as a constant).
//! Fails by: stopping the build with the compiler's message, file and line.

use std::{
    env,
    error::Error,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

/// Every file of proto/, in dependency order.
const FILES: &[&str] = &[
    "google/rpc/status.proto",
    "common/common.proto",
    "machine/machine.proto",
    "machine/lvm.proto",
    "machine/md.proto",
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
    definitions(&out)?;
    published(&out)
}

/// Writes the table of published types: a constant, so that the node's own table can be one.
fn published(out: &Path) -> Result<(), Box<dyn Error>> {
    let text = fs::read_to_string(Path::new(DEFINITIONS).join("types.tsv"))?;
    let mut table = String::from(
        "/// Every type of the sheets, sorted by name.\npub const PUBLISHED: &[Published] = &[\n",
    );
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let cells: Vec<_> = line.split('\t').collect();
        let [kind, namespace, sensitive, message, aliases, columns] = cells[..] else {
            return Err(format!("types.tsv: expected six cells, found {}: {line}", cells.len()).into());
        };
        let list = |text: &'_ str| -> Vec<String> {
            text.split(';').filter(|item| !item.is_empty()).map(str::to_owned).collect()
        };
        let mut headings = String::new();
        for column in list(columns) {
            let (name, path) = column.split_once('=').ok_or_else(|| format!("types.tsv: column {column}"))?;
            write!(headings, "Column {{ name: {name:?}, path: {path:?} }}, ")?;
        }
        let plural = kind.split('.').next().unwrap_or(kind);
        writeln!(
            table,
            "    Published {{ kind: {kind:?}, display: {:?}, namespace: {namespace:?}, sensitive: {}, \
             message: {:?}, aliases: &{:?}, columns: &[{headings}] }},",
            singular(plural),
            sensitive == "sensitive",
            (message != "-").then_some(message),
            list(aliases),
        )?;
    }
    table.push_str("];\n");
    fs::write(out.join("published.rs"), table)?;
    Ok(())
}

/// `NodeAddress` of `NodeAddresses`.
fn singular(plural: &str) -> String {
    if let Some(stem) = plural.strip_suffix("ies") {
        return format!("{stem}y");
    }
    let doubled = ["sses", "uses", "shes"].iter().any(|end| plural.ends_with(end));
    plural.strip_suffix(if doubled { "es" } else { "s" }).unwrap_or(plural).to_owned()
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
