use twinpage::{Handle, Region};

fn beside(bank: &Region, count: &Handle<u64>) {
    let done = bank.atomic(|section| -> twinpage::Result<()> {
        std::thread::scope(|threads| {
            threads.spawn(|| *count.write(section) += 1);
        });
        Ok(())
    });
    done.unwrap();
}

fn main() {}
