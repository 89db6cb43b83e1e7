//! A root there is, opened as a type that its own type has become.

use super::RootError;
use crate::heap::{Heap, HeapError};
use crate::marks::mark_bytes;
use crate::persist::{Description, Of, Persist};
use crate::root_table::{Change, Found};
use std::alloc::Layout;
use std::any::TypeId;
use std::ptr::NonNull;

/// A root there is, as a `T`: it is one, or becomes one.
pub(super) fn open<T: Persist>(heap: Heap<'_>, name: &str, found: Found) -> Result<NonNull<T>, RootError> {
    let asked = Description::of::<T>();
    let at = std::ptr::with_exposed_provenance_mut::<T>(found.at as usize);
    if found.description.is_of::<T>() {
        let at = NonNull::new(at).ok_or_else(|| HeapError::damaged(format!("root {name:?} at address 0")))?;
        if asked != found.description {
            Change::to::<T>(heap, name)?.apply(heap, name, at)?; // it has another name now, or a fuller one
        }
        return Ok(at);
    }
    if !can_migrate::<T>(&found.description, 0) {
        return Err(RootError::Layout {
            name: name.into(),
            stored: found.description.into(),
            asked: asked.into(),
        });
    }
    let change = Change::to::<T>(heap, name)?;
    let block = heap.try_allocate(Layout::new::<T>())?.cast::<T>();
    let on_panic = AbortOnPanic(name);
    // SAFETY: what is there has the description of one of the types `T` was; it is no longer used.
    let new = unsafe { migrate::<T>(&found, heap) };
    mark_bytes(block.as_ptr(), size_of::<T>());
    // SAFETY: the block is new and fits.
    unsafe { block.cast().write(new) };
    let old = &found.description.get(0);
    let layout = Layout::from_size_align(old.bytes as usize, old.align as usize);
    if let (Ok(layout), Some(old)) = (layout, NonNull::new(at.cast())) {
        // SAFETY: the old value was moved out of its block.
        unsafe { heap.deallocate(old, layout) };
    }
    change.apply(heap, name, block)?;
    std::mem::forget(on_panic);
    Ok(block)
}

/// Half a migration cannot be taken back in memory; on the medium nothing has happened yet.
struct AbortOnPanic<'a>(&'a str);

impl Drop for AbortOnPanic<'_> {
    fn drop(&mut self) {
        eprintln!(
            "twinpage: the conversion of root {:?} panicked; the process ends, and the region stays as it was",
            self.0
        );
        std::process::abort();
    }
}

/// How many types a type may have been before.
const MOST_VERSIONS: u32 = 64;

/// Whether something of that description is what a `T` once was.
fn can_migrate<T: Persist>(stored: &Description, depth: u32) -> bool {
    if depth > 0 && stored.is_of::<T>() {
        return true;
    }
    let has_previous = TypeId::of::<T>() != TypeId::of::<T::Previous>();
    has_previous && depth < MOST_VERSIONS && can_migrate::<T::Previous>(stored, depth + 1)
}

/// The value, as a `T`.
///
/// # Safety
/// [`can_migrate`], or its description is that of a `T`; the value is not used any more.
unsafe fn migrate<'r, T: Persist>(found: &Found, heap: Heap<'r>) -> Of<'r, T> {
    if found.description.is_of::<T>() {
        // SAFETY: the caller found the value in the region and no longer uses it; its description is that of a `T`.
        return unsafe { std::ptr::with_exposed_provenance::<Of<'r, T>>(found.at as usize).read() };
    }
    // SAFETY: the caller no longer uses the value; as it is no `T`, `can_migrate` found a version before it.
    T::migrate(unsafe { migrate::<T::Previous>(found, heap) }, heap)
}
