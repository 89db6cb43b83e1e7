//! `#[twinpage::object]`: the public methods of an `impl` block as operations, and a handle that calls them.
//!
//! * What an operation is follows from its signature, and from `#[instant]` and `#[deferrable]` on it. One that would be
//!   deferrable by its signature is refused where its body does what cannot be run again: `twinpage classify` and this ask the
//!   same library, which is shown one `impl` here.
//! * Arguments are a tuple for serde: by reference into the log, by value out of it.
//! * The log knows a function by its text here, which has the tokens of its types and no spaces but those between words.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{
    Attribute, Error, FnArg, GenericArgument, GenericParam, Ident, ImplItem, ImplItemFn, ItemImpl, Lifetime,
    Pat, PathArguments, ReceiverKind, Result, ReturnType, Safety, Type, Visibility,
};
use twinpage_classify::Found;

/// An argument of a method.
enum Argument {
    /// Copied into the log.
    Logged(Ident, Box<Type>),
    /// The region's heap.
    Heap,
}

/// What a method is called on.
enum Receiver {
    Shared,
    Exclusive,
    /// An element of this field.
    Lane(Ident),
}

/// A method that is an operation.
struct Operation {
    name: Ident,
    visibility: Visibility,
    docs: Vec<Attribute>,
    receiver: Receiver,
    arguments: Vec<Argument>,
    returns: Option<Type>,
    is_instant: bool,
}

