//! Where a machine config comes from, in order.
//!
//! Owns: the order: STATE alone; else the image's own, the early parameter, what the command line names, the inline
//! parameter, each laid over those before it as a strategic merge patch. Where the command line names nothing that is
//! there, the boot medium's bundle has its place.
//! Does not: validate the text, or try again (`loadConfig` does both).
//! Fails by: [`Search::Absent`] and [`Search::Failed`]; [`Search::Nothing`] is no error: this node was given no config yet.
//! Source: docs/users/config-lifecycle.md.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use config::cmdline::ConfigSource;
use ondisk::meta::tags;
use runtime::store::{HOSTNAME_STATUS, Spec};
use zeroize::Zeroizing;

use super::address::{Machine, fill};
use super::files::CONFIG;
use super::found::{Candidate, Origin, Search, found, text_of};
use super::handle::Configuration;
use super::{bundle, http, volume};
use crate::container;

/// Where an image brings its own config.
const IN_IMAGE: [&str; 2] = ["/usr/local/etc/billet/config.yaml", "/usr/local/etc/talos/config.yaml"];
/// Of the container's PID 1.
const ENVIRONMENT: &str = "/proc/1/environ";
/// The variable with a container's config. Source: docs/users/config-lifecycle.md.
const USER_DATA: &str = "USERDATA";

/// What STATE keeps.
pub(crate) fn from_state(configuration: &Configuration) -> Search {
    let Some(state) = configuration.volumes.state() else { return Search::Nothing };
    match state.read(CONFIG) {
        Ok(Some(text)) if !text.trim().is_empty() => Search::Found(Candidate { origin: Origin::State, text }),
        Ok(_) => Search::Nothing,
        Err(error) => Search::Failed(error),
    }
}

/// Everything else, in order.
pub(crate) async fn from_outside(configuration: &Arc<Configuration>) -> Search {
    if container::is_one(&configuration.runtime) {
        return together([in_image(&IN_IMAGE), in_environment(Path::new(ENVIRONMENT))]);
    }
    let inline = |name, value: &Option<String>| match value {
        Some(value) => found(Origin::Parameter(name), unpacked(value).map_err(|e| format!("{name}: {e}"))),
        None => Search::Nothing,
    };
    let early = inline("talos.config.early", &configuration.runtime.parameters.config_early);
    let last = inline("talos.config.inline", &configuration.runtime.parameters.config_inline);
    together([in_image(&IN_IMAGE), early, named_or_own(configuration).await, last])
}

/// One config of all that was found; a source that failed makes the search fail, for its part would be missing.
fn together(searches: impl IntoIterator<Item = Search>) -> Search {
    let (mut result, mut origins) = (Search::Nothing, Vec::new());
    for search in searches {
        result = match (result, search) {
            (_, Search::Failed(error)) => return Search::Failed(error),
            (result, Search::Nothing) | (result @ Search::Found(_), Search::Absent(_)) => result,
            (Search::Found(base), Search::Found(next)) => match lay_over(base, &next) {
                Ok(text) => {
                    origins.push(next.origin);
                    Search::Found(Candidate { origin: Origin::Several(origins.clone()), text })
                }
                Err(error) => return Search::Failed(error),
            },
            (_, next) => {
                origins.extend(match &next {
                    Search::Found(candidate) => Some(candidate.origin.clone()),
                    _ => None,
                });
                next
            }
        };
    }
    result
}

fn lay_over(base: Candidate, next: &Candidate) -> Result<Zeroizing<String>, String> {
    let failed = |error: config::patch::PatchError| format!("{} over {}: {error}", next.origin, base.origin);
    let patches = config::patch::load_patches(&next.text).map_err(failed)?;
    config::patch::apply(&base.text, &patches).map(Zeroizing::new).map_err(failed)
}

