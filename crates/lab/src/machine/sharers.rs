//! Which cores may hold a line: a bit for each, in a number as wide as the machine has cores.

/// A set of cores.
pub trait Sharers: Copy + Default + PartialEq + std::fmt::Debug + Send {
    /// This core alone.
    fn only(core: usize) -> Self;
    /// This core too.
    #[must_use]
    fn with(self, core: usize) -> Self;
    /// All but this core.
    #[must_use]
    fn without(self, core: usize) -> Self;
    /// The cores, in order.
    fn cores(self) -> impl Iterator<Item = usize>;
}

macro_rules! sharers {
    ($($bits:ty)*) => {$(
        impl Sharers for $bits {
            #[inline]
            fn only(core: usize) -> $bits {
                1 << core
            }
            #[inline]
            fn with(self, core: usize) -> $bits {
                self | 1 << core
            }
            #[inline]
            fn without(self, core: usize) -> $bits {
                self & !(1 << core)
            }
            #[inline]
            fn cores(self) -> impl Iterator<Item = usize> {
                let mut left = self;
                std::iter::from_fn(move || {
                    let core = left.trailing_zeros() as usize;
                    (left != 0).then(|| {
                        left &= left - 1;
                        core
                    })
                })
            }
        }
    )*};
}
sharers!(u16 u64);
