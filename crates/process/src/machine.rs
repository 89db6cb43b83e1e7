//! The machine a state was made on, and whether this one can go on with it.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs;

/// What a resumed program relies on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// Kernel release: the vDSO a program has in its memory belongs to it.
    pub kernel: String,
    /// Kernel build: the same release can be built with another vDSO.
    pub build: String,
    /// Processor model.
    pub processor: String,
    /// Processor features, which programs choose their code by.
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
            .filter(|feature| !here.features.split_whitespace().any(|have| have == *feature))
            .collect();
        if !missing.is_empty() {
            return Err(Error::State(format!(
                "the state was made on a {} with {} that this {} lacks: resume it on such a processor",
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
