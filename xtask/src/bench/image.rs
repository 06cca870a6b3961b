//! How long images take to make.
//!
//! Owns: `target/bench/image.json` and its part of docs/benchmarks.md.
//! Order: an installer image of the build is opened and a disk made of it; then, as `billetctl image add-layer` does it, it is
//! opened once more, 10 MB of files that do not compress are put on top, and an installer image is written. The middle of
//! several rounds counts; what is read is in the host's cache.
//! Does not: compare with mkosi: Debian's makes no disk that boots where the host's kernel has no FAT and reads no partition
//! tables (docs/benchmarks.md, "Images"), so there is no ratio.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use installer::custom::{self, Addition, From, Profile};
use installer::image::{Kind, Source};
use serde_json::{Value, json};

use super::document;
use super::measure::middle;
use crate::build::Artefacts;
use crate::place;
use crate::step::step;

const ROUNDS: usize = 5;

/// What is added.
const CUSTOM_BYTES: usize = 10_000_000;

/// The limits of issue "Images".
const BUILD_LIMIT_S: f64 = 2.0;
const CUSTOMISE_LIMIT_S: f64 = 1.0;

const NO_MKOSI: &str =
    "mkosi 14 makes no disk that boots here: the kernel lacks FAT, and the partitions of loop devices";

struct Cost {
    /// From an installer image to a disk.
    build: Duration,
    /// From an installer image to one with another layer.
    customise: Duration,
}

pub(super) fn measure(artefacts: &Artefacts, directory: &Path) -> Result<()> {
    let cost = step("make images", || cost(artefacts, directory))?;
    document::keep(directory, "image", &cost.json())?;
    document::write("image", &cost.table(&document::today()?))
}

fn cost(artefacts: &Artefacts, directory: &Path) -> Result<Cost> {
    let work = tempfile::tempdir_in(directory).context("create a directory for images")?;
    let files = work.path().join("files");
    std::fs::create_dir(&files).context("create a directory")?;
    std::fs::write(files.join("noise"), noise()).context("write files to add")?;
    let addition = Addition { from: From::Directory(files), to: "/opt/bench".to_owned() };
    let profile = Profile { additions: vec![addition], ..Profile::default() };
    let parts = place::repository().join(&artefacts.production.installer);
    let directory_of_round = || tempfile::tempdir_in(work.path()).context("create a directory for a round");
    let (mut builds, mut customisations) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (round, again) = (directory_of_round()?, directory_of_round()?);
        let began = Instant::now();
        let source = Source::open(&parts, round.path())?;
        Kind::Disk.build(&source, 512, &round.path().join("disk"), &mut installer::silent)?;
        builds.push(began.elapsed());
        let began = Instant::now();
        let source = Source::open(&parts, again.path())?;
        let custom = custom::customise(&source, &profile, again.path(), &mut installer::silent)?;
        Kind::Installer.build(&custom, 512, &again.path().join("installer.tar"), &mut installer::silent)?;
        customisations.push(began.elapsed());
    }
    Ok(Cost { build: middle(builds), customise: middle(customisations) })
}

/// Bytes that do not compress, the same in every run.
fn noise() -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..CUSTOM_BYTES).map(|_| next()).collect()
}

impl Cost {
    fn json(&self) -> Value {
        json!({
            "rounds": ROUNDS,
            "build_s": self.build.as_secs_f64(),
            "customise_s": self.customise.as_secs_f64(),
            "ratio_mkosi": null,
            "why_no_ratio": NO_MKOSI,
        })
    }

    fn table(&self, date: &str) -> String {
        let met = |value: f64, limit: f64| if value <= limit { "met" } else { "**missed**" };
        let (build, customise) = (self.build.as_secs_f64(), self.customise.as_secs_f64());
        format!(
            "Measured {date}; the middle of {ROUNDS} rounds, inputs in the host's cache.\n\n\
             | making images | value | limit |\n|---|---|---|\n\
             | seconds from an installer image to a disk image | {build:.2} | at most {BUILD_LIMIT_S}: {} |\n\
             | seconds from an installer image to one with 10 MB more, in a layer of their own | {customise:.2} | at most {CUSTOMISE_LIMIT_S}: {} |\n\
             | rate, in parts of mkosi's | – | {NO_MKOSI} |\n",
            met(build, BUILD_LIMIT_S),
            met(customise, CUSTOMISE_LIMIT_S),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_images_miss_their_limits() {
        let cost = |build| Cost { build: Duration::from_secs(build), customise: Duration::from_millis(1500) };
        let text = cost(3).table("today");
        assert!(
            text.contains("| 3.00 | at most 2: **missed** |")
                && text.contains("| 1.50 | at most 1: **missed** |")
        );
        assert!(cost(1).table("today").contains("| 1.00 | at most 2: met |"));
    }
}
