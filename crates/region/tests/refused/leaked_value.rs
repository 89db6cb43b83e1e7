use twinpage::Region;
use twinpage::collections::String;

fn leaked(region: &Region) {
    let mut name: Option<&'static mut String<'static>> = None;
    region.update(|u| name = Some(Box::leak(Box::new(u.string("Ada")))));
}

fn main() {}
