//! Calls on sockets to the outside. Without `--replies` none is made; with it, what they send goes out freely.

use super::pairs::asks_for_names;
use super::{Decision, Stopped, do_without, fail};
use crate::program::Program;
use crate::sockets::{Replies, is_tcp, may_set};
use crate::syscalls::OUTSIDE;
use std::os::fd::{AsFd, OwnedFd};

const OTHERS: &str = "of sockets to the outside only TCP is captured; most programs have a setting for it";

impl Program {
    /// socket, bind, listen, connect, accept.
    pub(super) fn before_outside(&mut self, call: &Stopped) -> Decision {
        if asks_for_names(call) {
            return do_without(libc::EACCES, OUTSIDE);
        }
        if self.sockets.replies == Replies::Refused {
            return fail(libc::EACCES, OUTSIDE);
        }
        if call.name == "socket" {
            const FLAGS: i32 = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            let [domain, kind, protocol] = [0, 1, 2].map(|index| call.int(index));
            let is_stream = kind & !FLAGS == libc::SOCK_STREAM && [0, libc::IPPROTO_TCP].contains(&protocol);
            if !is_stream || ![libc::AF_INET, libc::AF_INET6].contains(&domain) {
                return do_without(libc::EACCES, OTHERS);
            }
            self.descriptors.give(0);
            return Decision::Run;
        }
        let Ok(ours) = self.process.duplicate_fd(call.int(0)) else {
            return Decision::Run; // the kernel will refuse it
        };
        if !is_tcp(ours.as_fd()) {
            return match rustix::net::sockopt::socket_type(&ours) {
                Ok(_) => fail(libc::EACCES, OTHERS),
                Err(_) => Decision::Run, // no socket: the kernel will refuse it
            };
        }
        match call.name {
            "accept" | "accept4" => self.descriptors.give(0),
            _ => self.descriptors.touch_open_file_of(&self.process, call.int(0)),
        }
        if call.name == "listen"
            && let Err(error) = self.sockets.before_listen(ours.as_fd())
        {
            return fail(
                error.raw_os_error().unwrap_or(libc::EACCES),
                format!("the port could not be made ready for a resume: {error}"),
            );
        }
        Decision::Run
    }

    /// A TCP socket of the program; `None` of anything else.
    pub(super) fn tcp(&self, fd: i32) -> Option<OwnedFd> {
        let ours = self.process.duplicate_fd(fd).ok()?;
        is_tcp(ours.as_fd()).then_some(ours)
    }

    /// setsockopt(2) on a TCP socket.
    pub(super) fn before_tcp_option(&mut self, call: &Stopped, ours: &OwnedFd) -> Decision {
        let [level, name] = [1, 2].map(|index| call.int(index));
        if !may_set(level, name) {
            return do_without(
                libc::ENOPROTOOPT,
                format!(
                    "socket option {name} of level {level} is not captured; the program can go on without it"
                ),
            );
        }
        self.descriptors.touch_open_file_of(&self.process, call.int(0));
        if (level, name) == (libc::SOL_SOCKET, libc::SO_REUSEADDR)
            && let Ok(stat) = rustix::fs::fstat(ours)
            && self.sockets.lent.contains(&stat.st_ino)
        {
            let mut value = [0; 4];
            if self.process.read(call.arguments[3], &mut value).is_ok() && value == [0; 4] {
                return Decision::Done(0); // to the program it is off already
            }
            self.sockets.lent.remove(&stat.st_ino);
        }
        Decision::Run
    }

    /// getsockopt(2) of `SO_REUSEADDR`.
    pub(super) fn before_reuse_query(&mut self, call: &Stopped) -> Decision {
        let [_, level, _, value, length, _] = call.arguments;
        let is_lent = self.tcp(call.int(0)).is_some_and(|ours| {
            rustix::fs::fstat(ours).is_ok_and(|stat| self.sockets.lent.contains(&stat.st_ino))
        });
        if !is_lent || level as i32 != libc::SOL_SOCKET {
            return Decision::Run;
        }
        let mut room = [0; 4];
        if self.process.read(length, &mut room).is_err() {
            return Decision::Run;
        }
        let Ok(room) = usize::try_from(i32::from_ne_bytes(room)) else {
            return Decision::Run;
        };
        let given = room.min(4);
        let answered = self.process.write(value, &[0; 4][..given]);
        let answered = answered.and_then(|()| self.process.write(length, &(given as i32).to_ne_bytes()));
        match answered {
            Ok(()) => Decision::Done(0),
            Err(_) => Decision::Done(-i64::from(libc::EFAULT)),
        }
    }
}
