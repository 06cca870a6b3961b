//! Snapshots of etcd that a control plane node takes by itself: how often, how many it keeps, and where else they go.

use std::time::Duration;

use recovery::Recipient;

use super::entries::{Entries, Problem, named};
use crate::documents::Document;
use crate::schema::GoDuration;
use crate::secret::Secret;
use crate::text::http_url;

pub(super) const NAME: &str = "billet-etcd-snapshots";

const INTERVAL: &str = "INTERVAL";
const KEEP: &str = "KEEP";
const TARGET: &str = "TARGET";
const AUTHORIZATION: &str = "AUTHORIZATION";
const S3_ENDPOINT: &str = "S3_ENDPOINT";
const REGION: &str = "AWS_REGION";
const KEY_ID: &str = "AWS_ACCESS_KEY_ID";
const KEY: &str = "AWS_SECRET_ACCESS_KEY";
const TOKEN: &str = "AWS_SESSION_TOKEN";
const RECIPIENTS: &str = "AGE_RECIPIENTS";
const KNOWN: [&str; 10] =
    [INTERVAL, KEEP, TARGET, AUTHORIZATION, S3_ENDPOINT, REGION, KEY_ID, KEY, TOKEN, RECIPIENTS];

const HOUR: Duration = Duration::from_secs(60 * 60);
/// A snapshot reads the whole database.
const SHORTEST: Duration = Duration::from_secs(30);
const KEPT: u16 = 24;
const MOST_KEPT: u16 = 1000;
/// Where a bucket lies that names no region.
const DEFAULT_REGION: &str = "us-east-1";

/// Snapshots of etcd that the node takes by itself.
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdSnapshots {
    /// Between two; `None`: none are taken.
    pub interval: Option<Duration>,
    /// How many stay on the node.
    pub keep: u16,
    /// Where each one is put beside.
    pub target: Option<SnapshotTarget>,
    /// Who may read the node's config, which goes along to the target. None: it stays here.
    pub recipients: Vec<Recipient>,
}

/// Where snapshots are put.
#[derive(Clone, PartialEq, Eq)]
pub enum SnapshotTarget {
    /// PUT below an address.
    Http {
        /// `https://host/path`, which may hold a name and a password.
        url: Secret,
        /// Value of the header `Authorization`.
        authorization: Option<Secret>,
    },
    /// An object in a bucket.
    S3(S3Target),
}

/// A bucket, and who may write to it.
#[derive(Clone, PartialEq, Eq)]
pub struct S3Target {
    /// Address of the server.
    pub endpoint: String,
    /// Its region.
    pub region: String,
    /// The bucket.
    pub bucket: String,
    /// What the names of objects begin with, without a slash at its ends.
    pub prefix: String,
    /// Id of the key.
    pub key_id: String,
    /// The key.
    pub key: Secret,
    /// Token of a session.
    pub token: Option<Secret>,
}

impl Default for EtcdSnapshots {
    fn default() -> Self {
        Self { interval: Some(HOUR), keep: KEPT, target: None, recipients: Vec::new() }
    }
}

impl SnapshotTarget {
    /// Where it leads, without anything that is a secret.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Self::Http { url, .. } => {
                let url = url.expose_secret();
                let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                let (authority, path) = rest.split_at(end);
                let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
                let path = path.split(['?', '#']).next().unwrap_or_default();
                format!("{scheme}://{host}{path}")
            }
            Self::S3(target) if target.prefix.is_empty() => format!("s3://{}", target.bucket),
            Self::S3(target) => format!("s3://{}/{}", target.bucket, target.prefix),
        }
    }
}

impl EtcdSnapshots {
    /// What a config wants; without a document the defaults.
    #[must_use]
    pub fn of(documents: &[Document]) -> Self {
        named(documents, |name| name == NAME)
            .next()
            .map_or_else(Self::default, |document| Self::read(&document.environment).0)
    }

