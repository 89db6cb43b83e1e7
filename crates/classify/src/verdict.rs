//! From bodies to classes: what a call's function does, its caller does.
//!
//! A function is impure when its own body is, or when one that it may call is. Functions that only call each other
//! are pure.

use crate::body::{self, Body};
use crate::index::{FnId, Function, Sources, is_attribute};
use crate::{Class, Method, Position, Reason};
use syn::spanned::Spanned;
use syn::{FnArg, Meta, Receiver, ReceiverKind, ReturnType, Type};

const SPLIT: &str = "change in one method, and read in another that takes `&self`";
const READ: &str = "leave it so: it takes `&self`, and such methods run beside one another";
const BORROW: &str = "take `&mut self`";
const MARK: &str = "remove the mark";

/// What is known of a function: nothing that matters, or the first thing that makes it impure.
enum Cause {
    Own(usize),
    Call { call: usize, callee: FnId },
}

/// Whether a method takes `&self`.
fn is_shared(receiver: &Receiver) -> bool {
    matches!(receiver.kind, ReceiverKind::Reference(_, _, None))
}

impl Sources {
    /// Every method of every object: of the impls marked `#[object]` where there are any, else of all types.
    #[must_use]
    pub fn classify(&self) -> Vec<Method> {
        let bodies: Vec<Body> = self
            .functions
            .iter()
            .map(|function| self.body(function))
            .collect();
        self.methods(&bodies)
    }

    /// The methods, by what their bodies do.
    pub(crate) fn methods(&self, bodies: &[Body]) -> Vec<Method> {
        let causes = self.causes(bodies);
        let only_objects = self.functions.iter().any(|function| function.of_object);
        let methods = self.functions.iter().enumerate().filter(|(_, function)| {
            is_method(function) && !function.of_trait && (function.of_object || !only_objects)
        });
        methods
            .map(|(id, function)| self.method(function, &bodies[id], bodies, &causes))
            .collect()
    }

    pub(crate) fn body(&self, function: &Function) -> Body {
        let mut body = body::read(self, function);
        if mark(function) == Some(Class::Instant) {
            body.reasons.push(Reason {
                at: self.place(function.file, function.signature.ident.span()),
                why: "it is marked #[instant]".to_owned(),
                through: Vec::new(),
                way_out: MARK,
                is_seen: true,
            });
        }
        body
    }

    fn causes(&self, bodies: &[Body]) -> Vec<Option<Cause>> {
        let own = |(function, body): (&Function, &Body)| match mark(function) {
            Some(Class::Deferrable) => None,
            _ => (!body.reasons.is_empty()).then_some(Cause::Own(0)),
        };
        let mut causes: Vec<Option<Cause>> = self.functions.iter().zip(bodies).map(own).collect();
        loop {
            let mut found = Vec::new();
            for (id, body) in bodies.iter().enumerate() {
                if causes[id].is_some() || mark(&self.functions[id]) == Some(Class::Deferrable) {
                    continue;
                }
                let mut calls = body.calls.iter().enumerate();
                let cause = calls.find_map(|(call, site)| {
                    let callee = site
                        .callees
                        .iter()
                        .copied()
                        .find(|&callee| causes[callee].is_some())?;
                    Some(Cause::Call { call, callee })
                });
                found.extend(cause.map(|cause| (id, cause)));
            }
            if found.is_empty() {
                return causes;
            }
            for (id, cause) in found {
                causes[id] = Some(cause);
            }
        }
    }

    fn method(&self, function: &Function, body: &Body, bodies: &[Body], causes: &[Option<Cause>]) -> Method {
        let mut reasons = self.reasons_of_signature(function);
        reasons.extend(body.reasons.iter().cloned());
        for call in &body.calls {
            let callee = call
                .callees
                .iter()
                .copied()
                .find(|&callee| causes[callee].is_some());
            if let Some(callee) = callee {
                let reason = self.reason_through(call.at.clone(), &call.name, callee, bodies, causes);
                if !reasons
                    .iter()
                    .any(|known| known.at.line == reason.at.line && known.why == reason.why)
                {
                    reasons.push(reason);
                }
            }
        }
        reasons.sort_by(|a, b| a.at.cmp(&b.at));
        let marked = mark(function);
        let found = if reasons.is_empty() {
            Class::Deferrable
        } else {
            Class::Instant
        };
        Method {
            object: function.owner.clone().unwrap_or_default(),
            name: function.name.clone(),
            at: self.place(function.file, function.signature.ident.span()),
            lane: lane(function),
            class: marked.unwrap_or(found),
            overruled: marked.is_some(),
            reasons,
        }
    }

