//! Whether a description that was read can be trusted.

use super::{Description, Field, Kind, Type};

/// The most types one in the other.
const DEEPEST: usize = 100;

impl Description {
    /// Every number refers to a type that is there, every field lies in its type and beside the others, and no type
    /// holds itself other than through a block.
    pub(crate) fn validate(&self) -> Result<(), String> {
        if self.types.is_empty() {
            return Err("it has no types".into());
        }
        for ty in &self.types {
            if !ty.align.is_power_of_two() || ty.align > 1 << 29 || ty.bytes > 1 << 40 {
                return Err(format!(
                    "{} of {} bytes aligned to {}",
                    ty.name, ty.bytes, ty.align
                ));
            }
            self.validate_kind(ty)?;
        }
        let mut heights = vec![None; self.types.len()];
        (0..self.types.len()).try_for_each(|number| self.height(number as u32, 0, &mut heights).map(drop))
    }

    fn validate_kind(&self, ty: &Type) -> Result<(), String> {
        let lies = |of: u32, at: u64| {
            let held = self.types.get(of as usize);
            let held = held.ok_or_else(|| format!("{} refers to type {of}, which is not there", ty.name))?;
            match at.checked_add(held.bytes) {
                Some(end) if end <= ty.bytes => Ok(()),
                _ => Err(format!("{} at byte {at} does not lie in {} ", held.name, ty.name)),
            }
        };
        let refers = |of: u32| match self.types.get(of as usize) {
            Some(_) => Ok(()),
            None => Err(format!("{} refers to type {of}, which is not there", ty.name)),
        };
        let wide = |bytes: u64| match ty.bytes >= bytes {
            true => Ok(()),
            false => Err(format!("{} has {} bytes and needs {bytes}", ty.name, ty.bytes)),
        };
        let beside = |fields: &[Field]| {
            fields.iter().try_for_each(|f| lies(f.of, f.at))?;
            let mut parts: Vec<_> = fields.iter().map(|f| (f.at, self.get(f.of).bytes)).collect();
            parts.retain(|&(_, bytes)| bytes > 0);
            parts.sort_unstable();
            match parts.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0) {
                true => Ok(()),
                false => Err(format!("fields of {} lie over each other", ty.name)),
            }
        };
        match &ty.kind {
            Kind::Plain => Ok(()),
            Kind::Struct(fields) => beside(fields),
            Kind::Enum { tag_bytes, variants } => {
                if ![0, 1, 2, 4, 8].contains(tag_bytes) || *tag_bytes > ty.bytes || variants.is_empty() {
                    return Err(format!("{} has a tag of {tag_bytes} bytes", ty.name));
                }
                variants.iter().try_for_each(|variant| beside(&variant.fields))
            }
            Kind::Option {
                of,
                at,
                none_at,
                none,
            } => {
                let end = none_at.checked_add(none.len() as u64);
                if none.is_empty() || end.is_none_or(|end| end > ty.bytes) {
                    return Err(format!("nothing says when {} is none", ty.name));
                }
                lies(*of, *at)
            }
            Kind::Array { of, count } => {
                refers(*of)?;
                match self.get(*of).bytes.checked_mul(*count) {
                    Some(bytes) if bytes <= ty.bytes => Ok(()),
                    _ => Err(format!("{} does not hold {count} elements", ty.name)),
                }
            }
            Kind::Heap => wide(8),
            Kind::Box { of } => refers(*of).and(wide(8)),
            Kind::Slice { of } => refers(*of).and(wide(16)),
            Kind::Vec { of } => refers(*of).and(wide(32)),
            Kind::Deque { of } => refers(*of).and(wide(40)),
            Kind::Hash { of, .. } => refers(*of).and(wide(48)),
            Kind::Tree { key, value } => refers(*key).and(refers(*value)).and(wide(32)),
        }
    }

    /// How many types deep type `number` is, without following blocks; an error if it has no end.
    fn height(&self, number: u32, depth: usize, known: &mut [Option<usize>]) -> Result<usize, String> {
        if let Some(height) = known[number as usize] {
            return Ok(height);
        }
        let ty = self.get(number);
        if depth > DEEPEST {
            return Err(format!(
                "{} holds itself, or more than {DEEPEST} types one in the other",
                ty.name
            ));
        }
        let mut below = 0;
        for part in ty.parts() {
            below = below.max(self.height(part, depth + 1, known)?);
        }
        known[number as usize] = Some(below + 1);
        match below < DEEPEST {
            true => Ok(below + 1),
            false => Err(format!(
                "{} holds more than {DEEPEST} types one in the other",
                ty.name
            )),
        }
    }
}
