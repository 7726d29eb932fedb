# Every target sets itself up, and can be run on a fresh machine.
#
# All of them build the same selection of packages, the workspace's default members, in the same profile:
# cargo chooses the features of a dependency by what is selected with it, so `-p` or `--workspace` here would
# build wasmtime once more, which takes minutes.

HOLDPOINT := $(or $(CARGO_TARGET_DIR),target)/debug/holdpoint
NODES := $(dir $(wildcard guests/*/Cargo.toml))
TEST_NODES := $(dir $(wildcard tests/guests/*/Cargo.toml))
OTHER_NODES := $(dir $(wildcard guests/*/pyproject.toml guests/*/package.json tests/languages/*/p*))
# Where the tests look for compiled components, and for the tools of Python and JavaScript.
TEST_CACHE := $(or $(CARGO_TARGET_DIR),target)/tmp/components-compiled

.PHONY: help
help:
	@echo "make demo     the main job, from a run that is killed to the answer (ARGS=--yes: asks nobody)"
	@echo "make demo-mixed   the same, with nodes in three languages"
	@echo "make test     all tests"
	@echo "make lint     formatting and lints"
	@echo "make deny     licences, sources and advisories of all that is built in"
	@echo "make soak     random graphs, crashes and kills, until stopped or until one ends otherwise than it must"
	@echo "make fuzz     whatever a node or a client can hand in, each entry for 30 seconds (FUZZ_SECONDS=300 FUZZ=answers)"
	@echo "make load     a thousand clients of the service, which is killed every few seconds; four minutes"
	@echo "make bench    the page that users compare by, in some minutes (QUICK=1, FULL=1, PART='cycle start')"
	@echo "make bench-publish   puts the last run's table and charts into README"
	@echo "make host     the program: $(HOLDPOINT)"
	@echo "make guests   the example nodes: target/components"
	@echo "make languages   the nodes in Python, JavaScript and C: target/components"

.PHONY: demo
demo: guests
	$(HOLDPOINT) demo $(ARGS)

# The same desk with nodes in JavaScript, Python and Rust.
.PHONY: demo-mixed
demo-mixed: guests languages
	$(HOLDPOINT) demo --cache $(TEST_CACHE) --graph guests/issue-desk-mixed.toml $(ARGS)

.PHONY: test
test: guests languages
	$(HOLDPOINT) build $(TEST_NODES)
	cargo test

# Prints the seed of a failure; HOLDPOINT_TEST_SEED=… shows that one again.
.PHONY: soak
soak: guests
	$(HOLDPOINT) build $(TEST_NODES)
	# The crashes are panics on purpose, and many.
	HOLDPOINT_TEST_SOAK=1 RUST_BACKTRACE=0 cargo test --test it -- --nocapture i50_ kills::

# Ends by itself; LOAD_SECONDS, LOAD_CLIENTS and LOAD_KILL_MS say otherwise.
LOAD_SECONDS := 240
LOAD_CLIENTS := 1000
LOAD_KILL_MS := 8000
.PHONY: load
load: guests
	$(HOLDPOINT) build $(TEST_NODES)
	HOLDPOINT_LOAD_SECONDS=$(LOAD_SECONDS) HOLDPOINT_LOAD_CLIENTS=$(LOAD_CLIENTS) HOLDPOINT_LOAD_KILL_MS=$(LOAD_KILL_MS) \
		HOLDPOINT_LOAD_REPORT=$(abspath $(or $(CARGO_TARGET_DIR),target))/load.json \
		cargo test --test it -- --nocapture load::

.PHONY: lint
lint:
	cargo fmt --all --check
	cargo clippy --all-targets -- --deny warnings

.PHONY: deny
deny:
	.ci/deny

.PHONY: fuzz
fuzz: guests
	$(HOLDPOINT) build $(TEST_NODES)
	tests/fuzz/run $(or $(FUZZ_SECONDS),30) $(FUZZ)

# QUICK=1 only shows that all of it works; FULL=1 has a million paused threads, which takes minutes more and
# gigabytes of disk; PART='threads start' runs those alone.
.PHONY: bench
bench: guests languages
	$(HOLDPOINT) build $(TEST_NODES)
	# The host alone, or the tests' fail points would be measured too; backtraces cost at every pause.
	RUST_BACKTRACE=0 cargo bench -p holdpoint --bench speed -- $(if $(QUICK),--quick) $(if $(FULL),--full) $(PART)

# What a run of all parts left in target/bench; nothing is measured again.
.PHONY: bench-publish
bench-publish:
	test -s target/bench/bench.md
	cp target/bench/bench-charts/*.svg host/benches/charts/
	sed -i -e '/^<!-- bench -->$$/,/^<!-- end of bench -->$$/{//!d}' -e '/^<!-- bench -->$$/r target/bench/bench.md' README.md

.PHONY: host
host:
	cargo build --bin holdpoint

# What builds for wasm32-wasip2, where it is missing.
.PHONY: toolchain
toolchain:
	.ci/toolchain

.PHONY: guests
guests: host toolchain
	$(HOLDPOINT) build $(NODES)

# Compiled where the tests will look: an interpreter takes half a minute.
.PHONY: languages
languages: host
	.ci/languages
	tests/languages/c/build
	$(HOLDPOINT) build --cache $(TEST_CACHE) $(sort $(OTHER_NODES))
