use twinpage::collections::{String, Vec};
use twinpage::{Region, Root};

type Names = Root<Vec<'static, String<'static>>>;

fn pushed(a: &Region, b: &Region, mut here: Names, mut there: Names) {
    a.update(|u| {
        b.update(|w| {
            there.get_mut(w).push(u.string("of the other"));
            std::mem::swap(here.get_mut(u), there.get_mut(w));
        });
    });
}

fn main() {}
