//! `#[derive(Persist)]`: one description per type, built from the fields' own descriptions.
//!
//! * Each field's type must be `Persist`; the bound is asked for at the field, so that the error is there.
//! * Each field of the type in a region is what the field's own type is there: a field that says `'static` would bring
//!   the memory of another place into it.
//! * Nothing is guessed about a layout: offsets of a struct are the compiler's, those of an enum with
//!   fields follow from its `repr` (Rust reference, "Primitive representation of field-carrying enums").

use crate::brand::{Brand, in_region};
use darling::{Error, FromDeriveInput, Result};
use proc_macro2::{Punct, Spacing, TokenStream, TokenTree};
use quote::{format_ident, quote, quote_spanned};
use syn::parse::{ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{
    Data, DataEnum, DataStruct, DeriveInput, Field, Fields, GenericParam, Ident, LitStr, Member, Meta, Token,
    Type, parse_quote,
};

/// What the user may say.
#[derive(FromDeriveInput)]
#[darling(attributes(persist), supports(any))]
struct Options {
    name: Option<String>,
    #[darling(multiple)]
    was: Vec<String>,
    version: Option<u32>,
    /// Set by [`take_from`].
    #[darling(skip)]
    from: Option<Type>,
    with: Option<syn::Path>,
    #[darling(default)]
    deserialize: bool,
    #[darling(default)]
    default: bool,
}

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let mut rest = input.clone();
    let from = take_from(&mut rest)?;
    let options = Options {
        from,
        ..Options::from_derive_input(&rest)?
    };
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
    let brand = Brand::of(input)?;
    data_fields(&input.data).try_for_each(says_no_static)?;
    let (previous, migrate) = migration(&options, &brand)?;
    let (name, version) = (name(input, &options), options.version.unwrap_or(1));
    let ident = &input.ident;
    let generics = brand.generics(input, &parse_quote!(::twinpage::persist::Persist));
    let (generics, _, bounds) = generics.split_for_impl();
    let (family, member) = (brand.arguments(input, false), brand.arguments(input, true));
    let empty = empty(input, &brand, &family, &member);
    let default = match options.default {
        true => default_in(input, &brand)?,
        false => TokenStream::new(),
    };
    let deserialize = match options.deserialize {
        true => crate::deserialize::expand(input, &brand)?,
        false => TokenStream::new(),
    };
    let layout = brand.named_static(layout);
    let in_region = fields_in_region(input, &brand);
    Ok(quote! {
        #empty
        #default
        #deserialize

        // SAFETY: every field is `Persist`, in the type in a region it is what that says, and the description names all.
        #[automatically_derived]
        unsafe impl #generics ::twinpage::persist::Persist for #ident #family #bounds {
            type In<'twinpage> = #ident #member;
            type Previous = #previous;
            const VERSION: u32 = #version;
            fn name() -> ::twinpage::persist::Name {
                #name
            }
            fn layout(types: &mut ::twinpage::persist::Types) -> ::twinpage::persist::Kind {
                #layout
            }
            fn migrate<'twinpage>(
                old: ::twinpage::persist::Of<'twinpage, Self::Previous>,
                heap: ::twinpage::Heap<'twinpage>,
            ) -> Self::In<'twinpage> {
                #in_region
                #migrate
            }
        }
    })
}

/// Takes `from = Type` out of the attributes. A type with a lifetime is no expression, which values of other options
/// are parsed as.
fn take_from(input: &mut DeriveInput) -> Result<Option<Type>> {
    let mut from = None;
    for attribute in &mut input.attrs {
        let Meta::List(list) = &mut attribute.meta else {
            continue;
        };
        if list.path.is_ident("persist") {
            let take = |stream: ParseStream<'_>| without_from(stream, &mut from);
            list.tokens = take.parse2(list.tokens.clone())?;
        }
    }
    Ok(from)
}

/// The options but for `from = Type`, which is put into `from`.
fn without_from(options: ParseStream<'_>, from: &mut Option<Type>) -> syn::Result<TokenStream> {
    let mut rest = TokenStream::new();
    while !options.is_empty() {
        let name = options.fork().parse::<Ident>();
        if let Ok(name) = name.as_ref()
            && name == "from"
            && options.peek2(Token![=])
        {
            options.parse::<Ident>()?;
            options.parse::<Token![=]>()?;
            let earlier = match options.peek(LitStr) {
                true => options.parse::<LitStr>()?.parse()?,
                false => options.parse()?,
            };
            if from.replace(earlier).is_some() {
                return Err(syn::Error::new(
                    name.span(),
                    "a type is made from one earlier type",
                ));
            }
        } else {
            while !options.is_empty() && !options.peek(Token![,]) {
                rest.extend([options.parse::<TokenTree>()?]);
            }
            rest.extend([TokenTree::from(Punct::new(',', Spacing::Alone))]);
        }
        if !options.is_empty() {
            options.parse::<Token![,]>()?;
        }
    }
    Ok(rest)
}

