# Weir: build, try, test, install. `make` alone explains the targets.

PREFIX  ?= /usr/local
DESTDIR ?=
CARGO   ?= cargo
JOBS    ?= 2
# Trials of the matrix wait for most of their time.
MATRIX_JOBS ?= 3

# Before a Rust of the system, which may be too old.
export PATH := $(HOME)/.cargo/bin:$(PATH)
TARGET  := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
WEIR    := $(TARGET)/release/weir
LIBWEIR := $(TARGET)/release/libweir.so

bindir  := $(DESTDIR)$(PREFIX)/bin
libdir  := $(DESTDIR)$(PREFIX)/lib
incdir  := $(DESTDIR)$(PREFIX)/include
pcdir   := $(libdir)/pkgconfig
mandir  := $(DESTDIR)$(PREFIX)/share/man/man1
moddir  := $(DESTDIR)$(PREFIX)/share/modulefiles/weir
bashdir := $(DESTDIR)$(PREFIX)/share/bash-completion/completions
zshdir  := $(DESTDIR)$(PREFIX)/share/zsh/site-functions
fishdir := $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
unitdir := $(DESTDIR)$(PREFIX)/lib/systemd/user
docdir  := $(DESTDIR)$(PREFIX)/share/doc/weir

# What is installed knows where.
define placed
sed 's|@PREFIX@|$(PREFIX)|g; s|@VERSION@|$(VERSION)|g' dist/$(1) >$(2)
endef

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PREFIX=$(PREFIX) and DESTDIR say where install and uninstall work."

.PHONY: build
build: setup-build ## Build libweir.so and the weir command
	$(CARGO) build --release --workspace --exclude weir-world --exclude weir-fuzz

.PHONY: demo
demo: setup-demo build ## Run a checkpointing stencil under Weir and print its report
	@scripts/demo.sh

.PHONY: test
test: setup-test venvs build ## Run all tests: units, then every MPI and language of the matrix
	$(CARGO) test --workspace --exclude weir --quiet
	@$(MAKE) --no-print-directory simulate-faults
	scripts/planted.sh
	$(CARGO) test --package weir --lib --test header --test hot_path --quiet
	$(CARGO) test --package weir --test matrix -- --test-threads=$(MATRIX_JOBS)
	$(CARGO) test --package weir --test coordination -- --test-threads=$(JOBS)

.PHONY: simulate-faults
simulate-faults: ## Simulate coordination with faults in virtual time, SEEDS (20000) times
	$(CARGO) run --quiet --profile quick --package weir-world --features coverage -- \
		--replay crates/weir-world/seeds.txt --seeds $(or $(SEEDS),20000)

.PHONY: test-full
test-full: ## What `make test` leaves out because it takes long (as root)
	WEIR_LONG_TESTS=1 $(CARGO) test --package weir --test matrix -- --test-threads=1 storage_

.PHONY: fuzz
fuzz: ## Mutate frames for SECONDS (60) against decoder, coordinator and session
	$(CARGO) run --package weir-fuzz -- fuzz/corpus/wire $(or $(SECONDS),60)

.PHONY: check
check: build ## What a reviewer runs: format, lints, docs, header, symbols, licences, install
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items --quiet
	$(CARGO) test --package weir --test header --quiet
	scripts/check-symbols.sh $(LIBWEIR)
	scripts/check-licences.sh
	scripts/check-install.sh
	@echo "check: all good"

.PHONY: bench
bench: setup-test build ## Measure what Weir costs per call, and the engine
	scripts/bench.sh

.PHONY: bench-sharing
bench-sharing: setup-test build ## Measure what coordination is worth on limited storage (as root; an hour)
	benches/sharing/mix.py || [ $$? = 77 ]
	benches/sharing/shares.py || [ $$? = 77 ]
	benches/sharing/reads.py || [ $$? = 77 ]
	benches/sharing/harm.py || [ $$? = 77 ]

.PHONY: bench-programs
bench-programs: build ## Run real programs (lammps, gromacs, openfoam) and compare their phases with what was asked for
	benches/programs/record.py --times 5 || [ $$? = 77 ]

.PHONY: built
built:
	@test -e $(WEIR) -a -e $(LIBWEIR) || { echo "make: run \`make build\` without sudo first" >&2; exit 1; }

# Through sudo what its caller has built is installed: root has no Rust of its own, as a rule.
.PHONY: install
install: $(if $(SUDO_USER),built,build) ## Install library, command, headers, manual, completions, modulefile, …
	install -d $(bindir) $(incdir) $(pcdir) $(mandir) $(moddir) $(bashdir) $(zshdir) $(fishdir) $(unitdir) $(docdir)
	install -s -m 755 $(WEIR) $(bindir)/weir
	install -s -m 755 $(LIBWEIR) $(libdir)/libweir.so
	install -m 644 include/weir.h include/weir.f90 $(incdir)
	$(WEIR) man $(mandir)
	$(WEIR) completions bash >$(bashdir)/weir
	$(WEIR) completions zsh >$(zshdir)/_weir
	$(WEIR) completions fish >$(fishdir)/weir.fish
	$(call placed,weir.pc.in,$(pcdir)/weir.pc)
	$(call placed,modulefile.in,$(moddir)/$(VERSION))
	$(call placed,weir-coordinator.service.in,$(unitdir)/weir-coordinator.service)
	install -m 644 README.md CHANGELOG.md LICENSE $(docdir)
	find docs -type f -exec install -D -m 644 {} $(docdir)/{} ';'

.PHONY: uninstall
uninstall: ## Remove what install put there
	rm -f $(bindir)/weir $(libdir)/libweir.so $(incdir)/weir.h $(incdir)/weir.f90
	rm -f $(pcdir)/weir.pc $(moddir)/$(VERSION) $(mandir)/weir.1 $(mandir)/weir-*.1
	rm -f $(bashdir)/weir $(zshdir)/_weir $(fishdir)/weir.fish $(unitdir)/weir-coordinator.service
	rm -rf $(docdir)
	-rmdir $(moddir) 2>/dev/null

.PHONY: clean
clean: ## Remove everything that was built
	$(CARGO) clean
	rm -rf build

.PHONY: setup-build setup-demo setup-test venvs
setup-build:
	@scripts/setup-packages.sh build
setup-demo:
	@scripts/setup-packages.sh demo
setup-test:
	@scripts/setup-packages.sh test
venvs: setup-test
	@scripts/setup-venvs.sh
