//! What an answer changes.
//!
//! Owns: which answer counts in which state. The caller has compared number and DUID of the client.
//! Source: RFC 8415 §18.2.9 (ADVERTISE), §18.2.10 (REPLY), §21.24 and §21.25 (longest waits).

use std::time::Duration;

use super::{Client, Loss, Offer, Output, State};
use crate::exchange::Plan;
use crate::lease::{FOREVER, Lease, usable};
use crate::message::{Heard, Kind, Status};

/// The preference that ends the collection of offers.
const AT_ONCE: u8 = 255;

impl Client {
    pub(super) fn answer(&mut self, now: Duration, heard: &Heard, outputs: &mut Vec<Output>) {
        self.note_waits(heard);
        // After DECLINE and RELEASE the server knows, whatever it says.
        let is_told = matches!(self.state, State::Declining(_) | State::Releasing(_));
        match heard.status() {
            Status::UseMulticast => return,
            Status::UnspecFail if !is_told => return,
            _ => {}
        }
        let own_server = self.held.as_ref().is_some_and(|held| held.lease.server_duid == heard.server);
        match (&self.state, heard.kind) {
            (State::Selecting(_), Kind::Advertise) => self.offered(now, heard, outputs),
            (State::Selecting(_), Kind::Reply) if heard.is_rapid => {
                if let Some(lease) = Lease::parse(heard, now) {
                    self.bind(lease, outputs);
                }
            }
            (State::Requesting(offer), Kind::Reply) if offer.server == heard.server => {
                self.requested(now, heard, outputs);
            }
            (State::Renewing, Kind::Reply) if own_server => self.renewed(now, heard, outputs),
            (State::Rebinding, Kind::Reply) => self.renewed(now, heard, outputs),
            (State::Confirming, Kind::Reply) => self.confirmed(now, heard, outputs),
            (State::Declining(given), Kind::Reply) if given.server == heard.server => {
                self.go_on(now, outputs);
            }
            (State::Releasing(given), Kind::Reply) if given.server == heard.server => {
                self.state = State::Waiting(None);
            }
            (State::Informing, Kind::Reply) if heard.status() == Status::Success => {
                let information = Box::new(heard.information.clone());
                self.state = State::Informed(until(now, information.refresh));
                self.information = Some(information.clone());
                outputs.push(Output::Informed(information));
            }
            _ => {}
        }
    }

    /// Also of an offer that does not count otherwise (RFC 8415 §18.2.9).
    fn note_waits(&mut self, heard: &Heard) {
        self.solicit_longest = heard.solicit_longest.or(self.solicit_longest);
        self.inform_longest = heard.inform_longest.or(self.inform_longest);
        let longest = match self.state {
            State::Selecting(_) => self.solicit_longest,
            State::Informing => self.inform_longest,
            _ => return,
        };
        self.exchange.plan = Plan { longest, ..self.exchange.plan };
    }

    /// Offers are collected until the first repeat would be due; then the first one counts at once.
    fn offered(&mut self, now: Duration, heard: &Heard, outputs: &mut Vec<Output>) {
        let addresses = match &heard.association {
            Some(association) if heard.status() == Status::Success => usable(association),
            _ => return,
        };
        if addresses.is_empty() {
            return;
        }
        let addresses = addresses.into_iter().map(|address| address.address).collect();
        let offer = Offer { server: heard.server.clone(), preference: heard.preference, addresses };
        if heard.preference == AT_ONCE || self.exchange.sent > 1 {
            self.request(now, offer, outputs);
        } else if let State::Selecting(best) = &mut self.state
            && best.as_ref().is_none_or(|best| best.preference < offer.preference)
        {
            *best = Some(offer);
        }
    }

    /// An answer without an address is a refusal. A lease in use stays, unless it does not fit the link.
    fn requested(&mut self, now: Duration, heard: &Heard, outputs: &mut Vec<Output>) {
        if let Some(lease) = Lease::parse(heard, now) {
            self.bind(lease, outputs);
            return;
        }
        if heard.status() == Status::NotOnLink {
            self.lose(outputs);
        }
        self.refused(now, outputs);
    }

    fn renewed(&mut self, now: Duration, heard: &Heard, outputs: &mut Vec<Output>) {
        let Some(held) = &self.held else { return };
        match heard.status() {
            Status::Success => match held.lease.renewed(heard, now) {
                Some(lease) if lease.addresses.is_empty() => {
                    self.lose(outputs);
                    self.refused(now, outputs);
                }
                // The server took addresses back, and has not prolonged the rest yet: it is asked on.
                Some(lease) if lease.renew_at() <= now => self.hold(lease, outputs),
                Some(lease) => {
                    self.refusals = 0;
                    self.bind(lease, outputs);
                }
                None => {}
            },
            Status::NoBinding => {
                let addresses = held.lease.list();
                self.request(now, Offer { server: heard.server.clone(), preference: 0, addresses }, outputs);
            }
            _ => {}
        }
    }

    fn confirmed(&mut self, now: Duration, heard: &Heard, outputs: &mut Vec<Output>) {
        match heard.status() {
            Status::Success => self.resume(now, outputs),
            Status::NotOnLink => {
                self.lose(outputs);
                self.seek(now, Duration::ZERO, outputs);
            }
            _ => {}
        }
    }

    /// A server says that the client cannot have what it has.
    fn lose(&mut self, outputs: &mut Vec<Output>) {
        let Some(held) = self.held.take() else { return };
        outputs.push(if held.in_use {
            Output::Lost(held.lease, Loss::Refused)
        } else {
            Output::Refused(held.lease)
        });
    }
}

/// After this moment settings are asked for again; those without an end never.
fn until(now: Duration, refresh: Duration) -> Option<Duration> {
    (refresh != FOREVER).then(|| now.saturating_add(refresh))
}
