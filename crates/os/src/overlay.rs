//! A medium to look at: what is written to it stays in this process's memory.
//!
//! Recovery may have to finish what a crash left half done, and it does so by writing. Over a medium
//! opened for looking only, those writes land here, reads see them, and the file stays as it was.

use std::collections::BTreeMap;
use std::ops::Range;
use twinpage_core::{Medium, Offset, Result};

const BLOCK: u64 = 4096;

/// A medium with this process's writes over it. See the module.
#[derive(Debug)]
pub struct Overlay<M> {
    under: M,
    len: u64,
    /// Blocks that were written, whole.
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl<M: Medium> Overlay<M> {
    /// Nothing is written yet.
    pub fn new(under: M) -> Overlay<M> {
        Overlay {
            len: under.len(),
            under,
            blocks: BTreeMap::new(),
        }
    }

    /// What lies below; behind its end, zeros.
    fn read_under(&self, at: Offset, into: &mut [u8]) -> Result<()> {
        let there = self.under.len().saturating_sub(at).min(into.len() as u64) as usize;
        let (inside, behind) = into.split_at_mut(there);
        behind.fill(0);
        if inside.is_empty() {
            return Ok(());
        }
        self.under.read(at, inside)
    }
}

/// The pieces of `range`, block by block: which block, and where in it.
fn pieces(range: Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> {
    (range.start / BLOCK..range.end.div_ceil(BLOCK)).map(move |block| {
        let first = block * BLOCK;
        let from = range.start.max(first) - first;
        let to = range.end.min(first + BLOCK) - first;
        (block, from as usize..to as usize)
    })
}

impl<M: Medium> Medium for Overlay<M> {
    fn len(&self) -> u64 {
        self.len
    }

    fn grow(&mut self, len: u64) -> Result<()> {
        self.len = self.len.max(len);
        Ok(())
    }

    fn read(&self, at: Offset, into: &mut [u8]) -> Result<()> {
        let end = at.saturating_add(into.len() as u64);
        if end > self.len {
            return self.under.read(at, into); // says what is wrong
        }
        self.read_under(at, into)?;
        for (&block, bytes) in self.blocks.range(at / BLOCK..end.div_ceil(BLOCK)) {
            let first = block * BLOCK;
            let (from, to) = (at.max(first), end.min(first + BLOCK));
            into[(from - at) as usize..(to - at) as usize]
                .copy_from_slice(&bytes[(from - first) as usize..(to - first) as usize]);
        }
        Ok(())
    }

    fn view(&self, at: Offset, len: usize) -> Option<&[u8]> {
        let mut written = self
            .blocks
            .range(at / BLOCK..at.checked_add(len as u64)?.div_ceil(BLOCK));
        written
            .next()
            .is_none()
            .then(|| self.under.view(at, len))
            .flatten()
    }

    fn write(&mut self, at: Offset, mut bytes: &[u8]) -> Result<()> {
        for (block, inside) in pieces(at..at.saturating_add(bytes.len() as u64)) {
            let (piece, rest) = bytes.split_at(inside.len());
            bytes = rest;
            if !self.blocks.contains_key(&block) {
                let mut whole = vec![0; BLOCK as usize];
                self.read_under(block * BLOCK, &mut whole)?;
                self.blocks.insert(block, whole);
            }
            if let Some(whole) = self.blocks.get_mut(&block) {
                whole[inside].copy_from_slice(piece);
            }
        }
        Ok(())
    }

    fn fence(&mut self) -> Result<()> {
        Ok(())
    }

    fn atom(&self) -> usize {
        self.under.atom()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, AnyMedium, Durability};

    #[test]
    fn writes_are_seen_and_stay_here() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let old: Vec<u8> = (0..20_000u32).map(|n| n as u8).collect();
        std::fs::write(&path, &old).unwrap();
        let under = AnyMedium::open(&path, Durability::Memory, Access::ReadOnly).unwrap();
        let mut overlay = Overlay::new(under);
        let mut want = old.clone();
        for (at, len) in [(0, 1), (4090, 10), (8192, 4096), (19_999, 1), (100, 15_000)] {
            let new: Vec<u8> = (0..len).map(|n| (n * 7 + at) as u8).collect();
            overlay.write(at as u64, &new).unwrap();
            want[at..at + len].copy_from_slice(&new);
            let mut got = vec![0; want.len()];
            overlay.read(0, &mut got).unwrap();
            assert!(got == want, "after a write of {len} bytes at {at}");
        }
        assert!(overlay.read(19_999, &mut [0; 2]).is_err());
        overlay.grow(30_000).unwrap();
        overlay.write(25_000, b"behind").unwrap();
        let mut got = [1; 10];
        overlay.read(24_998, &mut got).unwrap();
        assert_eq!(&got, b"\0\0behind\0\0");
        assert_eq!(std::fs::read(&path).unwrap(), old);
    }
}
