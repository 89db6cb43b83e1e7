//! What roots reach, told by descriptions.

mod table;

use super::structure::{self, Block, Blocks};
use super::{Image, Report, RootReport};
use crate::collections::btree::node::Shape;
use crate::description::{Description, Field, Kind};
use crate::heap::classes;
use crate::heap::format::{Header, UNIT};
use crate::root_entry::RootEntry;
use std::alloc::Layout;
use std::mem::offset_of;

/// The deepest a tree can be: more than any that fits into a region.
const DEEPEST: u64 = 40;

/// Walks the root table and every root in it.
pub(super) fn roots(image: Image<'_>, blocks: &mut Blocks, report: &mut Report) {
    let at = image.u64(image.base + offset_of!(Header, roots) as u64);
    if at == 0 || image.at(image.base, 64).is_none() {
        return;
    }
    let table = Description::of::<crate::collections::Vec<RootEntry>>();
    let before = report.damage.len();
    value(image, &table, at, blocks, report);
    if report.damage.len() > before {
        return;
    }
    let (first, count) = (image.u64(at), image.u64(at + 8));
    for index in 0..count {
        root(
            image,
            first + index * size_of::<RootEntry>() as u64,
            blocks,
            report,
        );
    }
}

fn root(image: Image<'_>, entry: u64, blocks: &mut Blocks, report: &mut Report) {
    let text = |offset: usize| {
        let at = entry + offset as u64;
        let bytes = image.at(image.u64(at), image.u64(at + 8)).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    };
    let (name, layout) = (
        text(offset_of!(RootEntry, name)),
        text(offset_of!(RootEntry, layout)),
    );
    let description = match Description::parse(&layout) {
        Ok(description) => description,
        Err(error) => {
            report.damaged(entry - image.base, format!("root {name:?}: {error}"));
            return;
        }
    };
    let count = |blocks: &Blocks| {
        let reached = blocks.iter().filter(|block| block.reached);
        reached.fold((0, 0), |(count, bytes), block| (count + 1, bytes + block.bytes))
    };
    let before = count(blocks);
    let at = image.u64(entry + offset_of!(RootEntry, at) as u64);
    value(image, &description, at, blocks, report);
    let after = count(blocks);
    report.roots.push(RootReport {
        name,
        type_name: description.get(0).name.clone(),
        blocks: after.0 - before.0,
        bytes: after.1 - before.1,
    });
}

/// Looks at a value in a block of its own, and at the blocks it owns itself, but not into them.
pub(super) fn head(image: Image<'_>, description: &Description, at: u64, report: &mut Report) {
    let owns = owners(description);
    let mut walk = Walk {
        image,
        description,
        owns,
        blocks: None,
        report,
        rest: Vec::new(),
    };
    walk.own(0, at);
    if walk.report.damage.is_empty() {
        walk.visit(0, at);
    }
}

/// Walks a value in a block of its own.
pub(super) fn value(
    image: Image<'_>,
    description: &Description,
    at: u64,
    blocks: &mut Blocks,
    report: &mut Report,
) {
    let owns = owners(description);
    let mut walk = Walk {
        image,
        description,
        owns,
        blocks: Some(blocks),
        report,
        rest: Vec::new(),
    };
    walk.own(0, at);
    while let Some((of, at, count)) = walk.rest.pop() {
        let bytes = description.get(of).bytes;
        for index in 0..count {
            walk.visit(of, at + index * bytes);
        }
    }
}

/// Whether bytes can be a plain value, where not all can.
fn is_possible(name: &str, bytes: &[u8]) -> bool {
    match (name, bytes) {
        ("bool", &[byte, ..]) => byte <= 1,
        ("char", &[a, b, c, d]) => char::from_u32(u32::from_le_bytes([a, b, c, d])).is_some(),
        _ if name.starts_with("NonZero") => bytes.iter().any(|&byte| byte != 0),
        _ => true,
    }
}

/// Whether values of each type own blocks, or have values that must be looked at.
fn owners(description: &Description) -> Vec<bool> {
    fn owns(description: &Description, number: u32, known: &mut [Option<bool>]) -> bool {
        if let Some(known) = known[number as usize] {
            return known;
        }
        let ty = description.get(number);
        let owns = ty.bytes > 0
            && match &ty.kind {
                Kind::Plain => ["bool", "char"].contains(&ty.name.as_str()) || ty.name.starts_with("NonZero"),
                Kind::Struct(_) | Kind::Option { .. } | Kind::Array { .. } => {
                    ty.parts().any(|part| owns(description, part, known))
                }
                _ => true,
            };
        known[number as usize] = Some(owns);
        owns
    }
    let mut known = vec![None; description.types.len()];
    let numbers = 0..description.types.len() as u32;
    numbers
        .map(|number| owns(description, number, &mut known))
        .collect()
}

