use twinpage::collections::{String, Vec};
use twinpage::{Region, Root};

type Names = Root<Vec<'static, String<'static>>>;

fn swapped(a: &Region, b: &Region, mut here: Names, mut there: Names) {
    a.update(|u| {
        b.update(|w| std::mem::swap(here.get_mut(u), there.get_mut(w)));
    });
}

fn replaced(a: &Region, b: &Region, mut here: Names, mut there: Names) {
    a.update(|u| {
        let mut empty = u.empty::<Vec<String>>();
        b.update(|w| std::mem::swap(&mut empty, there.get_mut(w)));
        here.get_mut(u).append(&mut empty);
    });
}

fn main() {}
