//! What a machine that broadcasts is told: a boot file beside another server's address, or both.
//!
//! Owns: who gets an answer, what is in it, where it goes.
//! Does not: send or receive; answer through relays.
//! Order: firmware asks for an address and, as a PXE client, for a boot file. Beside another DHCP server only the second is
//! answered (proxyDHCP), at once and again on port 4011 for those who ask there. Firmware loads iPXE or a UKI; iPXE asks
//! again and gets the script's address. The system that starts asks once more and is nobody's concern without a range.
//! Firmware that starts by HTTP says another class, and is told the same file's address instead of its name.
//! Each says which processor it runs on: a bundle is for one kind, and the others are told nothing.
//! Source: RFC 2131 §4.3, RFC 2132, RFC 4578; PXE specification 2.1 §2.2.3 (discovery control), §2.4; UEFI specification
//! 2.10 §24.7.3 (HTTP boot).

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use dhcproto::Encodable as _;
use dhcproto::error::EncodeError;
use dhcproto::v4::{Architecture as Number, DhcpOption, HType, Message, MessageType, Opcode, OptionCode};
use ondisk::architecture::Architecture;

pub use ::dhcp::message::read;

use crate::event::Event;
use crate::mac::Mac;
use crate::pool::{LEASE, Pool};
use crate::uki;

/// Class of firmware that wants a boot file.
const PXE_CLIENT: &[u8] = b"PXEClient";
/// Class of firmware that wants a boot file's address.
const HTTP_CLIENT: &[u8] = b"HTTPClient";
/// Class of iPXE.
const IPXE: &[u8] = b"iPXE";
/// PXE options: discovery control (6) with bit 3, "load the boot file that is named", and the end.
const LOAD_THE_NAMED_FILE: [u8; 4] = [6, 1, 8, 255];

/// What the bundle has for firmware to load, by its names in TFTP.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loaders {
    /// What its kernel runs on, if that is known.
    pub architecture: Option<Architecture>,
    /// For PCs without UEFI.
    pub bios: Option<String>,
    /// For PCs with UEFI.
    pub amd64: Option<Uefi>,
    /// For 64-bit ARM machines.
    pub arm64: Option<Uefi>,
}

impl Loaders {
    /// What PCs without UEFI load.
    ///
    /// # Errors
    /// Why that is nothing.
    pub fn bios(&self) -> Result<&str, String> {
        self.fits(Architecture::Amd64)?;
        self.bios.as_deref().ok_or_else(|| "the bundle has no undionly.kpxe".to_owned())
    }

    /// What machines with UEFI load.
    ///
    /// # Errors
    /// Why that is nothing.
    pub fn uefi(&self, architecture: Architecture) -> Result<&Uefi, String> {
        let (loader, names) = match architecture {
            Architecture::Amd64 => (&self.amd64, "ipxe.efi, billet.efi"),
            Architecture::Arm64 => (&self.arm64, "ipxe-arm64.efi, billet-arm64.efi"),
        };
        // A UKI that somebody put there is whole in itself.
        loader.as_ref().ok_or_else(|| match self.fits(architecture) {
            Err(reason) => reason,
            Ok(()) => format!("the bundle has none of {names} and stub.efi"),
        })
    }

    /// Whether the bundle's kernel runs there.
    fn fits(&self, architecture: Architecture) -> Result<(), String> {
        match self.architecture {
            Some(own) if own != architecture => Err(format!("the bundle is for {}", own.name())),
            _ => Ok(()),
        }
    }
}

/// What machines with UEFI load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Uefi {
    /// A file of the bundle.
    File(String),
    /// A UKI that is made for each machine.
    Own,
}

impl Uefi {
    /// What this machine asks for in TFTP, and below `/bundle/` in HTTP.
    #[must_use]
    pub fn path(&self, mac: Mac) -> String {
        match self {
            Self::File(name) => name.clone(),
            Self::Own => format!("{}/{}", mac.dashed(), uki::NAME),
        }
    }
}

impl fmt::Display for Uefi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(name) => f.write_str(name),
            Self::Own => write!(f, "{}, made for each machine", uki::NAME),
        }
    }
}

/// How firmware loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Tftp,
    Http,
}

