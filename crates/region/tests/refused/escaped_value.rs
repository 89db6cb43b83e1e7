use twinpage::collections::{String, Vec};
use twinpage::{Region, Root};

fn popped(region: &Region, mut names: Root<Vec<'static, String<'static>>>) {
    let name = region.update(|u| names.get_mut(u).pop());
    drop(name);
}

fn main() {}
