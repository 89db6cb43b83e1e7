//! Registers beyond the general ones as xsave lays them out, and as a lesser processor takes them: Intel's manual, volume 1,
//! chapter 13.
//!
//! ```text
//! 0       464      512      576          832
//! | x87,  | of the | header | upper half | what larger processors add, at places of their own
//! | SSE   | kernel |        | of AVX     |
//! ```
//!
//! * Everything up to 832 lies at the same place on all processors.
//! * The header says which registers are in use: not in their first state.
//! * The kernel puts the same form on a program's stack when it delivers a signal, and says in its own part how long it
//!   is; the word [`MAGIC2`] follows. It takes back what is not longer than what this processor saves:
//!   `arch/x86/kernel/fpu/signal.c`.

use std::arch::x86_64::__cpuid_count;
use std::ops::Range;

const HEADER: Range<usize> = 512..576;
const AVX_END: usize = 832;
/// In the header: x87, SSE and AVX.
const COMMON: u64 = 7;
/// The key of protection keys, which a program has as it begins.
const KEYS: u64 = 1 << 9;

/// The kernel's part of one on a stack.
const MAGIC1: u32 = 0x4650_5853;
/// What follows it there.
pub const MAGIC2: u32 = 0x4650_5845;
const KERNELS: usize = 464;
const LENGTH_WITH_MAGIC: usize = KERNELS + 4;
const SAVED: usize = KERNELS + 8;
const LENGTH: usize = KERNELS + 16;
/// Where one on a stack may begin.
pub const ALIGNMENT: usize = 64;

/// Registers are in use that this processor lacks, or has at another place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unfit;

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Leaves in use what all processors have, of `saved`, whose AVX may be cut off by `length`.
fn keep_common(saved: &mut [u8], length: usize) -> Result<(), Unfit> {
    let used = u64_at(saved, HEADER.start) & !KEYS;
    let can_be_kept = if length < AVX_END { COMMON >> 1 } else { COMMON };
    if used & !can_be_kept != 0 {
        return Err(Unfit);
    }
    saved[HEADER].fill(0);
    saved[HEADER.start..HEADER.start + 8].copy_from_slice(&used.to_le_bytes());
    saved[length.min(AVX_END)..].fill(0);
    Ok(())
}

/// Registers that were saved on another processor, for one that saves `length` bytes.
///
/// # Errors
/// When some are in use that cannot be taken over.
///
/// # Panics
/// When either has no header.
pub fn fit(saved: &[u8], length: usize) -> Result<Vec<u8>, Unfit> {
    let mut saved = saved.to_vec();
    if saved.len() != length {
        keep_common(&mut saved, length)?;
        saved.resize(length, 0);
    }
    Ok(saved)
}

/// The most bytes that this processor's kernel puts on a stack for a program that asked for no more.
#[must_use]
pub fn length_on_stacks() -> usize {
    /// The data of AMX: a program asks for it, arch_prctl(2).
    const ASKED_FOR: u32 = 1 << 18;
    const LEAF: u32 = 0xd;
    let there = __cpuid_count(LEAF, 0).eax & !ASKED_FOR;
    let ends = (2..32).filter(|number| there >> number & 1 == 1).map(|number| {
        let part = __cpuid_count(LEAF, number);
        (part.ebx + part.eax) as usize
    });
    ends.fold(HEADER.end, usize::max)
}

/// Shortens what the kernel of a larger processor put on a stack, so that this one's, which saves `length` bytes, takes
/// all of it back. `stack` begins at a multiple of 64. How many were shortened; dead ones are as well, which changes
/// nothing.
///
/// # Errors
/// When registers are in use that cannot be taken over.
pub fn shorten_frames(stack: &mut [u8], length: usize) -> Result<usize, Unfit> {
    let mut shortened = 0;
    for at in (0..stack.len().saturating_sub(HEADER.end)).step_by(ALIGNMENT) {
        let Some(frame) = longer_frame(&mut stack[at..], length) else {
            continue;
        };
        keep_common(frame, length)?;
        let mut set = |at: usize, value: u32| frame[at..at + 4].copy_from_slice(&value.to_le_bytes());
        set(LENGTH_WITH_MAGIC, length as u32 + 4);
        set(LENGTH, length as u32);
        set(SAVED, COMMON as u32);
        set(SAVED + 4, 0);
        set(length, MAGIC2);
        shortened += 1;
    }
    Ok(shortened)
}