/// What asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// On which processor, if it says so.
    Ipxe(Option<Architecture>),
    Bios,
    Uefi(Architecture, By),
    Other,
    /// Wants an address and no boot file.
    Plain,
}

/// Which port was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// 67, where addresses are asked for.
    Dhcp,
    /// 4011, where boot files are.
    Pxe,
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    /// What is said.
    pub message: Message,
    /// To whom.
    pub to: SocketAddr,
}

/// Who answers.
#[derive(Debug)]
pub struct Responder {
    /// Our address on this network.
    pub address: Ipv4Addr,
    /// Where the script is.
    pub http_port: u16,
    /// What firmware loads.
    pub loaders: Loaders,
    /// Addresses to hand out, if nobody else does.
    pub pool: Option<Pool>,
}

impl Reply {
    /// The packet; `None`: an address that only the request names would get more bytes than it seems to have sent. What the
    /// answer says twice is left out before.
    pub(crate) fn packet(mut self, port: Port, request_bytes: usize) -> Result<Option<Vec<u8>>, EncodeError> {
        let mut packet = self.message.to_vec()?;
        if port == Port::Dhcp {
            return Ok(Some(packet));
        }
        // The server's address and the file's name stand in fields of their own.
        for option in [OptionCode::TFTPServerName, OptionCode::BootfileName] {
            if packet.len() > request_bytes {
                self.message.opts_mut().remove(option);
                packet = self.message.to_vec()?;
            }
        }
        Ok((packet.len() <= request_bytes).then_some(packet))
    }
}

impl Responder {
    /// Who asks, if that is a card of an Ethernet which may get an answer.
    pub(crate) fn concerned(&self, request: &Message) -> Option<Mac> {
        let is_direct = request.opcode() == Opcode::BootRequest && request.giaddr().is_unspecified();
        let mac = mac(request).filter(|_| is_direct && request.htype() == HType::Eth)?;
        (self.pool.is_some() || kind(request) != Kind::Plain).then_some(mac)
    }

    /// The answer to a message, if it gets one; `tell` hears what a person wants to see.
    pub fn answer(
        &mut self,
        request: &Message,
        from: SocketAddr,
        port: Port,
        now: Instant,
        tell: &mut dyn FnMut(Event),
    ) -> Option<Reply> {
        let mac = self.concerned(request)?;
        let kind = kind(request);
        // Whoever has an address sends from there.
        if !request.ciaddr().is_unspecified() && from.ip() != request.ciaddr() {
            return None;
        }
        let asked = request.opts().msg_type()?;
        let (said, leased) = match (port, asked) {
            (Port::Pxe, MessageType::Request | MessageType::Inform) => (MessageType::Ack, None),
            (Port::Dhcp, MessageType::Discover) => (MessageType::Offer, self.offer(request, mac, now, tell)?),
            (Port::Dhcp, MessageType::Request) => self.lend(request, mac, now, tell)?,
            (Port::Dhcp, MessageType::Release | MessageType::Decline) => {
                self.give_back(request, mac, asked, now);
                return None;
            }
            _ => return None,
        };
        let mut message = self.begin(request, said);
        if said == MessageType::Nak {
            return Some(Reply { message, to: everybody() });
        }
        if let Some(address) = leased {
            self.address_options(&mut message, address);
        }
        let has_file = self.boot_options(&mut message, request, mac, kind, tell);
        // Beside another server there is nothing to say but the boot file.
        if leased.is_none() && !has_file {
            return None;
        }
        if said == MessageType::Ack && port == Port::Pxe {
            message.set_ciaddr(request.ciaddr());
            return Some(Reply { message, to: from });
        }
        let renews = request.ciaddr() != Ipv4Addr::UNSPECIFIED;
        Some(Reply { message, to: if renews { from } else { everybody() } })
    }

    /// `None`: no answer. `Some(None)`: an answer without an address.
    #[allow(clippy::option_option, reason = "whether there is an answer, and whether it has an address")]
    fn offer(
        &mut self,
        request: &Message,
        mac: Mac,
        now: Instant,
        tell: &mut dyn FnMut(Event),
    ) -> Option<Option<Ipv4Addr>> {
        let Some(pool) = &mut self.pool else { return Some(None) };
        match pool.offer(mac, wanted(request), now) {
            Some(address) => Some(Some(address)),
            None => {
                tell(Event::Exhausted { mac });
                None
            }
        }
    }

