//! One body: what in it makes instant by itself, and which functions it may call.

use crate::index::{FnId, Function, Sources, TypeNames, type_name};
use crate::known::{self, Known};
use crate::{Place, Reason};
use proc_macro2::Span;
use quote::ToTokens;
use std::collections::{BTreeSet, HashSet};
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Macro, Pat, Path, Token, UnOp};

/// What a body does.
#[derive(Default)]
pub(crate) struct Body {
    pub(crate) reasons: Vec<Reason>,
    pub(crate) calls: Vec<Call>,
}

/// A call that is followed.
pub(crate) struct Call {
    pub(crate) at: Place,
    /// The name that the body uses.
    pub(crate) name: String,
    /// Every function that it may be.
    pub(crate) callees: Vec<FnId>,
}

const GIVE_SOURCE: &str =
    "give its source too, or mark the method #[deferrable] if it only touches the object";
const MOVE_OUT: &str = "do it in the caller, and give the method its result as an argument";
const KEEP_IN_OBJECT: &str = "keep it in a field of the object, or give it to the method as an argument";
const SAFE: &str = "use safe code, or mark the method #[deferrable] if the code only touches the object";

/// Functions of `core` and `alloc` that call back into a type's own: all that their listed functions may call.
const CALLED_BACK: [&str; 14] = [
    "borrow",
    "clone",
    "cmp",
    "default",
    "eq",
    "extend",
    "fmt",
    "from",
    "hash",
    "into_iter",
    "next",
    "partial_cmp",
    "to_string",
    "to_owned",
];
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

/// Reads the body of a function.
pub(crate) fn read(sources: &Sources, function: &Function) -> Body {
    let mut names = Names::default();
    function
        .signature
        .inputs
        .iter()
        .for_each(|input| names.visit_fn_arg(input));
    names.visit_block(&function.block);
    let mut reader = Reader {
        sources,
        function,
        names,
        body: Body::default(),
    };
    function
        .signature
        .inputs
        .iter()
        .for_each(|input| reader.visit_fn_arg(input));
    reader.visit_block(&function.block);
    reader.drops();
    let mut seen = HashSet::new();
    let mut body = reader.body;
    body.reasons
        .retain(|reason| seen.insert((reason.at.clone(), reason.why.clone())));
    body
}

