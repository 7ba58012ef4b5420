# ftb: build, test, demonstrate, install. `make help` lists the targets.

PREFIX  ?= /usr/local
DESTDIR ?=
# Where the loader looks for libraries of that prefix: /usr/lib64 on RHEL, Rocky and SUSE.
LIBDIR  ?= $(PREFIX)/lib
CARGO   ?= cargo
TARGET   = $(or $(CARGO_TARGET_DIR),target)
# Where `make install` takes what was built from: target/debug for a quick look.
BUILD_DIR ?= $(TARGET)/release
BINARIES = ftb-agent ftbctl ftb-ipmi ftb-ib ftb-launch ftb-nla ftb-slurm ftb-act ftb-bridge
BUILT    = $(addprefix $(BUILD_DIR)/,$(BINARIES))
PAGES    = README.md LICENSE NOTICE SECURITY.md CHANGELOG.md SPECIFICATION.md CONTRIBUTING.md
# Pages that stand beside what they describe, and that those of docs/ link to.
BESIDE   = proto/json.md ftb-agent/limits.md ftb-agent/page.md ftb-act/guide.md ftb-slurm/guide.md \
  launcher/core/protocol.md launcher/benches/memory.md \
  launcher/job/fmi.md launcher/job/shrink.md launcher/job/warm.md launcher/job/src/job/roles.md \
  launcher/core/src/jl/phases.md launcher/core/src/policy/effects.md \
  deploy/monitoring/metrics.md deploy/monitoring/runbook.md ftb-bridge/guide.md \
  $(addprefix deploy/book/,install.md checklist.md symptoms.md failures.md upgrade.md)
# For the Prometheus of each node and the central one, and for Grafana.
MONITORING = node.yml prometheus.yml alerts.yml dashboard.json
SYSCONF  = $(if $(filter /usr,$(PREFIX)),/etc,$(PREFIX)/etc)
UNITDIR  = $(PREFIX)/lib/systemd/system
# What is installed and tested. One selection for all: with another one, Cargo unites other features
# and builds the dependencies again. The wheel is built by maturin.
WHOLE    = --workspace --exclude ftb-bench --exclude ftb-python
# Debug information is installed apart from programs and libraries, as below /usr/lib/debug.
DEBUG    = $(DESTDIR)$(PREFIX)/lib/debug
INSTALL  = ./deploy/install-stripped.sh
MAN      = $(DESTDIR)$(PREFIX)/share/man
SECTIONS = 1 5 7 8
COMPLETE_BASH = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
COMPLETE_ZSH  = $(DESTDIR)$(PREFIX)/share/zsh/vendor-completions
COMPLETE_FISH = $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d

.PHONY: all build help deps demo demo-memory test test-long test-versions fuzz check fmt clippy \
  doc audit advisories crates bench bench-launcher bench-memory microbench python packages package-files debs \
  rpms one-format image install install-capi install-python uninstall simulate book

all: build

help: ## this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

deps: ## install the Debian packages that building and testing need (as root; else print the line)
	@./deploy/dev/install-deps.sh build test

build: ## build everything that `make install` installs, in release mode
	@./deploy/dev/install-deps.sh build
	$(CARGO) build --release $(WHOLE) --lib --bins --examples

demo: ## a fan fails, the job moves, the answer is right (development build)
	@./deploy/dev/install-deps.sh build demo
	$(CARGO) build -p ftb-agent -p ftbctl -p ftb-ipmi -p ftb-launcher -p ftb-demo -p ftb-job --bins --examples
	./deploy/demo/run.sh

demo-memory: ## a node of an unmodified MPI program is lost; its images were in memory (as root)
	@./deploy/dev/install-deps.sh build demo-memory
	$(CARGO) build -p ftb-agent -p ftb-launcher -p ftb-demo --bins
	FTB_CRIU=$${FTB_CRIU:-$$(./deploy/dev/install-criu.sh .cache/criu)} ./deploy/demo/run.sh --memory

test: deps ## every test, those with real servers, drivers and BMCs included
	$(CARGO) build --workspace --lib --bins --examples
	FTB_BIN_DIR=$(abspath $(TARGET))/debug $(CARGO) test --workspace $(TEST_FLAGS)

SIM_FIRST ?= 1000000
SIM_SEEDS ?= 667

