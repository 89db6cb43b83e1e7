# `make test` is the whole gate; `.ci/run` installs what it needs on a fresh machine and runs it.

.PHONY: test lint install before-resolving power power-short miri miri-core miri-versions miri-collections miri-liars miri-window miri-marks miri-orders sanitize sanitize-address sanitize-address-short sanitize-thread toolchain nightly campaigns compile test-all test-in-front test-programs test-others test-lab test-library test-crates test-docs bench traces

# How tests are compiled: for campaigns as a release is, for the gate in half the time (`Cargo.toml`).
PROFILE = release
TEST = --profile $(PROFILE) --workspace --features twinpage/serde --no-fail-fast
# A shell ignores signals for what it runs in the background; some tests send them.
RUN_TESTS = env --default-signal cargo test --lib --bins --tests $(TEST)

# Clippy looks at the code as it is compiled for the tests (`.ci/rustc`), so that nothing is read twice. Examples and
# benchmarks are compiled for Clippy alone.
#
# The programs under `twinpage run` come first: much of such a test waits for programs that it kills, so twice as many run
# at once as there are processors. The lab's tests and those of documents only compute: they have the processor time
# that is left, in sessions of their own (`.ci/last`).
LAST = .ci/last
test: export RUST_TEST_THREADS = 4
# The errors of code that does not compile are compared (trybuild): nothing of that is run.
test: export CARGO_PROFILE_DEV_OPT_LEVEL = 0
test: export CARGO_PROFILE_DEV_DEBUG = false
test compile: export RUSTC_WORKSPACE_WRAPPER = $(CURDIR)/.ci/rustc
test compile: PROFILE = gate
test:
	cargo fmt --all --check
	$(MAKE) -k PROFILE=$(PROFILE) test-all

test-all: compile
	$(MAKE) -k -j3 test-in-front test-lab test-docs
compile:
	$(RUN_TESTS) --examples --benches --no-run
test-in-front:
	$(MAKE) -k -j1 test-programs test-others
test-others:
	$(MAKE) -k -j2 test-library test-crates

# Clippy alone: two minutes.
lint:
	cargo clippy --profile gate --workspace --all-targets --features twinpage/serde -- -D warnings

# A part of the tests: the programs under `twinpage run` and the command; regions and arrays; the lab; all else.
PART = env TWINPAGE_PART=$(1) $(RUN_TESTS) --config 'target."cfg(unix)".runner="$(CURDIR)/.ci/part"'
test-programs:
	$(call PART,programs)
test-lab:
	$(LAST) $(call PART,lab)
test-library:
	$(call PART,library)
test-crates:
	$(call PART,crates)
test-docs:
	$(LAST) cargo test --doc $(TEST)

# What the gate does not run, in its shortest form: a power cut of each medium, a sanitizer over the smallest tests.
# Some minutes. Run it before an issue is called resolved: what is never run breaks unseen.
before-resolving: test power-short sanitize-address-short

# Beside the gate: the campaigns of the explorer, the fuzzers, the kills and the power cuts, Miri and the sanitizers.
# Those look at each path of the code, and see nothing new in one that is taken a thousand times.
nightly: campaigns miri sanitize

# Much of a campaign waits for programs that it kills, so several tests run at once, and all of it may run side by
# side: make -k -j7 nightly. Each unit of code is optimized by itself: a quarter less to compile. What the derive macros
# use is compiled as all else uses it, and so once.
campaigns power power-short: export CARGO_PROFILE_RELEASE_LTO = off
campaigns power: export CARGO_PROFILE_RELEASE_BUILD_OVERRIDE_OPT_LEVEL = 3
campaigns: export TWINPAGE_LONG = 1
campaigns: export RUST_TEST_THREADS = 6
campaigns: test-programs test-lab test-library test-crates power

# Power cuts in an emulated machine: on persistent memory, on a disk that loses its cache, on one that fails.
# Not in `test`: the machine has to be fetched, and boots for several seconds a cut.
power:
	.ci/machine target/kernel
	TWINPAGE_KERNEL=$(CURDIR)/target/kernel cargo test $(TEST) --test power