    pub(super) fn read(environment: &[String]) -> (Self, Vec<Problem>) {
        let mut entries = Entries::new(environment, &KNOWN);
        let mut settings = Self::default();
        let interval =
            entries.parsed(INTERVAL, "time of at least 30s: 1h; `off` for none", |text| match text {
                "off" => Some(None),
                text => GoDuration::parse(text).filter(|time| time.0 >= SHORTEST).map(|time| Some(time.0)),
            });
        settings.interval = interval.unwrap_or(settings.interval);
        let keep = entries.parsed(KEEP, "number from 1 to 1000", |text| {
            text.parse().ok().filter(|keep| (1..=MOST_KEPT).contains(keep))
        });
        settings.keep = keep.unwrap_or(settings.keep);
        settings.target = target(&mut entries);
        settings.recipients = recipients(&mut entries);
        if settings.target.is_none() {
            for name in KNOWN.into_iter().filter(|name| ![INTERVAL, KEEP, TARGET].contains(name)) {
                if let (Some((index, _)), None) = (entries.get(name), entries.get(TARGET)) {
                    entries.refuse(index, format!("{name} is of use with TARGET alone, which is missing"));
                }
            }
        }
        (settings, entries.problems)
    }
}

fn target(entries: &mut Entries<'_>) -> Option<SnapshotTarget> {
    let (index, value) = entries.get(TARGET)?;
    if let Some(place) = value.strip_prefix("s3://") {
        return s3(entries, index, place).map(SnapshotTarget::S3);
    }
    if http_url(&without_password(value)).is_err() || value.contains(['?', '#']) {
        entries.refuse(index, "TARGET: an address is needed: https://host/path, or s3://bucket/prefix");
        return None;
    }
    if value.starts_with("http://") {
        entries
            .warn(index, "TARGET: http is not encrypted: whoever is on the way reads the cluster's secrets");
    }
    refuse_all(entries, &[S3_ENDPOINT, REGION, KEY_ID, KEY, TOKEN], "a bucket, s3://bucket/prefix");
    let authorization = entries.text(AUTHORIZATION).map(Secret::new);
    Some(SnapshotTarget::Http { url: Secret::new(value.trim_end_matches('/')), authorization })
}

fn s3(entries: &mut Entries<'_>, index: usize, place: &str) -> Option<S3Target> {
    refuse_all(entries, &[AUTHORIZATION], "an address, https://host/path");
    let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
    let is_name =
        |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    if bucket.is_empty() || !is_name(bucket) || !prefix.split('/').all(is_name) {
        entries.refuse(
            index,
            "TARGET: names of letters, digits, `-`, `.` and `_` are needed: s3://bucket/prefix",
        );
        return None;
    }
    for name in [KEY_ID, KEY] {
        if entries.get(name).is_none() {
            entries.missing(format!("{name} is missing: whoever writes to the bucket needs a key"));
        }
    }
    let region = entries.text(REGION).unwrap_or(DEFAULT_REGION).to_owned();
    let endpoint = endpoint(entries);
    Some(S3Target {
        endpoint: endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com")),
        region,
        bucket: bucket.to_owned(),
        prefix: prefix.trim_matches('/').to_owned(),
        key_id: entries.text(KEY_ID)?.to_owned(),
        key: Secret::new(entries.text(KEY)?),
        token: entries.text(TOKEN).map(Secret::new),
    })
}

/// Address of a server that is not Amazon's.
fn endpoint(entries: &mut Entries<'_>) -> Option<String> {
    let (index, value) = entries.get(S3_ENDPOINT)?;
    if http_url(value).is_err() || value.contains(['?', '#']) {
        // Where a password was written, it is not repeated.
        entries.refuse(index, "S3_ENDPOINT: an address is needed: https://host");
        return None;
    }
    if value.starts_with("http://") {
        entries.warn(
            index,
            "S3_ENDPOINT: http is not encrypted: whoever is on the way reads the cluster's secrets",
        );
    }
    Some(value.trim_end_matches('/').to_owned())
}

/// Settings that a target of another kind has.
fn refuse_all(entries: &mut Entries<'_>, names: &[&str], kind: &str) {
    for name in names {
        if let Some((index, _)) = entries.get(name) {
            entries.refuse(index, format!("{name} is for {kind}, which TARGET is not"));
        }
    }
}

