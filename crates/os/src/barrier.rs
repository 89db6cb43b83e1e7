//! A memory barrier on every thread of the process, paid by the caller: membarrier(2).
//!
//! It makes a pair of ordinary fences out of one expensive side and one free side. The free side
//! stores, keeps the compiler from reordering, and loads; the expensive side stores, calls
//! [`heavy`], and loads. One of the two sees the other's store.

use rustix::thread::{MembarrierCommand, membarrier};
use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence, fence};

/// Whether the kernel does the expensive side (Linux 4.14 and no filter against it, and a kernel at all). Where it does
/// not, both sides are ordinary fences.
fn is_asymmetric() -> bool {
    if cfg!(miri) {
        return false;
    }
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok())
}

/// Which kind of light side must be used: to be asked once, before the first [`light`].
#[must_use]
pub fn light_is_free() -> bool {
    is_asymmetric()
}

/// The side taken often: nothing but an order for the compiler where `free`
/// ([`light_is_free`]) holds, a fence otherwise.
#[inline(always)]
pub fn light(free: bool) {
    if free {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The side taken rarely: a few microseconds. Every thread of the process has passed a full barrier
/// when it returns.
pub fn heavy() {
    fence(Ordering::SeqCst);
    if is_asymmetric() {
        // Registered above, so it cannot be refused; a process in a filter installed since would hang
        // or tear, so it must not go on.
        membarrier(MembarrierCommand::PrivateExpedited)
            .expect("membarrier, which worked when it was registered");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    /// Dekker's handshake: never are both sides in.
    #[test]
    fn one_side_sees_the_other() {
        let free = light_is_free();
        let (a, b, inside) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    a.store(true, Ordering::Relaxed);
                    light(free);
                    if !b.load(Ordering::Acquire) {
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                        inside.fetch_sub(1, Ordering::Relaxed);
                    }
                    a.store(false, Ordering::Release);
                }
            });
            for _ in 0..5_000 {
                b.store(true, Ordering::Relaxed);
                heavy();
                if !a.load(Ordering::Acquire) {
                    assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                    inside.fetch_sub(1, Ordering::Relaxed);
                }
                b.store(false, Ordering::Release);
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
