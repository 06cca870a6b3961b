//! `flash`: an image file onto a disk.
//!
//! Owns: the list of disks, the plan, the question, the progress, what an interruption says.
//! Does not: write; `installer::flash` does.
//! Order: look, show the plan, ask, write, prove.

#[cfg(test)]
mod tests;

use crate::output::{self, Cell, Format, Table, bytes_si, progress::Shown};
use crate::state_directory;
use anyhow::{Context as _, Result, bail};
use installer::flash::{self, Image, Request, Target, disks, disks::Disk};
use std::{
    io::{self, IsTerminal as _, Write as _},
    path::{Path, PathBuf},
    process,
};

/// Exit status of a program that Ctrl-C ended, as shells count it.
const INTERRUPTED: i32 = 130;

/// Where sysfs and procfs are.
const ROOT: &str = "/";

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// A raw disk image or ISO, also packed by zstd
    image: PathBuf,
    /// The disk, or a file that stands for one; without it the removable disks are listed
    device: Option<PathBuf>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Also write to a disk that is not removable, is in use, or that this machine runs from
    #[arg(long)]
    force: bool,
    /// Also write a file that is no image of a disk as far as can be seen, or that is cut off
    #[arg(long)]
    as_is: bool,
    /// Begin anew although an earlier attempt can be gone on with
    #[arg(long)]
    restart: bool,
    /// Keep the GUIDs of the image's disk and partitions
    #[arg(long)]
    keep_guids: bool,
}

pub(crate) fn run(flags: &Flags, format: Format) -> Result<()> {
    let open = if flags.as_is { Image::open_as_is } else { Image::open };
    let image = open(&flags.image)?;
    let Some(device) = &flags.device else { return list(&image, format) };
    let target = Target::find(Path::new(ROOT), device)?;
    target.check(&image, flags.force)?;
    let renews = image.is_ours() && !flags.keep_guids;
    eprint!("{}", plan(&image, &target, renews));
    if !flags.yes && !target.is_blank() && !confirmed(&target)? {
        bail!("nothing was written");
    }
    let note = note(&target);
    if let Some(note) = note.as_ref().filter(|_| flags.restart) {
        let _ = std::fs::remove_file(note);
    }
    let name = device.display().to_string();
    let request = Request {
        image: &image,
        name: &name,
        identity: &target.identity(),
        note: note.as_deref(),
        seed: if renews { Some(flash::random_seed()?) } else { None },
        is_blank: target.is_blank(),
    };
    let mut opened = target.open(&image, flags.force)?;
    let mut shown = Shown::new();
    let interruption = tokio::spawn(interrupted(note.is_some()));
    let done = flash::write(&request, &mut opened, &mut |progress| shown.tell(progress));
    interruption.abort();
    shown.end();
    let done = done.inspect_err(|error| {
        if error.is_of_image() {
            target.abandon();
        }
    })?;
    opened.announce();
    let kept = match done.kept_bytes {
        0 => String::new(),
        kept => format!(", {} were there from an earlier attempt", bytes_si(kept)),
    };
    let left = match done.left_bytes {
        0 => String::new(),
        left => format!("; behind the layers {} were left as they are", bytes_si(left)),
    };
    eprintln!("{name}: {} written and read back{kept}{left}", bytes_si(done.written_bytes));
    Ok(())
}

/// Ends the program at Ctrl-C, and says how it goes on. What is being written then is compared the next time.
async fn interrupted(is_noted: bool) {
    if tokio::signal::ctrl_c().await.is_err() {
        return;
    }
    // The line of the progress is not at its end.
    let start = if io::stderr().is_terminal() { "\n" } else { "" };
    let how = if is_noted { "goes on where it was" } else { "begins anew" };
    eprintln!("{start}interrupted: the same command {how}");
    process::exit(INTERRUPTED);
}

