//! The paper's own numbers.

/// What the paper's text says: of the larger number of swaps where it does not say which.
pub(super) fn said(artifact: &str, series: &str, is_last: bool) -> Option<f64> {
    if !is_last {
        return None;
    }
    let all: &[(&str, f64)] = match artifact {
        // "introduces 3x energy overhead ...; execution time remains similar"
        "fig1" => &[
            ("l-ckpt over none: memory energy", 3.0),
            ("l-ckpt over none: time", 1.0),
        ],
        // "23.7x operation throughput improvement and 16.1x energy reduction"
        "disk" => &[("l over dl: throughput", 23.7), ("l over dl: energy", 1.0 / 16.1)],
        // "degrade system performance by more than 1.6x"; "TCS ... achieves 2.3x throughput of logging mechanisms"
        "fig4a" => &[
            ("lcm", 1.0 / 1.6),
            ("lcs", 1.0 / 1.6),
            ("tcs over lcs: throughput", 2.3),
        ],
        // "increases L1 cache miss rate by 10% compared with LCS"; "TCM and TCS reduce L1 cache miss rate by 53%"
        "fig4b" => &[
            ("ics over lcs: L1 miss rate", 1.10),
            ("tcs over lcs: L1 miss rate", 0.47),
        ],
        // "LCM and LCS result in more than doubled memory access"
        "fig4c" => &[("lcm", 2.0), ("lcs", 2.0)],
        // "2.4x energy reduction compared with LCS"
        "fig5" => &[("lcs over tcs: energy", 2.4)],
        _ => &[],
    };
    all.iter()
        .find(|(name, _)| *name == series)
        .map(|(_, number)| *number)
}
