//! The names in scope of one function, and their meanings.
//!
//! A name that may mean several functions means all of them.

use crate::index::{FnId, Function, Sources, parts_of};
use crate::known::{self, Known};
use crate::macros::Arguments;
use std::collections::HashSet;
use syn::visit::{self, Visit};
use syn::{Expr, Macro, Pat, Path};

pub(crate) const GIVE_SOURCE: &str =
    "give its source too, or mark the method #[deferrable] if it only touches the object";
pub(crate) const MOVE_OUT: &str = "do it in the caller, and give the method its result as an argument";
pub(crate) const BY_NAME: &str = "call a function by its name";
pub(crate) const KEEP_IN_OBJECT: &str =
    "keep it in a field of the object, or give it to the method as an argument";

/// Functions that a type has by `#[derive]`, without a body in the sources.
const DERIVED: [&str; 8] = [
    "clone",
    "cmp",
    "default",
    "eq",
    "fmt",
    "hash",
    "ne",
    "partial_cmp",
];

/// The names that a function binds, in all of its scopes.
#[derive(Default)]
pub(crate) struct Names {
    pub(crate) locals: HashSet<String>,
    closures: HashSet<String>,
}

impl<'a> Visit<'a> for Names {
    fn visit_pat_ident(&mut self, pattern: &'a syn::PatIdent) {
        self.locals.insert(pattern.ident.to_string());
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_local(&mut self, local: &'a syn::Local) {
        if let (Pat::Ident(name), Some(init)) = (&local.pat, &local.init)
            && matches!(*init.expr, Expr::Closure(_))
        {
            self.closures.insert(name.ident.to_string());
        }
        visit::visit_local(self, local);
    }

    fn visit_macro(&mut self, mac: &'a Macro) {
        if let Ok(arguments) = Arguments::of(mac) {
            arguments.values.iter().for_each(|value| self.visit_expr(value));
            arguments
                .pattern
                .iter()
                .for_each(|pattern| self.visit_pat(pattern));
        }
    }

    fn visit_item(&mut self, _: &'a syn::Item) {}
}

/// What a name stands for.
pub(crate) enum Meaning {
    /// Nothing that matters.
    Harmless,
    /// One of these functions.
    Functions(Vec<FnId>),
    /// Something that makes instant: what it is, and the way out.
    Instant(String, &'static str),
    /// Something that may, as its source is not given.
    Unseen(String, &'static str),
}

/// Why a value of a type is not for an object.
pub(crate) struct Against {
    pub(crate) why: String,
    /// Whether that is known: false where the source of the type is not given.
    pub(crate) is_seen: bool,
}

/// The names in scope of a function.
pub(crate) struct Scope<'s> {
    pub(crate) sources: &'s Sources,
    pub(crate) function: &'s Function,
    pub(crate) names: Names,
}

impl<'s> Scope<'s> {
    pub(crate) fn new(sources: &'s Sources, function: &'s Function) -> Scope<'s> {
        let mut names = Names::default();
        function
            .signature
            .inputs
            .iter()
            .for_each(|input| names.visit_fn_arg(input));
        names.visit_block(&function.block);
        Scope {
            sources,
            function,
            names,
        }
    }

    /// A path, with what an import says its first part is.
    pub(crate) fn expanded(&self, path: &Path) -> Vec<String> {
        match path.leading_colon {
            Some(_) => parts_of(path),
            None => self.expanded_in(self.function.file, &parts_of(path)),
        }
    }

    fn expanded_in(&self, file: usize, written: &[String]) -> Vec<String> {
        match self.sources.files[file].imports.get(&written[0]) {
            Some(import) => [import, &written[1..]].concat(),
            None => written.to_vec(),
        }
    }

    pub(crate) fn meaning(&self, path: &Path, called: bool) -> Meaning {
        let parts = self.expanded(path);
        let shown = path_text(path);
        let last = parts.last().expect("a path has a part");
        if let [name] = &parts[..] {
            return self.meaning_of_name(name, called);
        }
        if known::is_known_crate(&parts[0]) {
            return match known::path(&parts) {
                Known::Pure => Meaning::Harmless,
                Known::Impure(why) => Meaning::Instant(format!("`{shown}` {why}"), MOVE_OUT),
                Known::Unlisted => unlisted(&shown),
            };
        }
        if self.sources.statics.contains(last) {
            return Meaning::Instant(format!("`{shown}` is a static"), KEEP_IN_OBJECT);
        }
        if self.sources.function_consts.contains(last) {
            return function_value(&shown);
        }
        if self.sources.consts.contains(last) || (is_type_like(last) && !is_constant_like(last)) {
            return Meaning::Harmless;
        }
        self.meaning_in_owner(&parts[parts.len() - 2], last, &shown)
    }

    /// Why a type is not for an object that one is another name of.
    fn against_alias(&self, name: &str, seen: &mut HashSet<String>) -> Option<Against> {
        let targets = self
            .sources
            .aliases
            .get(name)
            .filter(|_| seen.insert(name.to_owned()))?;
        targets.iter().find_map(|target| {
            let against = self.against(target.file, &target.path, seen)?;
            let why = format!("`{name}` is another name of a type, and {}", against.why);
            Some(Against { why, ..against })
        })
    }

    /// `Owner::last`, or `module::last`.
    fn meaning_in_owner(&self, owner: &str, last: &str, shown: &str) -> Meaning {
        let owner = match owner {
            "Self" => self.function.owner.as_deref().unwrap_or(owner),
            _ => owner,
        };
        let owned = self.sources.owned.get(last).into_iter().flatten().copied();
        let of_owner: Vec<FnId> = owned
            .filter(|&id| self.sources.functions[id].owner.as_deref() == Some(owner))
            .collect();
        if !of_owner.is_empty() {
            return Meaning::Functions(of_owner);
        }
        if let Some(Against { why, is_seen }) = self.against_alias(owner, &mut HashSet::new()) {
            return match is_seen {
                true => Meaning::Instant(why, KEEP_IN_OBJECT),
                false => Meaning::Unseen(why, GIVE_SOURCE),
            };
        }
        if let Some(why) = known::impure_type(owner).filter(|_| !self.is_defined(owner)) {
            return Meaning::Instant(format!("`{owner}` {why}"), KEEP_IN_OBJECT);
        }
        let implementing = self.sources.implementing.get(last);
        if self.is_parameter(owner) || known::is_pure_owner(owner) {
            return match implementing {
                Some(functions) => Meaning::Functions(functions.clone()),
                None if known::is_pure_owner(owner) => Meaning::Harmless,
                None => unlisted(shown),
            };
        }
        if self.is_defined(owner) && DERIVED.contains(&last) {
            return Meaning::Functions(implementing.cloned().unwrap_or_default());
        }
        match self.sources.free.get(last) {
            Some(functions) if !is_type_like(owner) => Meaning::Functions(functions.clone()),
            _ if is_constant_like(last) => Meaning::Unseen(
                format!("`{shown}` may be a static: its source is not given"),
                GIVE_SOURCE,
            ),
            _ => unlisted(shown),
        }
    }

    fn meaning_of_name(&self, name: &str, called: bool) -> Meaning {
        let free = self.sources.free.get(name);
        let is_local = self.names.locals.contains(name);
        if is_local && called && !self.names.closures.contains(name) {
            let why = format!("`{name}` is a function that only its caller knows");
            return Meaning::Unseen(why, BY_NAME);
        }
        if is_local && (!called || free.is_none()) || name == "self" {
            return Meaning::Harmless;
        }
        if self.sources.statics.contains(name) {
            return Meaning::Instant(format!("`{name}` is a static"), KEEP_IN_OBJECT);
        }
        if self.sources.function_consts.contains(name) {
            return function_value(name);
        }
        match free {
            Some(functions) => Meaning::Functions(functions.clone()),
            None if self.sources.consts.contains(name) || self.is_parameter(name) => Meaning::Harmless,
            None if is_constant_like(name) => Meaning::Unseen(
                format!("`{name}` may be a static: its source is not given"),
                GIVE_SOURCE,
            ),
            None if is_type_like(name) || known::is_pure_function(name) => Meaning::Harmless,
            None => unlisted(name),
        }
    }

    fn is_defined(&self, name: &str) -> bool {
        self.sources.defined.contains(name)
    }

    fn is_parameter(&self, name: &str) -> bool {
        self.function.parameters.contains(name)
    }

    /// Why a value of a type is not for an object, if so.
    pub(crate) fn against_type(&self, file: usize, written: &[String]) -> Option<Against> {
        self.against(file, written, &mut HashSet::new())
    }

    fn against(&self, file: usize, written: &[String], seen: &mut HashSet<String>) -> Option<Against> {
        let parts = self.expanded_in(file, written);
        let (name, shown) = (parts.last()?, written.join("::"));
        let not_given = || {
            let why = format!("the source of `{shown}` is not given");
            let is_seen = false;
            Some(Against { why, is_seen })
        };
        let impure = |why| {
            let why = format!("`{shown}` {why}");
            let is_seen = true;
            Some(Against { why, is_seen })
        };
        if known::is_known_crate(&parts[0]) {
            return match known::path(&parts) {
                Known::Pure => None,
                Known::Impure(why) => impure(why),
                Known::Unlisted => not_given(),
            };
        }
        let of_scope = |name: &str| name == "Self" || self.is_parameter(name);
        if self.sources.aliases.contains_key(name) {
            return self.against_alias(name, seen);
        }
        if self.is_defined(name) || known::is_pure_owner(name) || of_scope(&parts[0]) {
            return None;
        }
        match known::impure_type(name) {
            Some(why) => impure(why),
            None => not_given(),
        }
    }
}

/// A constant that is a function: which one, only its value says.
fn function_value(shown: &str) -> Meaning {
    Meaning::Instant(format!("`{shown}` is a function that a constant holds"), BY_NAME)
}

pub(crate) fn unlisted(shown: &str) -> Meaning {
    Meaning::Unseen(format!("the source of `{shown}` is not given"), GIVE_SOURCE)
}

pub(crate) fn path_text(path: &Path) -> String {
    let parts: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
    parts.join("::")
}

fn is_type_like(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_uppercase())
}

fn is_constant_like(name: &str) -> bool {
    name.len() > 1 && is_type_like(name) && !name.contains(|c: char| c.is_ascii_lowercase())
}
