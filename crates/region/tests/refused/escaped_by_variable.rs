use twinpage::collections::Vec;
use twinpage::{Region, Root};

fn smuggled(region: &Region, mut names: Root<Vec<'static, u64>>) {
    let mut out = None;
    region.update(|u| out = Some(names.get_mut(u)));
    out.unwrap().pop();
}

fn main() {}
