# SPDX-License-Identifier: GPL-2.0
#
# The commands of the project; each target calls one script, and the scripts
# explain themselves. With KDIR= the module is built for a kernel of the user's
# own, with the machine's own tools.

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := modules

.PHONY: help all modules modules_install load demo quick test test-all test-sanitize mutants bench check fuzz hostile shell verbs deb clean

help:
	@echo 'make demo            set everything up, boot two hosts on a stock kernel, show the main job'
	@echo 'make quick           build, boot, and the tests that a change touches, in a minute and a half'
	@echo 'make test            every test: cargo, KUnit, guest scenarios; ends with passed, failed, skipped;'
	@echo '                     the packages if packaging, scripts, Kbuild or tools have changed'
	@echo 'make test-all        the same, the packages always, and the long tests of devices for verbs: NVMe,'
	@echo '                     NFS, MPI, 2 GiB, pyverbs; make demo'
	@echo 'make test-sanitize   the guest tests under KASAN, lockdep, kmemleak and injected failures;'
	@echo '                     SHARD=1/4 runs the first quarter'
	@echo 'make mutants         known defects put back one by one; each must be noticed (hours)'
	@echo 'make bench           measurements beside the peers: a table, build/bench.json, an SVG plot'
	@echo 'make bench COUNT=1   the same in instructions instead of time: a column of the table, build/bench-count.json'
	@echo 'make check           formatting, clippy, checkpatch, docs, dead links'
	@echo 'make fuzz TIME=60    seeded fuzzing of the ioctls, the rings and verbs, for so many seconds'
	@echo 'make hostile TIME=600  attacks over the wire beside a good flow, for so many seconds'
	@echo 'make shell           a guest to play in, module loaded'
	@echo 'make                 the module alone, for the stock kernel of the guest'
	@echo 'make KDIR=<tree>     the module for a kernel of your own: its build tree, or Debian'"'"'s headers'
	@echo 'make modules_install with KDIR=: install it, and the headers for modules that use it'
	@echo '                     (INSTALL_MOD_PATH= for another root)'
	@echo 'make load            with KDIR=: load it into the running kernel (as root)'
	@echo 'make verbs           libkfabric, with which programs use a device by verbs, for rdma-core 56 and 65'
	@echo 'make deb             Debian packages in build/deb: kfabric-dkms, kfi, libkfi-dev, kfabric-verbs-56, -65'
	@echo 'make clean           remove build/ (the caches stay; see KFABRIC_CACHE)'
	@echo 'make help            this list'
	@echo
	@echo 'Set-up is made where it is missing: a toolchain root and kernels, kept in'
	@echo '$${KFABRIC_CACHE:-~/.cache/kfabric}. ACCEL=kvm|tcg overrides the probe.'
	@echo 'KERNEL=stock|plain|sanitize chooses the kernel of demo, test and shell: Debian'"'"'s own (the'
	@echo 'default), a small one with KUnit, or the sanitizing one.'
	@echo 'VNG=1 with test and shell boots with virtme-ng, from the Python package index; of test the'
	@echo 'parts kunit, scenarios and library.'

all: modules

ifdef KDIR
# The tree that was made from headers without Rust metadata replaces them. Only the
# target that builds looks for it, once, because that takes some seconds.
KDIR_TREE = $(eval KDIR_TREE := $(or $(shell scripts/kernel-metadata --find "$(KDIR)"),$(KDIR)))$(KDIR_TREE)
# A kernel built with clang wants its modules built with clang.
KDIR_LLVM = $(if $(shell grep -s '^CONFIG_CC_IS_CLANG=y' "$(1)/.config"),LLVM=1)
KDIR_OUT := $(CURDIR)/build/module-kdir
# The kernel for which the module was built: the KDIR that was given, and the tree
# in its place.
KDIR_BUILT = $(shell sed -n $(1)p "$(KDIR_OUT)/.kdir" 2>/dev/null)

modules:
	@scripts/check-kdir "$(KDIR_TREE)"
	@mkdir -p "$(KDIR_OUT)"
	+@$(MAKE) -C "$(KDIR_TREE)" $(call KDIR_LLVM,$(KDIR_TREE)) M="$(CURDIR)" MO="$(KDIR_OUT)" modules
	@printf '%s\n' "$(KDIR)" "$(KDIR_TREE)" >"$(KDIR_OUT)/.kdir"
	@echo "$(KDIR_OUT)/kfabric.ko"

# Root installs or loads what an ordinary user has built, and builds nothing.
# The configuration of a tree of kernel-metadata names a key that only the
# distribution has, so nothing is signed there.
modules_install load: KDIR_built
modules_install:
	+@$(MAKE) -C "$(call KDIR_BUILT,2)" $(call KDIR_LLVM,$(call KDIR_BUILT,2)) \
		M="$(CURDIR)" MO="$(KDIR_OUT)" \
		$(if $(wildcard $(call KDIR_BUILT,2)/.rust-symbols),CONFIG_MODULE_SIG_ALL=) modules_install
	@scripts/install-headers "$(call KDIR_BUILT,2)" "$(KDIR_OUT)" "$(INSTALL_MOD_PATH)"

load:
	@scripts/load "$(KDIR_OUT)/kfabric.ko" "$(KDIR)"

KDIR_built:
	@[ "$(call KDIR_BUILT,1)" = "$(KDIR)" ] || { \
		echo 'error: the module is not built for $(KDIR)' >&2; \
		echo '  next: make KDIR=$(KDIR)' >&2; exit 1; }
.PHONY: KDIR_built
else
modules:
	@scripts/module

modules_install:
	@echo 'error: modules_install needs KDIR=<build tree of the kernel to install for>' >&2; exit 1

load:
	@echo 'error: load needs KDIR=/lib/modules/$$(uname -r)/build, for which the module was built' >&2; exit 1
endif

demo:
	@qemu-test/demo

quick:
	@qemu-test/quick

test:
	@qemu-test/run

test-all:
	@qemu-test/run --all

test-sanitize:
	@qemu-test/run sanitize

mutants:
	@qemu-test/mutants/run

bench:
	@qemu-test/bench

check:
	@scripts/check

fuzz:
	@qemu-test/fuzz

hostile:
	@qemu-test/hostile

shell:
	@qemu-test/shell

verbs:
	@scripts/verbs-provider

deb:
	@scripts/deb

clean:
	@scripts/clean
