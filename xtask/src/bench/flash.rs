//! How fast an image is written to a disk, beside dd and bmaptool.
//!
//! Owns: `target/bench/flash.json` and its part of docs/benchmarks.md.
//! Order: in each round dd with as many bytes as the image maps, `billetctl flash`, bmaptool, each as a program from its start
//! to its end; the middle round of each counts. The image is made for this: so large that starts count little, with holes.
//! Each writes to a file of its own, past the cache, or flushes it at the end: what one leaves behind would have to be freed
//! by the next, which no disk does.
//! Does not: know what a real disk does: the target is a file on the host's disk, which the report says.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use installer::device::Direct;
use installer::flash::Image;
use serde_json::{Value, json};

use super::document;
use super::measure::middle;
use crate::build::Artefacts;
use crate::command::Cmd;
use crate::place;
use crate::step::step;

const ROUNDS: usize = 5;

/// What the image maps: at a gigabyte a second bmaptool's start, the longest, is a fifth of the time.
const MAPPED_BYTES: u64 = 1 << 30;

/// What of it lies together; a hole as long follows.
const PIECE_BYTES: u64 = 16 << 20;

/// What dd writes at once: as much as flashing does.
const BLOCK: &str = "4M";

/// Between two looks at the note that flashing keeps.
const LOOK: Duration = Duration::from_millis(1);

/// The limits of issue "Images".
const DD_LIMIT: f64 = 0.95;
const BMAPTOOL_LIMIT: f64 = 1.0;

struct Cost {
    image_bytes: u64,
    mapped_bytes: u64,
    is_direct: bool,
    dd: Duration,
    write: Duration,
    /// With reading everything back.
    whole: Duration,
    bmaptool: Duration,
}

pub(super) fn measure(artefacts: &Artefacts, directory: &Path) -> Result<()> {
    let cost = step("write an image to a file, with dd and with bmaptool", || cost(artefacts, directory))?;
    document::keep(directory, "flash", &cost.json())?;
    document::write("flash", &cost.table(&document::today()?))
}

fn cost(artefacts: &Artefacts, directory: &Path) -> Result<Cost> {
    let work = tempfile::tempdir_in(directory).context("create a directory for the disks")?;
    let (path, dense) = (work.path().join("image"), work.path().join("dense"));
    noise(&path, MAPPED_BYTES / PIECE_BYTES, PIECE_BYTES, PIECE_BYTES)?;
    noise(&dense, 1, MAPPED_BYTES, 0)?;
    let image = Image::open_as_is(&path)?;
    let (image_bytes, mapped_bytes) = (image.bytes(), image.mapped_bytes());
    ensure!(mapped_bytes == MAPPED_BYTES, "{} knows no holes: choose another disk", directory.display());
    let target = |tool: &str| -> Result<PathBuf> {
        let path = work.path().join(tool);
        File::create(&path).and_then(|file| file.set_len(image_bytes)).context("create a target")?;
        Ok(path)
    };
    let (for_dd, for_us, for_bmaptool) = (target("dd")?, target("billetctl")?, target("bmaptool")?);
    let map = work.path().join("map");
    Cmd::new("bmaptool").arg("create").arg("--output").arg(&map).arg(&path).read()?;
    let state = work.path().join("state");
    let program = place::repository().join(&artefacts.billetctl);
    // Its defaults, but for what it says no to: the image is none that starts.
    let ours = Cmd::new(program).args(["flash", "--yes", "--restart", "--as-is"]).arg(&path).arg(&for_us);
    let ours = ours.env("XDG_STATE_HOME", &state);
    let words = [format!("if={}", dense.display()), format!("of={}", for_dd.display())];
    let dd = Cmd::new("dd").args(words).arg(format!("bs={BLOCK}"));
    let dd = dd.args(["oflag=direct", "conv=notrunc,fsync", "status=none"]);
    // Without the hashes of what it reads, which nobody else looks at.
    let words = ["--quiet", "copy", "--no-verify", "--bmap"];
    let bmaptool = Cmd::new("bmaptool").args(words).arg(&map).arg(&path).arg(&for_bmaptool);
    let (mut dds, mut writes, mut wholes, mut bmaptools) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        dds.push(timed(|| dd.run())?);
        let (write, whole) = flashed(&ours, &state.join("billetctl"), image_bytes)?;
        writes.push(write);
        wholes.push(whole);
        bmaptools.push(timed(|| bmaptool.run())?);
    }
    Ok(Cost {
        image_bytes,
        mapped_bytes,
        is_direct: Direct::open(&for_us, 512, false)?.is_direct(),
        dd: middle(dds),
        write: middle(writes),
        whole: middle(wholes),
        bmaptool: middle(bmaptools),
    })
}