/// The removable disks, and what speaks against each.
fn list(image: &Image, format: Format) -> Result<()> {
    let mut removable = disks::list(Path::new(ROOT))?;
    removable.retain(|disk| disk.is_removable);
    if removable.is_empty() {
        eprintln!("no removable disk is there: plug one in, or name a disk or file to write to");
    }
    output::print_table(&candidates(image, &removable), format)
}

fn candidates(image: &Image, disks: &[Disk]) -> Table {
    let mut table = Table::new(&[
        ("DEVICE", "device"),
        ("SIZE", "size"),
        ("MODEL", "model"),
        ("SERIAL", "serial"),
        ("NOTE", "note"),
    ]);
    for disk in disks {
        let path = disk.path().display().to_string();
        let size = Cell::new(bytes_si(disk.bytes), disk.bytes);
        let note = Target::Disk(disk.clone()).check(image, false).err().map(|error| error.to_string());
        let row = vec![path.into(), size, disk.model.as_str().into(), disk.serial.as_str().into()];
        table.push(row.into_iter().chain([note.unwrap_or_default().into()]).collect());
    }
    table
}

/// What zeros cost, where they cost something.
fn zeros(image: &Image, disk: &Disk) -> String {
    let which = match image.zero_bytes() {
        _ if disk.zeroes_at_once => return String::new(),
        Some(0) => return String::new(),
        Some(bytes) => format!("{} of them", bytes_si(bytes)),
        None => "those that count".to_owned(),
    };
    format!("zeros   {which} are written too, which takes its time: this disk makes none by itself\n")
}

/// What is going to happen, in a few lines.
fn plan(image: &Image, target: &Target, renews: bool) -> String {
    let partitions = match image.table() {
        Some(table) => {
            let names: Vec<_> = table.partitions.iter().map(|partition| partition.name.as_str()).collect();
            format!("; partitions {}", names.join(", "))
        }
        None => "; no GUID partition table".to_owned(),
    };
    let mapped = match image.is_packed() {
        true => "unpacked on the way".to_owned(),
        false => format!("of which {} hold something", bytes_si(image.mapped_bytes())),
    };
    let sizes = format!("{}, {mapped}", bytes_si(image.bytes()));
    let mut text = format!("image   {}: {sizes}{partitions}\n", image.path().display());
    text.push_str(&match target {
        Target::Disk(disk) => {
            let kind = if disk.is_removable { "removable" } else { "not removable" };
            let serial = if disk.serial.is_empty() { "none" } else { &disk.serial };
            let model = if disk.model.is_empty() { "unknown" } else { &disk.model };
            let size = bytes_si(disk.bytes);
            format!("target  {}: {model}, serial {serial}, {size}, {kind}\n", disk.path().display())
        }
        Target::File { path, bytes: Some(bytes) } => {
            format!("target  {}: a file of {}\n", path.display(), bytes_si(*bytes))
        }
        Target::File { path, bytes: None } => format!("target  {}: a new file\n", path.display()),
    });
    if let Target::Disk(disk) = target {
        text.push_str(&zeros(image, disk));
        for used in &disk.uses {
            text.push_str(&format!("in use  {used}\n"));
        }
    }
    let guids = if renews { "; disk and partitions get new GUIDs" } else { "" };
    text.push_str(&format!("effect  what the target holds is lost{guids}\n"));
    text
}

fn confirmed(target: &Target) -> Result<bool> {
    if !io::stdin().is_terminal() {
        bail!("nobody can be asked here: add --yes to overwrite {}", target.path().display());
    }
    eprint!("Overwrite {}? Write yes: ", target.path().display());
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).context("read the answer")?;
    Ok(answer.trim() == "yes")
}

/// Where to note the progress; `None`, and a warning: an interrupted attempt begins anew.
fn note(target: &Target) -> Option<PathBuf> {
    let kept = state_directory::path().map(|directory| flash::note_path(&directory, target));
    let kept = kept.and_then(|note| flash::check_note(&note).map(|()| note).map_err(Into::into));
    kept.inspect_err(|error| eprintln!("warning: an attempt that is interrupted will begin anew: {error:#}"))
        .ok()
}
