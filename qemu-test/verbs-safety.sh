# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2154
#
# What no program, peer or lack of memory may do to the devices of kfabric_ib.ko: parts
# of qemu-test/verbs that run alone. Sourced there, never run.

# nothing_left: no program has an object of a device.
nothing_left() {
	local kind
	for kind in qp cq pd mr srq ctx; do
		soon no_user_objects "$kind" || {
			rdma resource show "$kind"
			return 1
		}
	done
}

# Objects of the kernel have no process, and are of QP 1.
no_user_objects() { ! rdma resource show "$1" 2>/dev/null | grep -q ' pid '; }

# faults: a failure at every allocation of every call, which needs fault injection.
faults() {
	local gid test
	add
	gid=$(gid kf0 192.0.2.1)
	for test in $(debian a /tmp/verbs-faults --list); do
		limit=900 check "faults: $test" debian a /tmp/verbs-faults kf0 "$gid" "$test"
		sed 's/^/# /' "$work/client" 2>/dev/null
		check "faults: $test: nothing is left" nothing_left
	done
	delete
}
