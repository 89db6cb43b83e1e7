//! What was measured on real cores: the committed results of `twinpage bench objects`.

use super::row::{Origin, Row, row};
use serde_json::Value;

const RESULTS: &str = include_str!("../../../../../docs/results/bench-objects.json");

/// Each ratio of those results, beside the paper's number where it has one.
pub(super) fn rows() -> Result<Vec<Row>, String> {
    let results: Value = serde_json::from_str(RESULTS).map_err(|why| format!("bench-objects.json: {why}"))?;
    let ratios = results["ratios"]
        .as_array()
        .ok_or("bench-objects.json has no ratios")?;
    ratios.iter().map(of).collect()
}

fn of(ratio: &Value) -> Result<Row, String> {
    let text = |key: &str| {
        ratio[key]
            .as_str()
            .ok_or_else(|| format!("bench-objects.json: a ratio without {key}"))
    };
    let number = |key: &str| ratio[key].as_f64();
    let series = format!("{} over {}, {}", text("of")?, text("over")?, text("medium")?);
    let place = format!("{}, {} threads", text("workload")?, ratio["threads"]);
    let ours = number("ratio").ok_or("bench-objects.json: a ratio without its number")?;
    Ok(row(
        Origin::Measured,
        "measured",
        &series,
        &place,
        number("paper"),
        ours,
        "ratio",
    ))
}
