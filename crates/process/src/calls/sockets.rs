//! Calls on sockets that have names. The program and its descendants may have them among themselves and to other
//! programs, and what they send there goes out as `--replies` says; with `--replies none`, Unix sockets and TCP
//! connections among themselves.
//!
//! * Who listens at a name or a port is looked up before a connect(2): a connection to another program is never made.

use super::pairs::without_option;
use super::within::{FAMILY_BYTES, internet_address, path_of};
use super::{Decision, Stopped, do_without, fail};
use crate::error::{Error, Result};
use crate::files::{Change, New, PathAt};
use crate::loopback;
use crate::netlink::is_netlink;
use crate::program::Program;
use crate::sockets::{Protocol, Replies, may_set, protocol};
use crate::syscalls::{OUTSIDE, SO_PEERPIDFD};
use crate::unix_sockets::is_unix;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use twinpage_os::{socket, unix_sockets};

/// Where nscd(8) listens.
const NAME_SERVICE: &str = "/var/run/nscd/socket";
const OTHERS: &str =
    "of sockets to the outside TCP, UDP and Unix sockets are captured; most programs have a setting for it";

impl Program {
    /// socket, bind, listen, connect, accept: of the program, or of a descendant.
    pub(super) fn before_outside(&mut self, call: &Stopped) -> Result<Decision> {
        if self.sockets.replies == Replies::Refused
            && let Some(refused) = self.leads_out(call)?
        {
            return Ok(refused);
        }
        self.before_allowed(call)
    }

    /// What becomes of a call that would reach another program; `None` of any other.
    fn leads_out(&self, call: &Stopped) -> Result<Option<Decision>> {
        let refused = || Some(fail(libc::EACCES, OUTSIDE));
        if call.name == "socket" {
            return Ok(match (call.int(0), call.int(1) & 0xf) {
                (libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_SEQPACKET) => None,
                // One of datagrams is a handle to ask for interfaces with, as long as it has no address.
                (libc::AF_INET | libc::AF_INET6, libc::SOCK_STREAM | libc::SOCK_DGRAM) => None,
                (libc::AF_NETLINK, _) => None,
                _ => refused(),
            });
        }
        let Ok(ours) = self.caller().duplicate_fd(call.int(0)) else {
            return Ok(None); // the kernel will refuse it
        };
        match protocol(ours.as_fd()) {
            None if is_netlink(ours.as_fd()) => return Ok(None),
            Some(Protocol::Tcp) => {
                let leads_out = call.name == "connect" && self.connects_outside(call, &ours)?;
                return Ok(if leads_out { refused() } else { None });
            }
            // The C library asks so how an address would be reached.
            Some(Protocol::Udp) if call.name == "connect" => {
                return Ok(Some(do_without(libc::EACCES, OUTSIDE)));
            }
            _ => {}
        }
        if !is_unix(ours.as_fd()) {
            return Ok(refused());
        }
        let address = self.unix_address(call).filter(|_| call.name == "connect");
        let Some(bound) = address.as_deref().and_then(|name| self.bound(name)) else {
            return Ok(None); // nothing is there: the same
        };
        let look = |source| Error::target("cannot look who listens at a Unix socket", source);
        let listener = unix_sockets::listener_at(&bound).map_err(look)?;
        if listener.is_none_or(|inode| self.has_socket(&ours, inode)) {
            return Ok(None);
        }
        Ok(match address.as_deref().map(path_of) {
            // The C library looks into files when the cache of the name service does not answer.
            Some(path) if path == Path::new(NAME_SERVICE) => Some(do_without(libc::EACCES, OUTSIDE)),
            _ => refused(),
        })
    }

