//! The paper's own numbers.

/// What the paper's text says of a series of an artifact.
pub(super) fn said(artifact: &str, series: &str) -> Option<f64> {
    let all: &[(&str, f64)] = match artifact {
        // 4.1.1: "up to 4.4x"; "up to 2.2x"; "about 9% overhead"; "up to 51%"; "2.5x speedup"
        "fig10" => &[
            ("nvram over ssd, most", 4.4),
            ("hybrid over nvram, most", 2.2),
            ("hybrid over native, mean", 0.91),
            ("hybrid over cow, most", 1.51),
            ("simpo over native, most", 2.5),
        ],
        // "2.6x"; "2.1x"; "9%"; "54%"; "84%"
        "fig11" => &[
            ("nvram over ssd, most", 2.6),
            ("hybrid over nvram, most", 2.1),
            ("hybrid over native, mean", 0.91),
            ("hybrid over cow, most", 1.54),
            ("simpo over native, most", 1.84),
        ],
        // "up to 47%"; "up to 2.17x"
        "fig12" => &[
            ("fc over native, most", 1.47),
            ("m-server over native, most", 2.17),
        ],
        // "42%"; "76%"
        "fig13" => &[
            ("fc over native, most", 1.42),
            ("m-server over native, most", 1.76),
        ],
        // "the flush function causes 20% overhead on both platforms"; "similar performance"
        "fig14" | "fig15" => &[
            ("simpo-all over simpo, least", 0.8),
            ("simpo over m-server, mean", 1.0),
        ],
        // "up to 56% fewer cache misses"; "up to 29% fewer"
        "misses" => &[
            ("saved by simpo over native, most", 0.56),
            ("saved by hybrid over cow, most", 0.29),
        ],
        // 4.1.2, 4.5
        "fig16" => &[("a million resilient entries", 7.5)],
        // 4.1.3: "41-73% increase"; "4-20x slower"
        "fig17" => &[
            ("nvramall over native, least", 1.41),
            ("nvramall over native, most", 1.73),
            ("nvramall over nvram-disk, least", 4.0),
            ("nvramall over nvram-disk, most", 20.0),
        ],
        // 4.4: "little overhead (2% and 5%...)"; "33% (up to 88%) and 73% (up to 103%) throughput increase"
        "fig23" => &[
            ("get: simpo over native, mean", 0.98),
            ("put: simpo over native, mean", 1.33),
            ("put: simpo over native, most", 1.88),
        ],
        "fig24" => &[
            ("get: simpo over native, mean", 0.95),
            ("put: simpo over native, mean", 1.73),
            ("put: simpo over native, most", 2.03),
        ],
        _ => &[],
    };
    all.iter()
        .find(|(name, _)| *name == series)
        .map(|(_, number)| *number)
}

/// The least and the most that 4.1.2 gives for recovery, as shares of the time that native ran.
pub(super) const OBJECT: [f64; 2] = [0.008, 0.03];
pub(super) const APPLICATION: [f64; 2] = [0.04, 0.10];

/// 4.2, 4.3: overhead that is negligible, and little. 4.2 has no number: it is that of 4.5.
pub(super) const LITTLE: f64 = 1.05;
/// 4.3: of the run, what recovery takes at most.
pub(super) const RECOVERY: f64 = 0.03;

/// 4.4: the same of StockLevel's transactions.
pub(super) const STOCK_RECOVERY: f64 = 0.002;

/// Table 3: structure, function, and whether it is deferrable.
pub(super) const TABLE3: [(&str, &str, bool); 22] = [
    ("Array", "increase_all", true),
    ("Array", "zero", true),
    ("Array", "print_all", false),
    ("Queue", "clear_queue", true),
    ("Queue", "en_queue", true),
    ("Queue", "de_queue", false),
    ("Queue", "is_empty", false),
    ("Queue", "is_full", false),
    ("Heap", "en_heap", true),
    ("Heap", "de_heap", false),
    ("Heap", "get_num_elements", false),
    ("Heap", "print_all", false),
    ("Stack", "push", true),
    ("Stack", "pop", false),
    ("Stack", "peek", false),
    ("Stack", "is_empty", false),
    ("Tree", "insert_element", true),
    ("Tree", "balance", true),
    ("Tree", "delete_element", true),
    ("Tree", "search_element", false),
    ("Graph", "joinwt", true),
    ("Graph", "removewt", true),
];

/// Table 3 has one more: the last line of its graph.
pub(super) const ADJACENT: (&str, &str, bool) = ("Graph", "adjacent", false);

/// Table 7: how many mechanisms each variant has. Which ones, the text's layout does not say.
pub(super) const TABLE7: [(&str, f64); 8] = [
    ("cow", 2.0),
    ("ssd", 1.0),
    ("nvram", 2.0),
    ("hybrid", 3.0),
    ("fc", 4.0),
    ("m-server", 5.0),
    ("simpo-all", 6.0),
    ("simpo", 6.0),
];
