//! Where the bytes of an `Option` lie that say it is `None`.
//!
//! The compiler does not say, and need not say the same in its next version; so it is tried, with valid values only:
//! a `None` is given, in one place after the other, bytes that are valid there. Where that makes something of
//! nothing, those bytes tell.
//!
//! * A type that has values to spare has them in a part that not all bytes are valid for: an address, a `bool`, a
//!   tag. Its description names these parts ([`Spare`]).
//! * An option larger than its value begins with a tag of its own, 0 for `None` and 1 for `Some` (little-endian).

use crate::description::{Kind, Type};
use std::mem::MaybeUninit;

/// A part of a value that not all bytes are valid for, and bytes that are.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Spare {
    at: usize,
    valid: Vec<u8>,
}

/// The parts of a type in which the compiler may have values to spare. Those of types that hold it come from
/// here, so `types` are described wherever they lie in the value itself.
pub(super) fn spares(types: &[Option<Type>], number: u32) -> Vec<Spare> {
    let mut found = Vec::new();
    collect(types, number, 0, &mut found);
    found
}

fn collect(types: &[Option<Type>], number: u32, start: u64, found: &mut Vec<Spare>) {
    let ty = types[number as usize].as_ref();
    let ty = ty.expect("a type that lies in another was described before");
    let mut spare = |at: u64, valid: &[u8]| {
        found.push(Spare {
            at: (start + at) as usize,
            valid: valid.into(),
        });
    };
    // Any address but 0 is one.
    let address = 8_u64.to_le_bytes();
    match &ty.kind {
        Kind::Plain => match ty.name.as_str() {
            "bool" => spare(0, &[0]),
            "char" => spare(0, &[0; 4]),
            name if name.starts_with("NonZero") => spare(0, &1_u128.to_le_bytes()[..ty.bytes as usize]),
            _ => {}
        },
        Kind::Struct(fields) => {
            let fields = fields.iter();
            fields.for_each(|field| collect(types, field.of, start + field.at, found));
        }
        Kind::Enum { tag_bytes, variants } => {
            let tag = variants[0].tag.to_le_bytes();
            if *tag_bytes > 0 {
                spare(0, &tag[..*tag_bytes as usize]);
            }
        }
        Kind::Option { none_at, none, .. } => spare(*none_at, none),
        Kind::Array { of, count } => {
            if *count > 0 {
                collect(types, *of, start, found);
            }
        }
        Kind::Heap | Kind::Box { .. } | Kind::Slice { .. } => spare(0, &address),
        // The address of the block, and of the heap.
        Kind::Vec { .. } => [0, 24].iter().for_each(|&at| spare(at, &address)),
        Kind::Deque { .. } => [0, 32].iter().for_each(|&at| spare(at, &address)),
        Kind::Hash { .. } => [0, 40].iter().for_each(|&at| spare(at, &address)),
        Kind::Tree { .. } => (0..ty.bytes / 8).for_each(|word| spare(word * 8, &address)),
    }
}

/// Where the bytes of an `Option<T>` lie that tell `None`, and what they hold.
pub(super) fn none_bytes<T>(spares: &[Spare]) -> (usize, Vec<u8>) {
    let mut slot = MaybeUninit::<Option<T>>::uninit();
    let bytes = slot.as_mut_ptr().cast::<u8>();
    let own_tag = Spare {
        at: 0,
        valid: vec![1],
    };
    let spares = match size_of::<Option<T>>() > size_of::<T>() {
        true => std::slice::from_ref(&own_tag),
        false => spares,
    };
    let telling = spares.iter().find(|spare| {
        assert!(spare.at + spare.valid.len() <= size_of::<Option<T>>());
        // SAFETY: the slot is ours. It holds `None`, which says nothing of the bytes that do not tell; they may be
        // anything. Those that do tell are made such that there is a value. Only whether there is one is looked at,
        // and nothing is dropped.
        unsafe {
            bytes.cast::<Option<T>>().write(None);
            bytes
                .add(spare.at)
                .copy_from_nonoverlapping(spare.valid.as_ptr(), spare.valid.len());
            (*bytes.cast::<Option<T>>()).is_some()
        }
    });
    let Some(Spare { at, valid }) = telling else {
        panic!(
            "what tells that an `Option<{}>` is `None` is not known: a part of the type that not all bytes are valid \
             for is described as if they were",
            std::any::type_name::<T>()
        );
    };
    // SAFETY: the bytes that tell are written by the write of `None`.
    let none = unsafe {
        bytes.cast::<Option<T>>().write(None);
        (0..valid.len()).map(|byte| bytes.add(at + byte).read()).collect()
    };
    (*at, none)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collections::{BTreeMap, BTreeSet, Box, HashMap, HashSet, String, VecDeque};
    use crate::heap::Heap;
    use crate::persist::{Description, Persist};
    use std::num::{NonZeroI128, NonZeroU16};

    /// What tells of an option whose type is described, and whether `Some` and `None` are told apart by it.
    fn told<T: Persist>() -> (u64, Vec<u8>) {
        let Kind::Option { none_at, none, .. } = &Description::of::<Option<T>>().types[0].kind else {
            panic!()
        };
        (*none_at, none.clone())
    }

    #[test]
    fn what_tells_none_is_found() {
        assert_eq!(told::<Box<'static, u8>>(), (0, vec![0; 8]));
        assert_eq!(told::<Heap<'static>>(), (0, vec![0; 8]));
        assert_eq!(told::<u64>(), (0, vec![0]));
        assert_eq!(told::<()>(), (0, vec![0]));
        assert_eq!(told::<NonZeroU16>(), (0, vec![0; 2]));
        assert_eq!(told::<NonZeroI128>(), (0, vec![0; 16]));
        assert_eq!(told::<Option<Option<u32>>>().1.len(), 1);
        assert_eq!(told::<[NonZeroU16; 3]>(), (0, vec![0; 2]));
        // Which value it is, is the compiler's choice, and not every version's is the same.
        let (at, none) = told::<char>();
        let none = u32::from_le_bytes(none.try_into().unwrap());
        assert!(at == 0 && char::from_u32(none).is_none(), "{at} {none:#x}");
        let (at, none) = told::<bool>();
        assert!(at == 0 && none.len() == 1 && none[0] > 1, "{at} {none:?}");
        let (at, none) = told::<Option<bool>>();
        assert!(at == 0 && none.len() == 1 && none[0] > 2, "{at} {none:?}");
        let (at, none) = told::<(u32, Option<bool>)>();
        assert!(at == 4 && none.len() == 1 && none[0] > 2, "{at} {none:?}");
    }

    #[test]
    fn every_collection_can_be_an_options() {
        for (_, none) in [
            told::<String<'static>>(),
            told::<VecDeque<'static, u8>>(),
            told::<HashMap<'static, u8, u8>>(),
            told::<HashSet<'static, u8>>(),
            told::<BTreeMap<'static, u8, u8>>(),
            told::<BTreeSet<'static, u8>>(),
            told::<(String<'static>, HashSet<'static, u8>)>(),
        ] {
            assert_eq!(none, [0; 8]);
        }
    }
}
