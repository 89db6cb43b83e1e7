//! The machine a state was made on, as its program saw it, and whether this one can go on with it.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use twinpage_os::cpuid::{self, Level};

/// What a resumed program relies on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// Kernel release: the vDSO a program has in its memory belongs to it.
    pub kernel: String,
    /// Kernel build: the same release can be built with another vDSO.
    pub build: String,
    /// Processor model.
    pub processor: String,
    /// Processor features that programs saw, which they choose their code by.
    pub features: String,
    /// This boot: another one starts its clocks again.
    pub boot: String,
}

impl Machine {
    /// This machine.
    ///
    /// # Errors
    /// When `/proc` does not say.
    pub fn this() -> Result<Machine> {
        let read = |path: &str| fs::read_to_string(path).map_err(Error::file("cannot read", path));
        let processors = read("/proc/cpuinfo")?;
        let field = |name: &str| {
            let line = processors.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(": "))
                .map_or("", |(_, value)| value)
                .to_owned()
        };
        Ok(Machine {
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            build: read("/proc/sys/kernel/version")?.trim().to_owned(),
            processor: field("model name"),
            features: field("flags"),
            boot: read("/proc/sys/kernel/random/boot_id")?.trim().to_owned(),
        })
    }

    /// This machine as a program sees it for which all above a level is hidden.
    ///
    /// # Errors
    /// When the processor is below the level itself, or cannot hide what is above.
    pub fn with_floor(mut self, floor: Option<Level>) -> Result<Machine> {
        /// Told by the kernel, not by the processor: getauxval(3), `AT_HWCAP2`.
        const SEEN_ANYWAY: &str = "fsgsbase";
        let Some(level) = floor else { return Ok(self) };
        let missing: Vec<&str> = level.features().filter(|feature| !self.has(feature)).collect();
        if !missing.is_empty() {
            return Err(Error::Machine(format!(
                "--cpu-floor {level}: this {} lacks {}; choose a lower level",
                self.processor,
                missing.join(", ")
            )));
        }
        if !self.can_hide() {
            return Err(Error::Machine(format!(
                "--cpu-floor {level}: this {} cannot hide its features from a program (cpuid faulting); run without it, on the least processor that is to go on with the program",
                self.processor
            )));
        }
        let seen = level.features().chain([SEEN_ANYWAY]);
        self.features = seen
            .filter(|feature| self.has(feature))
            .collect::<Vec<_>>()
            .join(" ");
        Ok(self)
    }

    /// Whether the processor can hide its features from a program.
    #[must_use]
    pub fn can_hide(&self) -> bool {
        self.has(cpuid::CAN_BE_OFF)
    }

    fn has(&self, feature: &str) -> bool {
        self.features.split_whitespace().any(|have| have == feature)
    }

    /// Whether a state made on `self` can go on here.
    ///
    /// # Errors
    /// Names what differs.
    pub fn check_against(&self, here: &Machine) -> Result<()> {
        if (&self.kernel, &self.build) != (&here.kernel, &here.build) {
            return Err(Error::State(format!(
                "the state was made on kernel {} ({}), this is {} ({}): the program holds code of its kernel; boot that kernel to resume",
                self.kernel, self.build, here.kernel, here.build
            )));
        }
        let missing: Vec<&str> = (self.features.split_whitespace())
            .filter(|feature| !here.has(feature))
            .collect();
        if !missing.is_empty() {
            return Err(Error::State(format!(
                "the state was made on a {} with {} that this {} lacks: resume it on such a processor; a program that is to go on with less needs run --cpu-floor",
                self.processor,
                missing.join(", "),
                here.processor
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_hides_what_is_above_it() {
        let below: Vec<&str> = Level::V3.features().collect();
        let here = Machine {
            features: format!("{} avx512f aes fsgsbase {}", below.join(" "), cpuid::CAN_BE_OFF),
            ..Machine::this().unwrap()
        };
        let seen = here.clone().with_floor(Some(Level::V3)).unwrap();
        assert_eq!(seen.features, format!("{} fsgsbase", below.join(" ")));
        let lesser = Machine {
            features: seen.features.clone(),
            ..here.clone()
        };
        assert!(
            here.check_against(&lesser).is_err(),
            "it may use what is not there"
        );
        seen.check_against(&lesser).unwrap();
        let why = lesser
            .clone()
            .with_floor(Some(Level::V3))
            .unwrap_err()
            .to_string();
        assert!(why.contains("cannot hide"), "{why}");
        let why = lesser.with_floor(Some(Level::V4)).unwrap_err().to_string();
        assert!(why.contains("lacks avx512f"), "{why}");
    }

    #[test]
    fn another_machine_is_named() {
        let here = Machine::this().unwrap();
        assert!(here.check_against(&here).is_ok());
        let older = Machine {
            kernel: "6.7.0".into(),
            ..here.clone()
        };
        assert!(
            older
                .check_against(&here)
                .unwrap_err()
                .to_string()
                .contains("6.7.0")
        );
        let richer = Machine {
            features: format!("{} avx99", here.features),
            ..here.clone()
        };
        assert!(
            richer
                .check_against(&here)
                .unwrap_err()
                .to_string()
                .contains("avx99")
        );
    }
}
