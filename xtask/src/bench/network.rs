//! What networkd costs: from a carrier to an address, with many routes of the configuration, beside many of others.
//!
//! Owns: `target/bench/network.json` and its part of docs/benchmarks.md.
//! Order: networkd by itself as an image has it (`network::figures` of service-manager), with many routes in a namespace of its own;
//! then systemd-networkd with as many; then each client of DHCP in turn beside dnsmasq ([`leases`]). All of it is one run, in
//! namespaces that it makes and ends.
//! Does not: judge a machine that has other work: figures are of the machine that it ran on. A program that cannot run here is
//! left out, and named.

mod leases;
mod namespace;
mod systemd;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::document;
use crate::command::Cmd;
use crate::place;
use crate::step::{step, warn};
use leases::Client;
use namespace::MODULE;

/// The limits. In milliseconds: a kept lease, the first one; one changed route, an unchanged config.
const LIMITS_MS: [f64; 4] = [5.0, 25.0, 1.0, 1.0];
/// By how much machined may grow beside the routes of others, in MiB.
const GROWTH_LIMIT: f64 = 20.0;

/// What `network::figures` writes; times in microseconds, memory in KiB.
#[derive(Debug, Deserialize)]
struct Static {
    routes: u32,
    ip_batch_us: Vec<u64>,
    brought_us: u64,
    parsed_us: u64,
    unchanged_us: Vec<u64>,
}

#[derive(Debug, Deserialize)]
struct Foreign {
    routes: u32,
    grown_kib: u64,
    followed_us: u64,
    shown_us: Vec<u64>,
    spent_us: Vec<u64>,
}

/// Milliseconds from a carrier to an address, by rounds; or why there are none.
struct Lease {
    client: Client,
    is_kept: bool,
    rounds: Result<Vec<f64>, String>,
}

struct Cost {
    routes: Static,
    foreign: Foreign,
    /// Processor time in microseconds that systemd-networkd takes for as many; or why there is none.
    systemd: Result<u64, String>,
    leases: Vec<Lease>,
}

pub(super) fn measure(directory: &Path) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "namespaces and clients of DHCP need root: run this as root"
    );
    let harness = step("build networkd by itself as an image has it", harness)?;
    let figures = tempfile::tempdir_in(directory).context("create a directory for figures")?;
    let cost = Cost {
        routes: step("many routes of the configuration", || {
            read(&harness, "many_static_routes", figures.path(), "static")
        })?,
        foreign: step("one route beside many of others", || {
            read(&harness, "one_route_beside_many_foreign_ones", figures.path(), "foreign")
        })?,
        systemd: told(
            "systemd-networkd",
            step("as many routes by systemd-networkd", || Ok(systemd::routes(figures.path())))?,
        ),
        leases: step("leases", || Ok(all_leases(&harness, directory)))?,
    };
    document::keep(directory, "network", &cost.json())?;
    document::write("network", &cost.table(&document::today()?))
}

/// The program of service-manager's tests, with machined's profile.
fn harness() -> Result<PathBuf> {
    let words = ["test", "--quiet", "--profile", "image-machined", "--package", "service-manager"];
    let more =
        ["--features", "installer/image", "--lib", "--no-run", "--message-format=json-render-diagnostics"];
    let text = Cmd::new("cargo").args(words).args(more).directory(&place::repository()).read()?;
    let program = |line: &str| {
        let told: Value = serde_json::from_str(line).ok()?;
        (told["target"]["name"] == "service_manager").then_some(())?;
        told["executable"].as_str().map(PathBuf::from)
    };
    text.lines().find_map(program).context("cargo made no program of service-manager's tests")
}

fn read<T: for<'a> Deserialize<'a>>(harness: &Path, test: &str, directory: &Path, name: &str) -> Result<T> {
    let command =
        Cmd::new(harness).args(["--exact", &format!("{MODULE}::{test}"), "--ignored", "--nocapture"]);
    command.env("BILLET_BENCH", directory).read()?;
    let path = directory.join(format!("network-{name}.json"));
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("parse {}", path.display()))
}

fn all_leases(harness: &Path, directory: &Path) -> Vec<Lease> {
    let cases = [false, true].into_iter().flat_map(|is_kept| Client::ALL.map(|client| (client, is_kept)));
    let one = |(client, is_kept): (Client, bool)| {
        let rounds = told(client.name(), leases::measure(client, is_kept, harness, directory));
        Lease { client, is_kept, rounds }
    };
    cases.map(one).collect()
}

/// Says what cannot be measured here.
fn told<T>(what: &str, measured: Result<T>) -> Result<T, String> {
    measured.map_err(|error| {
        let reason = format!("{error:#}");
        warn(&format!("{what} is left out: {reason}"));
        reason
    })
}

/// Least, middle and most.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let at = |place: usize| values.get(place).copied().unwrap_or(f64::NAN);
    [at(0), at(values.len() / 2), at(values.len().saturating_sub(1))]
}

fn ms(us: &[u64]) -> Vec<f64> {
    us.iter().map(|us| *us as f64 / 1000.0).collect()
}

fn met(value: f64, limit: f64) -> &'static str {
    if value <= limit { "met" } else { "**missed**" }
}

impl Cost {
    fn ip_batch_ms(&self) -> f64 {
        spread(ms(&self.routes.ip_batch_us))[1]
    }

    fn grown_mib(&self) -> f64 {
        self.foreign.grown_kib as f64 / 1024.0
    }

