//! The nodes of a B-tree.
//!
//! ```text
//! 0        2
//! | length | 0 | keys: 11 | values: 11 |                   a leaf: height 0
//! | length | 0 | keys: 11 | values: 11 | children: 12 |    above
//! ```
//!
//! * Each part is aligned as its type asks; a node is as C lays it out.
//! * A node has 5 to 11 entries (the root 1 to 11), in order; above the leaves, child `k` holds what is
//!   before entry `k`, and the last child what is after all. Places past the length hold nothing.
//! * No node knows its parent: a change writes the nodes it is about and no other.

use crate::heap::RawHeap;
use crate::marks::{LINE, mark_bytes, mark_value};
use crate::prefetch;
use std::alloc::Layout;
use std::mem::{MaybeUninit, offset_of};
use std::ptr::NonNull;

/// Entries a node has at most.
pub(super) const MOST: usize = Shape::MOST;
/// Entries a node other than the root has at least.
pub(super) const LEAST: usize = Shape::LEAST;
/// Bytes of a node that are worth asking for before they are needed.
const FETCHED: usize = 5 * LINE;

#[repr(C)]
pub(super) struct Leaf<K, V> {
    length: u16,
    keys: [MaybeUninit<K>; MOST],
    values: [MaybeUninit<V>; MOST],
}

#[repr(C)]
struct Inner<K, V> {
    leaf: Leaf<K, V>,
    children: [*mut Leaf<K, V>; MOST + 1],
}

const _: () = assert!(size_of::<Leaf<u64, u64>>() == 8 + 16 * MOST);
const _: () = assert!(size_of::<Inner<u64, u64>>() == size_of::<Leaf<u64, u64>>() + 8 * (MOST + 1));

/// The layout of a tree's nodes, for code that does not know their types.
pub(crate) struct Shape {
    pub(crate) keys: usize,
    pub(crate) values: usize,
    pub(crate) children: usize,
    pub(crate) leaf: Layout,
    pub(crate) inner: Layout,
}

impl Shape {
    pub(crate) const MOST: usize = 11;
    pub(crate) const LEAST: usize = 5;

    /// The layout of nodes with such keys and values, which are far from `isize::MAX` bytes.
    pub(crate) fn new(key: Layout, value: Layout) -> Shape {
        let array = |one: Layout, count| {
            Layout::from_size_align(
                one.size().saturating_mul(count) & (isize::MAX as usize >> 32),
                one.align(),
            )
            .unwrap_or(one)
        };
        let extend = |layout: Layout, next| layout.extend(next).unwrap_or((layout, 0));
        let (layout, keys) = extend(Layout::new::<u16>(), array(key, MOST));
        let (layout, values) = extend(layout, array(value, MOST));
        let leaf = layout.pad_to_align();
        let (layout, children) = extend(leaf, Layout::new::<[u64; MOST + 1]>());
        Shape {
            keys,
            values,
            children,
            leaf,
            inner: layout.pad_to_align(),
        }
    }
}

/// A node, and its height above the leaves.
pub(super) struct Node<K, V> {
    pub(super) at: *mut Leaf<K, V>,
    pub(super) height: usize,
}

/// How a node with an entry too few was mended.
pub(super) struct Mended<K, V> {
    /// A node that is to be freed.
    pub(super) freed: Option<Node<K, V>>,
    /// Where the node's entries are now, and by how many places they moved.
    pub(super) now: Node<K, V>,
    pub(super) shift: usize,
}

impl<K, V> Mended<K, V> {
    fn moved_by(now: Node<K, V>, shift: usize) -> Self {
        let freed = None;
        Mended { freed, now, shift }
    }
}

impl<K, V> Clone for Node<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Node<K, V> {}

/// All of it needs a node of a tree, and its true height.
impl<K, V> Node<K, V> {
    fn layout(height: usize) -> Layout {
        match height {
            0 => Layout::new::<Leaf<K, V>>(),
            _ => Layout::new::<Inner<K, V>>(),
        }
    }

    /// A node without entries.
    pub(super) fn try_new(height: usize, heap: RawHeap) -> Result<Self, crate::heap::HeapError> {
        let at = heap
            .try_allocate(Self::layout(height))?
            .cast::<Leaf<K, V>>()
            .as_ptr();
        let node = Node { at, height };
        node.set_len(0);
        Ok(node)
    }

