use twinpage::Region;

fn thrown(region: &Region) {
    region.update(|u| {
        let name = u.string("Ada");
        std::panic::panic_any(name);
    });
}

fn main() {}
