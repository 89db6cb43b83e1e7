use twinpage::collections::Vec;
use twinpage::{Region, Root};

fn returned(region: &Region, mut names: Root<Vec<'static, u64>>) {
    let mut pop = region.update(|u| {
        let names = names.get_mut(u);
        move || names.pop()
    });
    pop();
}

fn main() {}
