//! Where a snapshot is put: the address of a file at a target, and what says who puts it.
//!
//! Owns: names at the target: the node's, then the file's, so that several nodes may share one.
//! Does not: connect.
//! Source: Amazon S3 API reference, "PutObject"; the crate rusty-s3 signs.

use std::collections::BTreeMap;
use std::fs::File;
use std::time::Duration;

use config::Secret;
use config::own::{S3Target, SnapshotTarget};
use rusty_s3::{Bucket, Credentials, S3Action as _, UrlStyle};

/// For how long a signed address is taken; a transfer that has begun goes on.
const SIGNED_FOR: Duration = Duration::from_secs(60 * 60);

/// Something that is to be put to an address.
pub struct Put {
    /// Where; it may hold secrets.
    pub address: Secret,
    /// HTTP headers; they may hold secrets.
    pub headers: BTreeMap<String, String>,
    /// What.
    pub what: What,
}

/// What is put.
pub enum What {
    /// So many bytes of a file.
    File(File, u64),
    /// These.
    Bytes(Vec<u8>),
}

/// `node` and `file`: names of what is put.
pub(super) fn put(target: &SnapshotTarget, node: &str, file: &str, what: What) -> Result<Put, String> {
    match target {
        SnapshotTarget::Http { url, authorization } => {
            let address = Secret::new(format!("{}/{node}/{file}", url.expose_secret()));
            let authorization = authorization.as_ref().map(|value| value.expose_secret().to_owned());
            let headers =
                authorization.map(|value| ("Authorization".to_owned(), value)).into_iter().collect();
            Ok(Put { address, headers, what })
        }
        SnapshotTarget::S3(target) => {
            Ok(Put { address: signed(target, &format!("{node}/{file}"))?, headers: BTreeMap::new(), what })
        }
    }
}

