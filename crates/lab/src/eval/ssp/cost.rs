//! Hardware cost (SSP 4.3): what each entry of the TLBs and of the write-set buffer is larger by.

use crate::sections::Setting;

/// Bits of a physical page number, of a write-set entry's tag, and of a bitmap (4.3).
const PAGE: usize = 40;
const TAG: usize = 36;
const LINES: usize = 64;
/// Lines in a sub-page of 256 bytes.
const LINES_A_SUB_PAGE: usize = 4;
/// Entries of the second TLB (4.3). It is in the cost alone: one TLB is simulated.
const SECOND_TLB: usize = 1024;

/// Parts, where they are, and their bytes; the last two are all of it, the second with sub-pages of 256 bytes.
pub(super) fn parts(setting: &Setting) -> [(&'static str, &'static str, f64); 5] {
    let bytes = |entries: usize, bits: usize| (entries * bits) as f64 / 8.0;
    let tlb = |entries, bitmap| bytes(entries, PAGE + bitmap);
    let buffer = |bitmap| bytes(setting.write_set_pages, TAG + bitmap);
    let all = |bitmap| tlb(setting.tlb_entries, bitmap) + tlb(SECOND_TLB, bitmap) + buffer(bitmap);
    [
        (
            "second page and bitmap in the TLB",
            "first TLB",
            tlb(setting.tlb_entries, LINES),
        ),
        (
            "second page and bitmap in the TLB",
            "second TLB",
            tlb(SECOND_TLB, LINES),
        ),
        ("write-set buffer", "", buffer(LINES)),
        ("all", "", all(LINES)),
        ("all", "sub-pages of 256 bytes", all(LINES / LINES_A_SUB_PAGE)),
    ]
}