    fn lend(
        &mut self,
        request: &Message,
        mac: Mac,
        now: Instant,
        tell: &mut dyn FnMut(Event),
    ) -> Option<(MessageType, Option<Ipv4Addr>)> {
        let pool = self.pool.as_mut()?;
        if let Some(chosen) = server(request).filter(|chosen| *chosen != self.address) {
            tell(Event::OtherServer { address: chosen });
            return None;
        }
        let address = wanted(request).or_else(|| Some(request.ciaddr()).filter(|a| !a.is_unspecified()))?;
        if pool.lend(mac, address, now) {
            tell(Event::Leased { mac, address });
            return Some((MessageType::Ack, Some(address)));
        }
        Some((MessageType::Nak, None))
    }

    fn give_back(&mut self, request: &Message, mac: Mac, asked: MessageType, now: Instant) {
        let Some(pool) = &mut self.pool else { return };
        match asked {
            MessageType::Release => pool.release(mac, request.ciaddr()),
            _ => wanted(request).into_iter().for_each(|address| pool.decline(mac, address, now)),
        }
    }

    fn begin(&self, request: &Message, said: MessageType) -> Message {
        let nobody = Ipv4Addr::UNSPECIFIED;
        let mut message =
            Message::new_with_id(request.xid(), nobody, nobody, nobody, nobody, request.chaddr());
        message.set_opcode(Opcode::BootReply).set_flags(request.flags());
        let options = message.opts_mut();
        options.insert(DhcpOption::MessageType(said));
        options.insert(DhcpOption::ServerIdentifier(self.address));
        message
    }

    fn address_options(&self, message: &mut Message, address: Ipv4Addr) {
        let Some(pool) = &self.pool else { return };
        message.set_yiaddr(address);
        let seconds = u32::try_from(LEASE.as_secs()).unwrap_or(u32::MAX);
        let options = message.opts_mut();
        options.insert(DhcpOption::SubnetMask(pool.range().mask()));
        options.insert(DhcpOption::AddressLeaseTime(seconds));
    }

    /// Names the boot file, if this machine wants one and there is one.
    fn boot_options(
        &self,
        message: &mut Message,
        request: &Message,
        mac: Mac,
        kind: Kind,
        tell: &mut dyn FnMut(Event),
    ) -> bool {
        let name = kind.name();
        let file = match kind {
            Kind::Plain => return false,
            Kind::Ipxe(architecture) => architecture.map_or(Ok(()), |own| self.loaders.fits(own)).map(|()| {
                format!("http://{}:{}/boot.ipxe?mac={}", self.address, self.http_port, mac.dashed())
            }),
            Kind::Bios => self.loaders.bios().map(str::to_owned),
            Kind::Uefi(architecture, by) => {
                self.loaders.uefi(architecture).map(|uefi| self.place(uefi.path(mac), by))
            }
            Kind::Other => Err("there are no bundles for such machines".to_owned()),
        };
        let file = match file {
            Ok(file) => file,
            Err(reason) => {
                tell(Event::Unserved { mac, kind: name, reason });
                return false;
            }
        };
        message.set_siaddr(self.address).set_fname(file.as_bytes());
        let options = message.opts_mut();
        if kind.by() == By::Http {
            options.insert(DhcpOption::ClassIdentifier(HTTP_CLIENT.to_vec()));
        } else {
            options.insert(DhcpOption::ClassIdentifier(PXE_CLIENT.to_vec()));
            options.insert(DhcpOption::VendorExtensions(LOAD_THE_NAMED_FILE.to_vec()));
            options.insert(DhcpOption::TFTPServerName(self.address.to_string().into_bytes()));
        }
        options.insert(DhcpOption::BootfileName(file.clone().into_bytes()));
        if let Some(id @ DhcpOption::ClientMachineIdentifier(_)) =
            request.opts().get(OptionCode::ClientMachineIdentifier)
        {
            options.insert(id.clone());
        }
        tell(Event::Offered { mac, kind: name, file });
        true
    }

