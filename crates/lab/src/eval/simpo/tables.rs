//! Tables 3, 4 and 7: what follows from sources, and from what the variants are.

use super::paper::{ADJACENT, TABLE3, TABLE7};
use super::row::{Origin, Row, row};
use crate::objects::Variant;
use twinpage_classify::{Class, Method, Sources, Summary};

const STRUCTURES: &str = include_str!("../../../programs/objects/structures.rs");

/// Programs of Table 4: name, object, source, and the paper's deferrable and instant functions.
const PROGRAMS: [(&str, &str, &str, [u32; 2]); 8] = [
    (
        "WordCount",
        "WordCount",
        include_str!("../../../programs/objects/wordcount.rs"),
        [4, 1],
    ),
    (
        "Sort",
        "Sort",
        include_str!("../../../programs/objects/sort.rs"),
        [3, 1],
    ),
    (
        "Grep",
        "Grep",
        include_str!("../../../programs/objects/grep.rs"),
        [2, 1],
    ),
    (
        "PageRank",
        "PageRank",
        include_str!("../../../programs/objects/pagerank.rs"),
        [5, 1],
    ),
    (
        "Kmeans",
        "Kmeans",
        include_str!("../../../programs/objects/kmeans.rs"),
        [4, 3],
    ),
    (
        "Connected Components",
        "Components",
        include_str!("../../../programs/objects/components.rs"),
        [2, 1],
    ),
    (
        "Naive Bayes",
        "Bayes",
        include_str!("../../../programs/objects/bayes.rs"),
        [7, 3],
    ),
    (
        "Collaborative Filtering",
        "Filtering",
        include_str!("../../../programs/objects/filtering.rs"),
        [7, 4],
    ),
];

fn classified(text: &str) -> Result<Vec<Method>, String> {
    let mut sources = Sources::default();
    sources.add("object.rs", text).map_err(|why| why.to_string())?;
    Ok(sources.classify())
}

/// Each function of the six structures.
pub(super) fn structures() -> Result<Vec<Row>, String> {
    let methods = classified(STRUCTURES)?;
    let number = |is_deferrable: bool| f64::from(u8::from(is_deferrable));
    let of = |(structure, function, is_deferrable): (&str, &str, bool)| {
        let found = methods
            .iter()
            .find(|method| method.object == structure && method.name == function);
        let found = found.ok_or_else(|| format!("{structure} has no {function}"))?;
        let ours = number(found.class == Class::Deferrable);
        let paper = Some(number(is_deferrable));
        let mut row = row(
            Origin::Counted,
            "table3",
            structure,
            function,
            paper,
            ours,
            "class",
        );
        let is_other = ours != number(is_deferrable);
        let reasons = || {
            found
                .reasons
                .iter()
                .map(|reason| reason.why.clone())
                .collect::<Vec<_>>()
        };
        row.row.note = is_other.then(|| reasons().join("; "));
        Ok(row)
    };
    TABLE3.into_iter().chain([ADJACENT]).map(of).collect()
}

/// The ratio of each program.
pub(super) fn programs() -> Result<Vec<Row>, String> {
    let of = |(name, object, text, [deferrable, instant]): (&str, &str, &str, [u32; 2])| {
        let methods = classified(text)?;
        let summaries = Summary::of(&methods);
        let found = summaries.iter().find(|summary| summary.object == object);
        let found = found.ok_or_else(|| format!("{name} has no {object}"))?;
        let paper = f64::from(deferrable) / f64::from(instant);
        let ours = found.deferrable as f64 / found.instant as f64;
        let mut row = row(
            Origin::Counted,
            "table4",
            "deferrable for each instant",
            name,
            Some(paper),
            ours,
            "ratio",
        );
        let names = |class| {
            let those = methods.iter().filter(|method| method.class == class);
            those
                .map(|method| method.name.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        row.row.note = Some(format!(
            "{}:{} here, {deferrable}:{instant} in the paper; deferrable {}; instant {}",
            found.deferrable,
            found.instant,
            names(Class::Deferrable),
            names(Class::Instant)
        ));
        Ok(row)
    };
    PROGRAMS.into_iter().map(of).collect()
}

/// How many mechanisms each variant has, and which.
pub(super) fn variants() -> Vec<Row> {
    let of = |(name, paper)| {
        let variant = Variant::find(name).expect("a variant of Table 7");
        let mechanisms = variant.mechanisms();
        let has: Vec<&str> = mechanisms
            .iter()
            .filter(|(_, has)| *has)
            .map(|(mechanism, _)| *mechanism)
            .collect();
        let ours = has.len() as f64;
        let mut row = row(
            Origin::Counted,
            "table7",
            "mechanisms",
            name,
            Some(paper),
            ours,
            "mechanisms",
        );
        row.row.note = Some(has.join(", "));
        row
    };
    TABLE7.into_iter().map(of).collect()
}
