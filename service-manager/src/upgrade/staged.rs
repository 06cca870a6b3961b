//! A staged upgrade: what META keeps until the next start.
//!
//! Source: docs/formats/meta.md, tags 7 and 8: an image's reference, and options as JSON with the field names of
//! the first generation.

use ondisk::meta::tags;
use serde::{Deserialize, Serialize};

use super::handle::Request;
use crate::meta::{Meta, MetaError};

/// The options. Fields that mean nothing here are written as that generation's installer expects them; `Force` was its
/// word for an upgrade that does not preserve EPHEMERAL.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Options {
    pull: bool,
    force: bool,
    upgrade: bool,
    zero: bool,
    extra_kernel_args: Option<Vec<String>>,
}

/// Keeps a request; durable when this returns.
pub(super) async fn keep(meta: &Meta, request: &Request) -> Result<(), MetaError> {
    let options = Options { pull: true, upgrade: true, force: request.wipe_ephemeral, ..Options::default() };
    let options = serde_json::to_vec(&options).unwrap_or_default();
    meta.set(tags::STAGED_UPGRADE_OPTIONS, &options).await?;
    // What a boot looks for is the reference: it comes last.
    meta.set(tags::STAGED_UPGRADE_IMAGE, request.image.as_bytes()).await
}

/// Whether one is kept.
pub(crate) fn is_kept(meta: &Meta) -> bool {
    meta.get(tags::STAGED_UPGRADE_IMAGE).is_some_and(|image| !image.is_empty())
}

/// Takes it: it is tried once, whatever comes of it.
pub(super) async fn take(meta: &Meta) -> Result<Option<Request>, MetaError> {
    let Some(image) = meta.get(tags::STAGED_UPGRADE_IMAGE) else { return Ok(None) };
    let options = meta.get(tags::STAGED_UPGRADE_OPTIONS);
    // Options that cannot be read ask for nothing that is lost for ever.
    let options: Options = options.and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or_default();
    meta.delete(tags::STAGED_UPGRADE_IMAGE).await?;
    meta.delete(tags::STAGED_UPGRADE_OPTIONS).await?;
    let image = String::from_utf8_lossy(&image).into_owned();
    Ok(Some(Request { image, wipe_ephemeral: options.force }).filter(|request| !request.image.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_is_taken_once() {
        let dir = tempfile::tempdir().unwrap();
        let meta = crate::server::tests_node(dir.path().to_owned()).meta.clone();
        assert!(!is_kept(&meta) && take(&meta).await.unwrap().is_none());
        let mut request = Request { image: "r.example/i:1".into(), wipe_ephemeral: false };
        keep(&meta, &request).await.unwrap();
        let options = String::from_utf8(meta.get(tags::STAGED_UPGRADE_OPTIONS).unwrap()).unwrap();
        assert_eq!(
            options,
            r#"{"Pull":true,"Force":false,"Upgrade":true,"Zero":false,"ExtraKernelArgs":null}"#
        );
        assert!(is_kept(&meta));
        assert_eq!(take(&meta).await.unwrap().as_ref(), Some(&request));
        request.wipe_ephemeral = true;
        keep(&meta, &request).await.unwrap();
        assert_eq!(take(&meta).await.unwrap(), Some(request));
        assert!(!is_kept(&meta) && take(&meta).await.unwrap().is_none());
        assert_eq!(meta.get(tags::STAGED_UPGRADE_OPTIONS), None);
    }
}
