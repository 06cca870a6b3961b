//! What apid and trustd serve with, and how it crosses their sockets.
//!
//! Owns: the frame; both ends of it. Does not: make material, or say who gets it ([`crate::identity`] does).
//! Frame: length (u32, little endian), then JSON. Answer: the byte `k`, when the program serves with it.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use config::Secret;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use zeroize::Zeroizing;

use crate::locked::Maintenance;

/// Longest material: a few certificates.
const MAX_FRAME_BYTES: u32 = 256 * 1024;
/// Between attempts of a program to reach machined.
const CONNECT_RETRY: Duration = Duration::from_millis(100);

/// Everything a program serves with.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Material {
    /// PEM of the CA whose clients are let in.
    pub(crate) authority: String,
    /// PEM of the server certificate.
    pub(crate) certificate: String,
    /// PEM of its key.
    pub(crate) key: Secret,
    /// Addresses and names of this node.
    pub(crate) names: Vec<String>,
    /// With which apid asks other nodes; only a node with the CA's key has it.
    #[serde(default)]
    pub(crate) forwarding: Option<ForwardMaterial>,
    /// For trustd only.
    pub(crate) trust: Option<TrustMaterial>,
    /// The node has no config in force: everybody may connect, and almost nothing is allowed.
    #[serde(default)]
    pub(crate) maintenance: Maintenance,
}

/// A client certificate whose role says that apid speaks for the clients it names.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ForwardMaterial {
    /// PEM of the certificate.
    pub(crate) certificate: String,
    /// PEM of its key.
    pub(crate) key: Secret,
}

/// What trustd needs besides.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TrustMaterial {
    /// PEM of the CA's key.
    pub(crate) authority_key: Secret,
    /// The secret that nodes show.
    pub(crate) token: Secret,
    /// Addresses that control planes share, and addresses and names of each one that the cluster has: no certificate that is
    /// asked for has them.
    pub(crate) reserved: Vec<String>,
}

/// The first certificate of a bundle: the CA that signs.
pub(crate) fn first_certificate(bundle: &str) -> &str {
    const END: &str = "-----END CERTIFICATE-----";
    bundle.find(END).map_or(bundle, |at| &bundle[..at + END.len()])
}

/// Whether other machines can reach this address.
pub(crate) fn reaches_others(text: &str) -> bool {
    match text.parse() {
        Ok(IpAddr::V4(ip)) => !ip.is_loopback() && !ip.is_link_local() && !ip.is_unspecified(),
        Ok(IpAddr::V6(ip)) => !ip.is_loopback() && !ip.is_unicast_link_local() && !ip.is_unspecified(),
        Err(_) => false,
    }
}

/// Gives a program its material; returns when the program serves with it.
pub(crate) async fn send(stream: &mut UnixStream, material: &Material) -> std::io::Result<()> {
    let body = Zeroizing::new(serde_json::to_vec(material)?);
    let length = u32::try_from(body.len()).map_err(std::io::Error::other)?;
    stream.write_all(&length.to_le_bytes()).await?;
    stream.write_all(&body).await?;
    stream.read_u8().await.map(drop)
}

/// The program's end of the socket.
pub(crate) struct Source {
    stream: UnixStream,
}

impl Source {
    /// Connects; tries until machined listens.
    pub(crate) async fn connect(path: &Path) -> Self {
        loop {
            if let Ok(stream) = UnixStream::connect(path).await {
                return Self { stream };
            }
            tokio::time::sleep(CONNECT_RETRY).await;
        }
    }

    /// The next material.
    pub(crate) async fn next(&mut self) -> std::io::Result<Material> {
        let length = self.stream.read_u32_le().await?;
        if length > MAX_FRAME_BYTES {
            return Err(std::io::Error::other(format!("frame of {length} bytes")));
        }
        let mut body = Zeroizing::new(vec![0; usize::try_from(length).map_err(std::io::Error::other)?]);
        self.stream.read_exact(&mut body).await?;
        Ok(serde_json::from_slice(&body)?)
    }

    /// Says that the program serves with the last material.
    pub(crate) async fn acknowledge(&mut self) -> std::io::Result<()> {
        self.stream.write_all(b"k").await
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn material() -> Material {
        Material {
            authority: "ca".into(),
            certificate: "crt".into(),
            key: Secret::new("key"),
            names: vec!["10.0.0.5".into()],
            forwarding: None,
            trust: Some(TrustMaterial {
                authority_key: Secret::new("cakey"),
                token: Secret::new("token"),
                reserved: vec![],
            }),
            maintenance: Maintenance::No,
        }
    }

    #[tokio::test]
    async fn material_crosses_the_socket_and_is_acknowledged() {
        let (here, there) = UnixStream::pair().unwrap();
        let sending = tokio::spawn(async move {
            let mut here = here;
            send(&mut here, &material()).await
        });
        let mut source = Source { stream: there };
        assert!(source.next().await.unwrap() == material());
        source.acknowledge().await.unwrap();
        tokio::time::timeout(Duration::from_secs(5), sending).await.unwrap().unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_frame_without_end_is_refused() {
        let (mut here, there) = UnixStream::pair().unwrap();
        here.write_all(&u32::MAX.to_le_bytes()).await.unwrap();
        assert!(Source { stream: there }.next().await.is_err());
    }
}
