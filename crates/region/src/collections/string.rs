//! Text: a vector of bytes that are UTF-8.

mod drain;

pub use drain::{Drain, FromUtf8Error};

use crate::collections::{Box, Vec};
use crate::heap::{Heap, HeapError};
use crate::persist::{Empty, Kind, Name, Persist, Types};
use std::borrow::{Borrow, Cow};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{AddAssign, Deref, DerefMut, RangeBounds};

/// Text, as [`std::string::String`], in a region. It is laid out as a [`Vec<u8>`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::String;
///
/// let mut name = String::from_in("Ada", heap);
/// name.push_str(" Lovelace");
/// assert_eq!(name, "Ada Lovelace");
/// assert!(name.starts_with("Ada"));
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct String<'r> {
    bytes: Vec<'r, u8>,
}

impl<'r> String<'r> {
    /// No text. It takes no memory yet.
    #[must_use]
    pub const fn new_in(heap: Heap<'r>) -> String<'r> {
        String {
            bytes: Vec::new_in(heap),
        }
    }

    /// No text, with room for `capacity` bytes.
    ///
    /// # Panics
    /// When there is no memory.
    #[must_use]
    #[track_caller]
    pub fn with_capacity_in(capacity: usize, heap: Heap<'r>) -> String<'r> {
        String {
            bytes: Vec::with_capacity_in(capacity, heap),
        }
    }

    /// A copy of `text`.
    ///
    /// # Panics
    /// When there is no memory.
    #[must_use]
    #[track_caller]
    pub fn from_in(text: &str, heap: Heap<'r>) -> String<'r> {
        let mut string = String::with_capacity_in(text.len(), heap);
        string.push_str(text);
        string
    }

    /// The text of some bytes.
    ///
    /// # Errors
    /// The bytes are not UTF-8.
    pub fn from_utf8(bytes: Vec<'r, u8>) -> Result<String<'r>, FromUtf8Error<'r>> {
        match std::str::from_utf8(&bytes) {
            Ok(_) => Ok(String { bytes }),
            Err(error) => Err(FromUtf8Error { bytes, error }),
        }
    }

    /// The text of some bytes, with a replacement character for what is none.
    ///
    /// # Panics
    /// When there is no memory.
    #[must_use]
    #[track_caller]
    pub fn from_utf8_lossy_in(bytes: &[u8], heap: Heap<'r>) -> String<'r> {
        let mut text = String::new_in(heap);
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            if !chunk.invalid().is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        text
    }

    /// The text of UTF-16.
    ///
    /// # Errors
    /// Half of a pair stands alone.
    ///
    /// # Panics
    /// When there is no memory.
    #[track_caller]
    pub fn from_utf16_in(units: &[u16], heap: Heap<'r>) -> Result<String<'r>, std::char::DecodeUtf16Error> {
        let mut text = String::with_capacity_in(units.len(), heap);
        char::decode_utf16(units.iter().copied()).try_for_each(|c| c.map(|c| text.push(c)))?;
        Ok(text)
    }

    /// The text of some bytes.
    ///
    /// # Safety
    /// They are UTF-8.
    #[must_use]
    pub const unsafe fn from_utf8_unchecked(bytes: Vec<'r, u8>) -> String<'r> {
        String { bytes }
    }

    /// The bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<'r, u8> {
        self.bytes
    }

    /// The heap it takes its memory from.
    #[must_use]
    pub fn heap(&self) -> Heap<'r> {
        self.bytes.heap()
    }

    /// The text.
    #[must_use]
    #[inline]
    pub fn as_str(&self) -> &str {
        // SAFETY: the bytes are UTF-8: nothing else is ever put there.
        unsafe { std::str::from_utf8_unchecked(&self.bytes) }
    }

    /// The text, to change. All of it is marked as written.
    #[must_use]
    pub fn as_mut_str(&mut self) -> &mut str {
        // SAFETY: the bytes are UTF-8, and a `&mut str` keeps them so.
        unsafe { std::str::from_utf8_unchecked_mut(self.bytes.as_mut_slice()) }
    }

    /// How many bytes there is room for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Makes room for `additional` more bytes.
    ///
    /// # Panics
    /// When there is no memory.
    #[track_caller]
    pub fn reserve(&mut self, additional: usize) {
        self.bytes.reserve(additional);
    }

    /// As [`String::reserve`].
    ///
    /// # Errors
    /// [`HeapError`] when there is no memory; nothing has changed then.
    pub fn try_reserve(&mut self, additional: usize) -> Result<(), HeapError> {
        self.bytes.try_reserve(additional)
    }

    /// Makes room for `additional` more bytes and no more.
    ///
    /// # Panics
    /// When there is no memory.
    #[track_caller]
    pub fn reserve_exact(&mut self, additional: usize) {
        self.bytes.reserve_exact(additional);
    }

    /// As [`String::reserve_exact`].
    ///
    /// # Errors
    /// [`HeapError`] when there is no memory; nothing has changed then.
    pub fn try_reserve_exact(&mut self, additional: usize) -> Result<(), HeapError> {
        self.bytes.try_reserve_exact(additional)
    }

    /// Gives back the room past `capacity` bytes, or past those there are.
    pub fn shrink_to(&mut self, capacity: usize) {
        self.bytes.shrink_to(capacity);
    }

    /// The text in a block that has room for no more.
    ///
    /// # Panics
    /// When there is no memory for a smaller block.
    #[must_use]
    #[track_caller]
    pub fn into_boxed_str(self) -> Box<'r, str> {
        let mut bytes = std::mem::ManuallyDrop::new(self.bytes.into_boxed_slice());
        let text = std::ptr::from_mut(bytes.unmarked()) as *mut str;
        // SAFETY: a box's block, which is no longer that one's; its bytes are text. A box's address is not null.
        unsafe { Box::from_block(std::ptr::NonNull::new_unchecked(text)) }
    }

    /// Adds a part of itself at the end.
    ///
    /// # Panics
    /// When the range does not lie in the text or cuts a character, or there is no memory.
    #[track_caller]
    pub fn extend_from_within(&mut self, range: impl RangeBounds<usize>) {
        let range = self.whole_characters(range);
        self.bytes.extend_from_within(range);
    }

    /// The characters of a range of bytes, taken out when the iterator is dropped.
    ///
    /// # Panics
    /// When the range does not lie in the text or cuts a character.
    #[track_caller]
    pub fn drain(&mut self, range: impl RangeBounds<usize>) -> Drain<'_, 'r> {
        let range = self.whole_characters(range);
        Drain::new(self, range)
    }

    /// The range, which must lie in the text and cut no character.
    #[track_caller]
    fn whole_characters(&self, range: impl RangeBounds<usize>) -> std::ops::Range<usize> {
        let range = super::vec::in_bounds(range, self.len());
        let _ = &self[range.clone()]; // the message of `str` shows a long text in part
        range
    }

    /// Gives back the room there is too much.
    pub fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
    }

    /// Adds text at the end.
    ///
    /// # Panics
    /// When there is no memory.
    #[inline]
    #[track_caller]
    pub fn push_str(&mut self, text: &str) {
        self.bytes.extend_from_copies(text.as_bytes());
    }

    /// Adds a character at the end.
    ///
    /// # Panics
    /// When there is no memory.
    #[track_caller]
    pub fn push(&mut self, c: char) {
        self.push_str(c.encode_utf8(&mut [0; 4]));
    }

    /// The last character, taken out.
    pub fn pop(&mut self) -> Option<char> {
        let last = self.chars().next_back()?;
        self.bytes.truncate(self.bytes.len() - last.len_utf8());
        Some(last)
    }

    /// Puts text in, before byte `at`.
    ///
    /// # Panics
    /// When `at` is past the end or inside a character, or there is no memory.
    #[track_caller]
    pub fn insert_str(&mut self, at: usize, text: &str) {
        let _ = &self[at..];
        self.bytes.replace_copies(at..at, text.as_bytes());
    }

    /// Puts a character in, before byte `at`.
    ///
    /// # Panics
    /// As [`String::insert_str`].
    #[track_caller]
    pub fn insert(&mut self, at: usize, c: char) {
        self.insert_str(at, c.encode_utf8(&mut [0; 4]));
    }

    /// The character at byte `at`, taken out.
    ///
    /// # Panics
    /// When `at` is the end or past it, or inside a character.
    #[track_caller]
    pub fn remove(&mut self, at: usize) -> char {
        let c = self[at..]
            .chars()
            .next()
            .expect("a character is to be removed at the end of a string");
        self.bytes.drain(at..at + c.len_utf8());
        c
    }

    /// Keeps the first `length` bytes.
    ///
    /// # Panics
    /// When that is inside a character.
    #[track_caller]
    pub fn truncate(&mut self, length: usize) {
        if length <= self.len() {
            let _ = &self[..length];
            self.bytes.truncate(length);
        }
    }

    /// Keeps no text. The room stays.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Keeps the characters `keep` says yes to.
    pub fn retain(&mut self, mut keep: impl FnMut(char) -> bool) {
        let kept: std::string::String = self.chars().filter(|&c| keep(c)).collect();
        if kept.len() != self.len() {
            self.bytes.clear();
            self.push_str(&kept);
        }
    }

    /// The text from byte `at` on, in a string of its own on the same heap.
    ///
    /// # Panics
    /// When `at` is past the end or inside a character, or there is no memory.
    #[must_use]
    #[track_caller]
    pub fn split_off(&mut self, at: usize) -> String<'r> {
        let _ = &self[at..];
        String {
            bytes: self.bytes.split_off(at),
        }
    }

    /// Puts `text` in place of a range of bytes.
    ///
    /// # Panics
    /// When the range does not lie in the text or cuts a character, or there is no memory.
    #[track_caller]
    pub fn replace_range(&mut self, range: impl RangeBounds<usize>, text: &str) {
        let range = self.whole_characters(range);
        self.bytes.replace_copies(range, text.as_bytes());
    }
}

impl Deref for String<'_> {
    type Target = str;
    #[inline]
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl DerefMut for String<'_> {
    fn deref_mut(&mut self) -> &mut str {
        self.as_mut_str()
    }
}

