//! `open_volume FILE SLOT [VOLUME]`, the passphrase on standard input: opens a LUKS2 volume with the code of a node, maps
//! it as `luks2-VOLUME` where one is named, and prints the most memory that it had, in KiB. `cargo xtask bench luks`
//! compares it with cryptsetup.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::path::Path;

use installer::device::{BlockDevice as _, Disk};
use installer::encryption::{self, Key, KeySecret};
use ondisk::luks2::{Cost, Secret};
use unlock::{KeyKind, Plan};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().collect();
    let (file, slot, volume) = match words.as_slice() {
        [_, file, slot] => (file, slot, None),
        [_, file, slot, volume] => (file, slot, Some(volume)),
        _ => return Err("say FILE and SLOT, and VOLUME where it is to be mapped".into()),
    };
    let mut secret = Vec::new();
    std::io::stdin().read_to_end(&mut secret)?;
    // What a new slot would cost: nothing is written here.
    let cost = Cost::Pbkdf2(1000);
    let key = Key {
        slot: slot.parse()?,
        kind: KeyKind::Static,
        secret: KeySecret::Known(Secret::new(secret)),
        cost,
    };
    let mut device = Disk::open_shared(Path::new(file))?;
    let opened = encryption::open(&mut device, file, vec![Ok(key)])?;
    if let Some(volume) = volume {
        let plan = Plan::new(volume, &opened.header.uuid, file, device.bytes(), &opened.unlocked, &[])?;
        plan.make(&opened.unlocked.key)?;
    }
    let status = std::fs::read_to_string("/proc/self/status")?;
    let most =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("the kernel counts no memory")?;
    Ok(writeln!(std::io::stdout(), "{}", most.trim().trim_end_matches(" kB"))?)
}
