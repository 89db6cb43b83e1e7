//! A crash, the recovery, and the check.
//!
//! * What stays is the NVM: writes that were durable, and any part of those on their way.
//! * The oracle is the workload itself: its batches are run again, without the machine, as far as the
//!   recovered context says; memory must then be equal, byte for byte, and the workload's own check
//!   must hold.

use super::Machine;
use crate::controller::nvm::Nvm;
use crate::op::PAGE_BYTES;
use crate::quantity::FS_PER_NS;
use crate::schemes::SchemeName;
use crate::space::Port;
use crate::workload::Workload;
use crate::workload::image::filled;
use twinpage_core::PageId;

/// What recovery found, and whether it is right.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Recovery {
    /// When the power failed, in nanoseconds of the machine's time.
    pub at_ns: u64,
    /// The checkpoint that was recovered.
    pub epoch: u64,
    /// Batches it covers, and those that had run.
    pub batches: u64,
    /// Batches that had run: the difference is lost.
    pub batches_run: u64,
    /// Pages compared with the oracle.
    pub pages: u64,
    /// Whether all is as it should be.
    pub consistent: bool,
    /// If not, what.
    pub why: Option<String>,
}

impl Machine<'_> {
    /// The power fails now. What is recovered is compared with `fresh`, the same workload from its start.
    pub fn crash(self, fresh: &mut dyn Workload) -> Recovery {
        let at = self.controller.now();
        let nvm = self.controller.nvm().clone();
        let mut random = fastrand::Rng::with_seed(at);
        nvm.crash(|| random.bool());
        let mut recovery = Recovery {
            at_ns: at / FS_PER_NS,
            epoch: 0,
            batches: 0,
            batches_run: self.batches,
            pages: self.space.len() / PAGE_BYTES,
            consistent: false,
            why: None,
        };
        let checked = recover((self.scheme, nvm), &self.order, fresh, &mut recovery);
        recovery.consistent = checked.is_ok();
        recovery.why = checked.err();
        recovery
    }
}

fn recover(
    (scheme, nvm): (SchemeName, Nvm),
    order: &[u8],
    fresh: &mut dyn Workload,
    recovery: &mut Recovery,
) -> Result<(), String> {
    let (store, found) = scheme
        .recover(nvm)
        .map_err(|error| format!("recovery failed: {error}"))?;
    let batches = found.context.first_chunk().ok_or("the context is too short")?;
    recovery.epoch = found.epoch;
    recovery.batches = u64::from_le_bytes(*batches);
    let order = order
        .get(..recovery.batches as usize)
        .ok_or("the context is of a future that never was")?;
    let mut space = filled(fresh);
    let mut batch = Vec::new();
    for &core in order {
        batch.clear();
        fresh.run(usize::from(core), &mut Port::new(&mut space, &mut batch));
    }
    fresh
        .check(&space)
        .map_err(|why| format!("the oracle itself: {why}"))?;
    let mut bytes = vec![0; PAGE_BYTES as usize];
    for (page, expected) in (0..).zip(space.bytes().chunks_exact(PAGE_BYTES as usize)) {
        store
            .read(PageId(page), 0, &mut bytes)
            .map_err(|error| error.to_string())?;
        if let Some(byte) = (0..bytes.len()).find(|&byte| bytes[byte] != expected[byte]) {
            let at = page * PAGE_BYTES + byte as u64;
            let (found, expected) = (bytes[byte], expected[byte]);
            return Err(format!(
                "byte {at:#x} is {found:#04x}, and was {expected:#04x} at epoch {}",
                recovery.epoch
            ));
        }
    }
    Ok(())
}