pub(crate) fn expand(attribute: TokenStream, mut item: ItemImpl) -> Result<TokenStream> {
    if !attribute.is_empty() {
        return Err(Error::new_spanned(attribute, "`#[object]` takes no arguments"));
    }
    let object = Named::of(&item)?;
    let impure = twinpage_classify::in_impl(&item); // with the marks that are taken off below
    let mut operations = Vec::new();
    for part in &mut item.items {
        if let ImplItem::Fn(method) = part {
            let marks = Marks::take(method)?;
            let is_promised = marks.deferrable.is_some();
            let operation = operation(method, marks)?;
            if let Some(operation) = operation.as_ref().filter(|_| !is_promised) {
                operation.check_body(&impure)?;
            }
            operations.extend(operation);
        }
    }
    if operations.is_empty() {
        let why = "no public method takes the object: there is nothing to call";
        return Err(Error::new_spanned(&item.self_ty, why));
    }
    let handle = handle(&object, &operations);
    let implementation = implementation(&object, &operations);
    Ok(quote!(#item #handle #implementation))
}

/// The object's type.
struct Named {
    /// As it is called: `Scores`.
    ident: Ident,
    /// Without its lifetime, to call functions of it: `Scores`.
    path: syn::Path,
    /// With `'static` for its lifetime.
    family: Type,
}

impl Named {
    fn of(item: &ItemImpl) -> Result<Named> {
        if let Some((path, _)) = &item.trait_ {
            let why =
                "an object's operations are its own methods: put `#[object]` on an `impl` without a trait";
            return Err(Error::new_spanned(path, why));
        }
        for parameter in &item.generics.params {
            if !matches!(parameter, GenericParam::Lifetime(_)) {
                let why = "an object is of one type, so that its calls can be read from the log: no generic parameters";
                return Err(Error::new_spanned(parameter, why));
            }
        }
        let Type::Path(found) = &*item.self_ty else {
            return Err(Error::new_spanned(
                &item.self_ty,
                "an object is a type with a name",
            ));
        };
        let (mut path, mut family) = (found.path.clone(), found.clone());
        let last = path.segments.last_mut().expect("a path has a segment");
        last.arguments = PathArguments::None;
        let ident = last.ident.clone();
        if let Some(last) = family.path.segments.last_mut()
            && let PathArguments::AngleBracketed(arguments) = &mut last.arguments
        {
            for argument in &mut arguments.args {
                if let GenericArgument::Lifetime(lifetime) = argument {
                    *lifetime = Lifetime::new("'static", lifetime.span());
                }
            }
        }
        let family = Type::Path(family);
        Ok(Named { ident, path, family })
    }
}

/// What is said of a method.
#[derive(Default)]
struct Marks {
    lane: Option<Ident>,
    instant: Option<Span>,
    deferrable: Option<Span>,
}

impl Marks {
    /// Takes them off the method.
    fn take(method: &mut ImplItemFn) -> Result<Marks> {
        let mut marks = Marks::default();
        let mut others = Vec::new();
        for attribute in std::mem::take(&mut method.attrs) {
            let path = attribute.path();
            if path.is_ident("lane") {
                marks.lane = Some(attribute.parse_args()?);
            } else if path.is_ident("instant") {
                marks.instant = Some(attribute.span());
            } else if path.is_ident("deferrable") {
                marks.deferrable = Some(attribute.span());
            } else if path.is_ident("cfg") {
                let why = "what an object can do is the same in every build, so that each can run the other's calls";
                return Err(Error::new_spanned(attribute, why));
            } else {
                others.push(attribute);
            }
        }
        method.attrs = others;
        match (marks.instant, marks.deferrable) {
            (Some(_), Some(span)) => Err(Error::new(span, "a method is instant or deferrable, not both")),
            _ => Ok(marks),
        }
    }

    fn any(&self) -> Option<Span> {
        let lane = self.lane.as_ref().map(Ident::span);
        lane.or(self.instant).or(self.deferrable)
    }
}

/// The operation that a method is, if it is one.
fn operation(method: &ImplItemFn, marks: Marks) -> Result<Option<Operation>> {
    let signature = &method.sig;
    if matches!(method.vis, Visibility::Inherited) {
        return match marks.any() {
            Some(span) => Err(Error::new(span, "only public methods are operations")),
            None => Ok(None),
        };
    }
    let mut inputs = signature.inputs.iter();
    let receiver = match (&marks.lane, signature.receiver()) {
        (Some(lane), None) => lane_of(lane, inputs.next())?,
        (Some(_), Some(receiver)) => {
            let why = "a method of a lane takes an element of the field, `part: &mut Part`, and no `self`";
            return Err(Error::new_spanned(receiver, why));
        }
        (None, Some(_)) => receiver(inputs.next())?,
        (None, None) => {
            return match marks.any() {
                Some(span) => Err(Error::new(
                    span,
                    "a function that takes no object is no operation",
                )),
                None => Ok(None),
            };
        }
    };
    if let Some(token) = &signature.asyncness {
        let why = "an operation runs from its beginning to its end when its turn comes: it cannot be `async`";
        return Err(Error::new_spanned(token, why));
    }
    if let Some(parameter) = signature.generics.params.first() {
        let why =
            "an operation is one function, so that its calls can be read from the log: no generic parameters";
        return Err(Error::new_spanned(parameter, why));
    }
    if let Safety::Unsafe(token) = &signature.safety {
        let why = "the log calls an operation, and can promise nothing: it cannot be `unsafe`";
        return Err(Error::new_spanned(token, why));
    }
    if signature.ident == "sync" {
        let why = "each handle has a `sync`, which makes all calls so far durable and runs them: name the method otherwise";
        return Err(Error::new_spanned(&signature.ident, why));
    }
    let arguments = inputs.enumerate().map(argument).collect::<Result<Vec<_>>>()?;
    let returns = returns(&signature.output)?;
    let reads = matches!(receiver, Receiver::Shared);
    let is_instant = marks.instant.is_some() || returns.is_some() || reads;
    if let Some(span) = marks.deferrable.filter(|_| is_instant) {
        let why = match reads {
            true => {
                "a method that takes `&self` has nothing to do later: it takes `&mut self`, or is instant"
            }
            false => "its caller waits for what it returns: a deferrable method returns nothing",
        };
        return Err(Error::new(span, why));
    }
    let docs = method
        .attrs
        .iter()
        .filter(|attribute| attribute.path().is_ident("doc"));
    Ok(Some(Operation {
        name: signature.ident.clone(),
        visibility: method.vis.clone(),
        docs: docs.cloned().collect(),
        receiver,
        arguments,
        returns,
        is_instant,
    }))
}

fn receiver(input: Option<&FnArg>) -> Result<Receiver> {
    let Some(FnArg::Receiver(receiver)) = input else {
        return Err(Error::new(Span::call_site(), "a method takes `self` first"));
    };
    let mutability = match &receiver.kind {
        ReceiverKind::Reference(_, _, mutability) => Some(mutability),
        ReceiverKind::Typed(_, ty) => match &**ty {
            Type::Reference(ty) if is_self(&ty.elem) => Some(&ty.mutability),
            _ => None,
        },
        _ => None,
    };
    match mutability {
        Some(Some(_)) => Ok(Receiver::Exclusive),
        Some(None) => Ok(Receiver::Shared),
        None => {
            let why = "the object stays in its region: take `&self` or `&mut self`";
            Err(Error::new_spanned(receiver, why))
        }
    }
}

fn is_self(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.is_ident("Self"))
}

fn lane_of(lane: &Ident, input: Option<&FnArg>) -> Result<Receiver> {
    match input {
        Some(FnArg::Typed(part)) if matches!(&*part.ty, Type::Reference(part) if part.mutability.is_some()) => {
            Ok(Receiver::Lane(lane.clone()))
        }
        _ => {
            let why = "a function of a lane takes an element of the field first: `part: &mut Part`";
            Err(Error::new(lane.span(), why))
        }
    }
}

fn argument((number, input): (usize, &FnArg)) -> Result<Argument> {
    let FnArg::Typed(input) = input else {
        return Err(Error::new_spanned(input, "`self` comes first"));
    };
    let ty = &*input.ty;
    if let Type::Path(path) = ty
        && path.path.segments.last().is_some_and(|last| last.ident == "Heap")
    {
        return Ok(Argument::Heap);
    }
    if let Some(span) = borrowed(quote!(#ty)) {
        let why = "arguments are copied into the log, and are there when the call runs: take what owns them (`String`, \
                   `Vec<u8>`), not what borrows";
        return Err(Error::new(span, why));
    }
    if let Type::ImplTrait(ty) = ty {
        let why =
            "an operation is one function, so that its calls can be read from the log: no generic parameters";
        return Err(Error::new_spanned(ty, why));
    }
    let name = match &*input.pat {
        Pat::Ident(pattern) => pattern.ident.clone(),
        _ => format_ident!("argument_{number}"),
    };
    Ok(Argument::Logged(name, Box::new(ty.clone())))
}

fn returns(output: &ReturnType) -> Result<Option<Type>> {
    let ReturnType::Type(_, ty) = output else {
        return Ok(None);
    };
    if matches!(&**ty, Type::Tuple(tuple) if tuple.elems.is_empty()) {
        return Ok(None);
    }
    if let Some(span) = borrowed(quote!(#ty)) {
        let why = "what an operation returns leaves the region: return what owns it, not what borrows";
        return Err(Error::new(span, why));
    }
    if let Type::ImplTrait(ty) = &**ty {
        return Err(Error::new_spanned(
            ty,
            "an operation returns one type, with a name",
        ));
    }
    Ok(Some((**ty).clone()))
}

/// The first reference or lifetime in a type.
fn borrowed(tokens: TokenStream) -> Option<Span> {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '&' => return Some(punct.span()),
            TokenTree::Punct(punct) if punct.as_char() == '\'' => match tokens.peek() {
                Some(TokenTree::Ident(name)) if name == "static" => {}
                _ => return Some(punct.span()),
            },
            TokenTree::Group(group) => {
                let found = borrowed(group.stream());
                if found.is_some() {
                    return found;
                }
            }
            _ => {}
        }
    }
    None
}

/// The tokens as text that no formatter and no compiler changes.
fn text(tokens: TokenStream) -> String {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut all = String::new();
    let mut add = |part: &str| {
        if all.ends_with(is_word) && part.starts_with(is_word) {
            all.push(' ');
        }
        all.push_str(part);
    };
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    proc_macro2::Delimiter::Parenthesis => ("(", ")"),
                    proc_macro2::Delimiter::Brace => ("{", "}"),
                    proc_macro2::Delimiter::Bracket => ("[", "]"),
                    proc_macro2::Delimiter::None => ("", ""),
                };
                add(open);
                add(&text(group.stream()));
                add(close);
            }
            TokenTree::Punct(punct) if punct.as_char() == ',' => add(", "),
            other => add(&other.to_string()),
        }
    }
    all.trim_end().to_owned()
}