simulate: ## random faults: SIM_SEEDS (667) seeds from SIM_FIRST on of each of 15 mixes, 10,000 in all
	CARGO_PROFILE_DEV_OPT_LEVEL=3 FTB_SIM_FIRST=$(SIM_FIRST) FTB_SIM_SEEDS=$(SIM_SEEDS) \
	  $(CARGO) test --target-dir $(TARGET)/simulation -p ftb-core --test simulation -- \
	  nothing_silently nothing_that_was_confirmed --nocapture

test-long: deps ## tests that take many minutes and gigabytes: 100,000 simulated agents, 400 broken jobs, 100 killed ones under 16,000 events/s, adapter to subscriber
	$(CARGO) test -p ftb-core --test simulation -- --ignored --nocapture
	$(MAKE) simulate
	$(CARGO) build -p ftb-agent -p ftb-launcher --bins --examples
	$(CARGO) build -p ftb-ipmi --bins
	FTB_BIN_DIR=$(abspath $(TARGET))/debug $(CARGO) test -p ftb-launcher --test ramps --test hangs \
	  -- --ignored --nocapture
	FTB_FAULT_RUNS=200 FTB_BIN_DIR=$(abspath $(TARGET))/debug $(CARGO) test -p ftb-launcher --test recovery any_kill -- --nocapture
	$(CARGO) test --release -p ftb-job --test crowd -- --ignored --nocapture
	$(CARGO) build --release -p ftb-agent -p ftbctl -p ftb-ib --bins
	FTB_CONDITION_RUNS=100 FTB_BIN_DIR=$(abspath $(TARGET))/release $(CARGO) test --release -p ftb-tests --test conditions whatever_process_is_killed -- --nocapture
	FTB_DOCTOR_AGENTS=512 FTB_BIN_DIR=$(abspath $(TARGET))/release $(CARGO) test --release -p ftb-tests --test conditions --test doctor numbers -- --ignored --nocapture
	FTB_BRIDGE_LOAD=10 FTB_BIN_DIR=$(abspath $(TARGET))/release $(CARGO) test --release -p ftb-bridge --test nats -- --nocapture
	$(CARGO) test --release -p ftb-agent --test memory numbers -- --ignored --nocapture
	FTB_CHAOS_RUNS=100 $(CARGO) test --release -p ftb-tests --test chaos any_agent_may_be_killed -- --nocapture
	$(CARGO) test --release -p ftb-ib --test hardware -- --ignored --nocapture
	FTB_BIN_DIR=$(abspath $(TARGET))/release $(CARGO) test --release -p ftb-tests --test users \
	  -- --ignored --nocapture
	$(MAKE) --no-print-directory crates
	$(MAKE) --no-print-directory book
	$(CARGO) test -p ftb-tests --test book -- --ignored --nocapture
	$(CARGO) build --workspace --lib --bins --examples
	FTB_BIN_DIR=$(abspath $(TARGET))/debug $(CARGO) test --workspace --test packages --test upgrade --test image \
	  -- --ignored --nocapture
	$(MAKE) --no-print-directory test-versions

# Other releases of Slurm and Prometheus than this machine has, from suites of Debian.
SUITES      ?= trixie forky
HOST_TRIPLE  = $(shell rustc -vV | sed -n 's/host: //p')
RUNNER       = CARGO_TARGET_$(shell echo $(HOST_TRIPLE) | tr a-z- A-Z_)_RUNNER
IN_DEBIAN    = FTB_REQUIRE_ALL=1 FTB_BIN_DIR=$(abspath $(TARGET))/debug $(RUNNER)="$(CURDIR)/tests/debian.sh
OF_SLURM     = munge,slurmctld,slurmd,slurm-client,slurm-wlm-basic-plugins
OF_PROMETHEUS = prometheus,prometheus-alertmanager

test-versions: ## tests with Slurm and Prometheus of other Debian SUITES (trixie forky), as root
	$(CARGO) build --workspace --lib --bins --examples
	@for suite in $(SUITES); do \
	  $(IN_DEBIAN) $$suite $(OF_SLURM)" $(CARGO) test --workspace --test slurm || exit 1; \
	  $(IN_DEBIAN) $$suite $(OF_PROMETHEUS)" $(CARGO) test --workspace --test prometheus || exit 1; \
	done