impl Hash for String<'_> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for String<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for String<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

impl fmt::Write for String<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push_str(text);
        Ok(())
    }
}

impl Borrow<str> for String<'_> {
    fn borrow(&self) -> &str {
        self
    }
}

impl AsRef<str> for String<'_> {
    fn as_ref(&self) -> &str {
        self
    }
}

impl AsRef<[u8]> for String<'_> {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl AddAssign<&str> for String<'_> {
    #[track_caller]
    fn add_assign(&mut self, text: &str) {
        self.push_str(text);
    }
}

impl Extend<char> for String<'_> {
    fn extend<I: IntoIterator<Item = char>>(&mut self, characters: I) {
        characters.into_iter().for_each(|c| self.push(c));
    }
}

impl<'a> Extend<&'a char> for String<'_> {
    fn extend<I: IntoIterator<Item = &'a char>>(&mut self, characters: I) {
        characters.into_iter().for_each(|&c| self.push(c));
    }
}

impl<'s> Extend<String<'s>> for String<'_> {
    fn extend<I: IntoIterator<Item = String<'s>>>(&mut self, texts: I) {
        texts.into_iter().for_each(|text| self.push_str(&text));
    }
}

impl Extend<std::string::String> for String<'_> {
    fn extend<I: IntoIterator<Item = std::string::String>>(&mut self, texts: I) {
        texts.into_iter().for_each(|text| self.push_str(&text));
    }
}

