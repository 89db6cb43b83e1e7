//! How many requests a CPU second a memory alone serves.
use std::time::Instant;
use twinpage_lab::device::Device;
use twinpage_lab::drive::{Request, drive};

fn main() {
    let device = Device::find("ddr3-1600k").expect("a built-in device");
    for (name, every) in [("saturated", 0), ("light", 100)] {
        let mut random = fastrand::Rng::with_seed(1);
        let requests: Vec<_> = (0..1_000_000u64)
            .map(|n| Request {
                cycle: n * every,
                at: random.u64(..device.bytes()),
                write: false,
            })
            .collect();
        let begun = Instant::now();
        let outcome = drive(&device, requests);
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "{name}: {:.2} M requests a second, {:.2} GB/s, p50 {} ns",
            1.0 / seconds,
            outcome.gb_per_s,
            outcome.read_ns.p50
        );
    }
}