    /// Whether a connect(2) of a TCP socket would reach another program.
    fn connects_outside(&self, call: &Stopped, ours: &OwnedFd) -> Result<bool> {
        let Some(address) = self.address_given(call).as_deref().and_then(internet_address) else {
            return Ok(false); // the kernel will refuse it, or end a connection
        };
        if !loopback::is_here(address.ip()) {
            return Ok(true);
        }
        let look = |source| Error::target("cannot look who listens at a port", source);
        let listener = match loopback::listener_at(address) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(true), // the kernel does not tell
            listener => listener.map_err(look)?,
        };
        Ok(listener.is_some_and(|inode| !self.has_socket(ours, inode)))
    }

    fn before_allowed(&mut self, call: &Stopped) -> Result<Decision> {
        if call.name == "socket" {
            const FLAGS: i32 = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            let [domain, kind, protocol] = [0, 1, 2].map(|index| call.int(index));
            let is_known = match kind & !FLAGS {
                libc::SOCK_STREAM => [0, libc::IPPROTO_TCP].contains(&protocol),
                libc::SOCK_DGRAM => [0, libc::IPPROTO_UDP].contains(&protocol),
                _ => false,
            };
            let is_inet = is_known && [libc::AF_INET, libc::AF_INET6].contains(&domain);
            let asks_for_routes = domain == libc::AF_NETLINK && protocol == libc::NETLINK_ROUTE;
            if !is_inet && !asks_for_routes && domain != libc::AF_UNIX {
                return Ok(do_without(no_such(domain, kind, protocol), OTHERS));
            }
            self.descriptors.give(0);
            return Ok(Decision::Run);
        }
        let Ok(ours) = self.caller().duplicate_fd(call.int(0)) else {
            return Ok(Decision::Run); // the kernel will refuse it
        };
        let protocol = protocol(ours.as_fd());
        if is_netlink(ours.as_fd()) {
            self.touch_netlink(call);
            return Ok(Decision::Run);
        }
        if protocol.is_none() && !is_unix(ours.as_fd()) {
            return Ok(match rustix::net::sockopt::socket_type(&ours) {
                Ok(_) => fail(libc::EACCES, OTHERS),
                Err(_) => Decision::Run, // no socket: the kernel will refuse it
            });
        }
        let may_hear_others = ["accept", "accept4", "connect"].contains(&call.name) && protocol.is_none();
        if may_hear_others && self.sockets.replies != Replies::Refused {
            self.descriptors.expect_sent();
        }
        if call.name == "connect" {
            self.note_reached(call, protocol);
        }
        match call.name {
            _ if self.caller.is_some() => {} // all of a tree is looked at
            // Its peer may be a descriptor that is known, and gets to know who its peer is.
            "accept" | "accept4" if protocol.is_none() => self.descriptors.touch_all(),
            "accept" | "accept4" => self.descriptors.give(0),
            _ => self.descriptors.touch_open_file_of(&self.process, call.int(0)),
        }
        if call.name == "listen"
            && protocol == Some(Protocol::Tcp)
            && let Err(error) = self.sockets.before_listen(ours.as_fd())
        {
            return Ok(fail(
                error.raw_os_error().unwrap_or(libc::EACCES),
                format!("the port could not be made ready for a resume: {error}"),
            ));
        }
        if call.name == "bind" && protocol.is_none() {
            return self.before_bind(call);
        }
        Ok(Decision::Run)
    }

    /// connect(2): from now on what waits at a listener there may be of the tree.
    fn note_reached(&mut self, call: &Stopped, protocol: Option<Protocol>) {
        match protocol {
            Some(Protocol::Tcp) => {
                let address = self.address_given(call);
                let port = address.as_deref().and_then(internet_address).map(|to| to.port());
                self.descriptors.reached.ports.extend(port);
            }
            Some(Protocol::Udp) => {}
            None => {
                let bound = self.unix_address(call).and_then(|name| self.bound(&name));
                self.descriptors.reached.names.extend(bound);
            }
        }
    }

    /// A call is about to change what is known of a socket of netlink(7). All that is a descendant's is looked at anyway.
    pub(super) fn touch_netlink(&mut self, call: &Stopped) {
        if self.caller.is_none() {
            self.descriptors.touch_open_file_of(&self.process, call.int(0));
        }
    }

    /// bind(2) of a Unix socket: it makes a file if its name is one.
    fn before_bind(&mut self, call: &Stopped) -> Result<Decision> {
        let Some(name) = self.unix_address(call) else {
            return Ok(Decision::Run); // the kernel will refuse it
        };
        let path = path_of(&name);
        if path.as_os_str().is_empty() {
            return Ok(Decision::Run); // abstract, or none
        }
        let Some(start) = self.start(libc::AT_FDCWD, path) else {
            return Ok(Decision::Run); // the kernel will refuse it
        };
        self.record(&Change::Create {
            place: PathAt::at(start.as_fd(), path),
            new: New::Thing,
        })
    }

    /// The name in the address that comes with a call, as bind(2) takes it.
    fn unix_address(&self, call: &Stopped) -> Option<Vec<u8>> {
        let mut address = self.address_given(call)?;
        (address.len() >= FAMILY_BYTES).then(|| address.split_off(FAMILY_BYTES))
    }

    /// The address that comes with a call, as connect(2) takes it.
    pub(super) fn address_given(&self, call: &Stopped) -> Option<Vec<u8>> {
        const MOST_BYTES: u64 = 110; // struct sockaddr_un
        let [_, at, length, ..] = call.arguments;
        let mut address = vec![0; length.min(MOST_BYTES) as usize];
        self.caller().read(at, &mut address).ok()?;
        Some(address)
    }

    /// A socket of the caller that leads outside; `None` of anything else.
    pub(super) fn outside(&self, fd: i32) -> Option<(OwnedFd, Protocol)> {
        let ours = self.caller().duplicate_fd(fd).ok()?;
        let protocol = protocol(ours.as_fd())?;
        Some((ours, protocol))
    }

    /// setsockopt(2) on a socket to the outside.
    pub(super) fn before_outside_option(
        &mut self,
        call: &Stopped,
        ours: &OwnedFd,
        protocol: Protocol,
    ) -> Decision {
        let [level, name] = [1, 2].map(|index| call.int(index));
        if !may_set(protocol, level, name) {
            return match self.sets_what_it_has(call, ours) {
                true => Decision::Run,
                false => without_option(level, name),
            };
        }
        if self.caller.is_none() {
            self.descriptors.touch_open_file_of(&self.process, call.int(0));
        }
        if (level, name) == (libc::SOL_SOCKET, libc::SO_REUSEADDR)
            && let Ok(stat) = rustix::fs::fstat(ours)
            && self.sockets.lent.contains(&stat.st_ino)
        {
            let mut value = [0; 4];
            if self.caller().read(call.arguments[3], &mut value).is_ok() && value == [0; 4] {
                return Decision::Done(0); // to the program it is off already
            }
            self.sockets.lent.remove(&stat.st_ino);
        }
        Decision::Run
    }

    /// Whether setsockopt(2) gives an option the value that it has.
    fn sets_what_it_has(&self, call: &Stopped, ours: &OwnedFd) -> bool {
        const LONGEST: u64 = 64;
        let [_, _, _, value, length, _] = call.arguments;
        let mut given = vec![0; length.min(LONGEST) as usize];
        let has = socket::option_of(ours.as_fd(), call.int(1), call.int(2));
        self.caller().read(value, &mut given).is_ok() && has.is_ok_and(|has| has == given)
    }

    /// getsockopt(2) of `SO_REUSEADDR`, or of what makes a descriptor.
    pub(super) fn before_socket_query(&mut self, call: &Stopped) -> Decision {
        let [_, level, option, value, length, _] = call.arguments;
        if option as i32 == SO_PEERPIDFD && level as i32 == libc::SOL_SOCKET {
            return do_without(
                libc::ENOPROTOOPT,
                "a descriptor of the process at the other end (SO_PEERPIDFD) is not captured; SO_PEERCRED tells its id",
            );
        }
        let is_lent = self.outside(call.int(0)).is_some_and(|(ours, _)| {
            rustix::fs::fstat(ours).is_ok_and(|stat| self.sockets.lent.contains(&stat.st_ino))
        });
        if !is_lent || (level as i32, option as i32) != (libc::SOL_SOCKET, libc::SO_REUSEADDR) {
            return Decision::Run;
        }
        let mut room = [0; 4];
        if self.caller().read(length, &mut room).is_err() {
            return Decision::Run;
        }
        let Ok(room) = usize::try_from(i32::from_ne_bytes(room)) else {
            return Decision::Run;
        };
        let given = room.min(4);
        let answered = self.caller().write(value, &[0; 4][..given]);
        let answered = answered.and_then(|()| self.caller().write(length, &(given as i32).to_ne_bytes()));
        match answered {
            Ok(()) => Decision::Done(0),
            Err(_) => Decision::Done(-i64::from(libc::EFAULT)),
        }
    }
}

/// The error of a kernel without such sockets, or of one that a user may not have. What asks for another protocol than
/// TCP or UDP (Multipath TCP, SCTP) goes on with these where the kernel lacks it.
fn no_such(domain: i32, kind: i32, protocol: i32) -> i32 {
    let is_inet = [libc::AF_INET, libc::AF_INET6].contains(&domain);
    let is_question = [libc::IPPROTO_ICMP, libc::IPPROTO_ICMPV6].contains(&protocol);
    match kind & 0xf {
        libc::SOCK_STREAM | libc::SOCK_DGRAM | libc::SOCK_SEQPACKET if is_inet && !is_question => {
            libc::EPROTONOSUPPORT
        }
        _ => libc::EACCES,
    }
}