impl<'a> Extend<&'a str> for String<'_> {
    fn extend<I: IntoIterator<Item = &'a str>>(&mut self, texts: I) {
        texts.into_iter().for_each(|text| self.push_str(text));
    }
}

macro_rules! equal {
    ($($other:ty),*) => {$(
        impl PartialEq<$other> for String<'_> {
            fn eq(&self, other: &$other) -> bool {
                self.as_str() == AsRef::<str>::as_ref(other)
            }
        }
        impl PartialEq<String<'_>> for $other {
            fn eq(&self, other: &String<'_>) -> bool {
                other.as_str() == AsRef::<str>::as_ref(self)
            }
        }
    )*};
}

equal!(str, &str, std::string::String, Cow<'_, str>);

// SAFETY: it is a vector of bytes, and a vector may live in a region.
unsafe impl Persist for String<'static> {
    type In<'r> = String<'r>;
    type Previous = Self;
    fn name() -> Name {
        Name::new("String")
    }
    fn layout(types: &mut Types) -> Kind {
        Kind::Vec { of: types.of::<u8>() }
    }
    fn migrate<'r>(old: String<'r>, _: Heap<'r>) -> String<'r> {
        old
    }
}

impl Empty for String<'static> {
    fn empty<'r>(heap: Heap<'r>) -> String<'r> {
        String::new_in(heap)
    }
}