# Crates with fuzz targets: in `tests/fuzz.rs`.
FUZZED       = ftb-core ftb-proto ftb-agent ftb-ipmi ftb-launcher-core ftb-launcher ftb-ib \
  ftb-slurm ftb-act ftb-bridge
FUZZ_SECONDS ?= 60
# The counters of libFuzzer. With --target, build scripts and macros are built without them.
FUZZ_COVER   = level=4 inline-8bit-counters pc-table trace-compares
FUZZ_FLAGS   = -Cpasses=sancov-module $(addprefix -Cllvm-args=-sanitizer-coverage-,$(FUZZ_COVER))
FUZZ_TEST    = RUSTFLAGS="$(FUZZ_FLAGS)" FTB_FUZZ_SECONDS=$(FUZZ_SECONDS) \
  $(CARGO) test --profile fuzz \
  --target $(shell rustc -vV | sed -n 's/host: //p') -p ftb-fuzz --features ftb-fuzz/libfuzzer

fuzz: ## libFuzzer on every target, FUZZ_SECONDS each (60); FTB_BLESS=1 keeps new inputs
	$(FUZZ_TEST) $(addprefix -p ,$(FUZZED)) --test fuzz

check: fmt clippy doc ## formatting, lints, documentation

fmt: ## formatting only
	$(CARGO) fmt --all --check

clippy: ## lints, warnings are errors
	$(CARGO) clippy --workspace --all-targets -- -D warnings

doc: ## the API documentation without warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

MDBOOK_VERSION = 0.5.4
MDBOOK   = $(TARGET)/tools/bin/mdbook

book: ## the book, from docs/ and the pages beside what they describe: target/book/html
	@$(MDBOOK) --version 2>/dev/null | grep -qx 'mdbook v$(MDBOOK_VERSION)' || \
	  $(CARGO) install mdbook --version $(MDBOOK_VERSION) --locked --no-default-features \
	    --features search --root $(TARGET)/tools
	./deploy/book/build.sh $(TARGET)/book
	$(MDBOOK) build $(TARGET)/book

audit: ## licences, bans, duplicate versions
	@command -v cargo-deny >/dev/null || $(CARGO) install cargo-deny --locked
	cargo deny --workspace check bans licenses sources

ADVISORIES = https://github.com/RustSec/advisory-db

advisories: ## known vulnerabilities of dependencies, where the database of RustSec can be reached
	@if ! timeout 30 git ls-remote -q $(ADVISORIES) HEAD >/dev/null 2>&1; then \
	  echo "skipped: advisories: $(ADVISORIES) cannot be reached"; else \
	  { command -v cargo-deny >/dev/null || $(CARGO) install cargo-deny --locked; } && \
	  cargo deny --workspace check advisories; fi

# In the order of their dependencies.
CRATES = ftb-cli ftb-core ftb-proto ftb-log ftb-transport ftb-rmcp ftb-client ftb-agent \
  ftb-launcher-core ftb-job ftb-launcher-pods ftb-launcher ftb-ipmi ftb-ib ftb-slurm ftb-act ftb-bridge \
  ftbctl
VERIFY ?=

crates: ## a dry run of `cargo publish`: each crate is packed and built from its package; VERIFY=--no-verify only packs
	$(CARGO) publish --dry-run $(VERIFY) $(addprefix -p ,$(CRATES))

bench: ## throughput and latency beside NATS and Zenoh in the same run (docs/performance.md)
	@./deploy/dev/install-deps.sh build bench
	$(CARGO) build --release -p ftb-bench -p ftb-agent --bins
	-$(CARGO) build --release --locked --manifest-path tests/bench/zenoh/Cargo.toml --target-dir $(TARGET)/zenoh
	$(TARGET)/release/ftb-bench --report $(TARGET)/bench.md

bench-launcher: ## launch, migration, recovery, what a migration costs a solver: four minutes once it is built (docs/performance.md)
	@./deploy/dev/install-deps.sh build test
	$(CARGO) build --release -p ftb-agent -p ftb-launcher --bins
	FTB_BIN_DIR=$(abspath $(TARGET))/release FTB_BENCH_REPORT=$(abspath $(TARGET))/bench.md \
	  $(CARGO) bench -p ftb-launcher --bench launch --bench migration --bench recover --bench solver