    /// Frees the node, which has no entries any more.
    pub(super) unsafe fn free(self, heap: RawHeap) {
        if let Some(at) = NonNull::new(self.at) {
            // SAFETY: the caller no longer uses the node; it was allocated with this layout.
            unsafe { heap.deallocate(at.cast(), Self::layout(self.height)) };
        }
    }

    /// Asks for all lines of the node at once: which of them a search needs it finds out one after the other.
    #[inline]
    pub(super) fn fetch(self) {
        let bytes = Self::layout(self.height).size().min(FETCHED);
        for at in (0..bytes).step_by(LINE) {
            prefetch::fetch(self.at.cast::<u8>().wrapping_add(at));
        }
    }

    #[inline]
    pub(super) fn len(self) -> usize {
        // SAFETY: a node is there.
        unsafe { (*self.at).length.into() }
    }

    /// Whether a leaf is so small that a change is on nearly all of its lines: they are marked at once.
    const SMALL: bool = size_of::<Leaf<K, V>>() <= 4 * LINE;

    #[inline]
    fn set_len(self, length: usize) {
        // SAFETY: the node is there, and its map borrowed mutably.
        unsafe {
            mark_bytes(&raw const (*self.at).length, 2);
            (*self.at).length = length as u16;
        }
    }

    #[inline]
    pub(super) fn key(self, index: usize) -> *mut K {
        // SAFETY: the node is there; only an address is made.
        unsafe { (&raw mut (*self.at).keys).cast::<K>().wrapping_add(index) }
    }

    #[inline]
    pub(super) fn value(self, index: usize) -> *mut V {
        // SAFETY: the node is there; only an address is made.
        unsafe { (&raw mut (*self.at).values).cast::<V>().wrapping_add(index) }
    }

    #[inline]
    fn child_at(self, index: usize) -> *mut *mut Leaf<K, V> {
        debug_assert!(self.height > 0);
        let children = self
            .at
            .cast::<u8>()
            .wrapping_add(offset_of!(Inner<K, V>, children));
        children.cast::<*mut Leaf<K, V>>().wrapping_add(index)
    }

    #[inline]
    pub(super) fn child(self, index: usize) -> Self {
        // SAFETY: the node is above the leaves and has one more children than entries.
        let at = unsafe { self.child_at(index).read() };
        Node {
            at,
            height: self.height - 1,
        }
    }

    pub(super) fn set_child(self, index: usize, child: Self) {
        let at = self.child_at(index);
        mark_bytes(at, 8);
        // SAFETY: an inner node has a place for each child, and its map is borrowed mutably.
        unsafe { at.write(child.at) };
    }

    /// Marks places of the node: entries from `first` on, and the children after them.
    #[inline]
    fn mark(self, first: usize, count: usize) {
        if Self::SMALL {
            mark_bytes(self.at, size_of::<Leaf<K, V>>());
        } else {
            mark_bytes(self.key(first), count * size_of::<K>());
            mark_bytes(self.value(first), count * size_of::<V>());
        }
        if self.height > 0 {
            mark_bytes(self.child_at(first), (count + 1) * 8);
        }
    }

    /// Puts an entry before that at `index`, and behind it the child that follows it. There is room.
    #[inline]
    pub(super) unsafe fn insert(self, index: usize, key: K, value: V, after: Option<Self>) {
        let length = self.len();
        debug_assert!(length < MOST && index <= length);
        self.mark(index, length + 1 - index);
        // SAFETY: there is room for one more; the places are marked.
        unsafe {
            self.key(index).copy_to(self.key(index + 1), length - index);
            self.value(index).copy_to(self.value(index + 1), length - index);
            self.key(index).write(key);
            self.value(index).write(value);
            if let Some(child) = after {
                self.child_at(index + 1)
                    .copy_to(self.child_at(index + 2), length - index);
                self.set_child(index + 1, child);
            }
        }
        self.set_len(length + 1);
    }

    /// Takes the entry at `index` out, and the child behind it.
    pub(super) unsafe fn remove(self, index: usize) -> (K, V) {
        let length = self.len();
        debug_assert!(index < length);
        self.mark(index, length - 1 - index);
        // SAFETY: the entry is there; those after it move up.
        let entry = unsafe {
            let entry = (self.key(index).read(), self.value(index).read());
            self.key(index + 1).copy_to(self.key(index), length - 1 - index);
            self.value(index + 1)
                .copy_to(self.value(index), length - 1 - index);
            if self.height > 0 {
                mark_bytes(self.child_at(index + 1), (length - 1 - index) * 8);
                self.child_at(index + 2)
                    .copy_to(self.child_at(index + 1), length - 1 - index);
            }
            entry
        };
        self.set_len(length - 1);
        entry
    }

