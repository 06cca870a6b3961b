//! Every rule of the manifest broken once, and the document that keeps them all.

use alloc::vec;

use proptest::prelude::*;

use super::*;

fn layer(name: &str, offset: u64, blocks: u64) -> Layer {
    Layer {
        name: name.into(),
        version: "1.0".into(),
        offset,
        data_bytes: blocks * BLOCK_BYTES,
        hash_offset: blocks * BLOCK_BYTES,
        hash_bytes: verity::tree_bytes(blocks),
        root_hash: Digest([0xab; 32]),
        salt: Digest([0x01; 32]),
        kernel_release: None,
    }
}

fn manifest() -> RootManifest {
    let base = layer("base", 0, 300);
    let mut kernel = layer("kernel", base.end(), 2);
    kernel.kernel_release = Some("6.12.117+deb13-amd64".into());
    RootManifest { format: FORMAT, version: "0.1.0".into(), layers: vec![base, kernel] }
}

fn fault(change: impl Fn(&mut Layer)) -> Fault {
    let mut broken = manifest();
    change(&mut broken.layers[1]);
    match RootManifest::parse(broken.to_json().as_bytes()) {
        Err(Error::Layer { fault, .. }) => fault,
        other => panic!("not refused for a layer: {other:?}"),
    }
}

#[test]
fn a_good_manifest_survives_the_round_trip() {
    let good = manifest();
    assert_eq!(RootManifest::parse(good.to_json().as_bytes()), Ok(good.clone()));
    assert_eq!(good.slot_bytes(), good.layers[1].end());
    assert_eq!(good.kernel().map(|l| l.name.as_str()), Some("kernel"));
    assert_eq!(good.layers[0].file_name(), format!("{}.layer", "ab".repeat(32)));
}

#[test]
fn layer_rules() {
    assert_eq!(fault(|l| l.name = "Kernel".into()), Fault::Name);
    assert_eq!(fault(|l| l.name = String::new()), Fault::Name);
    assert_eq!(fault(|l| l.name = "../x".into()), Fault::Name);
    assert_eq!(fault(|l| l.version = "a b".into()), Fault::Version);
    assert_eq!(fault(|l| l.kernel_release = Some("../6.12".into())), Fault::KernelRelease);
    assert_eq!(fault(|l| l.kernel_release = Some("a/b".into())), Fault::KernelRelease);
    assert_eq!(fault(|l| l.offset += 512), Fault::Alignment);
    assert_eq!(fault(|l| l.data_bytes = 0), Fault::Size);
    assert_eq!(fault(|l| l.offset = 1 << 60), Fault::Size);
    assert_eq!(fault(|l| l.hash_offset -= BLOCK_BYTES), Fault::HashInsideData);
    assert_eq!(fault(|l| l.hash_bytes += BLOCK_BYTES), Fault::HashSize);
    assert_eq!(fault(|l| l.offset -= BLOCK_BYTES), Fault::Overlap);
}

#[test]
fn document_rules() {
    let refuse = |change: &dyn Fn(&mut RootManifest)| {
        let mut broken = manifest();
        change(&mut broken);
        RootManifest::parse(broken.to_json().as_bytes()).unwrap_err()
    };
    assert_eq!(refuse(&|m| m.format = 2), Error::Format(2));
    assert_eq!(refuse(&|m| m.version = String::new()), Error::Version);
    assert_eq!(refuse(&|m| m.layers.clear()), Error::LayerCount(0));
    assert_eq!(refuse(&|m| m.layers[1].name = "base".into()), Error::DuplicateName("base".into()));
    let two = refuse(&|m| m.layers[0].kernel_release = Some("6.1".into()));
    assert_eq!(two, Error::TwoKernels("base".into(), "kernel".into()));
}

#[test]
fn json_faults_name_the_place() {
    let text = manifest().to_json();
    for (from, to) in [
        ("abab", "ABAB"),
        ("\"salt\"", "\"pepper\""),
        ("\"format\"", "\"extra\": 1, \"format\""),
        ("\"offset\": 0", "\"offset\": -1"),
    ] {
        let broken = text.replacen(from, to, 1);
        let Err(Error::Json(message)) = RootManifest::parse(broken.as_bytes()) else {
            panic!("{to} was not refused")
        };
        assert!(message.contains("line"), "{message}");
    }
    assert!(matches!(RootManifest::parse(&vec![b' '; MAX_BYTES + 1]), Err(Error::TooLong { .. })));
}

#[test]
fn extensions_are_told_from_the_layers_that_every_image_has() {
    for own in ["base", "kernel", "custom", "custom-2", "removed-10", "vmlinuz"] {
        assert!(is_own_layer(own), "{own}");
    }
    for extension in ["nvme-tools", "nvidia-2", "base-tools", "kernel-x2"] {
        assert!(!is_own_layer(extension), "{extension}");
    }
}

proptest! {
    #[test]
    fn mutated_documents_never_panic(at in 0usize..700, with in any::<u8>()) {
        let mut text = manifest().to_json().into_bytes();
        let at = at % text.len();
        text[at] = with;
        if let Ok(parsed) = RootManifest::parse(&text) {
            prop_assert!(parsed.check().is_ok());
        }
    }

    #[test]
    fn any_layers_in_order_are_accepted(sizes in proptest::collection::vec(1u64..100_000, 1..10)) {
        let mut end = 0;
        let mut layers = Vec::new();
        for (index, blocks) in sizes.iter().enumerate() {
            let next = layer(&format!("layer-{index}"), end, *blocks);
            end = next.end();
            layers.push(next);
        }
        let manifest = RootManifest { format: FORMAT, version: "1".into(), layers };
        prop_assert_eq!(RootManifest::parse(manifest.to_json().as_bytes()), Ok(manifest));
    }
}
