//! `#[derive(Persist)]`: one description per type, built from the fields' own descriptions.
//!
//! * Each field's type must be `Persist`; the bound is asked for at the field, so that the error is there.
//! * Nothing is guessed about a layout: offsets of a struct are the compiler's, those of an enum with
//!   fields follow from its `repr` (Rust reference, "Primitive representation of field-carrying enums").

use darling::{Error, FromDeriveInput, Result};
use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DataEnum, DataStruct, DeriveInput, Fields, GenericParam, Ident, Member, Type};

/// What the user may say.
#[derive(FromDeriveInput)]
#[darling(attributes(persist), supports(any))]
struct Options {
    name: Option<String>,
    version: Option<u32>,
    from: Option<Type>,
    with: Option<syn::Path>,
}

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let options = Options::from_derive_input(input)?;
    let layout = match &input.data {
        Data::Struct(data) => structure(data),
        Data::Enum(data) => enumeration(input, data)?,
        Data::Union(data) => {
            return Err(Error::custom(
                "a union cannot live in a region: nothing says which field it holds; use an enum with `#[repr(u8)]`",
            )
            .with_span(&data.union_token));
        }
    };
    let (previous, migrate) = migration(&options)?;
    let (name, version) = (name(input, &options), options.version.unwrap_or(1));
    let generics = bounded(input)?;
    let (generics, arguments, bounds) = generics.split_for_impl_parts(input);
    let ident = &input.ident;
    Ok(quote! {
        // SAFETY: every field is `Persist`, and the description names them all.
        #[automatically_derived]
        unsafe impl #generics ::twinpage::persist::Persist for #ident #arguments #bounds {
            type Previous = #previous;
            const VERSION: u32 = #version;
            fn name() -> ::std::string::String {
                #name
            }
            fn layout(types: &mut ::twinpage::persist::Types) -> ::twinpage::persist::Kind {
                #layout
            }
            fn migrate(old: Self::Previous, heap: ::twinpage::Heap) -> Self {
                #migrate
            }
        }
    })
}

