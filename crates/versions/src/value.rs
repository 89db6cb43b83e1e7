//! What an array holds: plain values, the same bytes in every process.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A value without pointers or padding, valid whatever its bytes are: integers, floats, arrays of them, and
/// structs that derive `zerocopy`'s traits.
///
/// ```
/// use twinpage_versions::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
///
/// #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
/// #[repr(C)]
/// struct Particle {
///     place: [f64; 3],
///     speed: [f64; 3],
/// }
/// fn is_plain<T: twinpage_versions::Value>() {}
/// is_plain::<Particle>();
/// ```
///
/// ```compile_fail
/// fn is_plain<T: twinpage_versions::Value>() {}
/// is_plain::<Box<u8>>(); // a pointer means nothing in the next life
/// ```
pub trait Value: Copy + Send + Sync + FromBytes + IntoBytes + Immutable + KnownLayout + 'static {}

impl<T: Copy + Send + Sync + FromBytes + IntoBytes + Immutable + KnownLayout + 'static> Value for T {}

/// A type's name without the modules it lies in: what a file says of its values.
pub(crate) fn name_of<T>() -> String {
    let (mut name, mut word) = (String::new(), String::new());
    let full = std::any::type_name::<T>();
    let mut letters = full.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == ':' && letters.peek() == Some(&':') {
            letters.next();
            word.clear();
        } else if letter.is_alphanumeric() || letter == '_' {
            word.push(letter);
        } else {
            name.push_str(&word);
            word.clear();
            name.push(letter);
        }
    }
    name + &word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_modules() {
        assert_eq!(name_of::<[u8; 256]>(), "[u8; 256]");
        assert_eq!(name_of::<[std::num::Wrapping<u32>; 2]>(), "[Wrapping<u32>; 2]");
        assert_eq!(name_of::<f64>(), "f64");
    }
}