fn in_image(paths: &[&'static str]) -> Search {
    for &path in paths {
        match fs::read(path) {
            Ok(bytes) => {
                let text = text_of(&Zeroizing::new(bytes)).map_err(|e| format!("{path}: {e}"));
                return found(Origin::Image(path), text);
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Search::Failed(format!("read {path}: {error}")),
        }
    }
    Search::Nothing
}

/// What a container's runtime gave: base64 of a text in the environment of its PID 1.
fn in_environment(environment: &Path) -> Search {
    let bytes = match fs::read(environment) {
        Ok(bytes) => Zeroizing::new(bytes),
        Err(error) => return Search::Failed(format!("read {}: {error}", environment.display())),
    };
    let named =
        |entry: &[u8]| entry.strip_prefix(USER_DATA.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec);
    let Some(value) = bytes.split(|byte| *byte == 0).find_map(named).map(Zeroizing::new) else {
        return Search::Nothing;
    };
    let text = String::from_utf8(value.to_vec()).map_err(|_| "it is not UTF-8 text".to_owned());
    let text = text.map(Zeroizing::new).and_then(|text| unpacked(&text));
    found(Origin::Environment(USER_DATA), text.map_err(|error| format!("{USER_DATA}: {error}")))
}

/// The source that `config=` names; where it has nothing, this machine's entry on the boot medium.
async fn named_or_own(configuration: &Arc<Configuration>) -> Search {
    let named = named(configuration).await;
    if configuration.runtime.parameters.config == Some(ConfigSource::None) {
        return named;
    }
    let (Search::Nothing | Search::Absent(_)) = &named else { return named };
    match bundle::read(configuration).await {
        Search::Nothing => named,
        // Who gave the machine a bundle meant that, not a volume.
        own => own,
    }
}

/// The source that `config=` names.
async fn named(configuration: &Arc<Configuration>) -> Search {
    match &configuration.runtime.parameters.config {
        Some(ConfigSource::MetalIso) => volume::read(),
        Some(ConfigSource::Url(address)) => {
            if address.contains("${code}") {
                find_meta(configuration).await;
            }
            match fill(address, &machine(configuration)) {
                Ok(address) => found(Origin::Address(address.clone()), http::get(&address).await),
                Err(error) => Search::Failed(error),
            }
        }
        Some(ConfigSource::None) | None => Search::Nothing,
    }
}

/// A machine that was started from elsewhere than its disk has META on that disk all the same.
async fn find_meta(configuration: &Arc<Configuration>) {
    if configuration.meta.device().is_none() {
        let reader = configuration.clone();
        // Without it the address says that the code is not known.
        let _ = tokio::task::spawn_blocking(move || {
            crate::meta::open_on_system_disk(&reader.runtime, &reader.meta)
        })
        .await;
    }
}

/// What is known of this machine now.
fn machine(configuration: &Configuration) -> Machine {
    let dmi = |name: &str| {
        let text = fs::read_to_string(Path::new("/sys/class/dmi/id").join(name)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let hostname = configuration.runtime.store.get(&HOSTNAME_STATUS, "hostname").and_then(|resource| {
        match &resource.spec {
            Spec::HostnameStatus(status) => Some(status.hostname.clone()),
            _ => None,
        }
    });
    let kept = |tag: u32| {
        let text = String::from_utf8(configuration.meta.get(tag)?).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    // Somebody's own UUID stands for the firmware's, which some boards share.
    let uuid = kept(tags::UUID_OVERRIDE).or_else(|| dmi("product_uuid"));
    Machine {
        uuid: uuid.map(|uuid| uuid.to_ascii_lowercase()),
        serial: dmi("product_serial"),
        mac: first_mac(Path::new("/sys/class/net")),
        hostname,
        code: kept(tags::DOWNLOAD_CODE),
    }
}

fn first_mac(class: &Path) -> Option<String> {
    let mut names: Vec<_> = fs::read_dir(class).ok()?.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    let wired = names.iter().find(|name| crate::network::is_wired(&name.to_string_lossy()))?;
    Some(fs::read_to_string(class.join(wired).join("address")).ok()?.trim().to_owned())
}

/// A parameter's value: base64 of a text, which may be packed by zstd.
fn unpacked(value: &str) -> Result<Zeroizing<String>, String> {
    let bytes =
        base64::engine::general_purpose::STANDARD.decode(value).map_err(|e| format!("not base64: {e}"))?;
    text_of(&Zeroizing::new(bytes))
}

#[cfg(test)]
mod tests {
    use super::super::MAX_BYTES;
    use super::*;
    use crate::register::Trust;

    /// `printf 'version: v1alpha1\n' | zstd | base64`
    const PACKED: &str = "KLUv/QRYkQAAdmVyc2lvbjogdjFhbHBoYTEKOO3SSQ==";

    #[test]
    fn inline_configs_are_plain_or_packed() {
        let plain = base64::engine::general_purpose::STANDARD.encode("version: v1alpha1\n");
        assert_eq!(unpacked(&plain).unwrap().as_str(), "version: v1alpha1\n");
        assert!(unpacked("%%").unwrap_err().starts_with("not base64"));
    }

    #[test]
    fn a_container_has_its_config_in_the_environment() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("environ");
        let plain = base64::engine::general_purpose::STANDARD.encode("version: v1alpha1\n");
        fs::write(&path, format!("PATH=/bin\0NOTUSERDATA=x\0USERDATA={plain}\0")).unwrap();
        let Search::Found(found) = in_environment(&path) else { panic!("nothing found") };
        assert_eq!(found.text.as_str(), "version: v1alpha1\n");
        assert_eq!(found.origin.to_string(), "the environment variable USERDATA");
        fs::write(&path, "USERDATA=%%\0").unwrap();
        assert!(
            matches!(in_environment(&path), Search::Failed(text) if text.starts_with("USERDATA: not base64"))
        );
        fs::write(&path, "PATH=/bin\0").unwrap();
        assert!(matches!(in_environment(&path), Search::Nothing));
    }

    fn part(name: &'static str, text: &str) -> Search {
        found(Origin::Parameter(name), Ok(Zeroizing::new(text.to_owned())))
    }

    #[test]
    fn sources_are_laid_over_each_other_in_order() {
        let first = "version: v1alpha1 # ours\nmachine:\n  type: worker\n  token: a\n";
        let Search::Found(alone) =
            together([Search::Nothing, part("a", first), Search::Absent(String::new())])
        else {
            panic!("one source is a config")
        };
        assert_eq!(alone.text.as_str(), first, "with its comments");
        let second = "machine:\n  token: b\n---\napiVersion: v1alpha1\nkind: HostnameConfig\nhostname: n\n";
        let found = together([part("a", first), Search::Nothing, part("b", second), Search::Nothing]);
        let Search::Found(merged) = found else { panic!("two sources are a config") };
        for line in ["  type: worker\n", "  token: b\n", "kind: HostnameConfig\n"] {
            assert!(merged.text.contains(line), "{line} in {}", merged.text.as_str());
        }
        assert!(merged.origin.to_string().contains("parameter a, the kernel parameter b, the later"));
    }

    /// What the signature of the image, or of its bundle, covers is its owner's; a part from elsewhere is anybody's.
    #[test]
    fn a_config_is_as_trusted_as_its_least_trusted_part() {
        let bundle = || Origin::Bundle { device: "vda".into(), entry: 1, selector: "mac".into() };
        let image = || Origin::Image(IN_IMAGE[0]);
        assert_eq!(Origin::State.trust(), Trust::State);
        let outside = [Origin::Parameter("p"), Origin::Volume, Origin::Address("https://a".into())];
        for origin in outside {
            assert_eq!(origin.trust(), Trust::Outside, "{origin}");
            assert_eq!(Origin::Several(vec![image(), origin, bundle()]).trust(), Trust::Outside);
        }
        for origin in [image(), bundle(), Origin::Several(vec![image(), bundle()])] {
            assert_eq!(origin.trust(), Trust::Image, "{origin}");
        }
    }

    #[test]
    fn a_part_that_is_missing_or_wrong_fails_the_whole() {
        let failed = |searches: [Search; 2]| match together(searches) {
            Search::Failed(error) => error,
            _ => panic!("taken"),
        };
        let good = || part("a", "machine: {type: worker}\n");
        assert_eq!(failed([good(), Search::Failed("unreachable".into())]), "unreachable");
        let error = failed([good(), part("b", "machine: [1]\n")]);
        assert!(error.contains("parameter b over the kernel parameter a: patch 1"), "{error}");
        assert!(matches!(together([Search::Absent("x".into()), Search::Nothing]), Search::Absent(_)));
    }

    #[test]
    fn what_is_no_text_is_said() {
        assert!(text_of(b" \n").unwrap_err().contains("empty"));
        assert!(text_of(&[0xff, 0xfe]).unwrap_err().contains("UTF-8"));
        assert!(text_of(&[0x1f, 0x8b, 8]).unwrap_err().contains("gzip"));
        assert!(text_of(&gzip(b"\xff\xfe")).unwrap_err().contains("UTF-8"));
        assert!(text_of(&[0x28, 0xb5, 0x2f, 0xfd, 0]).is_err());
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        use std::io::Write;
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    }

    #[test]
    fn gzip_is_unpacked_but_no_bomb() {
        assert_eq!(text_of(&gzip(b"version: v1alpha1\n")).unwrap().as_str(), "version: v1alpha1\n");
        let bomb = gzip(&vec![b' '; usize::try_from(MAX_BYTES).unwrap() + 1]);
        assert!(text_of(&bomb).unwrap_err().contains("when unpacked"));
    }

    #[test]
    fn zstd_is_unpacked() {
        let bytes = base64::engine::general_purpose::STANDARD.decode(PACKED).unwrap();
        assert_eq!(text_of(&bytes).unwrap().as_str(), "version: v1alpha1\n");
    }

    #[test]
    fn the_image_s_own_config_is_found() {
        assert!(matches!(in_image(&["/nonexistent/config.yaml"]), Search::Nothing));
        assert!(matches!(in_image(&["/proc/self/comm"]), Search::Found(_)));
    }

    #[tokio::test]
    async fn meta_brings_the_code_and_a_uuid_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let configuration = crate::server::tests_node(dir.path().to_owned()).configuration.clone();
        assert_eq!(machine(&configuration).code, None);
        configuration.meta.set(tags::DOWNLOAD_CODE, b"s3cret\n").await.unwrap();
        configuration.meta.set(tags::UUID_OVERRIDE, b"AB-1").await.unwrap();
        let known = machine(&configuration);
        assert_eq!((known.code.as_deref(), known.uuid.as_deref()), (Some("s3cret"), Some("ab-1")));
        configuration.meta.set(tags::DOWNLOAD_CODE, b" ").await.unwrap();
        assert_eq!(machine(&configuration).code, None, "an empty one is none");
    }

    #[test]
    fn the_first_wired_link_gives_the_address() {
        let dir = tempfile::tempdir().unwrap();
        for (name, mac) in
            [("lo", "00:00:00:00:00:00\n"), ("eth1", "02:00:00:00:00:02\n"), ("eth0", "02:00:00:00:00:01\n")]
        {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("address"), mac).unwrap();
        }
        assert_eq!(first_mac(dir.path()).as_deref(), Some("02:00:00:00:00:01"));
    }
}
