use std::cell::RefCell;
use std::sync::Mutex;
use twinpage::Region;
use twinpage::collections::Vec;

static KEPT: Mutex<Option<Vec<'static, u64>>> = Mutex::new(None);

thread_local! {
    static OWN: RefCell<Option<Vec<'static, u64>>> = const { RefCell::new(None) };
}

fn kept(region: &Region) {
    region.update(|u| *KEPT.lock().unwrap() = Some(u.collect::<Vec<u64>>(0..3)));
}

fn own(region: &Region) {
    region.update(|u| OWN.set(Some(u.collect::<Vec<u64>>(0..3))));
}

fn main() {}
