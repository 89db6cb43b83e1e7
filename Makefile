# `make test` is the whole gate; `.ci/run` installs what it needs on a fresh machine and runs it.

.PHONY: test power miri nightly bench traces

test:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --release --features twinpage/serde -- -D warnings
	# A shell ignores signals for what it runs in the background; some tests send them.
	env --default-signal cargo test --workspace --release --features twinpage/serde

# The same, with longer campaigns of the explorer, the fuzzers and the kills.
nightly: export TWINPAGE_LONG = 1
nightly: test power miri

# Power cuts in an emulated machine: on persistent memory, on a disk that loses its cache, on one that fails.
# Not in `test`: the machine has to be fetched, and boots for several seconds a cut.
power:
	.ci/machine target/kernel
	TWINPAGE_KERNEL=$(CURDIR)/target/kernel cargo test --release -p twinpage-cli --test power

# Miri over the heap and the collections in plain memory. It needs a nightly toolchain, which is installed; not
# in `test`: minutes. A whole region (`a_region`) takes it far longer.
miri:
	rustup toolchain install nightly --profile minimal --component miri,rust-src
	MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance" \
		cargo +nightly miri test -p twinpage --test under_miri -- rows tables

bench:
	cargo run --release -- bench process

# Traces of free programs that stand in for SPEC's, for the lab (see crates/lab/programs/record): some five minutes
# for all. What is not installed is left out; `make traces INSTALL=1` installs it.
traces:
	cargo build --release -p twinpage-cli
	INSTALL=$(INSTALL) TWINPAGE=$(CURDIR)/target/release/twinpage crates/lab/programs/record $(CURDIR)/target/traces
