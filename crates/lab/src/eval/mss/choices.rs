//! Programs, memories and open choices that several runs and rows are of.

use super::runs::Other;
use crate::workload::sps::ALL;

/// The lab's other memories.
pub(super) const DEVICES: [&str; 5] = ["stt-ram", "rram", "pcm", "pcm-mlc", "optane-like"];
/// Programs shown on them.
pub(super) const SHOWN: [&str; 4] = ["lcs", "ics", "tcs", "tcs-clwb"];
/// Programs of the sweeps.
pub(super) const SWEPT: [&str; 2] = ["tcm", "tcs"];
/// What the paper leaves open.
pub(super) const OPEN: [(&str, Other); 5] = [
    ("as in the machine file", Other::Nothing),
    ("durable in the cells", Other::Cells),
    ("only the last swap persisted", Other::Last),
    ("a log of an eighth", Other::Log(0.125)),
    ("a log of eight times", Other::Log(8.0)),
];
/// The ratios shown for each choice.
pub(super) const HEADLINES: [(&str, &str); 4] = [
    ("lcs", "l"),
    ("ics", "lcs"),
    ("tcs", "lcs"),
    ("tcs-clwb", "lcs-clwb"),
];

/// Programs of Figures 4 and 5: all but those without a log and with a disk or checkpoints.
pub(super) fn compared() -> impl Iterator<Item = &'static str> {
    let is_compared = |name: &&str| !["none", "dl", "l-ckpt"].contains(name);
    ALL.iter().map(|variant| variant.name).filter(is_compared)
}
