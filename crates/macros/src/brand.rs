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

    /// The generics of the impl: each type parameter has the bound, and what it is in a region has its own ones and those
    /// of the `where` clause.
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
        let parameters: Vec<&Ident> = input.generics.type_params().map(|p| &p.ident).collect();
        let own = input.generics.where_clause.iter().flat_map(|own| &own.predicates);
        in_region.extend(
            own.clone()
                .filter_map(|bound| self.bound_in_region(bound, &parameters)),
        );
        let bounds = generics.make_where_clause();
        let family = |bound: &WherePredicate| -> WherePredicate {
            let bound = self.named_static(quote!(#bound));
            parse_quote!(#bound)
        };
        bounds.predicates = own.map(family).collect();
        bounds.predicates.extend(in_region);
        generics
    }

    /// A bound of the `where` clause, for what its types are in a region; none if they are the same everywhere.
    fn bound_in_region(&self, bound: &WherePredicate, parameters: &[&Ident]) -> Option<WherePredicate> {
        let WherePredicate::Type(bound) = bound else {
            return None;
        };
        let (ty, bounds) = (&bound.bounded_ty, &bound.bounds);
        let lifetimes = bound.lifetimes.iter().flat_map(|bound| &bound.lifetimes);
        let said = [quote!(#ty), quote!(#bounds)];
        let member = |said: TokenStream| in_region(self.named(said, "twinpage"), parameters);
        let [Some(ty), Some(bounds)] = said.clone().map(member) else {
            return None;
        };
        let is_other = said.map(|said| said.to_string()) != [&ty, &bounds].map(ToString::to_string);
        is_other.then(|| parse_quote!(for<'twinpage, #(#lifetimes),*> #ty: #bounds))
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

/// A type with each parameter as it is in a region; none if it has a path that begins with one.
pub(crate) fn in_region(ty: TokenStream, parameters: &[&Ident]) -> Option<TokenStream> {
    let mut tokens = ty.into_iter().peekable();
    let mut member = TokenStream::new();
    let mut after_colons = false;
    while let Some(token) = tokens.next() {
        let colons = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == ':');
        match token {
            TokenTree::Ident(ident) if !after_colons && parameters.contains(&&ident) => {
                if matches!(tokens.peek(), Some(TokenTree::Punct(punct)) if punct.as_char() == ':') {
                    return None;
                }
                member.extend(quote!(::twinpage::persist::Of<'twinpage, #ident>));
            }
            TokenTree::Group(group) => {
                let inner = in_region(group.stream(), parameters)?;
                member.extend([TokenTree::from(Group::new(group.delimiter(), inner))]);
            }
            other => member.extend([other]),
        }
        after_colons = colons;
    }
    Some(member)
}
