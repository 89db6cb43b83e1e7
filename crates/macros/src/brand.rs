//! The brand of a type: the lifetime that ties its values to their region.

use darling::{Error, Result};
use proc_macro2::{Group, TokenStream, TokenTree};
use quote::quote;
use syn::{
    DeriveInput, GenericParam, Generics, Ident, Lifetime, TypeParamBound, WherePredicate, parse_quote,
};

/// The lifetime of a type that owns memory of its region, if it has one.
pub(crate) struct Brand(Option<Lifetime>);

impl Brand {
    /// Whether there is one.
    pub(crate) fn is_there(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn of(input: &DeriveInput) -> Result<Brand> {
        let mut lifetimes = input.generics.lifetimes();
        let first = lifetimes.next().map(|parameter| parameter.lifetime.clone());
        match lifetimes.next() {
            Some(second) => Err(Error::custom(
                "a type of a region has one lifetime, the brand of its region; what it borrows from elsewhere is gone \
                 after a restart: own the value, or keep a key or an index",
            )
            .with_span(second)),
            None => Ok(Brand(first)),
        }
    }

    /// The generics of the impl: each type parameter has the bound, and what it is in a region has its own ones.
    pub(crate) fn generics(&self, input: &DeriveInput, bound: &TypeParamBound) -> Generics {
        let mut generics = input.generics.clone();
        generics.params = generics
            .params
            .into_iter()
            .filter(|parameter| !matches!(parameter, GenericParam::Lifetime(_)))
            .collect();
        let mut in_region: Vec<WherePredicate> = Vec::new();
        for parameter in generics.type_params_mut() {
            let (ident, own) = (&parameter.ident, &parameter.bounds);
            if !own.is_empty() {
                in_region.push(
                    parse_quote!(for<'twinpage> <#ident as ::twinpage::persist::Persist>::In<'twinpage>: #own),
                );
            }
            parameter.bounds.push(bound.clone());
        }
        generics.make_where_clause().predicates.extend(in_region);
        generics
    }

    /// The arguments of the type: as the family is named, or as a member with the brand `'twinpage`.
    pub(crate) fn arguments(&self, input: &DeriveInput, member: bool) -> TokenStream {
        let arguments: Vec<TokenStream> = input
            .generics
            .params
            .iter()
            .map(|parameter| match parameter {
                GenericParam::Lifetime(_) if member => quote!('twinpage),
                GenericParam::Lifetime(_) => quote!('static),
                GenericParam::Type(t) => {
                    let t = &t.ident;
                    match member {
                        true => quote!(::twinpage::persist::Of<'twinpage, #t>),
                        false => quote!(#t),
                    }
                }
                GenericParam::Const(c) => {
                    let c = &c.ident;
                    quote!(#c)
                }
            })
            .collect();
        match arguments.is_empty() {
            true => TokenStream::new(),
            false => quote!(<#(#arguments),*>),
        }
    }

    /// Types as their families are named: with `'static` for the brand.
    pub(crate) fn named_static(&self, tokens: TokenStream) -> TokenStream {
        self.named(tokens, "static")
    }

    /// Types with another lifetime for the brand.
    pub(crate) fn named(&self, tokens: TokenStream, name: &str) -> TokenStream {
        let Some(Lifetime { ident: brand, .. }) = &self.0 else {
            return tokens;
        };
        let mut after_quote = false;
        tokens
            .into_iter()
            .map(|token| {
                let is_brand = matches!(&token, TokenTree::Ident(ident) if after_quote && ident == brand);
                after_quote = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '\'');
                match token {
                    TokenTree::Ident(ident) if is_brand => Ident::new(name, ident.span()).into(),
                    TokenTree::Group(group) => {
                        let mut inner = Group::new(group.delimiter(), self.named(group.stream(), name));
                        inner.set_span(group.span());
                        inner.into()
                    }
                    other => other,
                }
            })
            .collect()
    }
}