# One cut of a store on a disk, one of a program.
power-short: PROFILE = gate
power-short:
	.ci/machine target/kernel
	TWINPAGE_SHORT=1 TWINPAGE_KERNEL=$(CURDIR)/target/kernel cargo test $(TEST) --test power -- disk

# Rust as its interpreter and its sanitizers see it: what each covers is in docs/guarantees.md. They need a
# nightly toolchain, which is installed; not in `test`: a quarter of an hour each on two cores.
toolchain:
	rustup toolchain install nightly --profile minimal --component miri,rust-src
	cargo +nightly miri setup
NIGHTLY_TEST = cargo +nightly test --profile gate --target x86_64-unknown-linux-gnu

# Addresses are kept in bytes, so they come back as integers: `permissive-provenance`. A window is one
# allocation of megabytes with a mark for each line: what Miri can track of every byte of it costs it hours, so
# that parts are left out where a window is at work. The heap and the collections have all of it.
MIRI = MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance $(1)" CARGO_TARGET_DIR=target/miri \
	cargo +nightly miri test
miri: miri-core miri-versions miri-collections miri-liars miri-window miri-marks miri-orders
miri-core: toolchain
	$(call MIRI,) -p twinpage-core --test under_miri
miri-versions: toolchain
	$(call MIRI,-Zmiri-many-seeds=0..4) -p twinpage-versions --test under_miri
miri-collections: toolchain
	$(call MIRI,) -p twinpage --test under_miri -- rows tables
miri-liars: toolchain
	$(call MIRI,) -p twinpage --test liars
AT_WORK = -Zmiri-disable-stacked-borrows
miri-window: toolchain
	$(call MIRI,$(AT_WORK) -Zmiri-disable-weak-memory-emulation) -p twinpage --test under_miri -- a_region
miri-marks: toolchain
	$(call MIRI,$(AT_WORK) -Zmiri-disable-weak-memory-emulation) \
		-p twinpage --lib -- marks::tests::a_ marks::tests::forgotten marks::tests::lines gate::tests::an_update \
		objects::lanes
# The gate, and the race for the lines of a cut, with stores that are seen late: other schedules, other orders.
miri-orders: toolchain
	$(call MIRI,$(AT_WORK) -Zmiri-many-seeds=0..4) \
		-p twinpage --lib -- marks::tests::every gate::tests::a_cut

sanitize: sanitize-address sanitize-thread

ADDRESS = RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=target/sanitize/address TWINPAGE_SANITIZED=1 \
	LSAN_OPTIONS="suppressions=$(CURDIR)/crates/region/tests/lsan.txt:print_suppressions=0" $(NIGHTLY_TEST)
sanitize-address: toolchain
	$(ADDRESS) --no-fail-fast -p twinpage-os -p twinpage --lib --tests

# The media, the copier and what they stand on.
sanitize-address-short: toolchain
	$(ADDRESS) -p twinpage-os --lib --test media --test copier

# The thread sanitizer must see the standard library too, and has a use of its own for the addresses of windows.
sanitize-thread: toolchain
	RUSTFLAGS="-Zsanitizer=thread --cfg twinpage_plain" CARGO_TARGET_DIR=target/sanitize/thread \
		TSAN_OPTIONS="halt_on_error=1" $(NIGHTLY_TEST) -Zbuild-std \
		-p twinpage --lib --test under_miri -- gate:: marks:: heap:: rows tables a_region

# The command, and the program beside it that knows the stores it is compared with.
install:
	cargo install --locked --path crates/cli
	cargo install --locked --path bench

bench:
	cargo run --release -- bench process

# Traces of free programs that stand in for SPEC's, for the lab (see crates/lab/programs/record): a few minutes
# for all. What is not installed is left out; `make traces INSTALL=1` installs it.
traces:
	cargo build --release -p twinpage-cli
	INSTALL=$(INSTALL) TWINPAGE=$(CURDIR)/target/release/twinpage crates/lab/programs/record $(CURDIR)/target/traces