struct Walk<'a> {
    image: Image<'a>,
    description: &'a Description,
    owns: Vec<bool>,
    /// All that are in use; without them only what is asked for is looked up.
    blocks: Option<&'a mut Blocks>,
    report: &'a mut Report,
    /// Rows still to be visited: type, address, count.
    rest: Vec<(u32, u64, u64)>,
}

impl Walk<'_> {
    fn damaged(&mut self, at: u64, what: String) {
        self.report.damaged(at.wrapping_sub(self.image.base), what);
    }

    fn layout(&self, of: u32, count: u64) -> Option<Layout> {
        let ty = self.description.get(of);
        let bytes = usize::try_from(ty.bytes.checked_mul(count)?).ok()?;
        Layout::from_size_align(bytes, usize::try_from(ty.align).ok()?).ok()
    }

    /// The block at an address becomes owned. Whether it is there and fits.
    fn claim(&mut self, at: u64, layout: Option<Layout>, who: &str) -> bool {
        let Some(layout) = layout else {
            self.damaged(at, format!("{who}: larger than any block"));
            return false;
        };
        let bytes = match classes::of(layout) {
            Some(class) => u64::from(classes::BYTES[class]),
            None => layout.size().next_multiple_of(UNIT) as u64,
        };
        let mut looked_up;
        let found = match &mut self.blocks {
            Some(blocks) => {
                let found = blocks.binary_search_by_key(&at, |block| block.at);
                found.ok().map(|index| &mut blocks[index])
            }
            None => {
                looked_up = structure::block_at(self.image, at);
                looked_up.as_mut()
            }
        };
        let problem = match found {
            Some(Block { bytes: had, .. }) if *had != bytes => {
                format!("{who}: its block has {had} bytes, not {bytes}")
            }
            Some(Block { reached: true, .. }) => format!("{who}: its block at {at:#x} has another owner"),
            Some(block) => {
                block.reached = true;
                return true;
            }
            None => format!("{who}: no block is in use at {at:#x}"),
        };
        self.damaged(at, problem);
        false
    }

    /// A value in a block of its own.
    fn own(&mut self, of: u32, at: u64) {
        let (bytes, name) = (self.description.get(of).bytes, &self.description.get(of).name);
        if bytes == 0 && (at == 0 || !at.is_multiple_of(self.description.get(of).align)) {
            return self.damaged(at, format!("a {name} of no bytes at {at:#x}"));
        }
        if bytes == 0 || self.claim(at, self.layout(of, 1), &format!("a {name}")) {
            self.rest.push((of, at, 1));
        }
    }

    /// The values of a row that are in a block of `room`.
    fn row(&mut self, of: u32, at: u64, room: u64, parts: &[(u64, u64)], who: &str) {
        if self.description.get(of).bytes == 0 || room == 0 {
            // No block; the address is any but 0 that is aligned.
            if at == 0 || !at.is_multiple_of(self.description.get(of).align) {
                self.damaged(at, format!("{who}: no block, at {at:#x}"));
            }
            return;
        }
        if self.claim(at, self.layout(of, room), who) && self.owns[of as usize] {
            let bytes = self.description.get(of).bytes;
            for &(start, count) in parts {
                self.rest.push((of, at + start * bytes, count));
            }
        }
    }

    fn fields(&mut self, fields: &[Field], at: u64) {
        fields
            .iter()
            .for_each(|field| self.visit(field.of, at + field.at));
    }

    fn visit(&mut self, number: u32, at: u64) {
        if !self.owns[number as usize] {
            return;
        }
        let ty = self.description.get(number);
        let (image, name) = (self.image, ty.name.as_str());
        if image.at(at, ty.bytes).is_none() {
            return self.damaged(at, format!("a {name} outside the region"));
        }
        match &ty.kind {
            Kind::Plain if !is_possible(name, image.at(at, ty.bytes).unwrap_or_default()) => {
                self.damaged(at, format!("a {name} that none can be"));
            }
            Kind::Plain => {}
            Kind::Struct(fields) => self.fields(fields, at),
            Kind::Enum { tag_bytes, variants } => {
                let tag = image.number(at, *tag_bytes);
                match variants.iter().find(|variant| variant.tag == tag) {
                    Some(variant) => self.fields(&variant.fields, at),
                    None => self.damaged(at, format!("a {name} with tag {tag}")),
                }
            }
            Kind::Option {
                of,
                at: value,
                none_at,
                none,
            } => {
                if image.at(at + none_at, none.len() as u64) != Some(none.as_slice()) {
                    self.visit(*of, at + value);
                }
            }
            Kind::Array { of, count } => {
                let bytes = self.description.get(*of).bytes;
                (0..*count).for_each(|index| self.visit(*of, at + index * bytes));
            }
            Kind::Heap => self.heap(at, name),
            Kind::Box { of } => self.own(*of, image.u64(at)),
            Kind::Slice { of } => {
                let [first, length] = [0, 8].map(|offset| image.u64(at + offset));
                self.row(*of, first, length, &[(0, length)], name);
                self.text(at, name, first, length);
            }
            Kind::Vec { of } => self.vec(*of, at, name),
            Kind::Deque { of } => self.deque(*of, at, name),
            Kind::Hash { of, .. } => self.hash(*of, at, name),
            Kind::Tree { key, value } => self.tree(*key, *value, at, name),
        }
    }

    fn heap(&mut self, at: u64, who: &str) {
        let found = self.image.u64(at);
        if found != self.image.base {
            self.damaged(
                at,
                format!("{who}: its heap is at {found:#x}, not at {:#x}", self.image.base),
            );
        }
    }

    fn vec(&mut self, of: u32, at: u64, who: &str) {
        let [first, length, room] = [0, 8, 16].map(|offset| self.image.u64(at + offset));
        self.heap(at + 24, who);
        if length > room || self.description.get(of).bytes == 0 && room != u64::MAX {
            return self.damaged(
                at,
                format!("{who}: {length} values where there is room for {room}"),
            );
        }
        self.row(of, first, room, &[(0, length)], who);
        if room > 0 {
            self.text(at, who, first, length);
        }
    }

    fn text(&mut self, at: u64, who: &str, first: u64, length: u64) {
        if ["String", "Box<str>"].contains(&who) && length > 0 {
            let text = self.image.at(first, length).map(std::str::from_utf8);
            if !matches!(text, Some(Ok(_))) {
                self.damaged(at, format!("a {who} that is not UTF-8"));
            }
        }
    }

    fn deque(&mut self, of: u32, at: u64, who: &str) {
        let [first, head, length, room] = [0, 8, 16, 24].map(|offset| self.image.u64(at + offset));
        self.heap(at + 32, who);
        if length > room || head > room || self.description.get(of).bytes == 0 && room != u64::MAX {
            return self.damaged(
                at,
                format!("{who}: {length} values from {head} where there is room for {room}"),
            );
        }
        let front = length.min(room - head);
        self.row(of, first, room, &[(head, front), (0, length - front)], who);
    }

    fn tree(&mut self, key: u32, value: u32, at: u64, who: &str) {
        let [root, height, length] = [0, 8, 16].map(|offset| self.image.u64(at + offset));
        self.heap(at + 24, who);
        if (root, height, length) == (0, 0, 0) {
            return;
        }
        if height > DEEPEST {
            return self.damaged(at, format!("{who}: a tree {height} deep"));
        }
        let (Some(keys), Some(values)) = (self.layout(key, 1), self.layout(value, 1)) else {
            return self.damaged(at, format!("{who}: larger than any block"));
        };
        let shape = Shape::new(keys, values);
        if let Some(found) = self.node(&shape, (key, value), root, height, true, who)
            && found != length
        {
            self.damaged(
                at,
                format!("{who}: {length} entries are said to be there, {found} are"),
            );
        }
    }

    /// A node and all below. Returns how many entries they have, unless something is damaged.
    fn node(
        &mut self,
        shape: &Shape,
        kinds: (u32, u32),
        at: u64,
        height: u64,
        is_root: bool,
        who: &str,
    ) -> Option<u64> {
        let layout = if height == 0 { shape.leaf } else { shape.inner };
        if !self.claim(at, Some(layout), who) {
            return None;
        }
        let length = self.image.number(at, 2);
        let least = if is_root {
            u64::from(height > 0)
        } else {
            Shape::LEAST as u64
        };
        if length > Shape::MOST as u64 || length < least {
            self.damaged(at, format!("{who}: a node of {length} entries"));
            return None;
        }
        self.rest.push((kinds.0, at + shape.keys as u64, length));
        self.rest.push((kinds.1, at + shape.values as u64, length));
        let mut total = length;
        self.blocks.as_ref()?; // without them: not into it
        if height > 0 {
            for child in 0..=length {
                let below = self.image.u64(at + shape.children as u64 + child * 8);
                total += self.node(shape, kinds, below, height - 1, false, who)?;
            }
        }
        Some(total)
    }
}
