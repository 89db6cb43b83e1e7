//! Looking at the streams of a program that does not run: `twinpage info` and `twinpage check`.

use super::context::{InputContext, StdioContext};
use super::error::{Error, Result};
use super::log::Log;
use super::released::Released;
use super::{build, flight, released};
use std::path::Path;

impl StdioContext {
    /// Bytes this checkpoint covers that are not outside yet. After a power cut, when the counters
    /// prove nothing, those that may not be.
    #[must_use]
    pub fn held_bytes(&self, dir: &Path) -> u64 {
        let counted = released::peek(dir);
        let outputs = self.channels.iter().enumerate();
        let held = outputs.filter_map(|(n, channel)| {
            let output = channel.output.as_ref()?;
            let outside = counted.and_then(|counted| counted.get(n).copied()).unwrap_or(0);
            Some(
                output
                    .end
                    .saturating_sub(outside.clamp(output.safe, output.end.max(output.safe))),
            )
        });
        held.sum()
    }

    /// What is missing in the state directory `dir` to go on from this checkpoint. Empty when all is
    /// there.
    ///
    /// # Errors
    /// [`Error::Io`] when looking itself fails.
    pub fn damage(&self, dir: &Path) -> Result<Vec<Error>> {
        if let Err(error) = build::check(self) {
            return Ok(vec![error]);
        }
        let outputs = self.channels.iter().enumerate().filter_map(|(n, channel)| {
            let output = channel.output.as_ref()?;
            let log = Log::look(dir, &format!("output-{n}"), output.kept(), false);
            Some(log.map(drop))
        });
        let input = self.input.iter().map(|input| input.check(dir));
        let mut damage = Vec::new();
        let counters = std::iter::once_with(|| Released::check(dir));
        for checked in outputs.chain(input).chain(counters) {
            match checked {
                Err(error @ Error::Damaged { .. }) => damage.push(error),
                other => other?,
            }
        }
        Ok(damage)
    }
}

impl InputContext {
    /// Whether the input that a resume needs is as it was written. After a power cut, what came after the
    /// checkpoint is not needed.
    fn check(&self, dir: &Path) -> Result<()> {
        let known = released::peek(dir).is_some();
        let log = Log::look(dir, "input", self.kept(), known)?;
        if known && self.sums.is_some() {
            flight::check(dir, &log, self.end)?;
        }
        Ok(())
    }
}
