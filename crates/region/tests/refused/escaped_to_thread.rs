use twinpage::collections::Vec;
use twinpage::{Region, Root};

fn later(region: &Region, mut names: Root<Vec<'static, u64>>) {
    region.update(|u| {
        let names = names.get_mut(u);
        std::thread::spawn(move || names.push(1));
    });
}

fn main() {}