/// How long the program took until everything was written, flushed and noted; in all.
fn flashed(program: &Cmd, notes: &Path, image_bytes: u64) -> Result<(Duration, Duration)> {
    let (began, has_ended) = (Instant::now(), AtomicBool::new(false));
    let (whole, written) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !has_ended.load(Ordering::Relaxed) {
                if noted_bytes(notes).is_some_and(|noted| noted >= image_bytes) {
                    return Some(began.elapsed());
                }
                std::thread::sleep(LOOK);
            }
            None
        });
        let ran = timed(|| program.run());
        has_ended.store(true, Ordering::Relaxed);
        (ran, watch.join())
    });
    let whole = whole?;
    let written =
        written.ok().flatten().with_context(|| format!("{program} noted nowhere that it had written all"))?;
    Ok((written, whole))
}

/// What the only note in the directory says is on the disk: it comes after the last flush, before the reading back.
fn noted_bytes(notes: &Path) -> Option<u64> {
    let found = std::fs::read_dir(notes).ok()?.flatten().map(|item| item.path());
    let mut found = found.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let note: Value = serde_json::from_slice(&std::fs::read(found.next()?).ok()?).ok()?;
    note.get("done_bytes")?.as_u64()
}

/// Makes a file of pieces that do not compress, each with a hole behind it.
fn noise(path: &Path, pieces: u64, piece_bytes: u64, hole_bytes: u64) -> Result<()> {
    let wanted = || format!("make {}", path.display());
    let mut file = File::create(path).with_context(wanted)?;
    let source = File::open("/dev/urandom").context("open /dev/urandom")?;
    for piece in 0..pieces {
        file.seek(SeekFrom::Start(piece * (piece_bytes + hole_bytes))).with_context(wanted)?;
        std::io::copy(&mut (&source).take(piece_bytes), &mut file).with_context(wanted)?;
    }
    file.set_len(pieces * (piece_bytes + hole_bytes)).with_context(wanted)?;
    file.sync_all().with_context(wanted)
}

fn timed(act: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let began = Instant::now();
    act()?;
    Ok(began.elapsed())
}

/// Our rate in parts of theirs.
fn parts(theirs: Duration, ours: Duration) -> f64 {
    theirs.as_secs_f64() / ours.as_secs_f64().max(f64::MIN_POSITIVE)
}

impl Cost {
    fn json(&self) -> Value {
        json!({
            "target": "regular files on the host's disk, one for each tool",
            "timed": "programs, from start to end; ours also until all is written, before it reads back",
            "rounds": ROUNDS,
            "past_the_cache": self.is_direct,
            "image_bytes": self.image_bytes,
            "mapped_bytes": self.mapped_bytes,
            "dd_s": self.dd.as_secs_f64(),
            "write_s": self.write.as_secs_f64(),
            "write_and_verify_s": self.whole.as_secs_f64(),
            "bmaptool_s": self.bmaptool.as_secs_f64(),
            "ratio_dd": self.ratio_dd(),
            "ratio_bmaptool": self.ratio_bmaptool(),
            "ratio_dd_verified": parts(self.dd, self.whole),
            "ratio_bmaptool_verified": parts(self.bmaptool, self.whole),
        })
    }

    /// The rate in parts of dd's: the same number of bytes.
    fn ratio_dd(&self) -> f64 {
        parts(self.dd, self.write)
    }

    fn ratio_bmaptool(&self) -> f64 {
        parts(self.bmaptool, self.write)
    }

