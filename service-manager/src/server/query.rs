//! Who may read which resource type, how a request names it, and how a refusal quotes a request.

use runtime::store::{Definition, NAMESPACES, Sensitivity, Unresolved, resolve};
use tonic::Status;

/// Characters of a request's word in a refusal: that goes into a header, of which clients take 16 KiB.
const MOST_QUOTED: usize = 200;

/// A word of a request as a refusal quotes it: its beginning, where it is long.
pub(super) fn quoted(word: &str) -> String {
    match word.char_indices().nth(MOST_QUOTED) {
        Some((end, _)) => format!("{:?}…", word.get(..end).unwrap_or_default()),
        None => format!("{word:?}"),
    }
}

/// A text that may have words of a request in it, not longer than that.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(MOST_QUOTED) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// The type that a word names, in a namespace that exists; the caller may read it.
pub(super) fn readable(word: &str, namespace: &str, admin: bool) -> Result<&'static Definition, Status> {
    let definition = resolve(word).map_err(|unresolved| match unresolved {
        Unresolved::Unknown => Status::not_found(format!("resource {} is not registered", quoted(word))),
        Unresolved::Ambiguous(kinds) => {
            Status::invalid_argument(format!("resource type {} is ambiguous: {kinds:?}", quoted(word)))
        }
    })?;
    if !namespace.is_empty() && !NAMESPACES.iter().any(|(name, _)| *name == namespace) {
        return Err(Status::not_found(format!("namespace {} is not registered", quoted(namespace))));
    }
    check_sensitivity(definition, admin)?;
    Ok(definition)
}

/// The type of this exact name, for the current client, which resolves words itself. Who may read everything learns that
/// it is not there; others only that they have no access.
pub(super) fn exact(kind: &str, namespace: &str, admin: bool) -> Result<&'static Definition, Status> {
    let found = runtime::store::ALL.iter().find(|definition| !definition.internal && definition.kind == kind);
    let known = NAMESPACES.iter().any(|(name, _)| *name == namespace);
    match found {
        Some(definition) if known => check_sensitivity(definition, admin).map(|()| *definition),
        _ => {
            let (shown, namespace) = (quoted(kind), quoted(namespace));
            Err(match (admin, found) {
                (true, None) => Status::not_found(format!("resource {shown} is not registered")),
                (true, Some(_)) => Status::not_found(format!("namespace {namespace} is not registered")),
                (false, _) => {
                    Status::permission_denied(format!("no access to {shown} in namespace {namespace}"))
                }
            })
        }
    }
}

fn check_sensitivity(definition: &Definition, admin: bool) -> Result<(), Status> {
    if definition.sensitivity == Sensitivity::Sensitive && !admin {
        return Err(Status::permission_denied(format!("not authorized: {} needs os:admin", definition.kind)));
    }
    Ok(())
}

/// Whether the type's resources are in this namespace; empty means wherever they are.
pub(super) fn is_in(definition: &Definition, namespace: &str) -> bool {
    namespace.is_empty() || namespace == definition.namespace
}

/// The answer for an id that does not exist.
pub(super) fn not_found(definition: &Definition, namespace: &str, id: &str) -> Status {
    let namespace = if namespace.is_empty() { definition.namespace } else { namespace };
    let (namespace, id) = (shortened(namespace), shortened(id));
    Status::not_found(format!("resource {}({namespace}/{id}) doesn't exist", definition.kind))
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn words_types_and_roles_are_checked() {
        assert_eq!(readable("svc", "", false).unwrap().kind, "Services.v1alpha1.talos.dev");
        assert_eq!(
            readable("teapot", "", true).unwrap_err().message(),
            "resource \"teapot\" is not registered"
        );
        assert_eq!(
            readable("svc", "attic", true).unwrap_err().message(),
            "namespace \"attic\" is not registered"
        );
        assert_eq!(readable("mc", "", false).unwrap_err().code(), Code::PermissionDenied);
        assert!(readable("mc", "", true).is_ok());
        for (kind, namespace) in [
            ("svc", "runtime"),
            ("APICertificates.secrets.billet.dev", "secrets"),
            ("Services.v1alpha1.talos.dev", "attic"),
        ] {
            assert_eq!(exact(kind, namespace, true).unwrap_err().code(), Code::NotFound, "{kind}");
            assert_eq!(exact(kind, namespace, false).unwrap_err().code(), Code::PermissionDenied, "{kind}");
        }
        assert!(exact("Services.v1alpha1.talos.dev", "runtime", false).is_ok());
    }

    #[test]
    fn a_refusal_fits_a_header_whatever_was_asked() {
        let long = "é".repeat(100_000);
        let first = runtime::store::ALL.iter().find(|kind| !kind.internal).unwrap();
        for status in [
            readable(&long, "", true).unwrap_err(),
            readable(first.kind, &long, true).unwrap_err(),
            exact(&long, &long, true).unwrap_err(),
            not_found(first, &long, &long),
        ] {
            assert!(status.message().len() < 2000, "{} bytes", status.message().len());
        }
        assert_eq!(quoted("a\"b"), "\"a\\\"b\"");
        assert_eq!(shortened("a b"), "a b");
    }
}
