//! A system in parts, to make images of.

use std::path::{Path, PathBuf};

use installer::layer::{self, Spec};
use installer::system::{BootParts, System};

/// A directory with the parts of a system that has no layers worth the name, and nothing that would start.
pub(crate) fn parts(home: &Path) -> PathBuf {
    let stub = include_bytes!("../../../crates/ondisk/testdata/stub.efi").to_vec();
    let mut tree = installer::tree::Tree::new();
    tree.bytes("etc/os-release", 0o644, b"ID=billet\n".to_vec()).unwrap();
    let spec = Spec { kernel_release: Some("6.12.0-test"), ..Spec::new("base", "1.0") };
    let base = layer::build(&tree, &spec, home, &mut installer::silent).unwrap();
    let mut kernel = vec![7; 50_000];
    kernel[0x202..0x206].copy_from_slice(b"HdrS");
    kernel[0x20e..0x210].copy_from_slice(&[0x10, 0]);
    kernel[0x1f4..0x1f8].fill(0);
    kernel[0x210..0x21d].copy_from_slice(b"6.12.0-test\0\0");
    let boot = BootParts {
        kernel,
        stub: stub.clone(),
        loader: stub,
        modules: vec![1; 4000],
        init: vec![2; 4000],
        command_line: "panic=10".into(),
        boot_entry: "ID=billet\n".into(),
        loader_config: "timeout 0\n".into(),
        ..BootParts::default()
    };
    let system = System { manifest: layer::stack("0.1.0", [base]).unwrap(), boot };
    let directory = home.join("parts");
    installer::image::Source::new(system, home.to_owned()).save(&directory).unwrap();
    directory
}
