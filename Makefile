# SPDX-License-Identifier: GPL-2.0
#
# What a person types; each target calls one script, and the scripts tell the
# rest. With KDIR= the module is built for a kernel of the user's own, with the
# machine's own tools.

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := modules

.PHONY: help all modules modules_install demo test test-sanitize bench check fuzz shell clean

help:
	@echo 'make demo            set everything up, boot two hosts in a test kernel, show the main job'
	@echo 'make test            every test: cargo, KUnit, guest scenarios; ends with passed, failed, skipped'
	@echo 'make test-sanitize   the guest tests under KASAN, lockdep, kmemleak and injected failures'
	@echo 'make bench           measurements beside the peers: a table, build/bench.json, an SVG plot'
	@echo 'make check           formatting, clippy, checkpatch, docs, dead links'
	@echo 'make fuzz TIME=60    seeded fuzzing of the ioctls and rings, for so many seconds'
	@echo 'make shell           a guest to play in, module loaded'
	@echo 'make                 the module alone, for the test kernel or for KDIR=<kernel build tree>'
	@echo 'make modules_install with KDIR=: install it (INSTALL_MOD_PATH= for another root)'
	@echo 'make clean           remove build/ (the caches stay; see KFABRIC_CACHE)'
	@echo 'make help            this list'
	@echo
	@echo 'Set-up is made where it is missing: a toolchain root and kernels, kept in'
	@echo '$${KFABRIC_CACHE:-~/.cache/kfabric}. ACCEL=kvm|tcg overrides the probe.'

all: modules

ifdef KDIR
# A kernel built with clang wants its modules built with clang.
KDIR_LLVM := $(if $(shell grep -s '^CONFIG_CC_IS_CLANG=y' '$(KDIR)/.config'),LLVM=1)
KDIR_MAKE = $(MAKE) -C "$(KDIR)" $(KDIR_LLVM) M="$(CURDIR)" MO="$(CURDIR)/build/module-kdir"

modules:
	@scripts/check-kdir "$(KDIR)"
	@mkdir -p build/module-kdir
	+@$(KDIR_MAKE) modules
	@echo "$(CURDIR)/build/module-kdir/kfabric.ko"

modules_install: modules
	+@$(KDIR_MAKE) modules_install
else
modules:
	@scripts/module plain

modules_install:
	@echo 'error: modules_install needs KDIR=<build tree of the kernel to install for>' >&2; exit 1
endif

demo:
	@qemu-test/demo

test:
	@qemu-test/run plain

test-sanitize:
	@qemu-test/run sanitize

bench:
	@qemu-test/bench

check:
	@scripts/check

fuzz:
	@qemu-test/fuzz

shell:
	@qemu-test/shell

clean:
	@scripts/clean
