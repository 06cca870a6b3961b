//! A small server: every key sealed with AES-256-GCM under one key of the server's, for one node each.
//!
//! Owns: what is sealed, and for whom: the node's UUID is authenticated with the key, another node gets nothing.
//! Does not: know which nodes there are; who has a sealed key and the UUID is that node. Keep anything.
//! Fails by: gRPC's `INVALID_ARGUMENT` for what is no key, `PERMISSION_DENIED` for a key of another node or server.
//! Source: RFC 5116; a sealed key is 12 bytes of nonce, the key, 16 bytes of tag, as Talos' reference server has it.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use tonic::{Request, Response, Status};
use zeroize::Zeroizing;

use crate::proto;
use crate::proto::kms_service_server::{KmsService, KmsServiceServer};

/// Length of the server's own key, and of those that it seals.
pub const KEY_BYTES: usize = 32;

/// The server.
#[derive(Debug)]
pub struct Server {
    key: LessSafeKey,
    random: SystemRandom,
}

impl Server {
    /// With its own key, of [`KEY_BYTES`] bytes.
    #[must_use]
    pub fn new(key: &[u8; KEY_BYTES]) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, key).expect("invariant: AES-256 takes 32 bytes");
        Self { key: LessSafeKey::new(key), random: SystemRandom::new() }
    }

    /// What tonic serves.
    #[must_use]
    pub fn service(self) -> KmsServiceServer<Self> {
        KmsServiceServer::new(self)
    }

    fn seal_now(&self, node: &str, key: &[u8]) -> Result<Vec<u8>, Status> {
        if key.len() != KEY_BYTES {
            return Err(Status::invalid_argument(format!(
                "a key has {KEY_BYTES} bytes, this has {}",
                key.len()
            )));
        }
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).map_err(|_| Status::internal("there are no random numbers"))?;
        let mut sealed = key.to_vec();
        let aad = Aad::from(node.as_bytes());
        self.key
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed)
            .map_err(|_| Status::internal("it could not be sealed"))?;
        Ok([&nonce[..], &sealed].concat())
    }

    fn unseal_now(&self, node: &str, sealed: &[u8]) -> Result<Vec<u8>, Status> {
        let length = NONCE_LEN + KEY_BYTES + AES_256_GCM.tag_len();
        let (nonce, text) = sealed
            .split_first_chunk::<NONCE_LEN>()
            .filter(|_| sealed.len() == length)
            .ok_or_else(|| Status::invalid_argument(format!("a sealed key has {length} bytes")))?;
        let mut text = Zeroizing::new(text.to_vec());
        let key = self
            .key
            .open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(node.as_bytes()), &mut text)
            .map_err(|_| Status::permission_denied("it was not sealed here for this node"))?;
        Ok(key.to_vec())
    }
}

#[tonic::async_trait]
impl KmsService for Server {
    async fn seal(&self, request: Request<proto::Request>) -> Result<Response<proto::Response>, Status> {
        let proto::Request { node_uuid, data } = request.into_inner();
        let data = Zeroizing::new(data);
        self.seal_now(&node_uuid, &data).map(|data| Response::new(proto::Response { data }))
    }

    async fn unseal(&self, request: Request<proto::Request>) -> Result<Response<proto::Response>, Status> {
        let proto::Request { node_uuid, data } = request.into_inner();
        self.unseal_now(&node_uuid, &data).map(|data| Response::new(proto::Response { data }))
    }
}
