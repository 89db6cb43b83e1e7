//! An alarm for one thread: timer_create(2).

#![allow(unsafe_code)]

use crate::signals::unblock;
use libc::c_int;
use std::io;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// The signal of a [`Ticker`]: a real-time signal that programs do not use.
pub const ALARM: c_int = 40;
/// The thread that the alarm wakes.
static WATCHER: AtomicI32 = AtomicI32::new(0);

/// A ticking alarm for one thread: it interrupts the thread's blocking system calls with `signal`,
/// first after `delay` and then every `repeat`, so that no tick is lost in a race.
#[derive(Debug)]
pub struct Ticker {
    timer: libc::timer_t,
}

impl Ticker {
    /// An alarm for the calling thread, not yet set. Installs an empty handler for `signal`.
    ///
    /// # Errors
    /// `EAGAIN` when the system has no timer left.
    pub fn for_this_thread(signal: c_int) -> io::Result<Ticker> {
        extern "C" fn nothing(_: c_int) {}
        // SAFETY: all-zero sigaction and sigevent are valid; the handler does nothing; the kernel
        // writes the timer's id into `timer`.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
            if libc::sigaction(signal, &raw const action, std::ptr::null_mut()) == -1 {
                return Err(io::Error::last_os_error());
            }
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = signal;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer: libc::timer_t = std::mem::zeroed();
            unblock(&[signal]);
            WATCHER.store(event.sigev_notify_thread_id, Ordering::Relaxed);
            if libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) == -1 {
                return Err(io::Error::last_os_error());
            }
            Ok(Ticker { timer })
        }
    }

    /// Rings after `delay`, then every `repeat`.
    pub fn set(&self, delay: Duration, repeat: Duration) {
        let time = |duration: Duration| libc::timespec {
            tv_sec: duration.as_secs() as i64,
            tv_nsec: i64::from(duration.subsec_nanos()),
        };
        let setting = libc::itimerspec {
            it_value: time(delay.max(Duration::from_nanos(1))),
            it_interval: time(repeat),
        };
        // SAFETY: the timer is ours and alive; `setting` outlives the call.
        unsafe { libc::timer_settime(self.timer, 0, &raw const setting, std::ptr::null_mut()) };
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        // SAFETY: the timer is ours and not used after.
        unsafe { libc::timer_delete(self.timer) };
    }
}

/// The alarm of this process rings now: see [`Ticker`]. Safe in a signal handler, and on any thread.
pub fn ring() {
    let watcher = WATCHER.load(Ordering::Relaxed);
    if watcher > 0 {
        // SAFETY: getpid and tgkill take integers, and are safe in a handler.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), watcher, ALARM) };
    }
}
