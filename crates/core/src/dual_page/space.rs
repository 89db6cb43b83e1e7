//! The extents of the medium: one growing sequence of equal pieces, each with one role.
//!
//! * Extent 0 holds the superblock; every other is free or belongs to one part of the scheme.
//! * The use of an extent is not written with it: recovery finds it from the references to it.
//!   An extent without a reference is free.
//! * Free extents are used before the medium grows; the medium grows by several at a time.

use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::medium::{Medium, Offset};
use std::collections::BTreeSet;
use std::ops::Range;

/// What an extent is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Free,
    Superblock,
    /// Part of a slot: a snapshot and its journal.
    Slot,
    /// Base pages.
    Base,
    /// Derivative pages; the number is its place in the pool.
    Pool(u32),
    /// Lines that found no derivative page.
    Fallback,
}

/// The most the medium grows by at once, in extents.
const GROWTH: u64 = 32;

/// The owner of each extent.
#[derive(Debug)]
pub(super) struct Space {
    extent_bytes: u64,
    /// Extents there may be: a page of the medium is named by 32 bits.
    limit: u64,
    roles: Vec<Role>,
    free: BTreeSet<u32>,
    /// Extents from here on were never used since the medium grew over them.
    virgin_from: u32,
}

impl Space {
    /// The space of a medium of `len` bytes, all free but the superblock. Nothing of it is virgin.
    pub(super) fn new(geometry: Geometry, len: u64) -> Space {
        let extent_bytes = geometry.extent_bytes() as u64;
        let limit = u64::from(u32::MAX) / geometry.extent_pages();
        let mut roles = vec![Role::Free; (len / extent_bytes).min(limit) as usize];
        if let Some(first) = roles.first_mut() {
            *first = Role::Superblock;
        }
        Space {
            extent_bytes,
            limit,
            free: (1..roles.len() as u32).collect(),
            roles,
            // Part of an extent at the end, whatever wrote it, need not be zero either.
            virgin_from: len.div_ceil(extent_bytes).min(limit) as u32,
        }
    }

    /// Extents on the medium.
    pub(super) fn extents(&self) -> u32 {
        self.roles.len() as u32
    }

    /// Where an extent lies.
    pub(super) fn offset(&self, extent: u32) -> Offset {
        u64::from(extent) * self.extent_bytes
    }

    /// The extent a byte is in.
    pub(super) fn extent_of(&self, at: Offset) -> u64 {
        at / self.extent_bytes
    }

    /// What an extent is used for, if it is on the medium.
    pub(super) fn role(&self, extent: u64) -> Option<Role> {
        self.roles.get(usize::try_from(extent).ok()?).copied()
    }

    /// Gives a used extent another number in its role.
    pub(super) fn set_role(&mut self, extent: u32, role: Role) {
        assert_ne!(self.roles[extent as usize], Role::Free, "extent {extent} is free");
        self.roles[extent as usize] = role;
    }

    /// Takes an extent that is referred to. False if it is not on the medium or taken.
    pub(super) fn occupy(&mut self, extent: u64, role: Role) -> bool {
        let Some(extent) = u32::try_from(extent)
            .ok()
            .filter(|extent| self.free.remove(extent))
        else {
            return false;
        };
        self.roles[extent as usize] = role;
        true
    }

    /// The last reference to the extent is gone.
    pub(super) fn vacate(&mut self, extent: u32) {
        self.roles[extent as usize] = Role::Free;
        self.free.insert(extent);
    }

    /// A free extent, if there is one without growing.
    pub(super) fn claim_free(&mut self, role: Role) -> Option<u32> {
        let extent = *self.free.first()?;
        self.occupy(extent.into(), role).then_some(extent)
    }

    /// A free extent, and whether it reads as zero for sure.
    ///
    /// # Errors
    /// [`Error::Full`] when there is none and the medium cannot grow.
    pub(super) fn claim(&mut self, medium: &mut impl Medium, role: Role) -> Result<(u32, bool)> {
        if self.free.is_empty() {
            self.grow(medium, 1)?;
        }
        let extent = self.claim_free(role).ok_or_else(|| self.full(1))?;
        let virgin = extent >= self.virgin_from;
        self.virgin_from = self.virgin_from.max(extent + 1);
        Ok((extent, virgin))
    }

