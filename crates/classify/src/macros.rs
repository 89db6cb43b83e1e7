//! The arguments of macros that are known.

use proc_macro2::TokenTree;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Expr, Macro, Pat, Token};

/// The arguments of a macro: expressions with commas, `value; count`, or `value, pattern if guard`.
pub(crate) struct Arguments {
    pub(crate) values: Vec<Expr>,
    pub(crate) pattern: Option<Pat>,
}

impl Arguments {
    /// # Errors
    /// When they are in none of these forms.
    pub(crate) fn of(mac: &Macro) -> syn::Result<Arguments> {
        Arguments::parse_all.parse2(mac.tokens.clone())
    }

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

/// The names that the format strings of a macro use: `{NAME}`.
pub(crate) fn captured(mac: &Macro) -> Vec<String> {
    let literals = mac.tokens.clone().into_iter().filter_map(|token| match token {
        TokenTree::Literal(literal) => Some(literal.to_string().replace("{{", "")),
        _ => None,
    });
    let names_in = |literal: String| -> Vec<String> {
        let holes = literal.split('{').skip(1);
        let name = |hole: &str| {
            hole.chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect()
        };
        holes.map(name).collect()
    };
    literals.flat_map(names_in).collect()
}