    /// Moves the upper half of a full node to an empty one, and returns the entry between.
    pub(super) unsafe fn split(self, upper: Self) -> (K, V) {
        debug_assert!(self.len() == MOST && upper.len() == 0);
        // SAFETY: the node is full, the other empty.
        unsafe {
            self.move_to(LEAST + 1, upper, 0, LEAST);
            if self.height > 0 {
                mark_bytes(upper.child_at(0), (LEAST + 1) * 8);
                self.child_at(LEAST + 1)
                    .copy_to_nonoverlapping(upper.child_at(0), LEAST + 1);
            }
            self.set_len(LEAST);
            upper.set_len(LEAST);
            (self.key(LEAST).read(), self.value(LEAST).read())
        }
    }

    /// Moves entries to places of another node that are free. Lengths and children stay.
    unsafe fn move_to(self, from: usize, other: Self, to: usize, count: usize) {
        mark_bytes(other.key(to), count * size_of::<K>());
        mark_bytes(other.value(to), count * size_of::<V>());
        // SAFETY: this function's own contract.
        unsafe {
            self.key(from).copy_to_nonoverlapping(other.key(to), count);
            self.value(from).copy_to_nonoverlapping(other.value(to), count);
        }
    }

    /// Sets the entry at `index`, which is free.
    unsafe fn write(self, index: usize, (key, value): (K, V)) {
        mark_value(self.key(index));
        mark_value(self.value(index));
        // SAFETY: this function's own contract.
        unsafe {
            self.key(index).write(key);
            self.value(index).write(value);
        }
    }

    /// Puts an entry in place of another, which is returned.
    pub(super) unsafe fn replace(self, index: usize, entry: (K, V)) -> (K, V) {
        // SAFETY: the entry is there; it is read once and written over.
        unsafe {
            let old = (self.key(index).read(), self.value(index).read());
            self.write(index, entry);
            old
        }
    }

    /// Gives child `index`, which has an entry too few, one of a neighbour's, or makes the two one.
    pub(super) unsafe fn mend(self, index: usize) -> Mended<K, V> {
        let child = self.child(index);
        // SAFETY: the neighbours are there.
        unsafe {
            if index > 0 && self.child(index - 1).len() > LEAST {
                self.take_from_left(index);
                return Mended::moved_by(child, 1);
            }
            if index < self.len() && self.child(index + 1).len() > LEAST {
                self.take_from_right(index);
                return Mended::moved_by(child, 0);
            }
            if index == 0 {
                return Mended {
                    freed: Some(self.merge(0)),
                    ..Mended::moved_by(child, 0)
                };
            }
            let left = self.child(index - 1);
            let shift = left.len() + 1;
            Mended {
                freed: Some(self.merge(index - 1)),
                ..Mended::moved_by(left, shift)
            }
        }
    }

    /// Gives child `index`, which may have any number of entries, more than [`LEAST`]: those of a neighbour, which
    /// has at least [`LEAST`]. Returns the child, or what it is part of now, and a node that is to be freed.
    pub(super) unsafe fn fill(self, index: usize) -> (Self, Option<Self>) {
        let (left, child) = (index.saturating_sub(1), self.child(index));
        let neighbour = self.child(if index > 0 { left } else { 1 });
        // SAFETY: there is a neighbour; it keeps at least `LEAST`, as the two have more than `MOST - 1` together.
        unsafe {
            if neighbour.len() + child.len() < MOST {
                let freed = self.merge(left);
                return (self.child(left), Some(freed));
            }
            while child.len() <= LEAST {
                match index > 0 {
                    true => self.take_from_left(index),
                    false => self.take_from_right(index),
                }
            }
        }
        (child, None)
    }

    /// Moves the last entry of the child before child `index` up, and the one between them into that child.
    unsafe fn take_from_left(self, index: usize) {
        let (left, child) = (self.child(index - 1), self.child(index));
        let last = left.len() - 1;
        // SAFETY: the neighbour has an entry; entries go over this node, which keeps their order.
        unsafe {
            let moved_child = (left.height > 0).then(|| left.child(last + 1));
            let (key, value) = (left.key(last).read(), left.value(last).read());
            left.set_len(last);
            let (key, value) = self.replace(index - 1, (key, value));
            child.insert_first(key, value, moved_child);
        }
    }

