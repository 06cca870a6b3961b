//! Who may read which resource type, and how a request names it.

use tonic::Status;

use crate::store::{Definition, NAMESPACES, Sensitivity, Unresolved, resolve};

/// The type that a word names, in a namespace that exists; the caller may read it.
pub(super) fn readable(word: &str, namespace: &str, admin: bool) -> Result<&'static Definition, Status> {
    let definition = resolve(word).map_err(|unresolved| match unresolved {
        Unresolved::Unknown => Status::not_found(format!("resource {word:?} is not registered")),
        Unresolved::Ambiguous(kinds) => {
            Status::invalid_argument(format!("resource type {word:?} is ambiguous: {kinds:?}"))
        }
    })?;
    if !namespace.is_empty() && !NAMESPACES.iter().any(|(name, _)| *name == namespace) {
        return Err(Status::not_found(format!("namespace {namespace:?} is not registered")));
    }
    check_sensitivity(definition, admin)?;
    Ok(definition)
}

/// The type of this exact name, for the current client, which resolves words itself.
pub(super) fn exact(kind: &str, namespace: &str, admin: bool) -> Result<&'static Definition, Status> {
    let found = crate::store::ALL.iter().find(|definition| !definition.internal && definition.kind == kind);
    let known = NAMESPACES.iter().any(|(name, _)| *name == namespace);
    match found {
        Some(definition) if known => check_sensitivity(definition, admin).map(|()| *definition),
        _ => Err(Status::permission_denied(format!("no access to {kind:?} in namespace {namespace:?}"))),
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
        assert_eq!(exact("svc", "runtime", true).unwrap_err().code(), Code::PermissionDenied);
        assert_eq!(
            exact("APICertificates.secrets.billet.dev", "secrets", true).unwrap_err().code(),
            Code::PermissionDenied
        );
        assert!(exact("Services.v1alpha1.talos.dev", "runtime", false).is_ok());
    }
}