/// The address of an object with a signature for one PUT.
fn signed(target: &S3Target, object: &str) -> Result<Secret, String> {
    let endpoint = target.endpoint.parse().map_err(|error| format!("S3_ENDPOINT: {error}"))?;
    // A certificate for all buckets is for names without a dot.
    let is_amazon = target.endpoint.ends_with(".amazonaws.com") && !target.bucket.contains('.');
    let style = if is_amazon { UrlStyle::VirtualHost } else { UrlStyle::Path };
    let bucket = Bucket::new(endpoint, style, target.bucket.clone(), target.region.clone())
        .map_err(|error| format!("TARGET: {error}"))?;
    let key = target.key.expose_secret();
    let credentials = match &target.token {
        Some(token) => Credentials::new_with_token(&target.key_id, key, token.expose_secret()),
        None => Credentials::new(&target.key_id, key),
    };
    let object =
        if target.prefix.is_empty() { object.to_owned() } else { format!("{}/{object}", target.prefix) };
    Ok(Secret::new(String::from(bucket.put_object(Some(&credentials), &object).sign(SIGNED_FOR))))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::path::Path;
    use std::process::{Child, Command, Stdio};
    use std::time::Instant;

    use super::*;

    /// A server of buckets: versitygw, which the variable names. It ends with this.
    struct Server(Child);

    impl Server {
        fn start(directory: &Path, port: u16) -> Self {
            let program = std::env::var_os("BILLET_S3").expect("BILLET_S3 names versitygw");
            let mut server = Command::new(program);
            server.args(["--port", &format!("127.0.0.1:{port}"), "--access", "id", "--region", "eu-1"]);
            server.env("ROOT_SECRET_ACCESS_KEY", "hunter2").arg("posix").arg(directory);
            Self(server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[tokio::test]
    #[ignore = "starts the server of buckets that BILLET_S3 names"]
    async fn a_server_of_buckets_takes_what_is_signed_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("backups")).unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let _server = Server::start(directory.path(), port);
        let began = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "versitygw does not listen");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let target = |key: &str| {
            SnapshotTarget::S3(S3Target {
                endpoint: format!("http://127.0.0.1:{port}"),
                region: "eu-1".into(),
                bucket: "backups".into(),
                prefix: "cluster-1".into(),
                key_id: "id".into(),
                key: Secret::new(key),
                token: None,
            })
        };
        // More than one piece of an upload.
        let content: Vec<u8> = (0..5_000_000_u32).map(|number| number.to_le_bytes()[1]).collect();
        let upload = async |key: &str, file: &str| {
            let mut written = tempfile::tempfile().unwrap();
            written.write_all(&content).unwrap();
            std::io::Seek::rewind(&mut written).unwrap();
            let put = put(&target(key), "cp-1", file, What::File(written, content.len() as u64)).unwrap();
            let What::File(file, length) = put.what else { panic!("another content") };
            let content = oci::Content::File(tokio::fs::File::from_std(file), length);
            oci::upload(
                oci::registry::Settings::default(),
                put.address.expose_secret(),
                &put.headers,
                content,
            )
            .await
        };
        // A name as snapshots have it, and one that has to be encoded.
        for file in ["2026-11-29T02-00-00Z.db", "a b+c.db"] {
            upload("hunter2", file).await.unwrap();
            let taken = directory.path().join("backups/cluster-1/cp-1").join(file);
            assert!(std::fs::read(taken).unwrap() == content, "{file}");
        }
        let refused = upload("hunter3", "b.db").await.unwrap_err();
        assert!(refused.contains("403 Forbidden: The request signature"), "{refused}");
        assert!(!refused.contains("hunter") && !refused.contains("Amz-Signature"), "{refused}");
        assert!(!directory.path().join("backups/cluster-1/cp-1/b.db").exists());
    }

    #[test]
    fn a_file_has_an_address_below_the_node_s_name() {
        let target = SnapshotTarget::Http {
            url: Secret::new("https://backup.example.org/etcd"),
            authorization: Some(Secret::new("Bearer x")),
        };
        let put = put(&target, "cp-1", "a.db", What::Bytes(Vec::new())).unwrap();
        assert_eq!(put.address.expose_secret(), "https://backup.example.org/etcd/cp-1/a.db");
        assert_eq!(put.headers["Authorization"], "Bearer x");
    }

    #[test]
    fn an_object_has_a_signed_address() {
        let target = |endpoint: &str, bucket: &str| {
            SnapshotTarget::S3(S3Target {
                endpoint: endpoint.into(),
                region: "eu-1".into(),
                bucket: bucket.into(),
                prefix: "a/b".into(),
                key_id: "id".into(),
                key: Secret::new("hunter2"),
                token: Some(Secret::new("token")),
            })
        };
        let address = |endpoint: &str, bucket: &str| {
            let put = put(&target(endpoint, bucket), "cp-1", "a.db", What::Bytes(Vec::new())).unwrap();
            assert!(put.headers.is_empty());
            put.address.expose_secret().to_owned()
        };
        let text = address("http://10.0.0.9:9000", "backups");
        assert!(text.starts_with("http://10.0.0.9:9000/backups/a/b/cp-1/a.db?"), "{text}");
        for part in ["X-Amz-Algorithm=AWS4-HMAC-SHA256", "X-Amz-Expires=3600", "X-Amz-Security-Token=token"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(
            text.contains("X-Amz-Credential=id%2F") && text.contains("%2Feu-1%2Fs3%2Faws4_request"),
            "{text}"
        );
        assert!(!text.contains("hunter2"));
        let text = address("https://s3.eu-1.amazonaws.com", "backups");
        assert!(text.starts_with("https://backups.s3.eu-1.amazonaws.com/a/b/cp-1/a.db?"), "{text}");
        let text = address("https://s3.eu-1.amazonaws.com", "back.ups");
        assert!(text.starts_with("https://s3.eu-1.amazonaws.com/back.ups/a/b/cp-1/a.db?"), "{text}");
    }
}