bench-memory: ## checkpoints in memory beside their model, deaths beside a restart (15 min)
	@./deploy/dev/install-deps.sh build test
	$(CARGO) build --release -p ftb-agent -p ftb-launcher --bins
	FTB_BIN_DIR=$(abspath $(TARGET))/release FTB_BENCH_REPORT=$(abspath $(TARGET))/bench.md \
	  $(CARGO) bench -p ftb-launcher --bench memory --bench notify

microbench: ## filter match, routing, encode and decode, ring, journal: what each costs (docs/performance.md)
	$(CARGO) build --release -p ftb-bench --bins
	$(CARGO) bench -p ftb-bench --bench micro > $(TARGET)/microbench.txt
	$(TARGET)/release/ftb-bench --report $(TARGET)/bench.md micro $(TARGET)/microbench.txt

python: ## the wheel of the Python package, in target/wheels (docs/python.md)
	@./deploy/dev/install-deps.sh build python
	ftb-client/python/wheel.sh $(TARGET)/wheels --release

install: ## into DESTDIR/PREFIX: binaries, units, sample configurations, the demonstration
	@for b in $(BUILT); do test -x $$b || { echo "$$b is missing: run make first" >&2; exit 1; }; done
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(UNITDIR) $(DESTDIR)$(SYSCONF)/ftb $(DESTDIR)$(PREFIX)/share/doc/ftb
	@for b in $(BUILT); do \
	  $(INSTALL) $$b $(DESTDIR)$(PREFIX)/bin/$$(basename $$b) $(DEBUG)$(PREFIX)/bin || exit 1; done
	install -d $(DESTDIR)$(PREFIX)/libexec/ftb
	@for b in $(BUILD_DIR)/ftb-demo $(BUILD_DIR)/examples/poisson; do \
	  $(INSTALL) $$b $(DESTDIR)$(PREFIX)/libexec/ftb/$$(basename $$b) $(DEBUG)$(PREFIX)/libexec/ftb || exit 1; done
	@for script in deploy/slurm/*; do \
	  sed -e 's|@BINDIR@|$(PREFIX)/bin|g' $$script > $(DESTDIR)$(PREFIX)/libexec/ftb/$$(basename $$script) && \
	  chmod 0755 $(DESTDIR)$(PREFIX)/libexec/ftb/$$(basename $$script) || exit 1; done
	@for unit in deploy/systemd/*.service deploy/systemd/*.timer; do \
	  sed -e 's|@BINDIR@|$(PREFIX)/bin|g' -e 's|@SYSCONFDIR@|$(SYSCONF)|g' $$unit > $(DESTDIR)$(UNITDIR)/$$(basename $$unit); \
	  chmod 0644 $(DESTDIR)$(UNITDIR)/$$(basename $$unit); done
	install -d $(DESTDIR)$(PREFIX)/lib/sysusers.d
	@for users in deploy/systemd/*.sysusers; do \
	  install -m 0644 $$users \
	    $(DESTDIR)$(PREFIX)/lib/sysusers.d/$$(basename $$users .sysusers).conf || exit 1; done
	install -d $(DESTDIR)$(SYSCONF)/ftb/ipmi-rules $(DESTDIR)$(PREFIX)/lib/udev/rules.d
	install -m 0644 deploy/config/ipmi-rules/*.toml $(DESTDIR)$(SYSCONF)/ftb/ipmi-rules
	install -m 0644 deploy/udev/*.rules $(DESTDIR)$(PREFIX)/lib/udev/rules.d
	@for section in $(SECTIONS); do \
	  install -d $(MAN)/man$$section && \
	  install -m 0644 deploy/man/*.$$section $(MAN)/man$$section || exit 1; done
	install -d $(COMPLETE_BASH)
	install -d $(COMPLETE_ZSH) $(COMPLETE_FISH)
	install -m 0644 deploy/completions/bash/* $(COMPLETE_BASH)
	install -m 0644 deploy/completions/zsh/* $(COMPLETE_ZSH)
	install -m 0644 deploy/completions/fish/* $(COMPLETE_FISH)
	@for config in deploy/config/*.toml; do \
	  install -m 0644 $$config $(DESTDIR)$(SYSCONF)/ftb/$$(basename $$config).sample; done
	install -d $(DESTDIR)$(PREFIX)/share/doc/ftb/docs
	install -m 0644 $(PAGES) $(DESTDIR)$(PREFIX)/share/doc/ftb
	install -m 0644 docs/*.md $(DESTDIR)$(PREFIX)/share/doc/ftb/docs
	@for page in $(BESIDE); do \
	  install -D -m 0644 $$page $(DESTDIR)$(PREFIX)/share/doc/ftb/$$page || exit 1; done
	install -d $(DESTDIR)$(PREFIX)/share/ftb/monitoring
	@for file in $(MONITORING); do \
	  sed 's|/usr/share/|$(PREFIX)/share/|' deploy/monitoring/$$file \
	    > $(DESTDIR)$(PREFIX)/share/ftb/monitoring/$$file && \
	  chmod 0644 $(DESTDIR)$(PREFIX)/share/ftb/monitoring/$$file || exit 1; done
	@$(MAKE) --no-print-directory install-capi
	@echo "installed; now copy $(SYSCONF)/ftb/agent.toml.sample to agent.toml, edit it, and: systemctl enable --now ftb-agent"

# Programs linked against CIFTS FTB ask for libftb.so, those linked from now on for libftb.so.0.
CAPI     = ftb-client/capi
CAPI_DIR ?= $(BUILD_DIR)
LIBFTB   = libftb.so.0.5.0
# The state of parallel programs in the memory of their nodes (docs/job.md).
JOB_CAPI = launcher/job/capi
LIBJOB   = libftbjob.so.0.1.0

install-capi: ## the C libraries alone: headers, libftb.so, libftb.a, libftbjob.so, .pc files
	@for library in libftb.so libftb.a libftbjob.so; do test -f $(CAPI_DIR)/$$library || { \
	  echo "$(CAPI_DIR)/$$library is missing: run make first" >&2; exit 1; }; done
	install -d $(DESTDIR)$(PREFIX)/include/ftb $(DESTDIR)$(LIBDIR)/pkgconfig
	install -m 0644 $(CAPI)/include/*.h $(JOB_CAPI)/include/*.h $(DESTDIR)$(PREFIX)/include
	install -m 0644 $(JOB_CAPI)/include/ftb/*.h $(DESTDIR)$(PREFIX)/include/ftb
	$(INSTALL) $(CAPI_DIR)/libftb.so $(DESTDIR)$(LIBDIR)/$(LIBFTB) $(DEBUG)$(LIBDIR)
	ln -sf $(LIBFTB) $(DESTDIR)$(LIBDIR)/libftb.so.0
	ln -sf $(LIBFTB) $(DESTDIR)$(LIBDIR)/libftb.so
	$(INSTALL) $(CAPI_DIR)/libftb.a $(DESTDIR)$(LIBDIR)/libftb.a $(DEBUG)$(LIBDIR)
	$(INSTALL) $(CAPI_DIR)/libftbjob.so $(DESTDIR)$(LIBDIR)/$(LIBJOB) $(DEBUG)$(LIBDIR)
	ln -sf $(LIBJOB) $(DESTDIR)$(LIBDIR)/libftbjob.so.0
	ln -sf $(LIBJOB) $(DESTDIR)$(LIBDIR)/libftbjob.so
	@for pc in $(CAPI)/libftb.pc $(JOB_CAPI)/libftbjob.pc; do \
	  to=$(DESTDIR)$(LIBDIR)/pkgconfig/$$(basename $$pc); \
	  sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' $$pc.in > $$to && \
	  chmod 0644 $$to || exit 1; done

# Where Python looks for packages of the system: without pip. The wheel is for all else.
PYTHONDIR ?= $(PREFIX)/lib/python3/dist-packages
PYTHON   = ftb-client/python/python/ftb
VERSION ?= $(shell sed -n '/^\[workspace.package\]/,/^$$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
DISTINFO = $(DESTDIR)$(PYTHONDIR)/ftb-$(VERSION).dist-info

install-python: ## the Python package alone, into PYTHONDIR
	@test -f $(BUILD_DIR)/lib_native.so || { \
	  echo "$(BUILD_DIR)/lib_native.so is missing: run cargo build --release -p ftb-python" >&2; \
	  exit 1; }
	install -d $(DESTDIR)$(PYTHONDIR)/ftb $(DISTINFO)
	install -m 0644 $(PYTHON)/*.py $(PYTHON)/*.pyi $(PYTHON)/py.typed $(DESTDIR)$(PYTHONDIR)/ftb
	$(INSTALL) $(BUILD_DIR)/lib_native.so $(DESTDIR)$(PYTHONDIR)/ftb/_native.abi3.so $(DEBUG)$(PYTHONDIR)/ftb
	printf 'Metadata-Version: 2.1\nName: ftb\nVersion: $(VERSION)\nLicense: Apache-2.0\n' \
	  > $(DISTINFO)/METADATA

packages: build ## .deb and .rpm packages, in target/packages
	@./deploy/dev/install-deps.sh package
	$(CARGO) build --release -p ftb-python --lib
	@$(MAKE) --no-print-directory package-files

# RPM distributions have libraries and Python packages elsewhere: PYTHON_RPM is that of RHEL 9.
PACKAGES   ?= $(TARGET)/packages
PYTHON_RPM ?= /usr/lib64/python3.9/site-packages
DEB_LIBDIR  = /usr/lib/$(shell dpkg-architecture -qDEB_HOST_MULTIARCH)

package-files: debs rpms ## the packages of what is built; BUILD_DIR=target/debug FAST=1 for a trial

debs:
	@$(MAKE) --no-print-directory one-format FORMAT=deb LIBDIR=$(DEB_LIBDIR) \
	  PYTHONDIR=/usr/lib/python3/dist-packages

rpms:
	@$(MAKE) --no-print-directory one-format FORMAT=rpm LIBDIR=/usr/lib64 PYTHONDIR=$(PYTHON_RPM)

one-format:
	rm -rf $(PACKAGES)/tree-$(FORMAT) $(PACKAGES)/*.$(FORMAT)
	install -d $(PACKAGES)
	deploy/packages/sbom.sh > $(PACKAGES)/sbom.cdx.json
	$(MAKE) --no-print-directory install install-python PREFIX=/usr \
	  DESTDIR=$(abspath $(PACKAGES))/tree-$(FORMAT) >/dev/null
	install -m 0644 $(PACKAGES)/sbom.cdx.json $(PACKAGES)/tree-$(FORMAT)/usr/share/doc/ftb
	LIBDIR=$(LIBDIR) PYTHONDIR=$(PYTHONDIR) \
	  deploy/packages/build.sh $(FORMAT) $(PACKAGES)/tree-$(FORMAT) $(PACKAGES)

image: ## a static agent, and with buildah or podman a container image of it; files in target/image
	@./deploy/dev/install-deps.sh build
	deploy/image/build.sh $(TARGET)/image --release

uninstall: ## what install put there, but not your configuration
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/bin/,$(BINARIES)) $(DESTDIR)$(UNITDIR)/ftb-*.service $(DESTDIR)$(UNITDIR)/ftb-*.timer
	rm -f $(DESTDIR)$(PREFIX)/lib/udev/rules.d/70-ftb-*.rules
	@for section in $(SECTIONS); do \
	  for page in deploy/man/*.$$section; do \
	    rm -f $(MAN)/man$$section/$$(basename $$page); done; done
	rm -f $(addprefix $(COMPLETE_BASH)/,$(notdir $(wildcard deploy/completions/bash/*)))
	rm -f $(addprefix $(COMPLETE_ZSH)/,$(notdir $(wildcard deploy/completions/zsh/*)))
	rm -f $(addprefix $(COMPLETE_FISH)/,$(notdir $(wildcard deploy/completions/fish/*)))
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/include/,\
	  $(notdir $(wildcard $(CAPI)/include/*.h $(JOB_CAPI)/include/*.h)))
	rm -rf $(DESTDIR)$(PREFIX)/include/ftb
	rm -f $(DESTDIR)$(LIBDIR)/libftb.* $(DESTDIR)$(LIBDIR)/libftbjob.* \
	  $(DESTDIR)$(LIBDIR)/pkgconfig/libftb*.pc
	rm -f $(addprefix $(DEBUG)$(PREFIX)/bin/,$(addsuffix .debug,$(BINARIES)))
	rm -f $(DEBUG)$(PREFIX)/libexec/ftb/*.debug $(DEBUG)$(LIBDIR)/libftb*.debug
	rm -f $(DESTDIR)$(PREFIX)/lib/sysusers.d/ftb-*.conf $(DESTDIR)$(SYSCONF)/ftb/*.toml.sample
	rm -rf $(DESTDIR)$(PREFIX)/share/doc/ftb $(DESTDIR)$(PREFIX)/share/ftb
	rm -rf $(DESTDIR)$(PREFIX)/libexec/ftb
