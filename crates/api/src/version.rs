//! The version tag: whose interface a program serves or speaks, and which version of Billet it is.
//!
//! Owns: the tag, `v1.13.9+billet.0.1.0`. Does not: compare versions of Billet, `oci::installer` does.
//! Fails by: nothing; what a tag may not hold of a version becomes `-`.
//! Source: docs/decisions/0024-the-version-tag-names-the-interface-and-billet.md, which has each client's rule.

/// The newest version of Talos whose node interface is served (docs/compatibility.md). Clients compare it with their own.
pub const INTERFACE: &str = "1.13.9";
/// First identifier of the build metadata, before Billet's own version.
const NAME: &str = "billet";

/// The tag of this version of Billet: a semantic version whose build metadata is Billet's own, so that clients compare the
/// interface alone.
#[must_use]
pub fn tag(own: &str) -> String {
    let own = own.strip_prefix('v').unwrap_or(own);
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '.' { c } else { '-' };
    let metadata: String = own.chars().map(allowed).collect();
    // An identifier between two dots must not be empty.
    let identifiers = metadata.split('.').filter(|identifier| !identifier.is_empty());
    let metadata: Vec<_> = std::iter::once(NAME).chain(identifiers).collect();
    format!("v{INTERFACE}+{}", metadata.join("."))
}

/// Billet's own version in a tag; none in the tag of another system, or of a Billet whose tag was its version.
#[must_use]
pub fn own(tag: &str) -> Option<&str> {
    let (_, metadata) = tag.split_once('+')?;
    metadata.strip_prefix(NAME)?.strip_prefix('.')
}

#[cfg(test)]
mod tests;
