//! The scheme of a product: the dual page, or packed lines over it; and how another takes its place.
//!
//! * What lies on the medium says which of the two made it, so that recovery needs no name.

use crate::dual_page::{self, DualPage};
use crate::error::{Error, Result};
use crate::geometry::{Geometry, LINES_PER_PAGE, LineMask, PageId, PageLines};
use crate::kind::SchemeKind;
use crate::medium::Medium;
use crate::packed::{self, Packed, is_packed};
use crate::scheme::{
    Commit, Damage, Epoch, FoldHints, Idle, Info, Pressure, Recovered, Scheme, Traffic, forward_scheme,
};
use std::io;
use std::ops::Range;

/// How a store is made, by the lines and pages that the caller sees: [`SchemeKind::Packed`] cuts the medium into lines
/// 64 times as large.
pub type Setup = dual_page::Options;

/// The same for the scheme below packed lines.
fn below_packed(setup: &Setup) -> Result<Setup> {
    let (line, extent) = (setup.geometry.page_bytes(), setup.geometry.extent_bytes());
    let extent = extent.next_multiple_of(line * LINES_PER_PAGE);
    let geometry = Geometry::new(line as u32, extent as u32)?;
    Ok(Setup { geometry, ..*setup })
}

/// A store of a product.
#[derive(Debug)]
pub enum ProductScheme<M> {
    /// [`SchemeKind::DualPage`].
    DualPage(Box<DualPage<M>>),
    /// [`SchemeKind::Packed`].
    Packed(Box<Packed<DualPage<M>>>),
}

/// The same expression, whichever scheme it is.
macro_rules! each {
    ($any:expr, $store:ident => $do:expr) => {
        match $any {
            ProductScheme::DualPage($store) => $do,
            ProductScheme::Packed($store) => $do,
        }
    };
}

impl<M: Medium> ProductScheme<M> {
    /// A new store on `medium`, whatever was there before.
    ///
    /// # Errors
    /// Those of the scheme's own `create`; [`Error::Invalid`] for a baseline, which no product opens.
    pub fn create(kind: SchemeKind, medium: M, setup: &Setup) -> Result<ProductScheme<M>> {
        Ok(match kind {
            SchemeKind::DualPage => ProductScheme::DualPage(Box::new(DualPage::create(medium, setup)?)),
            SchemeKind::Packed => {
                let below = DualPage::create(medium, &below_packed(setup)?)?;
                let options = packed::Options {
                    id: setup.id,
                    ..packed::Options::default()
                };
                ProductScheme::Packed(Box::new(Packed::create(below, &options)?))
            }
            baseline => return Err(Error::Invalid(baseline.is_elsewhere())),
        })
    }

    /// The checkpoint on `medium`, exactly as its last durable commit left it.
    ///
    /// # Errors
    /// [`Error::Damaged`] and [`Error::Foreign`] name the fault and its place; nothing is written then.
    pub fn recover(medium: M) -> Result<(ProductScheme<M>, Recovered)> {
        let (store, found) = DualPage::recover(medium)?;
        if is_packed(&found.context) {
            let (store, found) = Packed::over(store, found)?;
            return Ok((ProductScheme::Packed(Box::new(store)), found));
        }
        Ok((ProductScheme::DualPage(Box::new(store)), found))
    }

    /// The medium.
    pub fn medium(&self) -> &M {
        each!(self, store => store.medium())
    }
}

/// Where stores come from: those of the products, or of a crate with other schemes.
pub trait Stores {
    /// A store on a medium.
    type Scheme<M: Medium + Send + 'static>: Idle + Send + 'static;

    /// A new store.
    ///
    /// # Errors
    /// Those of the scheme.
    fn create<M: Medium + Send + 'static>(
        &self,
        kind: SchemeKind,
        medium: M,
        setup: &Setup,
    ) -> Result<Self::Scheme<M>>;

    /// The store on a medium.
    ///
    /// # Errors
    /// Those of the scheme.
    fn recover<M: Medium + Send + 'static>(&self, medium: M) -> Result<(Self::Scheme<M>, Recovered)>;
}

impl<M: Medium> Scheme for ProductScheme<M> {
    forward_scheme!(each);
}

impl<M: Medium> Idle for ProductScheme<M> {
    fn begin_commit(&mut self, context: &[u8]) -> Result<Commit> {
        each!(self, store => store.begin_commit(context))
    }
    fn end_commit(&mut self, flushed: io::Result<()>) -> Result<Epoch> {
        each!(self, store => store.end_commit(flushed))
    }
    fn traffic(&self) -> Traffic {
        each!(self, store => store.traffic())
    }
    fn give_back(&mut self) -> Result<bool> {
        each!(self, store => store.give_back())
    }
}