    /// Moves the first entry of the child after child `index` up, and the one between them into that child.
    unsafe fn take_from_right(self, index: usize) {
        let (child, right) = (self.child(index), self.child(index + 1));
        // SAFETY: the neighbour has an entry; entries go over this node, which keeps their order.
        unsafe {
            let moved_child = (right.height > 0).then(|| right.child(0));
            let entry = right.remove_first();
            let (key, value) = self.replace(index, entry);
            child.insert(child.len(), key, value, moved_child);
        }
    }

    /// Moves the entries from `index` on, and the children behind them, to an empty node. Above the leaves the
    /// other node gets `first` as its first child: what was split off child `index`.
    pub(super) unsafe fn move_tail(self, index: usize, other: Self, first: Option<Self>) {
        let moved = self.len() - index;
        debug_assert!(other.len() == 0);
        // SAFETY: the entries are there, and the other has room for all.
        unsafe {
            self.move_to(index, other, 0, moved);
            if let Some(first) = first {
                mark_bytes(other.child_at(0), (moved + 1) * 8);
                self.child_at(index + 1)
                    .copy_to_nonoverlapping(other.child_at(1), moved);
                other.child_at(0).write(first.at);
            }
        }
        self.set_len(index);
        other.set_len(moved);
    }

    /// As [`Node::insert`] at the start, with the child that is before all.
    unsafe fn insert_first(self, key: K, value: V, before: Option<Self>) {
        // SAFETY: there is room.
        unsafe {
            if let Some(child) = before {
                let length = self.len();
                mark_bytes(self.child_at(0), (length + 2) * 8);
                let old_first = self.child(0);
                self.insert(0, key, value, Some(old_first));
                self.set_child(0, child);
            } else {
                self.insert(0, key, value, None);
            }
        }
    }

    /// As [`Node::remove`] of the first entry, with the child before it.
    unsafe fn remove_first(self) -> (K, V) {
        // SAFETY: there is an entry.
        unsafe {
            if self.height > 0 {
                let second = self.child(1);
                self.set_child(0, second);
            }
            self.remove(0)
        }
    }

    /// Makes children `index` and `index + 1` one, with the entry between them.
    unsafe fn merge(self, index: usize) -> Self {
        let (left, right) = (self.child(index), self.child(index + 1));
        let (have, more) = (left.len(), right.len());
        debug_assert!(have + more < MOST);
        // SAFETY: all fits; the right node is left without entries.
        unsafe {
            let between = self.remove(index);
            left.write(have, between);
            right.move_to(0, left, have + 1, more);
            if left.height > 0 {
                mark_bytes(left.child_at(have + 1), (more + 1) * 8);
                right
                    .child_at(0)
                    .copy_to_nonoverlapping(left.child_at(have + 1), more + 1);
            }
            left.set_len(have + 1 + more);
        }
        right
    }

    /// How many entries there are from this node down.
    pub(super) fn count(self) -> usize {
        let below = match self.height {
            0 => 0,
            _ => (0..=self.len()).map(|index| self.child(index).count()).sum(),
        };
        self.len() + below
    }

    /// Becomes a root above two nodes.
    pub(super) unsafe fn set_root(self, left: Self, entry: (K, V), right: Self) {
        // SAFETY: the node is new and empty.
        unsafe { self.write(0, entry) };
        self.set_child(0, left);
        self.set_child(1, right);
        self.set_len(1);
    }

    /// Frees all nodes from this one down. Their entries are gone.
    pub(super) unsafe fn free_all(self, heap: RawHeap) {
        if self.height > 0 {
            for index in 0..=self.len() {
                // SAFETY: this function's own contract.
                unsafe { self.child(index).free_all(heap) };
            }
        }
        // SAFETY: this function's own contract.
        unsafe { self.free(heap) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_laid_out_as_the_shape_says() {
        fn same<K, V>() {
            let shape = Shape::new(Layout::new::<K>(), Layout::new::<V>());
            assert_eq!(shape.keys, offset_of!(Leaf<K, V>, keys));
            assert_eq!(shape.values, offset_of!(Leaf<K, V>, values));
            assert_eq!(shape.children, offset_of!(Inner<K, V>, children));
            assert_eq!(
                (shape.leaf, shape.inner),
                (Layout::new::<Leaf<K, V>>(), Layout::new::<Inner<K, V>>())
            );
        }
        same::<u64, u64>();
        same::<u8, ()>();
        same::<(), u16>();
        same::<u128, [u8; 3]>();
        same::<[u8; 100], char>();
        assert_eq!(size_of::<Leaf<u64, u64>>(), 184);
    }
}
