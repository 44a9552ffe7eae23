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
	# rdma(8) cannot list completion counters with their processes, so their number counts. The
	# kernel makes none.
	soon no_counters || {
		rdma resource show
		return 1
	}
}

no_counters() {
	rdma resource show >"$work/resources" && ! grep -q 'comp_cntr [1-9]' "$work/resources"
}

# no_user_objects KIND: no object belongs to a process. Objects of the kernel (QP 1) do not.
no_user_objects() { ! rdma resource show "$1" 2>/dev/null | grep -q ' pid '; }

# faults: a failure at every allocation of every call, which needs fault injection.
faults() {
	local gid program test
	add
	gid=$(gid kf0 192.0.2.1)
	for program in verbs-faults verbs-faults-device; do
		for test in $(debian a "/tmp/$program" --list); do
			limit=1800 check "faults: $test" debian a "/tmp/$program" kf0 "$gid" "$test"
			sed 's/^/# /' "$work/client" 2>/dev/null
			check "faults: $test: nothing is left" nothing_left
		done
	done
	delete
}

# held HOST DEVICE ADDRESS FILE [leave|hang]: starts verbs-held, usually with every kind of object, in
# the background, and sets $program to its process.
held() {
	# The output of an earlier program.
	rm -f "$4"
	limit=3000 debian "$1" /tmp/verbs-held "$2" "$(gid "$2" "$3")" "${@:5}" >"$4" 2>&1 &
	program=$!
	soon grep -q held "$4" || {
		cat "$4"
		return 1
	}
}

# held_on DEVICE [PROGRAM]: the processes of those programs, or of another one.
held_on() {
	local pid
	for pid in $(pidof "${2:-verbs-held}"); do
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

# in_time COMMAND...: the command takes less than two seconds, or thirty on the sanitizing kernel,
# whose guest may run beside others. A command that waits for a stopped program does not end at all.
in_time() {
	local start=${EPOCHREALTIME/[.,]/} status=0 took
	"$@" || status=$?
	took=$(((${EPOCHREALTIME/[.,]/} - start) / 1000))
	echo "it took $took ms"
	((took < 2000 * (patience > 10 ? 15 : 1))) && return $status
}

# stopped PID: stops a process until it gets SIGCONT.
stopped() { kill -STOP "$1" && soon grep -qE '^State:[[:space:]]+T' "/proc/$1/status"; }

# stopped_peers: pingpong of kf0 and kf1, with messages under way, and a program with every kind of
# object on kf1; those of kf1 are stopped.
stopped_peers() {
	on b rdma link add kf1 type kfabric netdev vb && held b kf1 192.0.2.2 "$work/held" || return
	debian b ibv_rc_pingpong -d kf1 -g "$(gid kf1 192.0.2.2)" -n 1000000 >"$work/peer" 2>&1 &
	tcp_on_b || return
	debian a ibv_rc_pingpong -d kf0 -g "$(gid kf0 192.0.2.1)" -n 1000000 192.0.2.2 \
		>"$work/watch" 2>&1 &
	watcher=$!
	sleep 0.5
	stopped "$(held_on kf1 ibv_rc_pingpong)" && stopped "$(held_on kf1)"
}

# ends_killed: the pingpong of kf0 ends when it is killed.
ends_killed() {
	kill -9 "$(held_on kf0 ibv_rc_pingpong)" && soon fails kill -0 "$watcher" 2>/dev/null
}

# stands_still: programs that are stopped let no other program wait.
stands_still() {
	local kind
	wanted "stands still:" || return 0
	add
	check "a peer stands still: two programs are stopped" stopped_peers
	check "a peer stands still: the program at the other end is killed in time" in_time ends_killed
	check "a peer stands still: the device of the killed program is deleted in time" in_time delete
	check "a peer stands still: the device of the stopped programs is deleted in time" \
		in_time delete kf1
	# shellcheck disable=SC2046 # one argument for each
	kill -9 $(held_on kf1 ibv_rc_pingpong) $(held_on kf1) 2>/dev/null
	wait "$program"
	check "a peer stands still: nothing is left" nothing_left
	# An Ethernet interface, and another one, whose GIDs the RDMA subsystem does not drop by itself.
	for kind in dummy tun; do
		check "a call stands still: a program on $kind waits in it" hangs "$kind"
		check "a call stands still: the interface $kind is removed in time" in_time removes_interface
		check "a call stands still: the device goes with the program on $kind" hang_ends
	done
}

# hangs KIND: a program on a device of an interface of its own makes a call that does not end.
hangs() {
	if [ "$1" = tun ]; then on a ip tuntap add vc mode tun; else on a ip link add vc type "$1"; fi &&
		on a ip address add 198.51.100.1/24 dev vc && on a ip link set vc up &&
		on a rdma link add kfc type kfabric netdev vc && held a kfc 198.51.100.1 "$work/held" hang
}

# removes_interface: removes the interface of that device in the background. A removal that waits
# for the program ends in hang_ends.
removes_interface() {
	on a ip link delete vc &
	remover=$!
	soon fails kill -0 "$remover" 2>/dev/null
}

# hang_ends: the program is killed, and its device goes.
hang_ends() {
	# shellcheck disable=SC2046 # one argument for each
	kill -9 $(held_on kfc)
	wait "$program" "$remover"
	soon fails test -e /sys/class/infiniband/kfc
}

# of_cgroup: the objects of a program, of each kind, are charged to its memory cgroup.
of_cgroup() {
	local kind
	echo +memory >/sys/fs/cgroup/cgroup.subtree_control
	for kind in cqs srqs qps counters; do
		fills_cgroup "cgroup-$kind" || {
			echo "cgroup-$kind failed"
			return 1
		}
	done
}

# fills_cgroup TEST: that test of verbs-queues.c takes the memory of its cgroup. The kernel may end
# no process there to get memory, so a call of the program fails. Thousands of calls take minutes
# under KASAN.
fills_cgroup() {
	local group=/sys/fs/cgroup/verbs limited=$((32 << 20)) status=0
	mkdir "$group" && echo $limited >"$group/memory.max" || return
	(
		echo "$BASHPID" >"$group/cgroup.procs" && echo -1000 >"/proc/$BASHPID/oom_score_adj" &&
			limit=600 queues "$1"
	) || status=$?
	echo "$1: peak $(cat "$group/memory.peak"), at the end $(cat "$group/memory.current")"
	(($(cat "$group/memory.peak") > limited * 9 / 10)) || status=1
	soon is_below "$group/memory.current" $((limited / 8)) || status=1
	soon rmdir "$group" || status=1
	return $status
}

# is_below FILE NUMBER: the number in the file is smaller.
is_below() { (($(cat "$1") < $2)); }

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
	gone && no_link kf0 || status=1
	delete kf1 && nothing_left || status=1
	return $status
}

# long: messages of 2 GiB, with the largest path MTU.
long() {
	add
	on a ip link set va mtu 9000
	limit=2700 check "long: WRITE, READ and SEND of 2 GiB" \
		debian a /tmp/verbs-transfers kf0 "$(gid kf0 192.0.2.1)" largest_of_all
	delete
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
	check "hostile: packets have come" \
		says '"?rx_packets"? [0-9]{3,}' rdma statistic show link kf1/1
	check "hostile: nothing is left" nothing_left
	delete
	delete kf1
}
