//! The report: every artifact with its figure and its table, ours beside the paper's.

use super::evidence::is_far;
use super::{Claim, Evaluation, Row};
use std::fmt::Write;

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:1040px;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .8em;border-bottom:1px solid #ddd;text-align:left}\
td.n{text-align:right;font-variant-numeric:tabular-nums}tr.far td{background:#fff4e0}.out{background:#fdeaea}details{margin:.5em 0}";

pub(super) fn document(evaluation: &Evaluation) -> Result<String, String> {
    let name = evaluation.paper;
    let mut page = format!(
        "<!doctype html><meta charset=utf-8><title>twinpage lab: {name}</title><style>{STYLE}</style>"
    );
    let _ = write!(
        page,
        "<h1>twinpage lab eval {name}</h1><p>Machine {}, {} times smaller than the paper's; {} instructions a run after {} to warm up, {} runs of {}. Numbers of the paper are those its text gives; rows more than 15% from them are marked and say what was measured beside them.</p>",
        evaluation.config_hash,
        evaluation.smaller,
        evaluation.instructions,
        evaluation.warm_up,
        evaluation.runs,
        evaluation.workloads.join(", ")
    );
    if !evaluation.left_out.is_empty() {
        page.push_str("<p class=out><b>Left out:</b></p><ul class=out>");
        for left_out in &evaluation.left_out {
            let _ = write!(page, "<li>{left_out}");
        }
        page.push_str("</ul>");
    }
    if !evaluation.short.is_empty() {
        let _ = write!(
            page,
            "<p class=out><b>Too short to say much:</b> {}.</p>",
            evaluation.short.join("; ")
        );
    }
    let commit = evaluation.commit.as_deref().unwrap_or("not known");
    let _ = write!(
        page,
        "<p>Command: <code>{}</code><br>Commit: <code>{commit}</code></p>",
        evaluation.command
    );
    if !evaluation.claims.is_empty() {
        page.push_str(
            "<h2 id=claims>The paper's sentences</h2><table><tr><th>where<th>sentence<th><th>numbers</tr>",
        );
        for claim in &evaluation.claims {
            let Claim {
                place,
                sentence,
                verdict,
                numbers,
            } = claim;
            let _ = write!(
                page,
                "<tr><td>{place}<td>{sentence}<td>{verdict}<td>{numbers}</tr>"
            );
        }
        page.push_str("</table>");
    }
    for artifact in evaluation.artifacts() {
        let rows: Vec<&Row> = evaluation
            .rows
            .iter()
            .filter(|row| row.artifact == artifact)
            .collect();
        let _ = write!(
            page,
            "<h2 id={artifact}>{}</h2>{}",
            evaluation.title(artifact),
            evaluation.figure(artifact)?
        );
        let (said, rest): (Vec<&Row>, Vec<&Row>) = rows
            .into_iter()
            .partition(|row| row.paper.is_some() || row.note.is_some() || row.is_summary());
        table(&mut page, &said);
        if !rest.is_empty() {
            page.push_str("<details><summary>every run</summary>");
            table(&mut page, &rest);
            page.push_str("</details>");
        }
    }
    Ok(page)
}

fn table(page: &mut String, rows: &[&Row]) {
    page.push_str("<table><tr><th>series<th>workload<th>paper<th>ours<th>±<th>unit<th></tr>");
    for row in rows {
        let class = if is_far(row.paper, row.ours) {
            " class=far"
        } else {
            ""
        };
        let paper = row.paper.map_or(String::new(), |paper| format!("{paper:.2}"));
        let plus_minus = row
            .plus_minus
            .map_or(String::new(), |width| format!("{width:.3}"));
        let note = row.note.as_deref().unwrap_or("");
        let _ = write!(
            page,
            "<tr{class}><td>{}<td>{}<td class=n>{paper}<td class=n>{:.3}<td class=n>{plus_minus}<td>{}<td>{note}</tr>",
            row.series, row.workload, row.ours, row.unit
        );
    }
    page.push_str("</table>");
}