/// The type before this one, and how it becomes this one.
fn migration(options: &Options, brand: &Brand) -> Result<(TokenStream, TokenStream)> {
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
            brand.named_static(quote!(#from)),
            quote_spanned!(from.span()=> let _ = heap; ::core::convert::From::from(old)),
        )),
        (Some(from), Some(with)) => Ok((
            brand.named_static(quote!(#from)),
            quote_spanned!(with.span()=> #with(old, heap)),
        )),
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
                Some(quote!(::twinpage::persist::Name::new(::std::string::ToString::to_string(&#c))))
            }
            GenericParam::Lifetime(_) => None,
        })
        .collect();
    let was = &options.was;
    let defined = quote!(::twinpage::persist::Name::defined(::core::module_path!(), #own, &[#(#was),*]));
    match parameters.is_empty() {
        true => defined,
        false => quote!(#defined.with([#(#parameters),*])),
    }
}

/// The value of a struct whose fields all have one that holds nothing.
fn empty(input: &DeriveInput, brand: &Brand, family: &TokenStream, member: &TokenStream) -> TokenStream {
    let Data::Struct(data) = &input.data else {
        return TokenStream::new();
    };
    let ident = &input.ident;
    let mut generics = brand.generics(input, &parse_quote!(::twinpage::persist::Empty));
    let types: Vec<TokenStream> = data
        .fields
        .iter()
        .map(|field| {
            let ty = &field.ty;
            brand.named_static(quote!(#ty))
        })
        .collect();
    let parameters: Vec<&Ident> = input.generics.type_params().map(|p| &p.ident).collect();
    let bounds = generics.make_where_clause();
    for (field, family) in data.fields.iter().zip(&types) {
        let ty = &field.ty;
        if matches!(ty, Type::Path(path) if parameters.iter().any(|&p| path.path.is_ident(p))) {
            continue; // the parameter's own bound says it
        }
        let Some(member) = in_region(brand.named(quote!(#ty), "twinpage"), &parameters) else {
            return TokenStream::new(); // what a parameter's associated type is in a region is not known here
        };
        // `for`: so a type without parameters may fail to meet it. What it is in a region is said, as the compiler
        // looks no further than the bound.
        bounds.predicates.push(parse_quote! {
            for<'twinpage> #family: ::twinpage::persist::Empty + ::twinpage::persist::Persist<In<'twinpage> = #member>
        });
    }
    let (generics, _, bounds) = generics.split_for_impl();
    let members = data.fields.members();
    quote! {
        #[automatically_derived]
        impl #generics ::twinpage::persist::Empty for #ident #family #bounds {
            fn empty<'twinpage>(heap: ::twinpage::Heap<'twinpage>) -> #ident #member {
                let _ = heap;
                #ident { #(#members: <#types as ::twinpage::persist::Empty>::empty(heap)),* }
            }
        }
    }
}

/// The value of a struct with a brand whose fields all have a default that is made on a heap.
fn default_in(input: &DeriveInput, brand: &Brand) -> Result<TokenStream> {
    let ident = &input.ident;
    let (Data::Struct(data), true) = (&input.data, brand.is_there()) else {
        let why = "`default` is for structs that own memory of their region: `#[derive(Default)]` does for all else";
        return Err(Error::custom(why).with_span(ident));
    };
    let mut generics = input.generics.clone();
    let brand = input.generics.lifetimes().next();
    let types: Vec<&Type> = data.fields.iter().map(|field| &field.ty).collect();
    let members = data.fields.members();
    let bounds = generics.make_where_clause();
    for ty in &types {
        bounds
            .predicates
            .push(parse_quote!(#ty: ::twinpage::collections::DefaultIn<#brand>));
    }
    let (implemented, own, bounds) = generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #implemented ::twinpage::collections::DefaultIn<#brand> for #ident #own #bounds {
            fn default_in(heap: ::twinpage::Heap<#brand>) -> Self {
                #ident { #(#members: <#types as ::twinpage::collections::DefaultIn<#brand>>::default_in(heap)),* }
            }
        }
    })
}

/// All fields there are.
fn data_fields(data: &Data) -> Box<dyn Iterator<Item = &Field> + '_> {
    match data {
        Data::Struct(data) => Box::new(data.fields.iter()),
        Data::Enum(data) => Box::new(data.variants.iter().flat_map(|variant| &variant.fields)),
        Data::Union(_) => Box::new(std::iter::empty()),
    }
}

/// Refuses a field with the brand `'static` where its type says so itself. [`fields_in_region`] refuses what is behind
/// a name as well, in the compiler's words.
fn says_no_static(field: &Field) -> Result<()> {
    let ty = &field.ty;
    let text: String = quote!(#ty).to_string().split_whitespace().collect();
    if text.contains("PhantomData<")
        || !["<'static,", "<'static>"]
            .iter()
            .any(|brand| text.contains(brand))
    {
        return Ok(());
    }
    Err(Error::custom(
        "a field with the brand `'static` may have memory of any place: give the type a lifetime, the brand of its \
         region, and say that here (`struct Order<'r> { customer: String<'r> }`)",
    )
    .with_span(ty))
}

/// Code that compiles if each field of the type in a region is what the field's own type is there.
fn fields_in_region(input: &DeriveInput, brand: &Brand) -> TokenStream {
    let (ident, member) = (&input.ident, brand.arguments(input, true));
    let must_be = |field: &Field, at: TokenStream| {
        let ty = &field.ty;
        let family = brand.named_static(quote!(#ty));
        quote_spanned!(ty.span()=>
            ::twinpage::persist::FieldInRegion(#at, ::core::marker::PhantomData::<#family>).must_be::<'twinpage>();
        )
    };
    let looked_at = match &input.data {
        Data::Struct(data) => {
            let fields = data.fields.iter().zip(data.fields.members());
            let fields = fields.map(|(field, member)| must_be(field, quote!(&raw mut value.#member)));
            quote!(#(#fields)*)
        }
        Data::Enum(data) => {
            let variants = data.variants.iter().map(|variant| {
                let own = &variant.ident;
                let names: Vec<Ident> = (0..variant.fields.len())
                    .map(|n| format_ident!("field_{n}"))
                    .collect();
                let members = variant.fields.members();
                let fields = variant
                    .fields
                    .iter()
                    .zip(&names)
                    .map(|(field, name)| must_be(field, quote!(#name)));
                quote!(#ident::#own { #(#members: #names),* } => { #(#fields)* })
            });
            quote!(match value { #(#variants)* })
        }
        Data::Union(_) => TokenStream::new(),
    };
    quote! {
        let _ = |value: &mut #ident #member| {
            #[allow(unused_imports)]
            use ::twinpage::persist::{IsRefused as _, MustBe as _};
            #looked_at
        };
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
        let reprs = reprs(input)?;
        if let Some(wide) = reprs.iter().find(|repr| *repr == "u128" || *repr == "i128") {
            return Err(
                Error::custom("the tag of an enum in a region has at most 8 bytes: `#[repr(u64)]`")
                    .with_span(wide),
            );
        }
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
    let tag = quote!(::core::primitive::#tag); // a type of the program may have the integer's name
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
            let mut place = ::twinpage::persist::FieldOffset::after::<#tag>();
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

/// What `#[repr(..)]` says, but for what is in parentheses.
fn reprs(input: &DeriveInput) -> Result<Vec<Ident>> {
    let mut found = Vec::new();
    for attribute in input.attrs.iter().filter(|a| a.path().is_ident("repr")) {
        attribute.parse_nested_meta(|meta| {
            found.extend(meta.path.get_ident().cloned());
            if meta.input.peek(syn::token::Paren) {
                let content;
                syn::parenthesized!(content in meta.input);
                let _: TokenStream = content.parse()?;
            }
            Ok(())
        })?;
    }
    Ok(found)
}

/// The integer an enum with fields keeps its tag in.
fn integer_repr(input: &DeriveInput) -> Result<Ident> {
    const INTEGERS: [&str; 8] = ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"];
    let reprs = reprs(input)?;
    let with_c = reprs.iter().any(|repr| repr == "C");
    let tag = reprs
        .into_iter()
        .rfind(|repr| INTEGERS.iter().any(|integer| repr == integer));
    match tag {
        Some(tag) if !with_c => Ok(tag),
        _ => Err(Error::custom(
            "the layout of an enum with fields is the compiler's to change, and a region outlives the compiler; \
             fix it with `#[repr(u8)]` (or another integer, without C)",
        )
        .with_span(&input.ident)),
    }
}