    /// `count` free extents in a row; the first is returned.
    ///
    /// # Errors
    /// As [`Space::claim`].
    pub(super) fn claim_run(&mut self, medium: &mut impl Medium, count: u32, role: Role) -> Result<u32> {
        let first = match self.find_run(count) {
            Some(first) => first,
            None => {
                let tail = (0..self.extents())
                    .rev()
                    .take_while(|extent| self.free.contains(extent))
                    .count();
                self.grow(medium, u64::from(count) - tail as u64)?;
                self.find_run(count).ok_or_else(|| self.full(count.into()))?
            }
        };
        for extent in first..first + count {
            self.occupy(extent.into(), role);
        }
        self.virgin_from = self.virgin_from.max(first + count);
        Ok(first)
    }

    fn find_run(&self, count: u32) -> Option<u32> {
        let mut run = 0..0;
        for &extent in &self.free {
            run = if extent == run.end {
                run.start..extent + 1
            } else {
                extent..extent + 1
            };
            if run.len() >= count as usize {
                return Some(run.start);
            }
        }
        None
    }

    /// Gives an extent without a reference back to the medium.
    ///
    /// # Errors
    /// As [`Medium::discard`].
    pub(super) fn release(&mut self, medium: &mut impl Medium, extent: u32) -> Result<()> {
        self.vacate(extent);
        medium.discard(self.bytes(extent))
    }

    /// The bytes of an extent.
    pub(super) fn bytes(&self, extent: u32) -> Range<Offset> {
        self.offset(extent)..self.offset(extent) + self.extent_bytes
    }

    /// Grows by `needed` extents, and some more where the medium lets it.
    fn grow(&mut self, medium: &mut impl Medium, needed: u64) -> Result<()> {
        let have = u64::from(self.extents());
        let spare = (have / 8).clamp(needed, GROWTH.max(needed));
        let extents = match self.grow_to(medium, have + spare) {
            Err(Error::Full { .. }) if spare > needed => self.grow_to(medium, have + needed)?,
            other => other?,
        };
        self.roles.resize(extents as usize, Role::Free);
        self.free.extend(have as u32..extents as u32);
        Ok(())
    }

    fn grow_to(&self, medium: &mut impl Medium, extents: u64) -> Result<u64> {
        if extents > self.limit {
            return Err(self.full(extents - u64::from(self.extents())));
        }
        medium.grow(extents * self.extent_bytes).map(|()| extents)
    }

    fn full(&self, extents: u64) -> Error {
        Error::Full {
            what: format!("the store of {} extents", self.extents()),
            needed: extents * self.extent_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::Image;

    fn space(limit: u64) -> (Space, Image) {
        let mut medium = Image::new(8).limited(limit * 4096);
        medium.grow(4096).unwrap();
        (Space::new(Geometry::new(64, 4096).unwrap(), 4096), medium)
    }

    #[test]
    fn free_extents_are_used_before_the_medium_grows() {
        let (mut space, mut medium) = space(5);
        assert_eq!(space.claim(&mut medium, Role::Base).unwrap(), (1, true));
        assert_eq!(space.claim(&mut medium, Role::Base).unwrap(), (2, true));
        space.release(&mut medium, 1).unwrap();
        assert_eq!(
            space.claim(&mut medium, Role::Base).unwrap(),
            (1, false),
            "it was used before"
        );
        assert_eq!(space.claim_run(&mut medium, 2, Role::Slot).unwrap(), 3);
        assert!(matches!(
            space.claim(&mut medium, Role::Base),
            Err(Error::Full { .. })
        ));
        assert_eq!(medium.len(), 5 * 4096);
    }

    #[test]
    fn what_a_partial_extent_holds_is_not_zero_for_sure() {
        let mut medium = Image::from_bytes(vec![1; 4096 + 5], 8);
        let mut space = Space::new(Geometry::new(64, 4096).unwrap(), medium.len());
        assert_eq!(space.claim(&mut medium, Role::Base).unwrap(), (1, false));
        assert_eq!(space.claim(&mut medium, Role::Base).unwrap(), (2, true));
    }

    #[test]
    fn a_run_may_begin_in_free_extents_and_end_in_new_ones() {
        let (mut space, mut medium) = space(9);
        assert_eq!(space.claim_run(&mut medium, 3, Role::Slot).unwrap(), 1);
        space.release(&mut medium, 3).unwrap();
        assert_eq!(space.claim_run(&mut medium, 3, Role::Slot).unwrap(), 3);
        assert!(space.claim_run(&mut medium, 9, Role::Slot).is_err());
        assert!(
            !space.occupy(3, Role::Base) && !space.occupy(0, Role::Base) && !space.occupy(99, Role::Base)
        );
    }
}
