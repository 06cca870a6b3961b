//! A root from the network.
//!
//! Owns: whether there is room for it, whose certificates are believed, the address, the download of each layer, and the comparison of what came with the
//! root manifest, before anything is mapped.
//! Does not: give the kernel an address or a route: frames pass it by (`netroot`), and machined finds the cards as they
//! were.
//! Fails by: naming the layer, the addresses that were tried and what each said.

mod cards;
mod receive;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::RefCell;

use netroot::{Item, Mirrors, Setup, Station, Trust, Url};
use ondisk::manifest::{AUTHORITIES_PATH, Layer};

use crate::boot::{Boot, Network};
use crate::cmdline::Transport;
use crate::failure::Failure;
use crate::kernel::{Level, Options};
use crate::line::say;
use crate::source::Source;
use receive::{Frames, LayerFile};

/// Where the layers lie, here and in the new root.
const DIRECTORY: &str = "/run/billet/network";

const OPTIONS: Options = Options { read_only: false, no_suid: true, no_dev: true, no_exec: true };

/// What a node needs beside its root until it is up: init's buffers, the kernel, machined and the services.
const RESERVE_BYTES: u64 = 128 << 20;

/// What a tmpfs takes beside the pages of its files.
const FOLDER_BYTES: u64 = 1 << 20;

const MEGABYTE: u64 = 1_000_000;

/// A distribution's bundle of all public authorities has a quarter of it.
const MOST_AUTHORITIES_BYTES: usize = 1 << 20;

const MICROSECOND_HZ: u64 = 1_000_000;

/// The mirrors, if the root is to come from some.
fn mirrors(boot: &Boot<'_>) -> Option<Vec<Url>> {
    match &boot.parameters.transport {
        Some(Transport::Network(mirrors)) => Some(mirrors.clone()),
        _ => None,
    }
}

/// Bytes of all layers.
fn root_bytes(boot: &Boot<'_>) -> u64 {
    boot.manifest.layers.iter().map(Layer::total_bytes).sum()
}

/// Refuses a root that does not fit into the memory.
pub fn check_memory(boot: &mut Boot<'_>) -> Result<(), Failure> {
    if mirrors(boot).is_none() {
        return Ok(());
    }
    let path = "/proc/meminfo";
    let text = boot.kernel.read(path, 64 * 1024).map_err(Failure::at("read", path))?;
    let text = String::from_utf8_lossy(&text);
    let available =
        text.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.split_whitespace().next());
    let Some(available) = available.and_then(|kib| kib.parse::<u64>().ok()) else {
        return Err(Failure::reason("read", path, "has no MemAvailable"));
    };
    let (available, layers) = (available.saturating_mul(1024), root_bytes(boot));
    if available >= layers.saturating_add(RESERVE_BYTES) {
        return Ok(());
    }
    let (layers, reserve) = (layers.div_ceil(MEGABYTE), RESERVE_BYTES.div_ceil(MEGABYTE));
    let available = available / MEGABYTE;
    let reason = format!(
        "needs {} MB: {layers} MB for its layers and {reserve} MB for what runs; {available} MB are free",
        layers + reserve
    );
    Err(Failure::reason("fetch root", "into memory", reason))
}

/// Reads whose certificates are believed: by an `https://` mirror, or by one that another server sends to.
pub fn read_authorities(boot: &mut Boot<'_>) -> Result<(), Failure> {
    let Some(mirrors) = mirrors(boot) else { return Ok(()) };
    let secure = mirrors.iter().find(|mirror| mirror.secure);
    match (trust(boot), secure) {
        (Ok(trust), _) => {
            tell_trust(boot, &trust);
            boot.network.trust = Some(trust);
            Ok(())
        }
        (Err(Untrusting::Nobody), None) => Ok(()),
        (Err(Untrusting::Nobody), Some(mirror)) => {
            let reason = "https needs an authority to trust, and this image has none; make it with image build \
                          --certificate FILE, or use http: what comes is compared with the root manifest anyway";
            Err(Failure::reason("fetch root from", &mirror.to_string(), reason))
        }
        (Err(Untrusting::Failed(failure)), Some(_)) => Err(failure),
        (Err(Untrusting::Failed(failure)), None) => {
            boot.warn(&failure.to_string());
            Ok(())
        }
    }
}

/// Why nobody is believed.
enum Untrusting {
    /// The image has no authorities.
    Nobody,
    Failed(Failure),
}

fn trust(boot: &mut Boot<'_>) -> Result<Trust, Untrusting> {
    let path = AUTHORITIES_PATH;
    if boot.kernel.status(path).is_err() {
        return Err(Untrusting::Nobody);
    }
    let text = boot.kernel.read(path, MOST_AUTHORITIES_BYTES).map_err(Failure::at("read", path));
    let clock_s = boot.kernel.wall_clock_us() / MICROSECOND_HZ;
    let trust = text.and_then(|text| {
        Trust::from_pem(&text, clock_s)
            .map_err(|error| Failure::reason("read authorities", path, error.to_string()))
    });
    trust.map_err(Untrusting::Failed)
}