    fn json(&self) -> Value {
        let Self { routes, foreign, systemd, leases } = self;
        let lease = |lease: &Lease| {
            json!({
                "client": lease.client.name(), "is_kept": lease.is_kept,
                "ms": lease.rounds.as_ref().ok(), "left_out": lease.rounds.as_ref().err(),
            })
        };
        json!({
            "static_routes": routes.routes,
            "static_cpu_us": routes.brought_us,
            "static_ip_batch_cpu_us": routes.ip_batch_us,
            "static_systemd_cpu_us": systemd.as_ref().ok(),
            "config_parsed_us": routes.parsed_us,
            "unchanged_cpu_us": routes.unchanged_us,
            "foreign_routes": foreign.routes,
            "foreign_followed_cpu_us": foreign.followed_us,
            "foreign_grown_kib": foreign.grown_kib,
            "one_route_shown_us": foreign.shown_us,
            "one_route_cpu_us": foreign.spent_us,
            "leases": leases.iter().map(lease).collect::<Vec<_>>(),
        })
    }

    fn table(&self, today: &str) -> String {
        let [kept, first, one, unchanged] = LIMITS_MS;
        let mut text = format!(
            "{today}, {} processors; limits are held against the middle\n\n| from a carrier to an address, ms | least | middle | most \
             | limit |\n|---|---|---|---|---|\n",
            std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        );
        for lease in &self.leases {
            let limit = (lease.client == Client::Billet).then_some(if lease.is_kept { kept } else { first });
            text += &lease.row(limit);
        }
        let ip_ms = self.ip_batch_ms();
        let ours_ms = self.routes.brought_us as f64 / 1000.0;
        let systemd = match &self.systemd {
            Ok(us) => format!("systemd-networkd {:.0}", *us as f64 / 1000.0),
            Err(reason) => format!("systemd-networkd is left out: {reason}"),
        };
        let row = |what: &str, us: &[u64], limit: f64| {
            let [least, middle, most] = spread(ms(us));
            format!(
                "| {what} | {least:.2} | {middle:.2} | {most:.2} | at most {limit}: {} |\n",
                met(middle, limit)
            )
        };
        text += &format!(
            "\n{} static routes from nothing: {ours_ms:.0} ms of processor time, `ip -batch` {ip_ms:.0} (at most that: {}), {systemd}. \
             Reading the config takes {:.0} ms before.\n\n| ms | least | middle | most | limit |\n|---|---|---|---|---|\n{}{}{}\n\
             {} routes of others: machined's resident memory grows by {:.1} MiB (at most {GROWTH_LIMIT}: {}); following them as they come \
             takes {:.0} ms of processor time.\n",
            self.routes.routes,
            met(ours_ms, ip_ms),
            self.routes.parsed_us as f64 / 1000.0,
            row(
                "one route changed beside those of others, until its resource shows it",
                &self.foreign.shown_us,
                one
            ),
            row("the same, processor time", &self.foreign.spent_us, one),
            row("an unchanged config applied again, processor time", &self.routes.unchanged_us, unchanged),
            self.foreign.routes,
            self.grown_mib(),
            met(self.grown_mib(), GROWTH_LIMIT),
            self.foreign.followed_us as f64 / 1000.0,
        );
        text
    }
}

impl Lease {
    fn row(&self, limit: Option<f64>) -> String {
        let what = if self.is_kept { "a kept lease" } else { "the first lease, without dnsmasq's ping" };
        let name = self.client.name();
        match &self.rounds {
            Err(reason) => format!("| {what}, {name} | | | | left out: {reason} |\n"),
            Ok(rounds) => {
                let [least, middle, most] = spread(rounds.clone());
                let limit = limit.map(|limit| format!("at most {limit}: {}", met(middle, limit)));
                let limit = limit.unwrap_or_default();
                format!("| {what}, {name} | {least:.1} | {middle:.1} | {most:.1} | {limit} |\n")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_held_against_the_middle_and_what_cannot_run_is_named() {
        let lease = |client, is_kept, rounds| Lease { client, is_kept, rounds };
        let cost = |brought_us| Cost {
            routes: Static {
                routes: 10_000,
                ip_batch_us: vec![90_000, 100_000, 110_000],
                brought_us,
                parsed_us: 50_000,
                unchanged_us: vec![100, 200, 9000],
            },
            foreign: Foreign {
                routes: 100_000,
                grown_kib: 21 << 10,
                followed_us: 400_000,
                shown_us: vec![1100],
                spent_us: vec![900],
            },
            systemd: Ok(7_600_000),
            leases: vec![
                lease(Client::Billet, true, Ok(vec![9.0, 2.0, 4.9])),
                lease(Client::Billet, false, Ok(vec![25.1])),
                lease(Client::Dhclient, false, Err("no such program".into())),
            ],
        };
        let text = cost(100_000).table("2026-11-30");
        for line in [
            "| a kept lease, Billet | 2.0 | 4.9 | 9.0 | at most 5: met |",
            "| the first lease, without dnsmasq's ping, Billet | 25.1 | 25.1 | 25.1 | at most 25: **missed** |",
            "dhclient | | | | left out: no such program |",
            "100 ms of processor time, `ip -batch` 100 (at most that: met), systemd-networkd 7600.",
            "until its resource shows it | 1.10 | 1.10 | 1.10 | at most 1: **missed** |",
            "the same, processor time | 0.90 | 0.90 | 0.90 | at most 1: met |",
            "applied again, processor time | 0.10 | 0.20 | 9.00 | at most 1: met |",
            "grows by 21.0 MiB (at most 20: **missed**)",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(cost(100_001).table("2026-11-30").contains("(at most that: **missed**)"));
        assert_eq!(cost(1).json()["leases"][2]["left_out"], "no such program");
    }
}
