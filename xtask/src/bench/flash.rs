//! How fast an image is written to a disk, beside dd and bmaptool.
//!
//! Owns: `target/bench/flash.json` and its part of docs/benchmarks.md.
//! Order: in each round dd with as many bytes as the image maps, `installer::flash`, bmaptool; the middle round of each counts.
//! Each writes to a file of its own, past the cache, or flushes it at the end: what one leaves behind would have to be freed
//! by the next, which no disk does.
//! Does not: know what a real disk does: the target is a file on the host's disk, which the report says.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use installer::device::Direct;
use installer::flash::{self, Image, Request};
use serde_json::{Value, json};

use super::document;
use super::measure::middle;
use crate::build::Artefacts;
use crate::command::Cmd;
use crate::place;
use crate::step::step;

const ROUNDS: usize = 5;

/// What dd writes at once: as much as flashing does.
const BLOCK: &str = "4M";

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

pub(super) fn measure(artefacts: &Artefacts, folder: &Path) -> Result<()> {
    let cost = step("write an image to a file, with dd and with bmaptool", || cost(artefacts, folder))?;
    document::keep(folder, "flash", &cost.json())?;
    document::write("flash", &cost.table(&document::today()?))
}

fn cost(artefacts: &Artefacts, folder: &Path) -> Result<Cost> {
    let path = place::repository().join(&artefacts.production.disk);
    let image = Image::open(&path)?;
    let work = tempfile::tempdir_in(folder).context("create a folder for the disks")?;
    let target = |tool: &str| -> Result<PathBuf> {
        let path = work.path().join(tool);
        File::create(&path).and_then(|file| file.set_len(image.bytes())).context("create a target")?;
        Ok(path)
    };
    let (for_dd, for_us, for_bmaptool) = (target("dd")?, target("billetctl")?, target("bmaptool")?);
    let dense = dense(&image, work.path())?;
    let map = work.path().join("map");
    Cmd::new("bmaptool").arg("create").arg("--output").arg(&map).arg(&path).read()?;
    let (mut dd, mut write, mut whole, mut bmaptool) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut is_direct = false;
    for _ in 0..ROUNDS {
        let mut words = vec![format!("if={}", dense.display()), format!("of={}", for_dd.display())];
        words.extend([format!("bs={BLOCK}"), "oflag=direct".into(), "conv=notrunc,fsync".into()]);
        dd.push(timed(|| Cmd::new("dd").args(&words).arg("status=none").run())?);
        let ours = flashed(&image, &for_us)?;
        (is_direct, write, whole) = (ours.0, with(write, ours.1), with(whole, ours.2));
        let copy = || {
            Cmd::new("bmaptool")
                .args(["--quiet", "copy", "--bmap"])
                .arg(&map)
                .arg(&path)
                .arg(&for_bmaptool)
                .run()
        };
        bmaptool.push(timed(copy)?);
    }
    Ok(Cost {
        image_bytes: image.bytes(),
        mapped_bytes: image.mapped_bytes(),
        is_direct,
        dd: middle(dd),
        write: middle(write),
        whole: middle(whole),
        bmaptool: middle(bmaptool),
    })
}

fn with(mut list: Vec<Duration>, one: Duration) -> Vec<Duration> {
    list.push(one);
    list
}

/// Whether it was past the cache; until the reading back began; in all.
fn flashed(image: &Image, target: &Path) -> Result<(bool, Duration, Duration)> {
    let mut device = Direct::open(target, 512, false)?;
    let seed = Some([1; 32]);
    let request = Request { image, name: "the target", identity: "bench", note: None, seed, is_blank: false };
    let (began, mut verifying) = (Instant::now(), None);
    flash::write(&request, &mut device, &mut |progress| {
        if progress.step == "verify" {
            verifying.get_or_insert_with(|| began.elapsed());
        }
    })?;
    Ok((device.is_direct(), verifying.context("nothing was read back")?, began.elapsed()))
}

/// A file without holes, as long as what the image maps.
fn dense(image: &Image, folder: &Path) -> Result<PathBuf> {
    let path = folder.join("dense");
    let mut source = File::open(image.path()).context("open the image")?;
    let mut file = File::create(&path).context("create a file without holes")?;
    let mut left = usize::try_from(image.mapped_bytes()).context("an image too long")?;
    let mut chunk = vec![0; 1 << 20];
    while left > 0 {
        let length = left.min(chunk.len());
        let piece = chunk.get_mut(..length).context("a chunk")?;
        source.read_exact(piece).context("read the image")?;
        // Its holes are written too.
        file.write_all(piece).context("write a file without holes")?;
        left -= length;
    }
    file.sync_all().context("flush a file without holes")?;
    Ok(path)
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
            "Measured {date}: the production disk image to regular files, one for each tool, {cache}; the middle of {ROUNDS} rounds.\n\n\
             | writing an image | value | limit |\n|---|---|---|\n\
             | bytes of the image, and of those mapped | {}, {} | |\n\
             | seconds until all is written and flushed, before reading back | {:.2} | |\n\
             | seconds with everything read back and compared | {:.2} | |\n\
             | seconds of `dd oflag=direct` for as many bytes, nothing read back | {:.2} | |\n\
             | written, before reading back: rate, in parts of dd's | {:.2} | at least {DD_LIMIT}: {} |\n\
             | the same with the reading back | {:.2} | |\n\
             | seconds of bmaptool, nothing read back | {:.2} | |\n\
             | written, before reading back: rate, in parts of bmaptool's | {:.2} | at least {BMAPTOOL_LIMIT}: {} |\n\
             | the same with the reading back | {:.2} | |\n",
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
            slow.contains("| 0.50 | at least 0.95: **missed** |")
                && slow.contains("| 0.75 | at least 1: **missed** |")
        );
        assert!(!cost(2).table("today").contains("missed"));
        // With the reading back: two seconds of dd's against nine of ours, three of bmaptool's.
        assert_eq!(slow.matches("| the same with the reading back | 0.22 | |").count(), 1, "{slow}");
        assert_eq!(slow.matches("| the same with the reading back | 0.33 | |").count(), 1, "{slow}");
        let json = cost(4).json();
        assert_eq!((&json["ratio_dd"], &json["ratio_dd_verified"]), (&json!(0.5), &json!(2.0 / 9.0)));
        assert_eq!(
            middle(vec![Duration::from_secs(3), Duration::from_secs(1), Duration::from_secs(2)]),
            Duration::from_secs(2)
        );
    }
}
