//! The processor as a program sees it, which may be less than there is: arch_prctl(2), `ARCH_SET_CPUID`.
//!
//! * A thread for which the instruction `cpuid` is off gets SIGSEGV there, and its tracer answers: [`answer`]. Threads and
//!   processes that it makes have it off as well; a program that is executed has it on.
//! * A level is one of the x86-64 psABI. What is above it is not told, and no other feature that a processor of that
//!   level may lack.
//! * What is told of sizes, caches and cores is this processor's.
//! * Room for registers that are saved (xsave) is told to be [`ROOM_FOR_REGISTERS`] at least: a processor that saves more
//!   of them may take the program up.

#![allow(unsafe_code)]

use crate::inject;
use crate::remote::Process;
use crate::trace::{self, Registers, Tid};
use std::arch::x86_64::__cpuid_count;
use std::fmt;
use std::io;

const ARCH_SET_CPUID: u64 = 0x1012;
const OFF: u64 = 0;

/// The feature of a processor for which cpuid can be off, as `/proc/cpuinfo` calls it.
pub const CAN_BE_OFF: &str = "cpuid_fault";

/// Bytes for all registers that a program has without asking the kernel first, to AVX-512, protection keys and the
/// configuration of AMX.
pub const ROOM_FOR_REGISTERS: u32 = 2816;

/// A microarchitecture level of the x86-64 psABI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// SSE4.2.
    V2,
    /// AVX2.
    V3,
    /// AVX-512.
    V4,
}

impl Level {
    /// All of them.
    pub const ALL: [Level; 3] = [Level::V2, Level::V3, Level::V4];

