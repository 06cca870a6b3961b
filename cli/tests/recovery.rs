//! Recovery keys: printed for age, given from the standard input or typed, never from the command line.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod fake;
mod rig;

use rig::Rig;
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Output, Stdio};
use tokio::task::spawn_blocking;

/// The key that the node takes.
fn key() -> String {
    recovery::RecoveryKey::new(&[7; 32]).unwrap().text().to_string()
}

/// Runs a command with this on its standard input.
async fn with_input(rig: &Rig, line: &str, input: &str) -> Output {
    let mut command = rig.command(line);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let input = input.to_owned();
    let run = move || {
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    spawn_blocking(run).await.unwrap()
}

#[tokio::test]
async fn the_files_are_printed_for_age() {
    let rig = Rig::start().await;
    let output = rig.run("disk recovery-key STATE").await;
    assert!(output.success);
    assert_eq!(
        output.stdout,
        "-----BEGIN AGE ENCRYPTED FILE-----\nYWdlIG9mIFNUQVRF\n-----END AGE ENCRYPTED FILE-----\n"
    );
    assert_eq!(output.stderr, "127.0.0.1: STATE, slot 3, for age1one, age1two\\x1b[2J\n");
    let output = rig.run("-n n1,n2 disk recovery-key").await;
    assert_eq!(output.stdout.matches("BEGIN AGE").count(), 4);
    assert!(output.stderr.contains("n2: EPHEMERAL, slot 7, for "), "{}", output.stderr);
    assert!(rig.fails("disk recovery-key META").await.contains("META has no recovery key"));
}

#[tokio::test]
async fn a_key_comes_from_the_standard_input_or_the_terminal() {
    let rig = Rig::start().await;
    let unlocked = "127.0.0.1: STATE is unlocked by the recovery key in slot 3; new keys in slots: 0, 1; \
                    the node goes on with its boot\n";
    let output = with_input(&rig, "unlock STATE", &format!("{}\n", key())).await;
    assert_eq!(String::from_utf8_lossy(&output.stdout), unlocked);
    // What could not be done is told, and is not nothing.
    let warning = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(warning, "WARNING: 127.0.0.1: STATE: key slot 2: connection refused\n");
    assert!(!output.status.success());
    let error = |output: Output| String::from_utf8_lossy(&output.stderr).into_owned();
    // However it is spaced.
    let output = with_input(&rig, "unlock STATE", &key().replace('-', " ").to_uppercase()).await;
    assert_eq!(String::from_utf8_lossy(&output.stdout), unlocked);
    // A mistyped key is not even sent.
    let mistyped = key().replace("-qur", "-qup");
    assert!(error(with_input(&rig, "-e 127.0.0.1:1 unlock STATE", &mistyped).await).contains("is mistyped"));
    assert!(error(with_input(&rig, "unlock STATE", "\n").await).contains("no recovery key was given"));
    assert!(
        error(with_input(&rig, "unlock EPHEMERAL", &key()).await).contains("EPHEMERAL has no recovery key")
    );
    assert!(rig.fails(&format!("unlock STATE {}", key())).await.contains("unexpected argument"));
}

#[tokio::test]
async fn what_is_typed_is_not_shown() {
    let rig = Rig::start().await;
    let (mut far, near) = rig::terminal();
    let mut command = rig.command("unlock STATE");
    command.stdin(near.try_clone().unwrap()).stderr(near.try_clone().unwrap()).stdout(Stdio::piped());
    let typed = move || {
        let mut child = command.spawn().unwrap();
        drop(command);
        let mut shown = String::new();
        let mut until = |far: &mut File, end: &str| {
            while !shown.contains(end) {
                let mut bytes = [0; 256];
                let count = far.read(&mut bytes).unwrap();
                shown.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
            shown.clone()
        };
        until(&mut far, "(it is not shown): ");
        far.write_all(format!("{}\n", key()).as_bytes()).unwrap();
        let shown = until(&mut far, "connection refused");
        drop(near);
        let mut answer = String::new();
        child.stdout.take().unwrap().read_to_string(&mut answer).unwrap();
        child.wait().unwrap();
        (shown, answer)
    };
    let (shown, answer) = spawn_blocking(typed).await.unwrap();
    assert!(shown.contains("Recovery key of STATE") && !shown.contains("recovery1"), "{shown}");
    assert!(answer.contains("STATE is unlocked"), "{answer}");
}
