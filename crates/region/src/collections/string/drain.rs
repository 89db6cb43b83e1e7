//! Taking a part of a text out, and bytes that are no text.

use super::String;
use crate::collections::Vec;
use std::fmt;
use std::iter::FusedIterator;
use std::ops::Range;

/// The characters of a part of a text, taken out: [`String::drain`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::String;
///
/// let mut text = String::from_in("twin page", heap);
/// assert_eq!(text.drain(..5).as_str(), "twin ");
/// assert_eq!(text, "page");
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Drain<'a, 'r> {
    text: &'a mut String<'r>,
    /// What is taken out when this is dropped.
    whole: Range<usize>,
    left: Range<usize>,
}

impl<'a, 'r> Drain<'a, 'r> {
    pub(super) fn new(text: &'a mut String<'r>, whole: Range<usize>) -> Drain<'a, 'r> {
        let left = whole.clone();
        Drain { text, whole, left }
    }

    /// What is left.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text[self.left.clone()]
    }
}

impl Iterator for Drain<'_, '_> {
    type Item = char;
    fn next(&mut self) -> Option<char> {
        let first = self.as_str().chars().next()?;
        self.left.start += first.len_utf8();
        Some(first)
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.as_str().chars().size_hint()
    }
}

impl DoubleEndedIterator for Drain<'_, '_> {
    fn next_back(&mut self) -> Option<char> {
        let last = self.as_str().chars().next_back()?;
        self.left.end -= last.len_utf8();
        Some(last)
    }
}

impl FusedIterator for Drain<'_, '_> {}

impl Drop for Drain<'_, '_> {
    fn drop(&mut self) {
        self.text.bytes.drain(self.whole.clone());
    }
}

/// Bytes that are no text, given back: [`String::from_utf8`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::{String, Vec};
///
/// let error = String::from_utf8(Vec::from_iter_in([b'a', 0xFF], heap)).unwrap_err();
/// assert_eq!((error.utf8_error().valid_up_to(), &error.into_bytes()[..]), (1, &[b'a', 0xFF][..]));
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(PartialEq, Eq, Debug)]
pub struct FromUtf8Error<'r> {
    pub(super) bytes: Vec<'r, u8>,
    pub(super) error: std::str::Utf8Error,
}

impl<'r> FromUtf8Error<'r> {
    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes back.
    #[must_use]
    pub fn into_bytes(self) -> Vec<'r, u8> {
        self.bytes
    }

    /// Where they are no text.
    #[must_use]
    pub fn utf8_error(&self) -> std::str::Utf8Error {
        self.error
    }
}

impl fmt::Display for FromUtf8Error<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for FromUtf8Error<'_> {}