/// The names that a function binds, in all of its scopes.
#[derive(Default)]
struct Names {
    locals: HashSet<String>,
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
        if let Ok(arguments) = Arguments::parse_all.parse2(mac.tokens.clone()) {
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
enum Meaning {
    /// Nothing that matters.
    Harmless,
    /// One of these functions.
    Functions(Vec<FnId>),
    /// Something that makes instant: what it is, and the way out.
    Instant(String, &'static str),
}

struct Reader<'s> {
    sources: &'s Sources,
    function: &'s Function,
    names: Names,
    body: Body,
}

impl Reader<'_> {
    fn reason(&mut self, span: Span, why: impl Into<String>, way_out: &'static str) {
        self.body.reasons.push(Reason {
            at: self.sources.place(self.function.file, span),
            why: why.into(),
            through: Vec::new(),
            way_out,
        });
    }

    fn follow(&mut self, span: Span, name: &str, callees: Vec<FnId>) {
        if !callees.is_empty() {
            let at = self.sources.place(self.function.file, span);
            let name = name.to_owned();
            self.body.calls.push(Call { at, name, callees });
        }
    }

    fn means(&mut self, span: Span, name: &str, meaning: Meaning) {
        match meaning {
            Meaning::Harmless => {}
            Meaning::Functions(callees) => self.follow(span, name, callees),
            Meaning::Instant(why, way_out) => self.reason(span, why, way_out),
        }
    }

    /// Calls of a trait's functions that have no name in the body: of an operator, a loop, a sort.
    fn implied(&mut self, span: Span, names: &[&str]) {
        for name in names {
            let callees = self.sources.implementing.get(*name).cloned().unwrap_or_default();
            self.follow(span, name, callees);
        }
    }

    /// A path, with what an import says its first part is.
    fn expanded(&self, path: &Path) -> Vec<String> {
        let written = path.segments.iter().map(|part| part.ident.to_string());
        let mut parts: Vec<String> = written.collect();
        if path.leading_colon.is_none()
            && let Some(import) = self.sources.files[self.function.file].imports.get(&parts[0])
        {
            parts.splice(..1, import.iter().cloned());
        }
        parts
    }

    fn meaning(&self, path: &Path, called: bool) -> Meaning {
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
        if self.sources.consts.contains(last) || (is_type_like(last) && !is_constant_like(last)) {
            return Meaning::Harmless;
        }
        self.meaning_in_owner(&parts[parts.len() - 2], last, &shown)
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
            _ if is_constant_like(last) => Meaning::Instant(
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
            return Meaning::Instant(why, "call a function by its name");
        }
        if is_local && (!called || free.is_none()) || name == "self" {
            return Meaning::Harmless;
        }
        if self.sources.statics.contains(name) {
            return Meaning::Instant(format!("`{name}` is a static"), KEEP_IN_OBJECT);
        }
        match free {
            Some(functions) => Meaning::Functions(functions.clone()),
            None if self.sources.consts.contains(name) || self.is_parameter(name) => Meaning::Harmless,
            None if is_constant_like(name) => Meaning::Instant(
                format!("`{name}` may be a static: its source is not given"),
                GIVE_SOURCE,
            ),
            None if is_type_like(name) || known::is_pure_function(name) => Meaning::Harmless,
            None => unlisted(name),
        }
    }

    fn is_defined(&self, name: &str) -> bool {
        self.sources.fields_of.contains_key(name)
    }

    /// Whether it is a generic parameter of the function.
    fn is_parameter(&self, name: &str) -> bool {
        self.function
            .signature
            .generics
            .params
            .iter()
            .any(|parameter| match parameter {
                syn::GenericParam::Type(ty) => ty.ident == name,
                syn::GenericParam::Const(constant) => constant.ident == name,
                syn::GenericParam::Lifetime(_) => false,
            })
            || (name.len() == 1 && !self.is_defined(name))
    }

    fn method(&mut self, call: &syn::ExprMethodCall) {
        let name = call.method.to_string();
        let candidates = self.sources.owned.get(&name).cloned().unwrap_or_default();
        let on_self = matches!(&*call.receiver, Expr::Path(path) if path.path.is_ident("self"));
        let own: Vec<FnId> = candidates
            .iter()
            .copied()
            .filter(|&id| on_self && self.sources.functions[id].owner == self.function.owner)
            .collect();
        let span = call.method.span();
        if !own.is_empty() {
            self.follow(span, &name, own);
        } else if !candidates.is_empty() {
            self.follow(span, &name, candidates);
        } else if !known::is_pure_method(&name) {
            let Meaning::Instant(why, way_out) = unlisted(&format!(".{name}()")) else {
                return;
            };
            self.reason(span, why, way_out);
        }
        if known::is_pure_method(&name) {
            self.implied(span, &CALLED_BACK);
        }
    }

    fn arguments_of(&mut self, mac: &Macro) {
        match Arguments::parse_all.parse2(mac.tokens.clone()) {
            Ok(arguments) => arguments.values.iter().for_each(|value| self.visit_expr(value)),
            Err(_) => {
                let why = format!("the arguments of `{}!` are not expressions", path_text(&mac.path));
                self.reason(mac.path.span(), why, MOVE_OUT);
            }
        }
    }

    /// Values of the types that are named here may be dropped here.
    fn drops(&mut self) {
        if self.sources.dropping.is_empty() {
            return;
        }
        let mut named = TypeNames::default();
        self.function
            .signature
            .inputs
            .iter()
            .for_each(|input| named.visit_fn_arg(input));
        named.visit_block(&self.function.block);
        named.0.extend(self.function.owner.clone());
        let sources = self.sources;
        let mut held = BTreeSet::new();
        named.0.iter().for_each(|name| sources.held_by(name, &mut held));
        let dropped = held
            .iter()
            .filter_map(|name| sources.dropping.get(*name).copied());
        let dropped: Vec<FnId> = dropped.collect();
        self.follow(self.function.signature.ident.span(), "drop", dropped);
    }
}

fn unlisted(shown: &str) -> Meaning {
    Meaning::Instant(format!("the source of `{shown}` is not given"), GIVE_SOURCE)
}

fn path_text(path: &Path) -> String {
    let parts: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
    parts.join("::")
}

fn is_type_like(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_uppercase())
}

fn is_constant_like(name: &str) -> bool {
    name.len() > 1 && is_type_like(name) && !name.contains(|c: char| c.is_ascii_lowercase())
}

