use twinpage::collections::{String, Vec};
use twinpage::window::Window;
use twinpage::{Region, Root};

fn pushed(region: &Region, mut names: Root<Vec<'static, String<'static>>>) {
    let window: &'static Window = Box::leak(Box::new(Window::volatile().unwrap()));
    region.update(|u| {
        window.with_heap(7, |heap| names.get_mut(u).push(String::from_in("of the window", heap))).unwrap();
    });
}

fn main() {}
