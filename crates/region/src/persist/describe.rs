//! The description of a type, made from the type.

mod make;

use super::{Name, Persist};
use crate::description::{Description, Type};
pub use make::{FieldOffset, Types};

impl Description {
    /// The description of `T`.
    #[must_use]
    pub fn of<T: Persist>() -> Description {
        Description::with_names::<T>().0
    }

    /// The description of `T`, and the names of its types with all that they were.
    fn with_names<T: Persist>() -> (Description, Vec<Name>) {
        let mut types = Types::default();
        types.of::<T>();
        let (types, names) = types.described();
        (Description { types }, names)
    }

    /// Whether it is that of `T`: the same layout, and each type the same or one that `T`'s says it was.
    ///
    /// ```
    /// use twinpage::persist::Description;
    ///
    /// assert!(Description::of::<u64>().is_of::<u64>());
    /// assert!(!Description::of::<u64>().is_of::<i64>());
    /// ```
    #[must_use]
    pub fn is_of<T: Persist>(&self) -> bool {
        let (asked, names) = Description::with_names::<T>();
        let mut types = self.types.iter().zip(&asked.types).zip(&names);
        self.types.len() == asked.types.len()
            && types.all(|((stored, asked), name)| stored.is_laid_out_as(asked) && stored.is_called(name))
    }
}

impl Type {
    fn is_called(&self, name: &Name) -> bool {
        match self.path.is_empty() {
            true => name.is_name(&self.name),
            false => name.is_path(&self.path),
        }
    }
}
