//! What one `impl` shows of its methods: for the macro `#[twinpage::object]`, which sees no other source.

use crate::body::Body;
use crate::index::Sources;
use proc_macro2::Span;
use std::collections::HashMap;
use syn::ItemImpl;

/// Something in a method that makes it instant.
#[derive(Clone, Debug)]
pub struct Found {
    /// The name of the method.
    pub method: String,
    /// Where the method does it: for a call of another function of the `impl`, where the call is.
    pub at: Span,
    /// What it does.
    pub why: String,
    /// How the method could become deferrable.
    pub way_out: &'static str,
}

/// What the bodies of an object's methods do that makes them instant, without those that are marked. Calls are followed within
/// the `impl`; what its source does not show is not taken for anything, so a method that nothing is found in may be instant.
///
/// ```
/// use twinpage_classify::in_impl;
///
/// let counter = syn::parse_str("impl Counter {
///     pub fn add(&mut self, by: u64) { self.value += helper(by) }
///     pub fn tell(&mut self) { println!(\"{}\", self.value) }
/// }").unwrap();
/// let found = in_impl(&counter);
/// assert_eq!((&*found[0].method, &*found[0].why), ("tell", "`println!` writes to the program's output"));
/// assert_eq!(found.len(), 1);
/// ```
#[must_use]
pub fn in_impl(item: &ItemImpl) -> Vec<Found> {
    let mut sources = Sources::default();
    sources.add_impl(item);
    let mut bodies: Vec<Body> = sources
        .functions
        .iter()
        .map(|function| sources.body(function))
        .collect();
    let mut spans = HashMap::new();
    for body in &mut bodies {
        body.reasons.retain(|reason| reason.is_seen);
        spans.extend(std::mem::take(&mut body.spans));
    }
    let methods = sources.methods(&bodies);
    let unmarked = methods.into_iter().filter(|method| !method.overruled);
    let found = unmarked.flat_map(|method| {
        let name = method.name;
        method
            .reasons
            .into_iter()
            .map(move |reason| (name.clone(), reason))
    });
    // Those of a signature have no place in a body.
    let in_bodies = found.filter_map(|(method, reason)| {
        let at = *spans.get(&reason.at)?;
        let calls = reason.through.iter().map(|(name, _)| format!("`{name}`: "));
        let why = calls.collect::<String>() + &reason.why;
        let way_out = reason.way_out;
        Some(Found {
            method,
            at,
            why,
            way_out,
        })
    });
    in_bodies.collect()
}
