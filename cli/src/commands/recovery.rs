//! `disk recovery-key` and `unlock`: the recovery keys of encrypted volumes.
//!
//! Owns: where a key comes from: the terminal, without being shown, or the standard input; never the command line, which
//! everybody on this machine can read.
//! Does not: decrypt (`age -d` does); keep a key.
//! Fails by: naming what is mistyped before the node is asked.

use crate::{
    output,
    session::{Maintenance, Session},
};
use anyhow::{Context, Result, bail};
use api::proto::billet::{
    RecoveryKey, RecoveryKeys, Unlock, UnlockRequest, machine_service_client::MachineServiceClient,
};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io::{self, IsTerminal, Stdin, Write};
use tonic::transport::Channel;
use zeroize::Zeroizing;

/// More than any key with whatever stands between its characters.
const MOST_KEY_BYTES: usize = 4096;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum DiskCommand {
    /// The recovery keys of the node's encrypted volumes, each as a file of age for its recipients
    RecoveryKey(KeyFlags),
}

#[derive(Debug, clap::Args)]
pub(crate) struct KeyFlags {
    /// Only of this one: STATE, EPHEMERAL, u-NAME or r-NAME
    volume: Option<String>,
    #[command(flatten)]
    pub(crate) maintenance: Maintenance,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UnlockFlags {
    /// STATE, EPHEMERAL, u-NAME or r-NAME. Its key is asked for, or read from the standard input
    pub(crate) volume: String,
    #[command(flatten)]
    pub(crate) maintenance: Maintenance,
}

fn service(session: &Session) -> MachineServiceClient<Channel> {
    MachineServiceClient::new(session.client.channel())
}

/// Prints the files; what each is goes to stderr, so that the output of one is what `age -d` takes.
pub(crate) async fn keys(session: &Session, flags: &KeyFlags) -> Result<()> {
    let answer = service(session).recovery_keys(session.request(())).await;
    let answers: Vec<(String, RecoveryKeys)> = session.answers(answer, |r| r.messages)?;
    let is_wanted = |key: &RecoveryKey| flags.volume.as_ref().is_none_or(|volume| *volume == key.volume);
    let mut found = false;
    for (node, answer) in answers {
        for key in answer.keys.into_iter().filter(is_wanted) {
            found = true;
            let RecoveryKey { volume, slot, recipients, file } = key;
            output::note(&format!("{node}: {volume}, slot {slot}, for {}", recipients.join(", ")));
            output::print(recovery::armored(&file).as_bytes())?;
        }
    }
    if !found {
        let whose = flags.volume.as_deref().unwrap_or("no volume");
        let what = if flags.volume.is_some() { "has no recovery key" } else { "has a recovery key" };
        bail!("{whose} {what}: name a recovery key in the machine config, see docs/users/encryption.md");
    }
    Ok(())
}

/// The key, from a person or from the standard input.
pub(crate) fn ask(volume: &str) -> Result<Zeroizing<String>> {
    let typed = typed(volume).context("read the recovery key")?;
    let key = recovery::RecoveryKey::parse(&typed)?;
    Ok(key.text())
}

fn typed(volume: &str) -> io::Result<Zeroizing<String>> {
    let stdin = io::stdin();
    let quiet = if stdin.is_terminal() { Some(Quiet::begin(&stdin)?) } else { None };
    if quiet.is_some() {
        eprint!("Recovery key of {volume} (it is not shown): ");
        io::stderr().flush()?;
    }
    // All at once, and not through Rust's buffer: neither leaves copies behind.
    let mut bytes = Zeroizing::new(vec![0; MOST_KEY_BYTES]);
    let mut length = 0;
    while let Some(rest) = bytes.get_mut(length..).filter(|rest| !rest.is_empty()) {
        let count = match rustix::io::read(&stdin, rest) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        length += count;
        // A terminal gives a line; others go to their end.
        if count == 0 || quiet.is_some() {
            break;
        }
    }
    let text = std::str::from_utf8(bytes.get(..length).unwrap_or_default());
    text.map(|text| Zeroizing::new(text.to_owned())).map_err(io::Error::other)
}

/// A terminal that does not show what is typed, until this goes.
struct Quiet<'s> {
    stdin: &'s Stdin,
    before: Termios,
}

impl<'s> Quiet<'s> {
    fn begin(stdin: &'s Stdin) -> io::Result<Self> {
        let before = tcgetattr(stdin)?;
        let mut quiet = before.clone();
        quiet.local_modes -= LocalModes::ECHO;
        quiet.local_modes |= LocalModes::ICANON | LocalModes::ECHONL;
        tcsetattr(stdin, OptionalActions::Flush, &quiet)?;
        Ok(Self { stdin, before })
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.stdin, OptionalActions::Now, &self.before);
    }
}

/// Gives the key to the node.
pub(crate) async fn unlock(session: &Session, flags: UnlockFlags, key: Zeroizing<String>) -> Result<()> {
    let volume = flags.volume;
    let request = UnlockRequest { volume: volume.clone(), key: key.to_string() };
    let answer = service(session).unlock(session.request(request)).await;
    let answers: Vec<(String, Unlock)> = session.answers(answer, |r| r.messages)?;
    for (node, unlocked) in answers {
        output::print(told(&node, &volume, &unlocked).as_bytes())?;
        for problem in &unlocked.failed {
            session.global.part_failed.warn(format!("{node}: {volume}: {problem}"));
        }
    }
    Ok(())
}

fn told(node: &str, volume: &str, unlocked: &Unlock) -> String {
    let Unlock { slot, replaced, next, .. } = unlocked;
    let replaced: Vec<String> = replaced.iter().map(u32::to_string).collect();
    let new = if replaced.is_empty() {
        String::new()
    } else {
        format!("; new keys in slots: {}", replaced.join(", "))
    };
    format!("{node}: {volume} is unlocked by the recovery key in slot {slot}{new}; {next}\n")
}
