# `make test` is the whole gate; `.ci/run` installs what it needs on a fresh machine and runs it.

.PHONY: test nightly bench

test:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --release -- -D warnings
	cargo test --workspace --release

# The same, with longer campaigns of the explorer, the fuzzers and the kills.
nightly: export TWINPAGE_LONG = 1
nightly: test

bench:
	cargo run --release -- bench process
