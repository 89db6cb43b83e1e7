//! Why the heap gives no memory.

/// Why there is no memory.
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # let window = Window::volatile()?;
/// # window.with_heap(1, |heap| {
/// use twinpage::collections::Vec;
/// use twinpage::heap::HeapError;
///
/// let mut numbers = Vec::<u64>::new_in(heap);
/// let refused = numbers.try_reserve(1 << 50).unwrap_err();
/// assert!(matches!(refused, HeapError::TooLarge { .. }));
/// window.place().set_bound(1 << 20);
/// let refused = numbers.try_reserve(1 << 20).unwrap_err();
/// assert!(matches!(refused, HeapError::Grow(_)), "{refused}");
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeapError {
    /// The region cannot grow: it is at its bound, or the system has no memory.
    #[error(transparent)]
    Grow(std::boxed::Box<super::Error>),
    /// More than any region can hold.
    #[error("a block of {bytes} bytes: more than a region can hold in one piece")]
    TooLarge {
        /// What was asked for.
        bytes: u64,
    },
    /// A stricter alignment than that of the heap's largest units.
    #[error("a block aligned to {align} bytes: the heap aligns to {most} at most")]
    Alignment {
        /// What was asked for.
        align: u64,
        /// The strictest there is.
        most: u64,
    },
    /// A heap was to be made where there is one.
    #[error("there is a heap in the region already: open it with Heap::open")]
    Exists,
    /// What is in the region is not what the heap wrote there.
    #[error("the heap of the region is damaged: {0}; `twinpage check` tells what can be read")]
    Damaged(String),
}

impl From<super::Error> for HeapError {
    fn from(error: super::Error) -> HeapError {
        HeapError::Grow(error.into())
    }
}

impl HeapError {
    #[cold]
    pub(crate) fn damaged(why: impl Into<String>) -> HeapError {
        HeapError::Damaged(why.into())
    }
}
