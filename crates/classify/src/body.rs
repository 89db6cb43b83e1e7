//! One body: what in it makes instant by itself, and which functions it may call.

use crate::index::{FnId, Function, Sources, TypeNames, parts_of};
use crate::known::{self, Known};
use crate::macros::{self, Arguments};
use crate::scope::{Against, BY_NAME, KEEP_IN_OBJECT, MOVE_OUT, Meaning, Scope, path_text, unlisted};
use crate::{Position, Reason};
use proc_macro2::Span;
use quote::ToTokens;
use std::collections::{BTreeSet, HashMap, HashSet};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Macro, UnOp};

/// What a body does.
#[derive(Default)]
pub(crate) struct Body {
    pub(crate) reasons: Vec<Reason>,
    pub(crate) calls: Vec<Call>,
    /// What is at the places that are named.
    pub(crate) spans: HashMap<Position, Span>,
}

/// A call that is followed.
pub(crate) struct Call {
    pub(crate) at: Position,
    /// The name that the body uses.
    pub(crate) name: String,
    /// Every function that it may be.
    pub(crate) callees: Vec<FnId>,
}

const PLAIN: &str = "use a plain value, or a type whose source is given";
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

/// Reads the body of a function.
pub(crate) fn read(sources: &Sources, function: &Function) -> Body {
    let mut reader = Reader {
        scope: Scope::new(sources, function),
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

struct Reader<'s> {
    scope: Scope<'s>,
    body: Body,
}

impl Reader<'_> {
    fn reason(&mut self, span: Span, why: impl Into<String>, way_out: &'static str) {
        self.reason_that(true, span, why.into(), way_out);
    }

    fn reason_that(&mut self, is_seen: bool, span: Span, why: String, way_out: &'static str) {
        let at = self.note(span);
        self.body.reasons.push(Reason {
            at,
            why,
            through: Vec::new(),
            way_out,
            is_seen,
        });
    }

    fn note(&mut self, span: Span) -> Position {
        let at = self.scope.sources.place(self.scope.function.file, span);
        self.body.spans.insert(at.clone(), span);
        at
    }

    fn against(&mut self, span: Span, Against { why, is_seen }: Against) {
        self.reason_that(is_seen, span, why, PLAIN);
    }

    fn follow(&mut self, span: Span, name: &str, callees: Vec<FnId>) {
        if !callees.is_empty() {
            let at = self.note(span);
            let name = name.to_owned();
            self.body.calls.push(Call { at, name, callees });
        }
    }

    fn means(&mut self, span: Span, name: &str, meaning: Meaning) {
        match meaning {
            Meaning::Harmless => {}
            Meaning::Functions(callees) => self.follow(span, name, callees),
            Meaning::Instant(why, way_out) => self.reason(span, why, way_out),
            Meaning::Unseen(why, way_out) => self.reason_that(false, span, why, way_out),
        }
    }

    /// Calls of a trait's functions that have no name in the body: of an operator, a loop, a sort.
    fn implied(&mut self, span: Span, names: &[&str]) {
        for name in names {
            let callees = self
                .scope
                .sources
                .implementing
                .get(*name)
                .cloned()
                .unwrap_or_default();
            self.follow(span, name, callees);
        }
    }

    fn method(&mut self, call: &syn::ExprMethodCall) {
        let name = call.method.to_string();
        let candidates = self.scope.sources.owned.get(&name).cloned().unwrap_or_default();
        let on_self = matches!(&*call.receiver, Expr::Path(path) if path.path.is_ident("self"));
        let own: Vec<FnId> = candidates
            .iter()
            .copied()
            .filter(|&id| on_self && self.scope.sources.functions[id].owner == self.scope.function.owner)
            .collect();
        let span = call.method.span();
        if !own.is_empty() {
            self.follow(span, &name, own);
        } else if !candidates.is_empty() {
            self.follow(span, &name, candidates);
        } else if let Some(why) = known::impure_method(&name) {
            self.reason(span, format!("`.{name}()` {why}"), MOVE_OUT);
        } else if !known::is_pure_method(&name) {
            self.means(span, &name, unlisted(&format!(".{name}()")));
        }
        if known::is_pure_method(&name) {
            self.implied(span, &CALLED_BACK);
        }
    }

    fn arguments_of(&mut self, mac: &Macro) {
        for name in macros::captured(mac) {
            let is_static = self.scope.sources.statics.contains(&name);
            if is_static && !self.scope.names.locals.contains(&name) {
                self.reason(mac.path.span(), format!("`{name}` is a static"), KEEP_IN_OBJECT);
            }
        }
        match Arguments::of(mac) {
            Ok(arguments) => arguments.values.iter().for_each(|value| self.visit_expr(value)),
            Err(_) => {
                let why = format!("the arguments of `{}!` are not expressions", path_text(&mac.path));
                self.reason_that(false, mac.path.span(), why, MOVE_OUT);
            }
        }
    }

    /// Values of the types that are named here may be dropped here.
    fn drops(&mut self) {
        if self.scope.sources.dropping.is_empty() {
            return;
        }
        let mut named = TypeNames::default();
        self.scope
            .function
            .signature
            .inputs
            .iter()
            .for_each(|input| named.visit_fn_arg(input));
        named.visit_block(&self.scope.function.block);
        named.0.extend(self.scope.function.owner.clone());
        let sources = self.scope.sources;
        let mut held = BTreeSet::new();
        named.0.iter().for_each(|name| sources.held_by(name, &mut held));
        let dropped = held
            .iter()
            .filter_map(|name| sources.dropping.get(*name).copied());
        let dropped: Vec<FnId> = dropped.collect();
        self.follow(self.scope.function.signature.ident.span(), "drop", dropped);
    }
}

impl<'a> Visit<'a> for Reader<'_> {
    /// What is defined in a body is in the index.
    fn visit_item(&mut self, _: &'a syn::Item) {}

    fn visit_expr_path(&mut self, path: &'a syn::ExprPath) {
        let meaning = self.scope.meaning(&path.path, false);
        self.means(path.path.span(), &path_text(&path.path), meaning);
        visit::visit_expr_path(self, path);
    }

    fn visit_expr_call(&mut self, call: &'a syn::ExprCall) {
        match &*call.func {
            Expr::Path(path) => {
                let meaning = self.scope.meaning(&path.path, true);
                self.means(path.path.span(), &path_text(&path.path), meaning);
                if let Some(qself) = &path.qself {
                    self.visit_type(&qself.ty);
                }
            }
            func => {
                let why = "it calls a function value".to_owned();
                self.reason_that(false, func.span(), why, BY_NAME);
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
        let types = self.scope.sources.fields.get(&name).into_iter().flatten();
        let why = types
            .filter_map(|ty| self.scope.against_type(ty.file, &ty.path))
            .next();
        if let Some(against) = why {
            let why = format!("the field `{name}`: {}", against.why);
            self.against(field.member.span(), Against { why, ..against });
        }
        visit::visit_expr_field(self, field);
    }

    fn visit_type_path(&mut self, path: &'a syn::TypePath) {
        if let Some(against) = self
            .scope
            .against_type(self.scope.function.file, &parts_of(&path.path))
        {
            self.against(path.span(), against);
        }
        visit::visit_type_path(self, path);
    }

    fn visit_trait_bound(&mut self, bound: &'a syn::TraitBound) {
        let parts = self.scope.expanded(&bound.path);
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
                self.arguments_of(mac);
            }
        } else {
            let why = format!("what the macro `{name}!` becomes is not seen");
            let way_out = "write what it does, or use a function";
            self.reason_that(false, mac.path.span(), why, way_out);
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