impl Operation {
    /// Refuses a deferrable one that does what may be otherwise when it is run again.
    fn check_body(&self, impure: &[Found]) -> Result<()> {
        let of_this = |found: &&Found| !self.is_instant && self.name == found.method;
        impure.iter().find(of_this).map_or(Ok(()), |found| {
            let Found { why, way_out, .. } = found;
            let name = &self.name;
            let why = format!(
                "`{name}` is logged, and runs later and again after a crash, where this may be otherwise: {why}\n\
                 {way_out}; or mark the method `#[instant]`, so that its caller waits, or `#[deferrable]` if it does the same \
                 whenever it runs"
            );
            Err(Error::new(found.at, why))
        })
    }

    /// The logged arguments.
    fn logged(&self) -> impl Iterator<Item = (&Ident, &Type)> {
        self.arguments.iter().filter_map(|argument| match argument {
            Argument::Logged(name, ty) => Some((name, &**ty)),
            Argument::Heap => None,
        })
    }

    /// What the log calls it.
    fn signature(&self) -> String {
        let lane = match &self.receiver {
            Receiver::Lane(field) => Some(format!("{field}[lane]")),
            _ => None,
        };
        let logged = self
            .logged()
            .map(|(name, ty)| format!("{name}: {}", text(quote!(#ty))));
        let arguments = lane.into_iter().chain(logged).collect::<Vec<_>>().join(", ");
        let returns = self
            .returns
            .as_ref()
            .map(|ty| format!(" -> {}", text(quote!(#ty))));
        format!("{}({arguments}){}", self.name, returns.unwrap_or_default())
    }

    /// The handle's method.
    fn method(&self, number: u16) -> TokenStream {
        let Operation {
            name,
            visibility,
            docs,
            ..
        } = self;
        let (names, types): (Vec<_>, Vec<_>) = self.logged().unzip();
        let lane = match &self.receiver {
            Receiver::Lane(_) => Some(quote!(lane: usize,)),
            _ => None,
        };
        let some_lane = match lane {
            Some(_) => quote!(::core::option::Option::Some(lane)),
            None => quote!(::core::option::Option::None),
        };
        let returns = self.returns.as_ref().map_or_else(|| quote!(()), |ty| quote!(#ty));
        let head = quote!(#(#docs)* #visibility fn #name(&self, #lane #(#names: #types),*));
        match (self.is_instant, &self.receiver) {
            (false, _) => quote! {
                #[track_caller]
                #head {
                    self.calls.defer(#number, #some_lane, &(#(&#names,)*));
                }
            },
            (true, Receiver::Shared) => quote! {
                #head -> ::twinpage::Result<#returns> {
                    self.calls.read(#number, &(#(&#names,)*))
                }
            },
            (true, _) => quote! {
                #head -> ::twinpage::Result<#returns> {
                    self.calls.instant(#number, #some_lane, &(#(&#names,)*))
                }
            },
        }
    }

    /// How it is run, on an object or on a lane of its field.
    fn arm(&self, number: usize, object: &Named, on: &TokenStream) -> TokenStream {
        let (name, path) = (&self.name, &object.path);
        let (names, types): (Vec<_>, Vec<_>) = self.logged().unzip();
        let passed = self.arguments.iter().map(|argument| match argument {
            Argument::Logged(name, _) => quote!(#name),
            Argument::Heap => quote!(twinpage_heap),
        });
        let span = name.span();
        let call = quote_spanned!(span=> #path::#name(#on, #(#passed),*));
        let none = quote!(::core::option::Option::None);
        let some = |value: TokenStream| quote!(::core::option::Option::Some(::std::boxed::Box::new(#value)));
        let outcome = match (self.is_instant, &self.returns) {
            (true, Some(_)) => some(call),
            (true, None) => {
                let unit = some(quote!(()));
                quote!(#call; #unit)
            }
            (false, _) => quote!(#call; #none),
        };
        quote! {
            #number => {
                let (#(#names,)*): (#(#types,)*) = twinpage_arguments.decode()?;
                #outcome
            }
        }
    }

    /// How its arguments are looked at.
    fn check(&self, number: usize) -> TokenStream {
        let types = self.logged().map(|(_, ty)| ty);
        let lane = match self.lane() {
            Some(_) => quote!(lane),
            None => quote!(no_lane),
        };
        quote! {
            #number => {
                twinpage_arguments.#lane()?;
                twinpage_arguments.decode::<(#(#types,)*)>()?;
            }
        }
    }

    /// The field whose elements it takes.
    fn lane(&self) -> Option<&Ident> {
        match &self.receiver {
            Receiver::Lane(field) => Some(field),
            _ => None,
        }
    }
}

/// The outcome of the operation whose number was given, if it is one of these.
fn chosen(arms: Vec<TokenStream>) -> TokenStream {
    let unknown = quote! {
        ::core::result::Result::Err(::twinpage::objects::Undecodable::unknown(twinpage_function))
    };
    match arms.is_empty() {
        true => unknown,
        false => quote! {
            ::core::result::Result::Ok(match twinpage_function {
                #(#arms)*
                _ => return #unknown,
            })
        },
    }
}

fn handle(object: &Named, operations: &[Operation]) -> TokenStream {
    let Named { ident, family, .. } = object;
    let name = format_ident!("{ident}Handle");
    let methods = operations
        .iter()
        .zip(0_u16..)
        .map(|(operation, number)| operation.method(number));
    let is_public = |operation: &&Operation| matches!(operation.visibility, Visibility::Public(_));
    let widest = operations.iter().find(is_public).unwrap_or(&operations[0]);
    let visibility = &widest.visibility;
    let doc = format!(
        "Calls the operations of a persistent `{ident}`, from any thread: `Region::object` gives it."
    );
    quote! {
        #[doc = #doc]
        #[allow(unreachable_pub)]
        #[derive(::core::clone::Clone, ::core::fmt::Debug)]
        #visibility struct #name {
            calls: ::twinpage::objects::Calls<#family>,
        }

        #[allow(dead_code, missing_docs, unreachable_pub)]
        impl #name {
            #(#methods)*

            /// Makes all calls so far durable and runs them.
            ///
            /// # Errors
            /// [`twinpage::Error::Panicked`] tells of the first deferrable method that panicked since the last time;
            /// those of the medium.
            pub fn sync(&self) -> ::twinpage::Result<()> {
                self.calls.sync()
            }
        }
    }
}

fn implementation(object: &Named, operations: &[Operation]) -> TokenStream {
    let Named { ident, family, .. } = object;
    let handle = format_ident!("{ident}Handle");
    let functions = operations.iter().map(|operation| {
        let (signature, is_instant) = (operation.signature(), operation.is_instant);
        quote!(::twinpage::objects::Function { signature: #signature, is_instant: #is_instant })
    });
    let numbered = || operations.iter().enumerate();
    let arms = numbered().map(|(number, operation)| {
        let span = operation.name.span();
        let on = match operation.lane() {
            Some(field) => quote_spanned!(span=> &mut twinpage_object.#field[twinpage_arguments.lane()?]),
            None => quote!(twinpage_object),
        };
        operation.arm(number, object, &on)
    });
    let arms = chosen(arms.collect());
    let looks = numbered().filter(|(_, operation)| matches!(operation.receiver, Receiver::Shared));
    let looks = looks.map(|(number, operation)| operation.arm(number, object, &quote!(twinpage_object)));
    let looks = chosen(looks.collect());
    let checks = numbered().map(|(number, operation)| operation.check(number));
    let checks = chosen(checks.collect());
    let logged = numbered().filter(|(_, operation)| operation.is_instant);
    let logged = logged.map(|(number, operation)| {
        let returns = operation
            .returns
            .as_ref()
            .map_or_else(|| quote!(()), |ty| quote!(#ty));
        quote!(#number => ::twinpage::objects::logged::<#returns>(twinpage_outcome),)
    });
    let in_lanes = in_lanes(object, operations);
    quote! {
        #[automatically_derived]
        impl ::twinpage::objects::Object for #family {
            type Handle = #handle;
            const FUNCTIONS: &'static [::twinpage::objects::Function] = &[#(#functions),*];

            fn apply<'twinpage>(
                twinpage_object: &mut ::twinpage::persist::Of<'twinpage, Self>,
                twinpage_heap: ::twinpage::Heap<'twinpage>,
                twinpage_function: usize,
                twinpage_arguments: &::twinpage::objects::Arguments<'_>,
            ) -> ::core::result::Result<::twinpage::objects::Outcome, ::twinpage::objects::Undecodable> {
                let _ = twinpage_heap;
                #arms
            }

            fn look<'twinpage>(
                twinpage_object: &::twinpage::persist::Of<'twinpage, Self>,
                twinpage_heap: ::twinpage::Heap<'twinpage>,
                twinpage_function: usize,
                twinpage_arguments: &::twinpage::objects::Arguments<'_>,
            ) -> ::core::result::Result<::twinpage::objects::Outcome, ::twinpage::objects::Undecodable> {
                let _ = (twinpage_object, twinpage_heap, twinpage_arguments);
                #looks
            }

            #[inline]
            fn check(
                twinpage_function: usize,
                twinpage_arguments: &::twinpage::objects::Arguments<'_>,
            ) -> ::core::result::Result<(), ::twinpage::objects::Undecodable> {
                #checks
            }

            fn logged(
                twinpage_function: usize,
                twinpage_outcome: &(dyn ::core::any::Any + ::core::marker::Send),
            ) -> ::std::vec::Vec<u8> {
                match twinpage_function {
                    #(#logged)*
                    _ => ::std::vec::Vec::new(),
                }
            }

            fn in_lanes<'twinpage>(
                twinpage_object: &mut ::twinpage::persist::Of<'twinpage, Self>,
                twinpage_heap: ::twinpage::Heap<'twinpage>,
                twinpage_run: ::twinpage::objects::LaneRun<'_>,
            ) {
                let _ = twinpage_heap;
                #in_lanes
            }

            fn handle(calls: ::twinpage::objects::Calls<Self>) -> #handle {
                #handle { calls }
            }
        }
    }
}

/// Runs calls of lanes by several threads: each field of lanes is borrowed once, and its elements are handed out.
fn in_lanes(object: &Named, operations: &[Operation]) -> TokenStream {
    let mut fields: Vec<&Ident> = Vec::new();
    for field in operations.iter().filter_map(Operation::lane) {
        if !fields.contains(&field) {
            fields.push(field);
        }
    }
    let parts = fields.iter().map(|field| {
        let name = format_ident!("twinpage_{field}");
        quote_spanned! {field.span()=>
            let #name = ::twinpage::objects::Parts::of(&mut twinpage_object.#field);
        }
    });
    let arms = operations.iter().enumerate().filter_map(|(number, operation)| {
        let name = format_ident!("twinpage_{}", operation.lane()?);
        let on = quote_spanned!(operation.name.span()=> #name.part(twinpage_lane));
        Some(operation.arm(number, object, &on))
    });
    let arms = chosen(arms.collect());
    quote! {
        let _ = &twinpage_object;
        #(#parts)*
        twinpage_run.run(|twinpage_function, twinpage_arguments, twinpage_lane| {
            let _ = (&twinpage_arguments, &twinpage_lane);
            #arms
        });
    }
}