/// An address without its name and password.
fn without_password(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

fn recipients(entries: &mut Entries<'_>) -> Vec<Recipient> {
    let Some((index, value)) = entries.get(RECIPIENTS) else { return Vec::new() };
    let mut recipients = Vec::new();
    for text in value.split([',', ' ']).filter(|text| !text.is_empty()) {
        match text.parse() {
            Ok(recipient) => recipients.push(recipient),
            Err(error) => entries.refuse(index, format!("AGE_RECIPIENTS: {error}")),
        }
    }
    recipients
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECIPIENT: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";

    fn read(entries: &[&str]) -> (EtcdSnapshots, Vec<Problem>) {
        let entries: Vec<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
        EtcdSnapshots::read(&entries)
    }

    #[test]
    fn settings_are_read() {
        assert!(EtcdSnapshots::of(&[]) == EtcdSnapshots::default());
        let (settings, problems) =
            read(&["INTERVAL=15m", "KEEP=7", "TARGET=https://u:p@backup.example.org/etcd/"]);
        assert_eq!(problems, []);
        assert_eq!((settings.interval, settings.keep), (Some(Duration::from_secs(900)), 7));
        assert_eq!(settings.target.unwrap().shown(), "https://backup.example.org/etcd");
        assert_eq!(read(&["INTERVAL=off"]).0.interval, None);
        let (settings, problems) = read(&[
            "TARGET=s3://bucket/a/b",
            "AWS_ACCESS_KEY_ID=id",
            "AWS_SECRET_ACCESS_KEY=key",
            &format!("AGE_RECIPIENTS={RECIPIENT}"),
        ]);
        assert_eq!(problems, []);
        assert_eq!(settings.recipients.len(), 1);
        let Some(SnapshotTarget::S3(target)) = settings.target else { panic!("no bucket") };
        assert_eq!((target.bucket.as_str(), target.prefix.as_str()), ("bucket", "a/b"));
        assert_eq!(target.endpoint, "https://s3.us-east-1.amazonaws.com");
    }

    #[test]
    fn what_is_wrong_is_said_without_secrets() {
        let wrong = |entries: &[&str]| {
            let texts: Vec<String> = read(entries).1.into_iter().map(|problem| problem.message).collect();
            texts.join("\n")
        };
        for (entries, wanted) in [
            (&["INTERVAL=5s"][..], "INTERVAL: `5s` is no time of at least 30s: 1h; `off` for none"),
            (&["KEEP=0"], "KEEP: `0` is no number from 1 to 1000"),
            (&["KEEP"], "a setting is written NAME=value"),
            (&["KEEP=1", "KEEP=2"], "KEEP is given twice"),
            (
                &["HUNTER2=x"],
                "there is no setting of this name: INTERVAL, KEEP, TARGET, AUTHORIZATION, S3_ENDPOINT, AWS_REGION, \
                 AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AGE_RECIPIENTS",
            ),
            (&["AUTHORIZATION=hunter2"], "AUTHORIZATION is of use with TARGET alone, which is missing"),
            (
                &["TARGET=ftp://hunter2@h/"],
                "TARGET: an address is needed: https://host/path, or s3://bucket/prefix",
            ),
            (
                &["TARGET=http://h/"],
                "TARGET: http is not encrypted: whoever is on the way reads the cluster's secrets",
            ),
            (
                &["TARGET=https://h/", "AWS_SECRET_ACCESS_KEY=hunter2"],
                "AWS_SECRET_ACCESS_KEY is for a bucket, s3://bucket/prefix, which TARGET is not",
            ),
            (
                &[
                    "TARGET=s3://b",
                    "AUTHORIZATION=hunter2",
                    "AWS_ACCESS_KEY_ID=a",
                    "AWS_SECRET_ACCESS_KEY=hunter2",
                ],
                "AUTHORIZATION is for an address, https://host/path, which TARGET is not",
            ),
            (
                &["TARGET=s3://b", "AWS_ACCESS_KEY_ID=a"],
                "AWS_SECRET_ACCESS_KEY is missing: whoever writes to the bucket needs a key",
            ),
            (
                &["TARGET=s3://b c"],
                "TARGET: names of letters, digits, `-`, `.` and `_` are needed: s3://bucket/prefix",
            ),
            (
                &[
                    "TARGET=s3://b",
                    "AWS_ACCESS_KEY_ID=a",
                    "AWS_SECRET_ACCESS_KEY=b",
                    "S3_ENDPOINT=https://hunter2@h",
                ],
                "S3_ENDPOINT: an address is needed: https://host",
            ),
            (
                &["TARGET=https://h", "AGE_RECIPIENTS=AGE-SECRET-KEY-1HUNTER2"],
                "AGE_RECIPIENTS: this is a secret key, which belongs in no config: take the public one, age1…, and make a new \
                 pair",
            ),
        ] {
            assert_eq!(wrong(entries), wanted, "{entries:?}");
        }
    }
}