    /// What firmware is told of a file in the bundle.
    fn place(&self, path: String, by: By) -> String {
        match by {
            By::Tftp => path,
            By::Http => format!("http://{}:{}/bundle/{path}", self.address, self.http_port),
        }
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Ipxe(Some(Architecture::Arm64)) => "iPXE arm64",
            Self::Ipxe(_) => "iPXE",
            Self::Bios => "BIOS",
            Self::Uefi(Architecture::Amd64, By::Tftp) => "UEFI x86-64",
            Self::Uefi(Architecture::Amd64, By::Http) => "UEFI x86-64 by HTTP",
            Self::Uefi(Architecture::Arm64, By::Tftp) => "UEFI arm64",
            Self::Uefi(Architecture::Arm64, By::Http) => "UEFI arm64 by HTTP",
            Self::Other => "firmware of another kind",
            Self::Plain => "system",
        }
    }

    /// iPXE loads by HTTP too, but asks as firmware that does not.
    fn by(self) -> By {
        match self {
            Self::Uefi(_, by) => by,
            Self::Ipxe(_) | Self::Bios | Self::Other | Self::Plain => By::Tftp,
        }
    }
}

fn everybody() -> SocketAddr {
    SocketAddr::new(Ipv4Addr::BROADCAST.into(), 68)
}

fn mac(message: &Message) -> Option<Mac> {
    let mac = message.chaddr().try_into().ok().map(Mac)?;
    let is_of_one_card = mac.0.first().is_some_and(|first| first & 1 == 0) && mac != Mac([0; 6]);
    is_of_one_card.then_some(mac)
}

fn kind(message: &Message) -> Kind {
    let options = message.opts();
    let of_ipxe = |bytes: &[u8]| bytes.windows(IPXE.len()).any(|window| window == IPXE);
    let is_ipxe =
        matches!(options.get(OptionCode::UserClass), Some(DhcpOption::UserClass(class)) if of_ipxe(class));
    let class: &[u8] = match options.get(OptionCode::ClassIdentifier) {
        Some(DhcpOption::ClassIdentifier(class)) => class,
        _ => &[],
    };
    if !is_ipxe && ![PXE_CLIENT, HTTP_CLIENT].iter().any(|known| class.starts_with(known)) {
        return Kind::Plain;
    }
    let number = match options.get(OptionCode::ClientSystemArchitecture) {
        Some(DhcpOption::ClientSystemArchitecture(Number(number))) => Some(*number),
        // Older firmware says it in the class alone.
        _ => architecture_in(class),
    };
    if number.is_none() && !is_ipxe {
        // RFC 4578 §2.1: who wants a boot file says for which machine.
        return Kind::Plain;
    }
    // Numbers of RFC 4578 as corrected by its registry: 7 and 9 both stand for x86-64. 16 and 19 start by HTTP.
    let firmware = match number.unwrap_or(0) {
        0 => Kind::Bios,
        7 | 9 => Kind::Uefi(Architecture::Amd64, By::Tftp),
        16 => Kind::Uefi(Architecture::Amd64, By::Http),
        11 => Kind::Uefi(Architecture::Arm64, By::Tftp),
        19 => Kind::Uefi(Architecture::Arm64, By::Http),
        _ => Kind::Other,
    };
    match firmware {
        _ if !is_ipxe => firmware,
        _ if number.is_none() => Kind::Ipxe(None),
        Kind::Bios => Kind::Ipxe(Some(Architecture::Amd64)),
        Kind::Uefi(architecture, _) => Kind::Ipxe(Some(architecture)),
        other => other,
    }
}

/// The number in `PXEClient:Arch:00007:UNDI:003016`, `HTTPClient:Arch:00016:UNDI:003001`.
fn architecture_in(class: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(class).ok()?;
    text.split(':').nth(2)?.parse().ok()
}

fn wanted(message: &Message) -> Option<Ipv4Addr> {
    match message.opts().get(OptionCode::RequestedIpAddress)? {
        DhcpOption::RequestedIpAddress(address) => Some(*address),
        _ => None,
    }
}

fn server(message: &Message) -> Option<Ipv4Addr> {
    match message.opts().get(OptionCode::ServerIdentifier)? {
        DhcpOption::ServerIdentifier(address) => Some(*address),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