    fn reasons_of_signature(&self, function: &Function) -> Vec<Reason> {
        let at = |span| self.place(function.file, span);
        let reason = |at: Position, why: String, way_out| Reason {
            at,
            why,
            through: Vec::new(),
            way_out,
            is_seen: true,
        };
        let signature = &function.signature;
        let mut reasons = Vec::new();
        if let ReturnType::Type(_, ty) = &signature.output
            && !matches!(&**ty, Type::Tuple(tuple) if tuple.elems.is_empty())
            && !matches!(&**ty, Type::Never(_))
        {
            let shown = shown(ty);
            let why = format!("it returns `{shown}`, and its caller waits for that");
            let is_read = signature.receiver().is_some_and(is_shared);
            reasons.push(reason(at(ty.span()), why, if is_read { READ } else { SPLIT }));
        }
        if let Some(receiver) = signature.receiver()
            && matches!(receiver.kind, ReceiverKind::Value)
        {
            let why = "it takes the object itself, which lives in its region".to_owned();
            reasons.push(reason(at(receiver.span()), why, BORROW));
        }
        if let Some(token) = &signature.asyncness {
            let why = "an `async` method runs when its caller likes".to_owned();
            reasons.push(reason(at(token.span()), why, "wait in the caller"));
        }
        reasons
    }

    /// Why a call of `callee` makes instant: the reason that is found by following the first cause of each.
    fn reason_through(
        &self,
        at: Position,
        name: &str,
        mut callee: FnId,
        bodies: &[Body],
        causes: &[Option<Cause>],
    ) -> Reason {
        let mut through = vec![(name.to_owned(), self.place_of(callee))];
        loop {
            match &causes[callee] {
                Some(Cause::Call { call, callee: next }) => {
                    through.push((bodies[callee].calls[*call].name.clone(), self.place_of(*next)));
                    callee = *next;
                }
                Some(Cause::Own(first)) => {
                    let reason = &bodies[callee].reasons[*first];
                    through.last_mut().expect("a call").1 = reason.at.clone();
                    return Reason {
                        at,
                        why: reason.why.clone(),
                        through,
                        way_out: reason.way_out,
                        is_seen: reason.is_seen,
                    };
                }
                None => unreachable!("only impure functions are followed"),
            }
        }
    }

    fn place_of(&self, id: FnId) -> Position {
        let function = &self.functions[id];
        self.place(function.file, function.signature.ident.span())
    }
}

/// The text of a type as a person writes it.
fn shown(ty: &Type) -> String {
    let text = quote::quote!(#ty).to_string();
    let mut shown = text
        .replace(" < ", "<")
        .replace(" > ", ">")
        .replace(" >", ">")
        .replace("< ", "<");
    for (long, short) in [
        (" :: ", "::"),
        ("& ", "&"),
        (" , ", ", "),
        (" ,", ","),
        ("( ", "("),
        (" )", ")"),
    ] {
        shown = shown.replace(long, short);
    }
    shown
}

fn is_method(function: &Function) -> bool {
    let receives = matches!(function.signature.inputs.first(), Some(FnArg::Receiver(_)));
    function.owner.is_some() && (receives || lane(function).is_some())
}

/// `#[lane(rows)]`
fn lane(function: &Function) -> Option<String> {
    let attribute = function
        .attributes
        .iter()
        .find(|attribute| is_attribute(attribute, "lane"))?;
    match &attribute.meta {
        Meta::List(list) => Some(list.tokens.to_string()),
        _ => None,
    }
}

fn mark(function: &Function) -> Option<Class> {
    let has = |name| {
        function
            .attributes
            .iter()
            .any(|attribute| is_attribute(attribute, name))
    };
    match (has("instant"), has("deferrable")) {
        (true, _) => Some(Class::Instant),
        (false, true) => Some(Class::Deferrable),
        (false, false) => None,
    }
}