    fn table(&self, date: &str) -> String {
        let met = |value: f64, limit: f64| if value >= limit { "met" } else { "**missed**" };
        let cache = if self.is_direct { "past the kernel's cache" } else { "through the kernel's cache" };
        format!(
            "Measured {date}: an image with holes to regular files, one for each tool, {cache}; programs from their start on, \
             the middle of {ROUNDS} rounds. The limits are for writing: reading back, which only `billetctl flash` does, is not \
             counted in them.\n\n\
             | writing an image | value | limit |\n|---|---|---|\n\
             | bytes of the image, and of those mapped | {}, {} | |\n\
             | seconds until all is written and flushed, before reading back | {:.2} | |\n\
             | seconds with everything read back and compared | {:.2} | |\n\
             | seconds of `dd oflag=direct` for as many bytes, nothing read back | {:.2} | |\n\
             | written, before reading back: rate, in parts of dd's | {:.2} | at least {DD_LIMIT}, without the reading back: {} |\n\
             | the same with the reading back | {:.2} | none |\n\
             | seconds of bmaptool, nothing read back | {:.2} | |\n\
             | written, before reading back: rate, in parts of bmaptool's | {:.2} | at least {BMAPTOOL_LIMIT}, without the reading back: {} |\n\
             | the same with the reading back | {:.2} | none |\n",
            self.image_bytes,
            self.mapped_bytes,
            self.write.as_secs_f64(),
            self.whole.as_secs_f64(),
            self.dd.as_secs_f64(),
            self.ratio_dd(),
            met(self.ratio_dd(), DD_LIMIT),
            parts(self.dd, self.whole),
            self.bmaptool.as_secs_f64(),
            self.ratio_bmaptool(),
            met(self.ratio_bmaptool(), BMAPTOOL_LIMIT),
            parts(self.bmaptool, self.whole),
        )
    }
}

#[cfg(test)]
mod tests {
    use installer::flash::Request;

    use super::*;

    #[test]
    fn a_slow_write_misses_its_limits() {
        let cost = |write: u64| Cost {
            image_bytes: 10,
            mapped_bytes: 5,
            is_direct: true,
            dd: Duration::from_secs(2),
            write: Duration::from_secs(write),
            whole: Duration::from_secs(9),
            bmaptool: Duration::from_secs(3),
        };
        let slow = cost(4).table("today");
        assert!(
            slow.contains("| 0.50 | at least 0.95, without the reading back: **missed** |")
                && slow.contains("| 0.75 | at least 1, without the reading back: **missed** |")
        );
        assert!(!cost(2).table("today").contains("missed"));
        // With the reading back: two seconds of dd's against nine of ours, three of bmaptool's.
        assert_eq!(slow.matches("| the same with the reading back | 0.22 | none |").count(), 1, "{slow}");
        assert_eq!(slow.matches("| the same with the reading back | 0.33 | none |").count(), 1, "{slow}");
        let json = cost(4).json();
        assert_eq!((&json["ratio_dd"], &json["ratio_dd_verified"]), (&json!(0.5), &json!(2.0 / 9.0)));
        assert_eq!(
            middle(vec![Duration::from_secs(3), Duration::from_secs(1), Duration::from_secs(2)]),
            Duration::from_secs(2)
        );
    }

    /// As `installer::flash` keeps it; a look may fall between two of them.
    #[test]
    fn the_note_of_flashing_is_understood() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(noted_bytes(&directory.path().join("none")), None);
        let (image, target) = (directory.path().join("image"), directory.path().join("target"));
        std::fs::write(&image, vec![7; 3 << 20]).unwrap();
        std::fs::write(&target, vec![0; 3 << 20]).unwrap();
        let (image, notes) = (Image::open_as_is(&image).unwrap(), directory.path().join("notes"));
        let note = notes.join("flash-1.json");
        let mut device = Direct::open(&target, 512, false).unwrap();
        let (name, identity, note) = ("the target", "bench", Some(&*note));
        let request = Request { image: &image, name, identity, note, seed: None, is_blank: false };
        let mut noted = None;
        installer::flash::write(&request, &mut device, &mut |progress| {
            if progress.step == "verify" {
                noted = noted_bytes(&notes);
            }
        })
        .unwrap();
        assert_eq!((noted, noted_bytes(&notes)), (Some(3 << 20), None));
    }

    #[test]
    fn the_image_has_holes() {
        let directory = tempfile::tempdir_in(place::target()).unwrap();
        let path = directory.path().join("image");
        noise(&path, 3, 1 << 20, 1 << 20).unwrap();
        let image = Image::open_as_is(&path).unwrap();
        assert_eq!((image.bytes(), image.mapped_bytes()), (6 << 20, 3 << 20));
    }
}
