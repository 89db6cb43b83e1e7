//! A queued signal as the kernel keeps it: `siginfo_t`, sigaction(2).
//!
//! ```text
//! 0        4       8      12     16                20     128
//! | signal | error | code |      | sender or timer | ...  |
//! ```

/// Bytes of one.
pub const SIZE: usize = 128;

/// A signal and what came with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct SignalInfo(pub [u8; SIZE]);

impl SignalInfo {
    /// One that timer `timer` sends.
    #[must_use]
    pub fn of_timer(signal: i32, timer: i32) -> SignalInfo {
        let mut info = SignalInfo([0; SIZE]);
        for (at, word) in [(0, signal), (8, libc::SI_TIMER), (16, timer)] {
            info.0[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        info
    }

    fn word(&self, at: usize) -> i32 {
        i32::from_le_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }

    /// Its number.
    #[must_use]
    pub fn signal(&self) -> i32 {
        self.word(0)
    }

    /// Why it was sent, `SI_*` or one that belongs to the signal.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.word(8)
    }

    /// Whether it stands for an event of ptrace(2), which is no signal.
    #[must_use]
    pub fn is_event(&self) -> bool {
        self.code() >> 8 > 0
    }

    /// The process that sent it with kill(2), by its id in the namespace of who gets it; 0 when that knows none.
    #[must_use]
    pub fn sender(&self) -> Option<i32> {
        (self.code() == libc::SI_USER).then(|| self.word(16))
    }

    /// The POSIX timer that it comes from.
    #[must_use]
    pub fn timer(&self) -> Option<i32> {
        (self.code() == libc::SI_TIMER).then(|| self.word(16))
    }

    /// Whether it comes from the thread's own instruction: signal(7), "synchronously generated".
    #[must_use]
    pub fn is_fault(&self) -> bool {
        const SYNCHRONOUS: [i32; 6] = [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGILL,
            libc::SIGTRAP,
            libc::SIGFPE,
            libc::SIGSYS,
        ];
        SYNCHRONOUS.contains(&self.signal()) && self.code() > 0
    }
}
