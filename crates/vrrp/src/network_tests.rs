//! Routers in networks of models: loss, delay, partitions, deaths, machines that are unfit, with time that does not pass by
//! itself.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::*;

const SEED: u64 = 112;
const ROUNDS: u64 = 300;
/// Of a packet; less than a tenth of the shortest interval.
const MOST_DELAY: Duration = Duration::from_millis(9);
const LONGEST: Interval = Interval::from_centiseconds(100).unwrap();

/// A router, the part of the link that it is in, and whether it has the addresses.
struct Machine {
    router: Router,
    settings: Settings,
    address: IpAddr,
    side: u8,
    holds: bool,
    alive: bool,
    fit: bool,
}

struct Network {
    random: Rng,
    now: Duration,
    machines: Vec<Machine>,
    /// When, and a number that makes it unique: to whom, and what.
    flying: BTreeMap<(Duration, u64), (usize, Heard)>,
    sent: u64,
    /// Of the last packet between two: packets of one link do not overtake each other.
    arrivals: BTreeMap<(usize, usize), Duration>,
    /// Packets of a hundred that are lost.
    loss: u8,
}

impl Network {
    fn new(seed: u64, preempts: impl Fn(&mut Rng) -> bool) -> Self {
        let mut random = Rng::with_seed(seed);
        let interval = Interval::from_centiseconds([10, 30, 100][random.usize(..3)]).unwrap();
        let same = random.bool();
        let mut network = Self {
            machines: Vec::new(),
            now: Duration::from_secs(1),
            flying: BTreeMap::new(),
            sent: 0,
            arrivals: BTreeMap::new(),
            loss: 0,
            random,
        };
        for last in 0..network.random.u8(2..=5) {
            let random = &mut network.random;
            let others = Interval::from_centiseconds(random.u16(10..=100)).unwrap();
            let settings = Settings {
                // Ties are frequent.
                priority: NonZeroU8::new(random.u8(1..=254) / 60 * 60 + 1).unwrap(),
                interval: if same { interval } else { others },
                preempts: preempts(random),
                accepts: true,
            };
            let address = IpAddr::from([10, 9, 0, last + 1]);
            let router = Router::new(settings.clone(), true);
            network.machines.push(Machine {
                router,
                settings,
                address,
                side: 0,
                holds: false,
                alive: true,
                fit: true,
            });
            let wait = network.random.u64(..3000);
            network.run_for(Duration::from_millis(wait));
            network.step(usize::from(last), Event::Startup(address));
        }
        network
    }

    fn step(&mut self, index: usize, event: Event) {
        let actions = self.machines[index].router.step(event, self.now);
        for action in actions {
            match action {
                Action::Hold => self.machines[index].holds = true,
                Action::Drop => self.machines[index].holds = false,
                Action::Send(priority) => self.send(index, priority),
                Action::Announce => assert!(self.machines[index].holds),
            }
        }
        let machine = &self.machines[index];
        assert_eq!(machine.holds, machine.router.state() == State::Active);
        assert!(machine.fit || !machine.holds);
    }

    fn send(&mut self, from: usize, priority: u8) {
        let (sender, side) = (self.machines[from].address, self.machines[from].side);
        let heard = Heard { sender, priority, interval: self.machines[from].settings.interval };
        for to in 0..self.machines.len() {
            let is_lost = self.random.u8(..100) < self.loss;
            if to == from || self.machines[to].side != side || is_lost {
                continue;
            }
            let arrival = self.now + MOST_DELAY.mul_f64(self.random.f64());
            let last = self.arrivals.entry((from, to)).or_default();
            *last = arrival.max(*last);
            self.sent += 1;
            self.flying.insert((*last, self.sent), (to, heard));
        }
    }

    /// The next thing that happens before this time.
    fn next(&mut self, end: Duration) -> bool {
        let packet = self.flying.keys().next().map(|(time, _)| *time);
        let timer = self.alive().filter_map(|(index, it)| Some((it.router.deadline()?, index))).min();
        let time = packet.into_iter().chain(timer.map(|(time, _)| time)).min();
        let Some(time) = time.filter(|time| *time <= end) else { return false };
        self.now = self.now.max(time);
        if Some(time) == packet {
            let Some((_, (to, heard))) = self.flying.pop_first() else { return false };
            if self.machines[to].alive {
                self.step(to, Event::Advertisement(heard));
            }
        } else if let Some((_, index)) = timer {
            self.step(index, Event::Timer);
        }
        true
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.next(end) {}
        self.now = end;
    }

    fn alive(&self) -> impl Iterator<Item = (usize, &Machine)> {
        self.machines.iter().enumerate().filter(|(_, machine)| machine.alive)
    }

    fn holders(&self) -> Vec<usize> {
        self.alive().filter(|(_, machine)| machine.holds).map(|(index, _)| index).collect()
    }

    /// Something that goes wrong, or right again.
    fn disturb(&mut self) {
        let index = self.random.usize(..self.machines.len());
        match self.random.u8(..6) {
            0 => self.machines[index].side = self.random.u8(..2),
            1 => self.loss = self.random.u8(..60),
            2 => self.set_fit(index, false),
            3 => self.set_fit(index, true),
            4 => self.kill(index),
            _ => self.revive(index),
        }
    }

