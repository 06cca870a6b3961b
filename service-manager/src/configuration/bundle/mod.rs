//! The config bundle: configs of single machines on the medium that this one was started from.
//!
//! Owns: what tells this machine from others, taking the one entry that is for it.
//! Does not: say which disk or medium that is ([`crate::boot_medium`] does), know the file ([`ondisk::bundle`]), check its
//! signature or open what is sealed ([`installer::bundle`]).
//! Order: key, signature, then the entries; the TPM is asked for its key only if an entry names one, and to open the one
//! entry that is this machine's. What cannot be used is told with what to do, and the node waits for a config.
//! Source: docs/formats/config-bundle.md; docs/users/per-device.md.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use installer::bundle::{DeviceKey, NotASelector, Selector, entries, find, open};
use ondisk::bundle::{Entry, KEPT_KEY_PATH, PATH, Payload, PublicKey, Sealed, matching};
use runtime::errors::chain;
use tpm::Transport;

use zeroize::Zeroizing;

use super::found::{Candidate, Origin, Search, text_of};
use super::handle::Configuration;
use crate::block::Opened;
use crate::boot_medium;

/// How long the drivers of network cards may take, whose addresses tell this machine from others.
const CARDS_DEADLINE: Duration = Duration::from_secs(5);
/// Between two looks meanwhile.
const CARDS_INTERVAL: Duration = Duration::from_millis(200);

/// This machine's config in the bundle.
pub(super) async fn read(configuration: &Arc<Configuration>) -> Search {
    let end = Instant::now() + CARDS_DEADLINE;
    loop {
        let reader = configuration.clone();
        let error = match tokio::task::spawn_blocking(move || look(&reader)).await {
            Ok(Ok(Some(candidate))) => return Search::Found(candidate),
            Ok(Ok(None)) => return Search::Nothing,
            Ok(Err(error)) => error,
            Err(error) => return Search::Failed(format!("look for the config bundle: {error}")),
        };
        if *configuration.settled.borrow() || Instant::now() >= end {
            // A person can mend it, waiting cannot: the node opens itself to one.
            return Search::Absent(error);
        }
        configuration.misses.send_modify(|count| *count += 1);
        tokio::time::sleep(CARDS_INTERVAL).await;
    }
}

fn look(configuration: &Configuration) -> Result<Option<Candidate>, String> {
    let Some(device) = boot_medium::device(&configuration.runtime) else { return Ok(None) };
    let name = device.display().to_string();
    let mut disk =
        Opened::open(&configuration.runtime.path(&name)).map_err(|error| format!("open {name}: {error}"))?;
    let bytes = disk.bytes().map_err(|error| format!("size of {name}: {error}"))?;
    let found = find(&mut disk, bytes).map_err(|error| format!("{PATH} of {name}: {}", chain(&error)))?;
    let Some(file) = found else { return Ok(None) };
    let Some(key) = key(configuration)? else {
        return Err(format!(
            "{name} has a config bundle ({PATH}), and this system has no key to check it with: it was made without \
             `image build --config-key`, so no config of the bundle is taken; apply one"
        ));
    };
    let connect = || -> Connected { Ok(Box::new(crate::tpm_device::open(&configuration.runtime.root)?)) };
    let Own { selectors, passed_over } = own(&configuration.runtime.path("/sys"));
    take(&file, &key, &name, Machine { own: selectors, passed_over, connect })
}

/// What an entry is compared with, and opened by.
struct Machine<C> {
    own: Vec<Selector>,
    /// What the firmware says and many machines have alike, each with the reason.
    passed_over: Vec<String>,
    /// Connects to the TPM.
    connect: C,
}

type Connected = Result<Box<dyn Transport>, String>;

