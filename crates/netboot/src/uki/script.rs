//! The script of a bundle, as far as a UKI needs it: the line with the kernel, and what is loaded beside that.

use std::io;

/// What a script starts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Started<'s> {
    pub(super) kernel: &'s str,
    pub(super) words: Vec<&'s str>,
    pub(super) initramfs: Vec<&'s str>,
}

/// What a script starts, with its variables as they stand there.
pub(super) fn read_script(script: &str) -> io::Result<Started<'_>> {
    let lines =
        |command: &'static str| script.lines().filter_map(move |line| line.trim().strip_prefix(command));
    let mut words = lines("kernel ").next().unwrap_or_default().split_ascii_whitespace();
    let kernel = words.next().ok_or_else(|| io::Error::other("the script has no line with a kernel"))?;
    let initramfs = lines("initrd ").filter_map(|line| line.split_ascii_whitespace().last()).collect();
    Ok(Started { kernel, words: words.collect(), initramfs })
}