    fn set_fit(&mut self, index: usize, fit: bool) {
        if self.machines[index].alive {
            self.machines[index].fit = fit;
            self.step(index, Event::Fit(fit));
        }
    }

    /// The kernel takes the addresses of a dead process away.
    fn kill(&mut self, index: usize) {
        self.machines[index].alive = false;
        self.machines[index].holds = false;
    }

    fn revive(&mut self, index: usize) {
        let machine = &mut self.machines[index];
        if machine.alive {
            return;
        }
        (machine.alive, machine.fit) = (true, true);
        machine.router = Router::new(machine.settings.clone(), true);
        let address = machine.address;
        self.step(index, Event::Startup(address));
    }

    /// No loss and no partition from now on; some machine can have the addresses.
    fn heal(&mut self) {
        self.loss = 0;
        for machine in &mut self.machines {
            machine.side = 0;
        }
        self.revive(0);
        self.set_fit(0, true);
    }

    /// What may pass until one has the addresses: the active router may leave the longest interval to be waited for.
    fn converge(&mut self) {
        self.run_for(3 * 4 * LONGEST.duration());
    }

    /// Exactly one has the addresses, now and for some time; answers which.
    fn settled(&mut self, why: &str) -> usize {
        let holders = self.holders();
        let [one] = holders[..] else { panic!("{why}: {holders:?} have the addresses") };
        let end = self.now + 6 * LONGEST.duration();
        while self.next(end) {
            assert_eq!(self.holders(), [one], "{why}: at {:?}", self.now);
        }
        self.now = end;
        one
    }

    /// Of those that can have the addresses.
    fn best(&self) -> usize {
        let fit = self.alive().filter(|(_, machine)| machine.fit);
        let best = fit.max_by_key(|(_, machine)| (machine.settings.priority, machine.address));
        best.map(|(index, _)| index).unwrap()
    }
}

fn networks(preempts: impl Fn(&mut Rng) -> bool) -> impl Iterator<Item = (String, Network)> {
    println!("seeds from {SEED}");
    (SEED..SEED + ROUNDS).map(move |seed| (format!("seed {seed}"), Network::new(seed, &preempts)))
}

#[test]
fn after_any_disturbance_exactly_one_has_the_addresses() {
    for (why, mut network) in networks(Rng::bool) {
        for _ in 0..network.random.u8(1..20) {
            network.disturb();
            let wait = network.random.u64(..4000);
            network.run_for(Duration::from_millis(wait));
        }
        network.heal();
        network.converge();
        network.settled(&why);
    }
}

#[test]
fn routers_that_preempt_leave_the_addresses_to_the_best() {
    for (why, mut network) in networks(|_| true) {
        for _ in 0..network.random.u8(..10) {
            network.disturb();
            let wait = network.random.u64(..4000);
            network.run_for(Duration::from_millis(wait));
        }
        network.heal();
        network.converge();
        let (one, best) = (network.settled(&why), network.best());
        let priorities = [one, best].map(|index| network.machines[index].settings.priority);
        // Among equals who is active already stays (RFC 9568 §6.4.2).
        assert_eq!(priorities[0], priorities[1], "{why}: {one} instead of {best}");
    }
}

#[test]
fn a_dead_router_is_replaced_within_active_down_interval() {
    for (why, mut network) in networks(Rng::bool) {
        network.converge();
        let one = network.settled(&why);
        network.kill(one);
        let down = |network: &Network| {
            network.alive().map(|(_, machine)| machine.router.active_down_interval()).max().unwrap()
        };
        let began = network.now;
        let end = began + down(&network) + MOST_DELAY;
        while network.holders().is_empty() {
            assert!(network.next(end), "{why}: not within {:?}", end - began);
        }
        network.converge();
        network.settled(&why);
    }
}

#[test]
fn a_router_that_leaves_is_replaced_within_skew_time() {
    for (why, mut network) in networks(Rng::bool) {
        network.converge();
        let one = network.settled(&why);
        let is_unfit = network.random.bool();
        let skew = network.alive().filter(|(index, _)| *index != one);
        let skew = skew.map(|(_, machine)| machine.router.skew_time()).min().unwrap();
        let end = network.now + skew + MOST_DELAY;
        if is_unfit {
            network.set_fit(one, false);
        } else {
            network.step(one, Event::Shutdown);
        }
        assert!(network.holders().is_empty(), "{why}");
        while network.holders().is_empty() {
            assert!(network.next(end), "{why}: not within {skew:?}");
        }
        network.converge();
        assert_ne!(network.settled(&why), one, "{why}: it is silent");
        let is_silent = network.machines[one].router.state() == State::Initialize;
        assert!(is_silent, "{why}");
    }
}

#[test]
fn each_side_of_a_partition_has_one() {
    for (why, mut network) in networks(|_| true) {
        network.converge();
        network.settled(&why);
        let last = network.machines.len() - 1;
        network.machines[last].side = 1;
        network.converge();
        let sides: Vec<u8> = network.holders().iter().map(|index| network.machines[*index].side).collect();
        assert_eq!(sides, [0, 1], "{why}");
    }
}
