//! System extensions of the running image, from the layers that init stacked.

use handoff::BootReport;
use ondisk::manifest::is_own_layer;
use runtime::store::{Extension, ExtensionMetadata, Fact, Spec};

/// One item for each layer that is an extension's, by its name.
pub(super) fn items(report: &BootReport) -> Vec<(String, Spec)> {
    let extensions = report.layers.iter().filter(|layer| !is_own_layer(&layer.name));
    let item = extensions.map(|layer| {
        let metadata = ExtensionMetadata { name: layer.name.clone(), version: layer.version.clone() };
        let extension = Extension { image: format!("{}.layer", layer.root_hash), metadata };
        (layer.name.clone(), Spec::Fact(Box::new(Fact::Extension(extension))))
    });
    item.collect()
}

#[cfg(test)]
mod tests {
    use handoff::LayerReport;

    use super::*;

    #[test]
    fn only_layers_of_extensions_are_extensions() {
        let layer = |name: &str| LayerReport {
            name: name.into(),
            version: "1.2.3".into(),
            root_hash: "ab12".into(),
            device: "/dev/dm-0".into(),
        };
        let layers = ["base", "kernel", "custom", "custom-2", "nvme-tools"].map(layer).to_vec();
        let found = items(&BootReport { layers, ..BootReport::default() });
        assert_eq!(found.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["nvme-tools"]);
        let text = found[0].1.yaml().unwrap();
        assert_eq!(text, "image: ab12.layer\nmetadata:\n  name: nvme-tools\n  version: \"1.2.3\"\n");
    }
}
