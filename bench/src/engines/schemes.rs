//! Regions on every scheme: the library's own and the baselines, on a medium whose fences are counted.

use super::failed;
use crate::args::Form;
use crate::engine::Result;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use twinpage::{Options, Region, Stores};
use twinpage_baselines::AnyScheme;
use twinpage_core::{
    Cause, Flush, LineMask, Medium, Offset, PageLines, Path as Waits, Recovered, SchemeKind, Setup,
};

/// Fences since the store was opened.
#[derive(Clone, Default, Debug)]
pub(super) struct Fences(Arc<AtomicU64>);

impl Fences {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Form {
    fn set(self, options: Options) -> Options {
        let options = self
            .scheme
            .iter()
            .fold(options, |options, &kind| options.scheme(kind));
        self.checksums
            .iter()
            .fold(options, |options, &on| options.checksums(on))
    }
}

/// Opens the region in its form, with a baseline by the same road as with a scheme of the library.
pub(crate) fn open(options: Options, path: &Path, form: Form) -> Result<Region> {
    match form.scheme {
        Some(kind) if !SchemeKind::PRODUCTS.contains(&kind) => {
            open_counted(options, path, form, &Fences::default())
        }
        _ => form.set(options).open(path).map_err(failed),
    }
}

/// The same, and its fences are counted.
pub(super) fn open_counted(options: Options, path: &Path, form: Form, fences: &Fences) -> Result<Region> {
    form.set(options)
        .open_with(path, &CountedSchemes(fences.clone()))
        .map_err(failed)
}

/// The library's own stores and the baselines.
struct CountedSchemes(Fences);

impl CountedSchemes {
    fn counted<M>(&self, medium: M) -> Counted<M> {
        Counted {
            medium,
            fences: self.0.clone(),
        }
    }
}

impl Stores for CountedSchemes {
    type Scheme<M: Medium + Send + 'static> = AnyScheme<Counted<M>>;

    fn create<M: Medium + Send + 'static>(
        &self,
        kind: SchemeKind,
        medium: M,
        setup: &Setup,
    ) -> twinpage_core::Result<AnyScheme<Counted<M>>> {
        AnyScheme::create(kind, self.counted(medium), &setup.into())
    }

    fn recover<M: Medium + Send + 'static>(
        &self,
        medium: M,
    ) -> twinpage_core::Result<(AnyScheme<Counted<M>>, Recovered)> {
        AnyScheme::recover(self.counted(medium))
    }
}

/// A medium that counts its fences.
#[derive(Debug)]
pub(crate) struct Counted<M> {
    medium: M,
    fences: Fences,
}

impl<M: Medium> Medium for Counted<M> {
    fn hint(&self, cause: Cause, path: Waits) {
        self.medium.hint(cause, path);
    }
    fn accessed(&self, bytes: usize) {
        self.medium.accessed(bytes);
    }
    fn len(&self) -> u64 {
        self.medium.len()
    }
    fn grow(&mut self, len: u64) -> twinpage_core::Result<()> {
        self.medium.grow(len)
    }
    fn read(&self, at: Offset, into: &mut [u8]) -> twinpage_core::Result<()> {
        self.medium.read(at, into)
    }
    #[inline]
    fn view(&self, at: Offset, len: usize) -> Option<&[u8]> {
        self.medium.view(at, len)
    }
    #[inline]
    fn write(&mut self, at: Offset, bytes: &[u8]) -> twinpage_core::Result<()> {
        self.medium.write(at, bytes)
    }
    #[inline]
    fn write_lines(
        &mut self,
        page_at: Offset,
        chosen: LineMask,
        from: &PageLines<'_>,
    ) -> twinpage_core::Result<()> {
        self.medium.write_lines(page_at, chosen, from)
    }
    fn discard(&mut self, range: Range<Offset>) -> twinpage_core::Result<()> {
        self.medium.discard(range)
    }
    fn hand_over(&mut self) -> twinpage_core::Result<()> {
        self.medium.hand_over()
    }
    fn fence(&mut self) -> twinpage_core::Result<()> {
        self.fences.0.fetch_add(1, Relaxed);
        self.medium.fence()
    }
    fn begin_fence(&mut self) -> twinpage_core::Result<Option<Arc<dyn Flush>>> {
        self.fences.0.fetch_add(1, Relaxed);
        self.medium.begin_fence()
    }
    fn end_fence(&mut self, flushed: io::Result<()>) -> twinpage_core::Result<()> {
        self.medium.end_fence(flushed)
    }
    fn atom(&self) -> usize {
        self.medium.atom()
    }
}
