//! Takes protoc's arguments as far as prost-build gives them, and writes a descriptor set by protox.
//!
//! etcd-client compiles its .proto files with protoc, which a fresh machine does not have. `.cargo/protoc` builds this
//! program into a target directory of its own and runs it; cargo's `PROTOC` names that script.
//! Fails by: a sentence on stderr and exit status 1.

use std::error::Error;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use protox::Compiler;

/// What is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    /// Directories of imports.
    includes: Vec<PathBuf>,
    /// Where the descriptor set goes.
    output: PathBuf,
    /// Files to compile.
    files: Vec<PathBuf>,
    /// Whether imported files are in the set.
    has_imports: bool,
    /// Whether comments are in the set.
    has_sources: bool,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words == ["--version"] {
        let said = std::io::stdout().write_all(b"libprotoc 29.0 (by protox)\n");
        return if said.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    match read(words).and_then(|request| compile(&request)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("protoc: {error}");
            ExitCode::FAILURE
        }
    }
}

fn read(words: Vec<String>) -> Result<Request, Box<dyn Error>> {
    let mut request = Request::default();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--include_imports" => request.has_imports = true,
            "--include_source_info" => request.has_sources = true,
            // Optional fields of proto3 are no experiment any more.
            "--experimental_allow_proto3_optional" => {}
            "-o" => request.output = value()?.into(),
            "-I" => request.includes.push(value()?.into()),
            option if option.starts_with('-') => {
                return Err(format!("option {option} is not supported").into());
            }
            file => request.files.push(file.into()),
        }
    }
    Ok(request)
}

fn compile(request: &Request) -> Result<(), Box<dyn Error>> {
    let mut compiler = Compiler::new(&request.includes)?;
    compiler.include_imports(request.has_imports).include_source_info(request.has_sources);
    compiler.open_files(&request.files)?;
    std::fs::write(&request.output, compiler.encode_file_descriptor_set())
        .map_err(|error| format!("write {}: {error}", request.output.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn arguments_of_prost_build_are_read() {
        let request =
            read(words("--include_imports --include_source_info -o out -I a -I b c.proto")).unwrap();
        let wanted = Request {
            includes: vec!["a".into(), "b".into()],
            output: "out".into(),
            files: vec!["c.proto".into()],
            has_imports: true,
            has_sources: true,
        };
        assert_eq!(request, wanted);
        let error = read(words("--rust_out=x")).unwrap_err();
        assert_eq!(error.to_string(), "option --rust_out=x is not supported");
        assert_eq!(read(words("-o")).unwrap_err().to_string(), "-o needs a value");
    }

    #[test]
    fn a_broken_file_is_named() {
        let directory = std::env::temp_dir();
        let missing =
            Request { includes: vec![directory], files: vec!["none.proto".into()], ..Request::default() };
        assert!(compile(&missing).unwrap_err().to_string().contains("none.proto"));
    }
}