/// What begins here, if that is what a processor saves more than `length` bytes in.
fn longer_frame(from: &mut [u8], length: usize) -> Option<&mut [u8]> {
    let saved = u32_at(from, LENGTH) as usize;
    let is_one = u32_at(from, KERNELS) == MAGIC1
        && u32_at(from, LENGTH_WITH_MAGIC) as usize == saved + 4
        && saved > length
        && from.len() >= saved + 4
        && u32_at(from, saved) == MAGIC2;
    is_one.then(|| &mut from[..saved])
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use super::*;
    use std::arch::asm;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn saved(length: usize, used: u64) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..length).map(|at| at as u8).collect();
        bytes[HEADER].fill(0);
        bytes[HEADER.start..HEADER.start + 8].copy_from_slice(&used.to_le_bytes());
        bytes
    }

    #[test]
    fn what_all_processors_have_is_taken_over() {
        let large = saved(2696, COMMON | KEYS);
        let small = fit(&large, 832).unwrap();
        assert_eq!(small, saved(832, COMMON));
        let again = fit(&small, 2696).unwrap();
        assert_eq!(again[..832], small[..]);
        assert!(again[832..].iter().all(|byte| *byte == 0));
        assert_eq!(fit(&large, 2696).unwrap(), large);
    }

    #[test]
    fn registers_that_are_lacking_and_in_use_are_told() {
        assert_eq!(fit(&saved(2696, COMMON | 1 << 6), 832), Err(Unfit));
        assert_eq!(fit(&saved(832, COMMON), 576), Err(Unfit));
        assert!(fit(&saved(832, COMMON >> 1), 576).is_ok());
    }

    #[test]
    fn only_whole_frames_are_shortened() {
        let mut frame = saved(2696, COMMON);
        frame.extend_from_slice(&MAGIC2.to_le_bytes());
        frame[KERNELS..KERNELS + 4].copy_from_slice(&MAGIC1.to_le_bytes());
        frame[LENGTH_WITH_MAGIC..][..4].copy_from_slice(&2700_u32.to_le_bytes());
        frame[LENGTH..][..4].copy_from_slice(&2696_u32.to_le_bytes());
        let whole = [vec![0; 128], frame.clone()].concat();
        let mut stack = whole.clone();
        assert_eq!(shorten_frames(&mut stack, 832), Ok(1));
        assert_eq!(shorten_frames(&mut stack, 832), Ok(0), "it is short");
        assert_eq!(u32_at(&stack, 128 + 832), MAGIC2);
        let mut cut = whole[..whole.len() - 1].to_vec();
        assert_eq!(shorten_frames(&mut cut, 832), Ok(0));
        assert_eq!(shorten_frames(&mut whole.clone(), 2696), Ok(0));
    }

    static SHORTENED: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn shorten_own(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the kernel gives a handler with SA_SIGINFO a context, whose registers lie behind it on the stack, as
        // long as they say, and then their last word.
        let frame = unsafe {
            let from = (*context.cast::<libc::ucontext_t>())
                .uc_mcontext
                .fpregs
                .cast::<u8>();
            let length = from.add(LENGTH_WITH_MAGIC).cast::<u32>().read() as usize;
            std::slice::from_raw_parts_mut(from, length)
        };
        let shortened = shorten_frames(frame, AVX_END).unwrap_or_default();
        SHORTENED.store(shortened, Ordering::Relaxed);
    }

    /// Zeros, of which the processor takes back that nothing is in use.
    #[repr(align(64))]
    struct Nothing {
        _bytes: [u8; 576],
    }

    /// The kernel takes a shortened frame back, with the upper half of AVX.
    #[test]
    fn a_handler_returns_with_its_registers_from_a_shortened_frame() {
        if !is_x86_feature_detected!("avx") || length_on_stacks() <= AVX_END {
            return println!("SKIPPED: this processor saves no more than AVX");
        }
        let was: [u64; 4] = [1, 2, 3, 4];
        let mut is = [0_u64; 4];
        let nothing = Nothing { _bytes: [0; 576] };
        const AVX512: u32 = 0xe0;
        // SAFETY: the handler is of the form that the flag asks for; registers of AVX-512 are out of use from the first
        // instruction on, and the call sends this thread a signal that it handles at once. All that a function may change
        // is said to be changed.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = shorten_own as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(
                libc::sigaction(libc::SIGURG, &raw const action, std::ptr::null_mut()),
                0
            );
            asm!(
                "mov eax, {avx512}", "xor edx, edx", "xrstor [r12]", "vmovdqu ymm7, [r13]",
                "mov eax, {call}", "mov edx, {signal}", "syscall", "vmovdqu [r14], ymm7",
                avx512 = const AVX512, call = const libc::SYS_tgkill, signal = const libc::SIGURG,
                in("r12") &raw const nothing, in("r13") &raw const was, in("r14") &raw mut is,
                in("rdi") libc::getpid(), in("rsi") libc::gettid(), clobber_abi("C"),
            );
        }
        assert_eq!(SHORTENED.load(Ordering::Relaxed), 1);
        assert_eq!(is, was);
    }
}
