//! buildah on our installer image, as somebody who follows the guides uses it.
//!
//! Owns: a store of images of its own, without root's or anybody's.
//! Does not: need a network: bases come from files.
//! Fails by: what buildah said, and the package that it comes with.
//! Source: docs/users/customising.md; the Dockerfiles are in cli/testdata/dockerfiles.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::artifacts::build;
use crate::paths;

/// Where the Dockerfiles of the guides lie in the repository.
const DOCKERFILES: &str = "cli/testdata/dockerfiles";

/// Images of one test. Its installer image is `localhost/billet/installer:latest`.
pub struct Buildah {
    directory: tempfile::TempDir,
}

impl Buildah {
    /// A store with the built test image in it.
    pub fn with_installer() -> Result<Self> {
        let buildah = Self { directory: paths::temporary_dir()? };
        let out = buildah.directory.path().join("installer");
        let image = ["image", "build", "--kind", "docker", "--from"];
        let mut billetctl = Command::new(&build().billetctl);
        run(billetctl.args(image).arg(&build().test.installer).arg("--output").arg(&out))?;
        let archive = out.join("installer-amd64-docker.tar");
        let pulled = buildah.run(&["pull", "--quiet", &format!("docker-archive:{}", archive.display())])?;
        buildah.run(&["tag", pulled.trim(), "localhost/billet/installer:latest"])?;
        fs::remove_file(&archive).context("remove the image that was loaded")?;
        Ok(buildah)
    }

    /// Makes an image with nothing but what is in this directory.
    pub fn image(&self, name: &str, directory: &Path) -> Result<()> {
        let dockerfile = self.directory.path().join("Dockerfile");
        fs::write(&dockerfile, "FROM scratch\nCOPY . /\n").context("write a Dockerfile")?;
        let [dockerfile, directory] = [&dockerfile, directory].map(|path| path.display().to_string());
        self.run(&["bud", "--isolation", "chroot", "--file", &dockerfile, "--tag", name, &directory])
            .map(drop)
    }

    /// Builds the Dockerfile of a guide, without these paths, with these flags besides; returns the image as a file of
    /// `docker save`.
    pub fn guide(&self, name: &str, remove: &str, flags: &[&str]) -> Result<PathBuf> {
        let directory = paths::repository().join(DOCKERFILES).join(name).display().to_string();
        let remove = format!("RM={remove}");
        let words = [
            "bud",
            "--isolation",
            "chroot",
            "--format",
            "docker",
            "--skip-unused-stages=false",
            "--build-arg",
        ];
        self.run(&[&words[..], &[&remove], flags, &["--tag", name, &directory]].concat())?;
        self.pushed(name, "docker-archive")
    }

    /// An image as it lies in a registry: an OCI layout in a tar file.
    pub fn as_oci(&self, name: &str) -> Result<PathBuf> {
        self.pushed(name, "oci-archive")
    }

    fn pushed(&self, name: &str, form: &str) -> Result<PathBuf> {
        let path = self.directory.path().join(format!("{name}.{form}"));
        self.run(&["push", name, &format!("{form}:{}:{name}:1", path.display())])?;
        Ok(path)
    }

    fn run(&self, words: &[&str]) -> Result<String> {
        let [images, state] = ["images", "state"].map(|name| self.directory.path().join(name));
        let mut buildah = Command::new("buildah");
        buildah.args(["--storage-driver", "vfs", "--root"]).arg(images).arg("--runroot").arg(state);
        run(buildah.args(words))
    }
}

fn run(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("run {command:?}; buildah comes with: apt-get install buildah"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {said}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
