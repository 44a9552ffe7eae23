# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2154
#
# What no program, peer or lack of memory may do to the devices of kfabric_ib.ko: tests
# of qemu-test/verbs, and sections of it that run alone. Sourced there, never run.

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

# held HOST DEVICE ADDRESS FILE: a program with every kind of object, in the background; $program.
held() {
	# What the one before has printed.
	rm -f "$4"
	limit=3000 debian "$1" /tmp/verbs-held "$2" "$(gid "$2" "$3")" >"$4" 2>&1 &
	program=$!
	soon grep -q held "$4" || {
		cat "$4"
		return 1
	}
}

# held_on DEVICE: the processes of those programs.
held_on() {
	local pid
	for pid in $(pidof verbs-held); do
		! tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q " $1 " || echo "$pid"
	done
}

# killed_with_everything: a program with every kind of object, in use, leaves nothing.
killed_with_everything() {
	local left=5
	while ((left-- > 0)); do
		held a kf0 192.0.2.1 "$work/held" || return
		sleep 0.3
		# shellcheck disable=SC2046 # one argument for each
		kill -9 $(held_on kf0) || {
			cat "$work/held"
			return 1
		}
		wait "$program"
		nothing_left || return
	done
}

# opening: programs open kf0, whether it is there or not, until the file goes.
opening() { while [ -e "$work/opening" ]; do debian a ibv_devinfo -d kf0; done >/dev/null 2>&1; }

# come_and_go: a device is added and deleted again and again, while it is opened; each tenth
# time a program uses all of it. A program on another device goes on.
come_and_go() {
	local number status=0 other opens
	on b rdma link add kf1 type kfabric netdev vb && held b kf1 192.0.2.2 "$work/other" || return
	other=$program
	touch "$work/opening"
	opening &
	opens=$!
	for ((number = 1; number <= comings && status == 0; number++)); do
		add || status=1
		((number % 10)) || held a kf0 192.0.2.1 "$work/held" || status=1
		delete || status=1
		((number % 10)) || wait "$program"
	done
	rm "$work/opening"
	wait "$opens"
	kill -0 "$other" && kill -9 "$(held_on kf1)" || status=1
	wait "$other"
	gone && no_link_of_device || status=1
	delete kf1 && nothing_left || status=1
	return $status
}

# fuzz: random calls, for $SECONDS_OF_FUZZ from $SEED.
fuzz() {
	local status=0
	add
	limit=$((SECONDS_OF_FUZZ + 300)) debian a /tmp/verbs-fuzz kf0 "$(gid kf0 192.0.2.1)" \
		"$SECONDS_OF_FUZZ" "$SEED" || status=$?
	result "fuzz: calls of verbs" $status
	check "fuzz: nothing is left" nothing_left
	delete
}

# hostile: invalid packets to QPs, for $SECONDS_OF_ATTACKS from $SEED.
hostile() {
	local status=0
	add
	on b rdma link add kf1 type kfabric netdev vb
	limit=$((3 * SECONDS_OF_ATTACKS + 300)) debian b /tmp/verbs-hostile kf0 "$(gid kf0 192.0.2.1)" \
		kf1 "$(gid kf1 192.0.2.2)" "$SECONDS_OF_ATTACKS" "$SEED" \
		3</run/netns/a 4</run/netns/b || status=$?
	result "hostile: QPs of verbs" $status
	check "hostile: packets have come" says '"?rx_packets"? [0-9]{3,}' rdma statistic show link kf1/1
	check "hostile: nothing is left" nothing_left
	delete
	delete kf1
}