fn tell_trust(boot: &mut Boot<'_>, trust: &Trust) {
    let (count, passed_over) = (trust.count(), trust.passed_over());
    say!(boot.kernel, Level::Info, "authorities trusted for https: {count}");
    if passed_over > 0 {
        boot.warn(&format!("{AUTHORITIES_PATH}: {passed_over} certificates are none of authorities"));
    }
    if !trust.is_clock_right() {
        boot.warn("the clock is wrong: certificates count from their own first day on");
    }
}

/// Brings up the cards in question and waits for a carrier.
pub fn raise_cards(boot: &mut Boot<'_>) -> Result<(), Failure> {
    if mirrors(boot).is_none() { Ok(()) } else { cards::raise(boot) }
}

/// Gets an address on the first card where there is one to be had.
pub fn take_address(boot: &mut Boot<'_>) -> Result<(), Failure> {
    if mirrors(boot).is_none() {
        return Ok(());
    }
    let mut refused = Vec::new();
    for number in 0..boot.network.cards.len() {
        let Some(card) = boot.network.cards.get_mut(number) else { break };
        if !card.has_carrier(boot.kernel) {
            continue;
        }
        let name = card.name.clone();
        card.open(boot.kernel)?;
        let setup = Setup {
            mac: card.mac,
            vlan: boot.parameters.network.vlan,
            lease: boot.parameters.network.lease.clone(),
            seed: seed(boot),
        };
        let shared = RefCell::new(&mut *boot);
        let mut frames = Frames { boot: &shared, card: &name };
        let mut station = Station::new(&mut frames, setup);
        match station.take_address(&mut frames) {
            Ok(lease) => {
                let vlan =
                    boot.parameters.network.vlan.map_or(String::new(), |vlan| format!(", VLAN {vlan}"));
                say!(boot.kernel, Level::Info, "{name}{vlan}: {lease}");
                boot.network.station = Some((number, station));
                return Ok(());
            }
            Err(error) => refused.push(format!("{name}: {error}")),
        }
        boot.kernel.close_frames();
    }
    Err(Failure::reason("take an address", "from the network", refused.join("; ")))
}

/// For ports and numbers of sequences, which nobody should guess.
fn seed(boot: &mut Boot<'_>) -> u64 {
    let text = boot.kernel.read("/proc/sys/kernel/random/uuid", 4096).unwrap_or_default();
    let digest = ondisk::Digest::sha256(&[&text, &boot.kernel.now_ns().to_le_bytes()]);
    digest.as_bytes().iter().take(8).fold(0, |seed, byte| seed << 8 | u64::from(*byte))
}

/// Fetches the layers.
pub fn fetch_layers(boot: &mut Boot<'_>) -> Result<(), Failure> {
    let Some(mirrors) = mirrors(boot) else { return Ok(()) };
    let Some((number, mut station)) = boot.network.station.take() else { return Ok(()) };
    let name = boot.network.cards.get(number).map(|card| card.name.clone()).unwrap_or_default();
    for directory in ["/run/billet", DIRECTORY] {
        boot.kernel.make_directory(directory, 0o755).map_err(Failure::at("make directory", directory))?;
    }
    let size = root_bytes(boot).saturating_add(FOLDER_BYTES);
    let data = format!("mode=0700,size={size}");
    boot.kernel
        .mount("tmpfs", DIRECTORY, "tmpfs", OPTIONS, &data)
        .map_err(Failure::at("mount", DIRECTORY))?;
    let trust = boot.network.trust.take();
    let mirrors = Mirrors { urls: &mirrors, trust: trust.as_ref() };
    let mut from = String::new();
    for layer in boot.manifest.layers.clone() {
        let file = layer.file_name();
        let item = Item { name: &layer.name, file: &file, bytes: layer.total_bytes() };
        let shared = RefCell::new(&mut *boot);
        let mut sink = LayerFile::new(&shared, &layer, format!("{DIRECTORY}/{file}"));
        let mut frames = Frames { boot: &shared, card: &name };
        let url = netroot::fetch(&mut station, &mut frames, mirrors, item, &mut sink)
            .map_err(|error| Failure::reason("fetch", "root", error.to_string()))?;
        let directory = url.to_string();
        from = directory.strip_suffix(&file).unwrap_or(&directory).to_string();
    }
    boot.network.station = Some((number, station));
    // From here on nobody writes there.
    boot.kernel.remount_read_only(DIRECTORY).map_err(Failure::at("remount read-only", DIRECTORY))?;
    boot.source = Some(Source::Files { directory: DIRECTORY.to_string(), described: from });
    Ok(())
}

/// Leaves the cards as they were: machined starts afresh.
pub fn release_cards(boot: &mut Boot<'_>) -> Result<(), Failure> {
    let Network { cards, station, .. } = core::mem::take(&mut boot.network);
    if station.is_some() {
        boot.kernel.close_frames();
    }
    for card in cards {
        for failure in card.restore(boot.kernel) {
            boot.warn(&failure.to_string());
        }
    }
    Ok(())
}
