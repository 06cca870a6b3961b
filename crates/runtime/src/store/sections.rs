//! Resource types that show a part of the machine config by itself, as the published interface has them.
//!
//! Source: crates/api/tests/data/resources.tsv.

use super::definition::Definition;

/// What shows the documents of the machine config that need no more than their fields.
const WRITER: &str = "config.DocumentController";

/// What the API server takes as the proof of a user's identity.
pub static AUTHENTICATION_CONFIG: Definition =
    Definition::published("AuthenticationConfigs.kubernetes.talos.dev", WRITER);

/// A part of containerd's configuration.
pub static CUSTOMIZATION_CONFIG: Definition =
    Definition::published("CustomizationConfigs.cri.talos.dev", WRITER);

/// Files and environment of an extension's service.
pub static EXTENSION_SERVICE_CONFIG: Definition =
    Definition::published("ExtensionServiceConfigs.runtime.talos.dev", WRITER);

/// A rule that images are verified by.
pub static IMAGE_VERIFICATION_RULE: Definition =
    Definition::published("ImageVerificationRules.security.talos.dev", WRITER);
