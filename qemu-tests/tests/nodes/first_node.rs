//! docs/users/first-node.md, run line by line: what the page says is what a person gets.

use std::time::Duration;

use qemu_tests::artifacts::build;
use qemu_tests::node::{API_PORT, BOOT_LIMIT};
use qemu_tests::page::{self, Block, Command};
use qemu_tests::shell::Shell;
use qemu_tests::{TestNode, paths};

const PAGE: &str = "docs/users/first-node.md";
/// The longest command of the page waits for a restart.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// The machine that the page speaks of.
#[derive(Default)]
struct Machine {
    node: Option<TestNode>,
    named: bool,
    count: u32,
}

impl Machine {
    /// A blank machine in maintenance mode.
    fn node(&mut self) -> &TestNode {
        self.node.get_or_insert_with(|| {
            self.count += 1;
            let name = format!("first-node-{}", self.count);
            TestNode::builder(&name).source("").no_config().state_disk().start().unwrap()
        })
    }

    /// The page speaks of another machine each time it says where it is.
    fn address(&mut self) -> String {
        if self.named {
            self.node = None;
        }
        self.named = true;
        let node = self.node();
        node.wait_maintenance().unwrap();
        format!("127.0.0.1:{}", node.vm().port(API_PORT).unwrap())
    }

    /// The fingerprint stands alone on the line after its announcement.
    fn fingerprint(&mut self) -> String {
        let text = self.node().vm().console().text();
        let behind = text.split("server certificate fingerprint:\n").nth(1).unwrap();
        behind.lines().next().unwrap().split_whitespace().last().unwrap().to_owned()
    }

    fn value(&mut self, variable: &str) -> Option<String> {
        match variable {
            // What resolves everywhere, and is in a certificate only if the endpoint is.
            "NAME" => Some("localhost".to_owned()),
            "NODE" => Some(self.address()),
            "FINGERPRINT" => Some(self.fingerprint()),
            _ => None,
        }
    }
}

/// The command with the test's value where the page has an example's.
fn command_line(command: &Command, machine: &mut Machine) -> String {
    let own = command.variable().and_then(|name| Some((name, machine.value(name)?)));
    own.map_or_else(|| command.text.clone(), |(name, value)| format!("{name}='{value}'"))
}

fn run(shell: &mut Shell, machine: &mut Machine, commands: &[Command], last_fails: bool) -> String {
    let mut printed = String::new();
    for (command, left) in commands.iter().zip((0..commands.len()).rev()) {
        let place = format!("{PAGE}:{}: {}", command.line, command.text);
        let line = command_line(command, machine);
        let answer = shell.run(&line, COMMAND_LIMIT).unwrap_or_else(|error| panic!("{place}\n{error:#}"));
        let wanted = !(last_fails && left == 0);
        assert_eq!(answer.success, wanted, "{place}\nprinted\n{}", answer.stdout);
        printed.push_str(&answer.stdout);
    }
    printed
}

#[test]
fn the_page_is_true() {
    let text = std::fs::read_to_string(paths::repository().join(PAGE)).unwrap();
    let dir = paths::temporary_dir().unwrap();
    let directory = dir.path().join("work");
    std::fs::create_dir(&directory).unwrap();
    let mut shell = Shell::start(&directory, build().billetctl.parent().unwrap()).unwrap();
    let mut machine = Machine::default();
    let mut printed = String::new();
    for block in page::blocks(&text).unwrap() {
        match block {
            Block::Commands(commands, last_fails) => {
                printed = run(&mut shell, &mut machine, &commands, last_fails);
            }
            Block::Answer(line, shown) => {
                let missing = page::missing(&shown, &printed);
                assert_eq!(missing, None, "{PAGE}:{line}: the page shows what is not in\n{printed}");
            }
            Block::Console(_, shown) => {
                for line in shown {
                    machine.node().vm().expect(&line, BOOT_LIMIT).unwrap();
                }
            }
        }
    }
    assert_eq!(machine.count, 2, "one machine with its fingerprint and one without");
    let port = machine.node().vm().port(API_PORT).unwrap();
    let by_name = shell.run(&format!("billetctl -e localhost:{port} version"), COMMAND_LIMIT).unwrap();
    assert!(by_name.success, "the endpoint's name is not in the certificate: {}", by_name.stdout);
}