impl<'a> Visit<'a> for Reader<'_> {
    /// What is defined in a body is in the index.
    fn visit_item(&mut self, _: &'a syn::Item) {}

    fn visit_expr_path(&mut self, path: &'a syn::ExprPath) {
        let meaning = self.meaning(&path.path, false);
        self.means(path.path.span(), &path_text(&path.path), meaning);
        visit::visit_expr_path(self, path);
    }

    fn visit_expr_call(&mut self, call: &'a syn::ExprCall) {
        match &*call.func {
            Expr::Path(path) => {
                let meaning = self.meaning(&path.path, true);
                self.means(path.path.span(), &path_text(&path.path), meaning);
                if let Some(qself) = &path.qself {
                    self.visit_type(&qself.ty);
                }
            }
            func => {
                self.reason(
                    func.span(),
                    "it calls a function value",
                    "call a function by its name",
                );
                self.visit_expr(func);
            }
        }
        call.args.iter().for_each(|argument| self.visit_expr(argument));
    }

    fn visit_expr_method_call(&mut self, call: &'a syn::ExprMethodCall) {
        self.implied(call.method.span(), &["deref", "deref_mut"]);
        self.method(call);
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_field(&mut self, field: &'a syn::ExprField) {
        self.implied(field.member.span(), &["deref", "deref_mut"]);
        let name = field.member.to_token_stream().to_string();
        if let Some((ty, why)) = self.sources.impure_fields.get(&name) {
            let why = format!("the field `{name}` holds a `{ty}`, which {why}");
            self.reason(
                field.member.span(),
                why,
                "use a plain value: a method has its object for itself",
            );
        }
        visit::visit_expr_field(self, field);
    }

    fn visit_type_path(&mut self, path: &'a syn::TypePath) {
        let parts = self.expanded(&path.path);
        let shown = path_text(&path.path);
        let name = type_name(&syn::Type::Path(path.clone())).unwrap_or_default();
        let why = match known::is_known_crate(&parts[0]) {
            true => match known::path(&parts) {
                Known::Impure(why) => Some(why),
                Known::Pure | Known::Unlisted => None,
            },
            false => known::impure_type(&name).filter(|_| !self.is_defined(&name)),
        };
        if let Some(why) = why {
            self.reason(path.span(), format!("`{shown}` {why}"), MOVE_OUT);
        }
        visit::visit_type_path(self, path);
    }

    fn visit_trait_bound(&mut self, bound: &'a syn::TraitBound) {
        let parts = self.expanded(&bound.path);
        if let Known::Impure(why) = known::path(&parts) {
            let why = format!("`{}` {why}", path_text(&bound.path));
            self.reason(bound.path.span(), why, MOVE_OUT);
        }
        visit::visit_trait_bound(self, bound);
    }

    fn visit_macro(&mut self, mac: &'a Macro) {
        let name = path_text(&mac.path);
        let short = name.rsplit("::").next().unwrap_or(&name);
        if known::is_printing_macro(short) {
            self.reason(
                mac.path.span(),
                format!("`{name}!` writes to the program's output"),
                MOVE_OUT,
            );
        } else if known::is_pure_macro(short) {
            if short != "stringify" && short != "concat" {
                self.implied(mac.path.span(), &["fmt"]);
                self.captured(mac);
                self.arguments_of(mac);
            }
        } else {
            let why = format!("what the macro `{name}!` becomes is not seen");
            self.reason(mac.path.span(), why, "write what it does, or use a function");
        }
    }

    fn visit_expr_unsafe(&mut self, block: &'a syn::ExprUnsafe) {
        self.reason(block.span(), "`unsafe` code may touch anything", SAFE);
    }

    fn visit_expr_raw_addr(&mut self, address: &'a syn::ExprRawAddr) {
        self.reason(address.span(), ADDRESS, SAFE);
    }

    fn visit_type_ptr(&mut self, pointer: &'a syn::TypePtr) {
        self.reason(pointer.span(), ADDRESS, SAFE);
    }

    fn visit_expr_async(&mut self, block: &'a syn::ExprAsync) {
        self.reason(block.span(), "`async` code runs when it likes", MOVE_OUT);
    }

    fn visit_expr_await(&mut self, wait: &'a syn::ExprAwait) {
        self.reason(wait.span(), "it waits for another task", MOVE_OUT);
    }

    fn visit_expr_binary(&mut self, binary: &'a syn::ExprBinary) {
        self.implied(binary.op.span(), functions_of(&binary.op));
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'a syn::ExprUnary) {
        let functions: &[&str] = match unary.op {
            UnOp::Deref(_) => &["deref", "deref_mut"],
            UnOp::Not(_) => &["not"],
            _ => &["neg"],
        };
        self.implied(unary.op.span(), functions);
        visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_index(&mut self, index: &'a syn::ExprIndex) {
        self.implied(index.bracket_token.span.join(), &["index", "index_mut"]);
        visit::visit_expr_index(self, index);
    }

    fn visit_expr_for_loop(&mut self, each: &'a syn::ExprForLoop) {
        self.implied(each.for_token.span, &["into_iter", "next"]);
        visit::visit_expr_for_loop(self, each);
    }

    fn visit_expr_try(&mut self, attempt: &'a syn::ExprTry) {
        self.implied(attempt.question_token.span(), &["from"]);
        visit::visit_expr_try(self, attempt);
    }
}

const ADDRESS: &str = "an address may be another at a replay";

impl Reader<'_> {
    /// `{NAME}` in a format string is a use of `NAME`.
    fn captured(&mut self, mac: &Macro) {
        let literals = mac.tokens.clone().into_iter().filter_map(|token| match token {
            proc_macro2::TokenTree::Literal(literal) => Some(literal.to_string()),
            _ => None,
        });
        for literal in literals.collect::<Vec<_>>() {
            for hole in literal.replace("{{", "").split('{').skip(1) {
                let name: String = hole
                    .chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect();
                if self.sources.statics.contains(&name) && !self.names.locals.contains(&name) {
                    self.reason(mac.path.span(), format!("`{name}` is a static"), KEEP_IN_OBJECT);
                }
            }
        }
    }
}

/// The functions of traits that an operator calls.
fn functions_of(op: &BinOp) -> &'static [&'static str] {
    match op {
        BinOp::Add(_) => &["add"],
        BinOp::Sub(_) => &["sub"],
        BinOp::Mul(_) => &["mul"],
        BinOp::Div(_) => &["div"],
        BinOp::Rem(_) => &["rem"],
        BinOp::BitXor(_) => &["bitxor"],
        BinOp::BitAnd(_) => &["bitand"],
        BinOp::BitOr(_) => &["bitor"],
        BinOp::Shl(_) => &["shl"],
        BinOp::Shr(_) => &["shr"],
        BinOp::Eq(_) | BinOp::Ne(_) => &["eq", "ne"],
        BinOp::Lt(_) | BinOp::Le(_) | BinOp::Ge(_) | BinOp::Gt(_) => &["partial_cmp", "lt", "le", "ge", "gt"],
        BinOp::AddAssign(_) => &["add_assign"],
        BinOp::SubAssign(_) => &["sub_assign"],
        BinOp::MulAssign(_) => &["mul_assign"],
        BinOp::DivAssign(_) => &["div_assign"],
        BinOp::RemAssign(_) => &["rem_assign"],
        BinOp::BitXorAssign(_) => &["bitxor_assign"],
        BinOp::BitAndAssign(_) => &["bitand_assign"],
        BinOp::BitOrAssign(_) => &["bitor_assign"],
        BinOp::ShlAssign(_) => &["shl_assign"],
        BinOp::ShrAssign(_) => &["shr_assign"],
        _ => &[],
    }
}

/// The arguments of a macro: expressions with commas, `value; count`, or `value, pattern if guard`.
struct Arguments {
    values: Vec<Expr>,
    pattern: Option<Pat>,
}

impl Arguments {
    fn parse_all(input: ParseStream<'_>) -> syn::Result<Arguments> {
        if let Ok(all) = input.fork().call(Punctuated::<Expr, Token![,]>::parse_terminated) {
            input.parse::<proc_macro2::TokenStream>()?;
            return Ok(Arguments {
                values: all.into_iter().collect(),
                pattern: None,
            });
        }
        let mut values = vec![Expr::parse(input)?];
        if input.parse::<Option<Token![;]>>()?.is_some() {
            values.push(input.parse()?);
            return Ok(Arguments {
                values,
                pattern: None,
            });
        }
        input.parse::<Token![,]>()?;
        let pattern = Some(Pat::parse_multi_with_leading_vert(input)?);
        if input.parse::<Option<Token![if]>>()?.is_some() {
            values.push(input.parse()?);
        }
        input.parse::<Option<Token![,]>>()?;
        Ok(Arguments { values, pattern })
    }
}
