use twinpage::Persist;

#[derive(Persist)]
struct Pair<T>(T, T);

fn persist<T: Persist>() {}

fn use_it() {
    persist::<Pair<std::path::PathBuf>>();
}

fn main() {}