/// The type before this one, and how it becomes this one.
fn migration(options: &Options) -> Result<(TokenStream, TokenStream)> {
    match (&options.from, &options.with) {
        (None, Some(with)) => {
            Err(Error::custom("say from which type: `from = V1, with = function`").with_span(with))
        }
        (None, None) => Ok((quote!(Self), quote!(let _ = heap; old))),
        (Some(from), _) if options.version.unwrap_or(1) < 2 => Err(Error::custom(
            "a type made from an earlier one says its own version: `version = 2, from = V1`",
        )
        .with_span(from)),
        (Some(from), None) => Ok((
            quote!(#from),
            quote_spanned!(from.span()=> let _ = heap; <Self as ::core::convert::From<#from>>::from(old)),
        )),
        (Some(from), Some(with)) => Ok((quote!(#from), quote_spanned!(with.span()=> #with(old, heap)))),
    }
}

/// `Name`, or `Name<A, B>` with the names of the parameters.
fn name(input: &DeriveInput, options: &Options) -> TokenStream {
    let own = options.name.clone().unwrap_or_else(|| input.ident.to_string());
    let parameters: Vec<TokenStream> = input
        .generics
        .params
        .iter()
        .filter_map(|p| match p {
            GenericParam::Type(t) => {
                let t = &t.ident;
                Some(quote!(<#t as ::twinpage::persist::Persist>::name()))
            }
            GenericParam::Const(c) => {
                let c = &c.ident;
                Some(quote!(::std::string::ToString::to_string(&#c)))
            }
            GenericParam::Lifetime(_) => None,
        })
        .collect();
    if parameters.is_empty() {
        quote!(::std::string::String::from(#own))
    } else {
        quote!(::std::format!("{}<{}>", #own, [#(#parameters),*].join(", ")))
    }
}

/// The generics of the impl: each type parameter must be `Persist`.
struct Bounded(syn::Generics);

fn bounded(input: &DeriveInput) -> Result<Bounded> {
    let mut generics = input.generics.clone();
    for parameter in &mut generics.params {
        match parameter {
            GenericParam::Lifetime(lifetime) => {
                return Err(Error::custom(
                    "a type with a lifetime borrows from somewhere, and what it borrows is gone after a restart; \
                     own the value, or keep a key or an index",
                )
                .with_span(lifetime));
            }
            GenericParam::Type(t) => t.bounds.push(syn::parse_quote!(::twinpage::persist::Persist)),
            GenericParam::Const(_) => {}
        }
    }
    Ok(Bounded(generics))
}

impl Bounded {
    fn split_for_impl_parts<'a>(
        &'a self,
        input: &'a DeriveInput,
    ) -> (
        syn::ImplGenerics<'a>,
        syn::TypeGenerics<'a>,
        Option<&'a syn::WhereClause>,
    ) {
        let (generics, _, bounds) = self.0.split_for_impl();
        (generics, input.generics.split_for_impl().1, bounds)
    }
}

fn structure(data: &DataStruct) -> TokenStream {
    let fields = data
        .fields
        .iter()
        .zip(data.fields.members())
        .map(|(field, member)| {
            let (ty, label) = (&field.ty, label(&member));
            quote_spanned!(ty.span()=> types.field::<#ty>(#label, ::core::mem::offset_of!(Self, #member)))
        });
    quote!(::twinpage::persist::Kind::Struct(::std::vec![#(#fields),*]))
}

fn label(member: &Member) -> String {
    match member {
        Member::Named(ident) => ident.to_string(),
        Member::Unnamed(index) => index.index.to_string(),
    }
}

fn enumeration(input: &DeriveInput, data: &DataEnum) -> Result<TokenStream> {
    if data.variants.is_empty() {
        return Err(
            Error::custom("an enum without variants has no value that could live in a region")
                .with_span(&input.ident),
        );
    }
    if data.variants.iter().all(|v| matches!(v.fields, Fields::Unit)) {
        let variants = data.variants.iter().map(|v| {
            let (ident, label) = (&v.ident, v.ident.to_string());
            quote!(::twinpage::persist::Variant::unit(#label, &Self::#ident))
        });
        return Ok(quote! {
            let _ = types;
            ::twinpage::persist::Kind::Enum {
                tag_bytes: ::core::mem::size_of::<Self>() as u64,
                variants: ::std::vec![#(#variants),*],
            }
        });
    }
    let tag = integer_repr(input)?;
    let mut variants = TokenStream::new();
    for variant in &data.variants {
        let label = variant.ident.to_string();
        let value = match &variant.discriminant {
            Some((_, value)) => quote!(let value: #tag = #value;),
            None => quote!(let value: #tag = next;),
        };
        let fields = variant
            .fields
            .iter()
            .zip(variant.fields.members())
            .map(|(field, member)| {
                let (ty, label) = (&field.ty, self::label(&member));
                quote_spanned!(ty.span()=> fields.push(place.next::<#ty>(types, #label));)
            });
        variants.extend(quote! {
            #value
            next = value.wrapping_add(1);
            let mut place = ::twinpage::persist::Place::after::<#tag>();
            let mut fields = ::std::vec::Vec::new();
            #(#fields)*
            variants.push(::twinpage::persist::Variant::new(#label, &value, fields));
        });
    }
    Ok(quote! {
        let mut variants = ::std::vec::Vec::new();
        #[allow(unused_assignments, unused_mut)]
        {
            let mut next: #tag = 0;
            #variants
        }
        ::twinpage::persist::Kind::Enum { tag_bytes: ::core::mem::size_of::<#tag>() as u64, variants }
    })
}

/// The integer an enum with fields keeps its tag in.
fn integer_repr(input: &DeriveInput) -> Result<Ident> {
    let mut found: Option<Ident> = None;
    let mut with_c = false;
    for attribute in input.attrs.iter().filter(|a| a.path().is_ident("repr")) {
        attribute.parse_nested_meta(|meta| {
            if let Some(ident) = meta.path.get_ident() {
                match ident.to_string().as_str() {
                    "u8" | "u16" | "u32" | "u64" | "i8" | "i16" | "i32" | "i64" => {
                        found = Some(ident.clone());
                    }
                    "C" => with_c = true,
                    _ => {}
                }
            }
            if meta.input.peek(syn::token::Paren) {
                let content;
                syn::parenthesized!(content in meta.input);
                let _: TokenStream = content.parse()?;
            }
            Ok(())
        })?;
    }
    match found {
        Some(tag) if !with_c => Ok(tag),
        _ => Err(Error::custom(
            "the layout of an enum with fields is the compiler's to change, and a region outlives the compiler; \
             fix it with `#[repr(u8)]` (or another integer, without C)",
        )
        .with_span(&input.ident)),
    }
}