/// The one entry that is for this machine.
fn take<C: Fn() -> Connected>(
    file: &[u8],
    key: &PublicKey,
    device: &str,
    machine: Machine<C>,
) -> Result<Option<Candidate>, String> {
    let Machine { mut own, passed_over, connect } = machine;
    let all = entries(file, key).map_err(|error| format!("{PATH} of {device}: {}", chain(&error)))?;
    if all.is_empty() {
        // An image that nothing was added to.
        return Ok(None);
    }
    let unknown: String = add_tpm_key(&mut own, &all, &connect)
        .into_iter()
        .chain(passed_over)
        .map(|note| format!("; {note}"))
        .collect();
    let found = matching(&all, &own);
    let names = || own.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let (index, selector) = match found.as_slice() {
        [one] => *one,
        [] => {
            return Err(format!(
                "none of the {} configs in the bundle of {device} is for this machine ({}): add one to the image with \
                 `billetctl image add-config`, or apply one{}",
                all.len(),
                names(),
                unknown
            ));
        }
        several => {
            let list: Vec<String> =
                several.iter().map(|(index, selector)| format!("{} by {selector}", index + 1)).collect();
            return Err(format!(
                "several configs in the bundle of {device} are for this machine (entries {}): none is taken; give it one \
                 with `billetctl image add-config --replace`, naming both",
                list.join(", ")
            ));
        }
    };
    let origin =
        Origin::Bundle { device: device.to_owned(), entry: index + 1, selector: selector.to_string() };
    let text = match all.get(index).map(|entry| entry.payload) {
        Some(Payload::Plain(text)) => text_of(text).map_err(|error| format!("{origin}: {error}"))?,
        Some(Payload::Sealed(sealed)) => {
            let text = opened(&sealed, &connect).map_err(|reason| {
                format!(
                    "{origin} is sealed and does not open: {reason}; seal the config for this machine's TPM (`billetctl image \
                     add-config --replace --seal`, its key is in `billetctl get tpmkeys`), or apply one"
                )
            })?;
            text_of(&text).map_err(|error| format!("{origin}: {error}"))?
        }
        None => return Err(format!("{origin} is gone")),
    };
    Ok(Some(Candidate { origin, text }))
}

/// Adds the TPM's key to what tells this machine from others, if an entry names one. What is to be said where the TPM
/// has none.
fn add_tpm_key(
    own: &mut Vec<Selector>,
    entries: &[Entry<'_>],
    connect: &impl Fn() -> Connected,
) -> Option<String> {
    let mut all = entries.iter().flat_map(|entry| &entry.selectors);
    if !all.any(|selector| matches!(selector, Selector::TpmKey(_))) {
        return None;
    }
    let key = connect().and_then(|mut tpm| DeviceKey::of(&mut *tpm).map_err(|error| error.to_string()));
    match key {
        Ok(key) => {
            own.push(Selector::of_tpm(key.digest()));
            None
        }
        Err(reason) => Some(format!("those that name a TPM's key are passed over: {reason}")),
    }
}

fn opened(sealed: &Sealed<'_>, connect: &impl Fn() -> Connected) -> Result<Zeroizing<Vec<u8>>, String> {
    open(sealed, &mut *connect()?).map_err(|error| chain(&error))
}

/// The image's key, as init left it.
fn key(configuration: &Configuration) -> Result<Option<PublicKey>, String> {
    let kept = installer::system::kept_config_key(&configuration.runtime.path("/"));
    kept.map_err(|error| format!("{} ({KEPT_KEY_PATH})", chain(&error)))
}

/// What tells this machine from others, and what does not.
struct Own {
    selectors: Vec<Selector>,
    passed_over: Vec<String>,
}

/// MACs of its cards, serial number and UUID of its firmware.
fn own(sys: &Path) -> Own {
    let text = |path: PathBuf| fs::read_to_string(path).ok();
    let links = fs::read_dir(sys.join("class/net")).into_iter().flatten().flatten();
    // What is made by software has no device behind it.
    let cards = links.map(|link| link.path()).filter(|link| link.join("device").exists());
    let macs = cards.filter_map(|card| Selector::mac(text(card.join("address"))?.trim()).ok());
    let mut selectors: Vec<Selector> = macs.collect();
    let mut passed_over = Vec::new();
    let mut firmware = |file: &str, name: &str, read: fn(&str) -> Result<Selector, NotASelector>| {
        let Some(text) = text(sys.join("class/dmi/id").join(file)) else { return };
        match read(text.trim()) {
            Ok(selector) => selectors.push(selector),
            Err(error) if error.is_of_many() => passed_over.push(format!("its {name} {error}")),
            // A board without one.
            Err(_) => {}
        }
    };
    firmware("product_serial", "serial number", Selector::serial);
    firmware("product_uuid", "UUID", Selector::uuid);
    selectors.sort();
    selectors.dedup();
    Own { selectors, passed_over }
}

#[cfg(test)]
mod tests;
