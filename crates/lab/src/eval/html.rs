//! The report: every artifact with its figure and its table, ours beside the paper's.

use super::evidence::is_far;
use super::{Claim, Row, chart};
use std::fmt::Write;

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:1040px;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .8em;border-bottom:1px solid #ddd;text-align:left}\
td.n{text-align:right;font-variant-numeric:tabular-nums}tr.far td{background:#fff4e0}.out{background:#fdeaea}details{margin:.5em 0}";

/// An evaluation as a person reads it: a figure and a table for each artifact, and all in one document.
pub trait Document: serde::Serialize {
    /// `dpc`, `twins`, `mss`, `ssp` or `simpo`.
    fn paper(&self) -> &'static str;

    /// What an artifact shows.
    fn title(&self, artifact: &str) -> &'static str;

    /// The numbers, artifact by artifact.
    fn all_rows(&self) -> Vec<&Row>;

    /// What a reader must know before the numbers, as HTML: machine, lengths, command, what is left out.
    fn preface(&self) -> String;

    /// The artifacts in it, in order.
    fn artifacts(&self) -> Vec<&'static str> {
        let mut names: Vec<&'static str> = self.all_rows().iter().map(|row| row.artifact).collect();
        names.dedup();
        names
    }

    /// The figure of an artifact, as SVG.
    ///
    /// # Errors
    /// It cannot be drawn.
    fn figure(&self, artifact: &str) -> Result<String, String> {
        chart::bars(self.title(artifact), &self.rows_of(artifact))
    }

    /// The numbers of an artifact.
    fn rows_of(&self, artifact: &str) -> Vec<&Row> {
        let mut rows = self.all_rows();
        rows.retain(|row| row.artifact == artifact);
        rows
    }

    /// A report a person can read: one HTML document, with its figures inside.
    ///
    /// # Errors
    /// A figure that cannot be drawn.
    fn html(&self) -> Result<String, String> {
        let name = self.paper();
        let mut page = format!(
            "<!doctype html><meta charset=utf-8><title>twinpage lab: {name}</title><style>{STYLE}</style><h1>twinpage lab eval {name}</h1>{}",
            self.preface()
        );
        for artifact in self.artifacts() {
            let _ = write!(
                page,
                "<h2 id={artifact}>{}</h2>{}",
                self.title(artifact),
                self.figure(artifact)?
            );
            let said = |row: &&Row| row.paper.is_some() || row.note.is_some() || row.is_summary();
            let (said, rest): (Vec<&Row>, Vec<&Row>) = self.rows_of(artifact).into_iter().partition(said);
            table(&mut page, &said);
            if !rest.is_empty() {
                page.push_str("<details><summary>every run</summary>");
                table(&mut page, &rest);
                page.push_str("</details>");
            }
        }
        Ok(page)
    }
}

/// The numbers of a paper beside ours, for a reader.
pub(super) const ABOUT_ROWS: &str = "Numbers of the paper are those its text gives; rows more than 15% from them are marked and say what was measured beside them.";

pub(super) fn left_out(all: &[String]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let items: String = all.iter().map(|one| format!("<li>{one}")).collect();
    format!("<p class=out><b>Left out:</b></p><ul class=out>{items}</ul>")
}

pub(super) fn short(all: &[String]) -> String {
    if all.is_empty() {
        return String::new();
    }
    format!(
        "<p class=out><b>Too short to say much:</b> {}.</p>",
        all.join("; ")
    )
}

pub(super) fn claims(all: &[Claim]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let row = |claim: &Claim| {
        let Claim {
            place,
            sentence,
            verdict,
            numbers,
        } = claim;
        format!("<tr><td>{place}<td>{sentence}<td>{verdict}<td>{numbers}</tr>")
    };
    let rows: String = all.iter().map(row).collect();
    format!(
        "<h2 id=claims>The paper's sentences</h2><table><tr><th>where<th>sentence<th><th>numbers</tr>{rows}</table>"
    )
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
