//! `#[persist(deserialize)]`: values are deserialized onto a heap.
//!
//! * A type without a brand has nothing on the heap: its own `serde::Deserialize` does it.
//! * A struct with a brand is deserialized field by field, by their names or in their order.

use crate::brand::Brand;
use darling::{Error, Result};
use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Fields};

pub(crate) fn expand(input: &DeriveInput, brand: &Brand) -> Result<TokenStream> {
    let ident = &input.ident;
    let refused = |why: &str| Err(Error::custom(why).with_span(ident));
    if input.generics.type_params().next().is_some() || input.generics.const_params().next().is_some() {
        return refused("`deserialize` is not derived for a type with parameters: implement `DeserializeIn`");
    }
    if !brand.is_there() {
        return Ok(quote! {
            #[automatically_derived]
            impl<'de> ::twinpage::collections::serialize::DeserializeIn<'de> for #ident {
                fn deserialize_in<'twinpage, D: ::twinpage::collections::serialize::serde::Deserializer<'de>>(
                    from: D,
                    _: ::twinpage::Heap<'twinpage>,
                ) -> ::core::result::Result<Self, D::Error> {
                    ::twinpage::collections::serialize::serde::Deserialize::deserialize(from)
                }
            }
        });
    }
    let fields = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => &fields.named,
            _ => return refused("`deserialize` is derived for structs whose fields have names"),
        },
        _ => {
            return refused(
                "`deserialize` is not derived for an enum that owns memory of its region: deserialize one that owns \
                 memory of the program, and make it from that",
            );
        }
    };
    let names: Vec<_> = fields.iter().filter_map(|field| field.ident.as_ref()).collect();
    let labels: Vec<_> = names.iter().map(|name| name.to_string()).collect();
    let types = fields.iter().map(|field| &field.ty);
    let types: Vec<_> = types.map(|ty| brand.named_static(quote!(#ty))).collect();
    let values: Vec<_> = (0..names.len())
        .map(|index| format_ident!("value_{index}"))
        .collect();
    let numbers: Vec<_> = (0..names.len()).collect();
    let own = ident.to_string();
    Ok(quote! {
        #[automatically_derived]
        impl<'de> ::twinpage::collections::serialize::DeserializeIn<'de> for #ident<'static> {
            fn deserialize_in<'twinpage, D: ::twinpage::collections::serialize::serde::Deserializer<'de>>(
                from: D,
                heap: ::twinpage::Heap<'twinpage>,
            ) -> ::core::result::Result<#ident<'twinpage>, D::Error> {
                use ::twinpage::collections::serialize::{FieldName, absent, element, serde::de};
                const NAMES: &[&str] = &[#(#labels),*];
                struct Made<'twinpage>(::twinpage::Heap<'twinpage>);
                impl<'de, 'twinpage> de::Visitor<'de> for Made<'twinpage> {
                    type Value = #ident<'twinpage>;
                    fn expecting(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                        f.write_str(::core::concat!("struct ", #own))
                    }
                    fn visit_seq<A: de::SeqAccess<'de>>(
                        self,
                        mut values: A,
                    ) -> ::core::result::Result<Self::Value, A::Error> {
                        ::core::result::Result::Ok(#ident {
                            #(#names: element(&mut values, self.0.seed::<#types>(), #numbers, &self)?),*
                        })
                    }
                    fn visit_map<A: de::MapAccess<'de>>(
                        self,
                        mut fields: A,
                    ) -> ::core::result::Result<Self::Value, A::Error> {
                        #(let mut #values = ::core::option::Option::None;)*
                        while let ::core::option::Option::Some(name) = fields.next_key_seed(FieldName(NAMES))? {
                            match name {
                                #(::core::option::Option::Some(#numbers) => {
                                    let value = fields.next_value_seed(self.0.seed::<#types>())?;
                                    if #values.replace(value).is_some() {
                                        return ::core::result::Result::Err(de::Error::duplicate_field(#labels));
                                    }
                                })*
                                _ => {
                                    fields.next_value::<de::IgnoredAny>()?;
                                }
                            }
                        }
                        ::core::result::Result::Ok(#ident {
                            #(#names: match #values {
                                ::core::option::Option::Some(value) => value,
                                ::core::option::Option::None => absent::<#types, _>(#labels, self.0)?,
                            }),*
                        })
                    }
                }
                from.deserialize_struct(#own, NAMES, Made(heap))
            }
        }
    })
}
