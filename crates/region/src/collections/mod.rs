//! Collections that live in a region, named and behaving as those of `std`.
//!
//! Each is made with `new_in(heap)` (`u.heap()` in an update), keeps its heap, and has the brand of its region, `'r`,
//! in its type. Their layouts are fixed and drawn at the top of
//! each file and in `docs/format.md`.
//!
//! # How every write is marked
//!
//! * A function that hands out a `&mut T` has marked the bytes of the `T` itself (`crate::marks`): a
//!   root when it is borrowed, a collection when it hands out an element. So a method with
//!   `&mut self` may write to `self`.
//! * A method marks what it writes elsewhere: elements and control bytes in its blocks.
//! * Memory that holds no value (room at the end of a vector, a freed block) is not relied on: it is
//!   marked when a value is put there, not when one is dropped there.
//!
//! What hands out one element marks that element (`get_mut`, indexing); what hands out all marks all
//! (`iter_mut` of a vector, `as_mut_slice`, and so everything that comes from slices: `sort`). Maps mark
//! each value as their iterators reach it.
//!
//! # When there is no memory
//!
//! Methods that would grow panic, as those of `std` abort; `try_reserve` and others that begin with
//! `try_` return an error first. What the collection had is still there then, in the order it was in, and of
//! values that are moved from one collection to another each is in one of the two. What was only being put in is
//! dropped: an argument, and what an iterator had not handed out.
//!
//! # When comparisons and hashes lie
//!
//! An `Ord`, `Eq` or `Hash` that contradicts itself or panics, and iterators that are forgotten, can make a
//! collection lose or misplace entries, as in `std`; never use one that is gone, or drop one twice. One search's
//! answer is never believed to be another's (`tests/liars.rs`).

mod binary_heap;
mod boxed;
mod boxed_slice;
pub mod btree;
pub mod deque;
pub mod hash;
mod make;
#[cfg(feature = "serde")]
pub mod serialize;
pub mod string;
#[cfg(test)]
mod tests;
pub mod vec;

pub use binary_heap::{BinaryHeap, PeekMut};
pub use boxed::Box;
pub use btree::{BTreeMap, BTreeSet};
pub use deque::VecDeque;
pub use hash::{HashMap, HashSet};
pub use make::{CloneIn, CollectInto, DefaultIn, FromIteratorIn};
pub use string::{FromUtf8Error, String};
pub use vec::Vec;