    /// The one with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.name() == name)
    }

    /// Its name in the psABI.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Level::V2 => "x86-64-v2",
            Level::V3 => "x86-64-v3",
            Level::V4 => "x86-64-v4",
        }
    }

    /// Its features, as `/proc/cpuinfo` calls them.
    pub fn features(self) -> impl Iterator<Item = &'static str> {
        const V1: &str = "fpu tsc cx8 cmov mmx fxsr sse sse2 syscall nx lm rdtscp";
        const V2: &str = "pni ssse3 cx16 sse4_1 sse4_2 popcnt lahf_lm";
        const V3: &str = "fma movbe xsave avx f16c abm bmi1 avx2 bmi2";
        const V4: &str = "avx512f avx512dq avx512cd avx512bw avx512vl";
        [V1, V2, V3, V4][..self.below(4, 3, 2)]
            .iter()
            .flat_map(|features| features.split(' '))
    }

    /// The value for this level, of those from AVX-512 down.
    const fn below<T: Copy>(self, v4: T, v3: T, v2: T) -> T {
        match self {
            Level::V4 => v4,
            Level::V3 => v3,
            Level::V2 => v2,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What cpuid leaves in EAX, EBX, ECX and EDX.
pub type Answer = [u32; 4];

/// What the processor tells of a leaf.
#[must_use]
pub fn ask(leaf: u32, subleaf: u32) -> Answer {
    let told = __cpuid_count(leaf, subleaf);
    [told.eax, told.ebx, told.ecx, told.edx]
}

const fn bits<const N: usize>(numbers: [u32; N]) -> u32 {
    let (mut mask, mut at) = (0, 0);
    while at < N {
        mask |= 1 << numbers[at];
        at += 1;
    }
    mask
}

/// What a program is told of a leaf where the processor tells `told`: Intel's manual, volume 2, CPUID.
#[must_use]
pub fn answer(level: Level, leaf: u32, subleaf: u32, told: Answer) -> Answer {
    // Leaf 1: that there is a hypervisor is no feature.
    const ECX_V2: u32 = bits([0, 9, 13, 19, 20, 23, 31]);
    const ECX_V3: u32 = ECX_V2 | bits([12, 22, 26, 27, 28, 29]);
    const EBX7_V3: u32 = bits([3, 5, 8]);
    const EBX7_V4: u32 = EBX7_V3 | bits([16, 17, 28, 30, 31]);
    // Extended leaf 1: LAHF, what AMD tells of its cores, from v3 on LZCNT; all but MMX of AMD's and 3DNow!.
    const ECX_EXTENDED: u32 = bits([0, 1, 22]);
    const EDX_EXTENDED: u32 = !bits([22, 30, 31]);
    let [eax, ebx, ecx, edx] = told;
    match (leaf, subleaf) {
        (1, _) => [eax, ebx, ecx & level.below(ECX_V3, ECX_V3, ECX_V2), edx],
        (7, 0) => [0, ebx & level.below(EBX7_V4, EBX7_V3, 0), 0, 0],
        (7, _) => [0; 4],
        (0xd, 0) => [
            eax & level.below(0xe7, 7, 3),
            ebx.max(ROOM_FOR_REGISTERS),
            ecx.max(ROOM_FOR_REGISTERS),
            0,
        ],
        (0xd, 1) => [0; 4], // other ways to save registers
        (0x8000_0001, _) => [
            eax,
            ebx,
            ecx & (ECX_EXTENDED | level.below(1 << 5, 1 << 5, 0)),
            edx & EDX_EXTENDED,
        ],
        (0x8000_0008, _) => [eax, 0, ecx, edx],
        _ => told,
    }
}

/// Sets it off for this thread and all that it makes. Safe after a fork.
///
/// # Errors
/// `ENODEV` when the processor cannot.
pub fn set_off() -> io::Result<()> {
    // SAFETY: two numbers; what changes is the answer of one instruction, for this thread.
    match unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_CPUID, OFF) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets it off for a stopped thread in which code is planted.
///
/// # Errors
/// The same, and when the thread is gone.
pub fn set_off_in(process: &Process, tid: Tid) -> io::Result<()> {
    inject::call(process, tid, libc::SYS_arch_prctl, &[ARCH_SET_CPUID, OFF]).map(drop)
}

/// Answers a thread that stands at a cpuid that is off, before SIGSEGV is delivered: then the signal is not. Whether it
/// does.
///
/// # Errors
/// When the thread is gone.
pub fn take_over(process: &Process, tid: Tid, level: Level) -> io::Result<bool> {
    const SI_KERNEL: i32 = 0x80;
    const CPUID: [u8; 2] = [0x0f, 0xa2];
    let code = trace::signal_info(tid)?.code();
    let mut registers = trace::registers(tid)?;
    let mut instruction = [0; CPUID.len()];
    let is_here =
        code == SI_KERNEL && process.read(registers.rip, &mut instruction).is_ok() && instruction == CPUID;
    if is_here {
        answer_in(&mut registers, level);
        registers.rip += CPUID.len() as u64;
        trace::set_registers(tid, &registers)?;
    }
    Ok(is_here)
}

fn answer_in(registers: &mut Registers, level: Level) {
    let (leaf, subleaf) = (registers.rax as u32, registers.rcx as u32);
    let told = answer(level, leaf, subleaf, ask(leaf, subleaf)).map(u64::from);
    [registers.rax, registers.rbx, registers.rcx, registers.rdx] = told;
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Answer = [u32::MAX; 4];

    #[test]
    fn a_level_has_what_is_below_it_and_nothing_else() {
        let features = |level: Level| level.features().collect::<Vec<_>>();
        assert!(features(Level::V4).starts_with(&features(Level::V3)));
        assert!(!features(Level::V3).contains(&"avx512f") && features(Level::V3).contains(&"avx2"));
        assert!(!features(Level::V2).contains(&"avx") && features(Level::V2).contains(&"popcnt"));
    }

    #[test]
    fn features_above_the_level_are_not_told() {
        const AVX: u32 = 1 << 28;
        const AES: u32 = 1 << 25;
        const AVX2: u32 = 1 << 5;
        const AVX512F: u32 = 1 << 16;
        const AMX: u32 = 1 << 24;
        for (level, avx, avx512) in [
            (Level::V2, false, false),
            (Level::V3, true, false),
            (Level::V4, true, true),
        ] {
            let [_, _, ecx, edx] = answer(level, 1, 0, ALL);
            assert_eq!((ecx & AVX != 0, ecx & AES), (avx, 0), "{level}");
            assert_eq!(edx, u32::MAX);
            let [_, ebx, ecx, edx] = answer(level, 7, 0, ALL);
            assert_eq!((ebx & AVX2 != 0, ebx & AVX512F != 0), (avx, avx512), "{level}");
            assert_eq!((ecx, edx & AMX), (0, 0));
            assert_eq!(answer(level, 7, 1, ALL), [0; 4]);
        }
    }

    #[test]
    fn nothing_is_told_that_the_processor_has_not() {
        for leaf in (0..0x20).chain(0x8000_0000..0x8000_0020) {
            let [_, ebx, ecx, edx] = answer(Level::V4, leaf, 0, [0; 4]);
            if leaf != 0xd {
                assert_eq!([ebx, ecx, edx], [0; 3], "leaf {leaf:#x}");
            }
        }
    }

    #[test]
    fn there_is_room_for_the_registers_of_larger_processors() {
        assert_eq!(
            answer(Level::V3, 0xd, 0, [7, 832, 832, 0]),
            [7, ROOM_FOR_REGISTERS, ROOM_FOR_REGISTERS, 0]
        );
        assert_eq!(answer(Level::V3, 0xd, 0, [0x602e7, 11008, 11008, 0])[1], 11008);
    }
}
