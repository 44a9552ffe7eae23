# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2034,SC2154
#
# NVMe over Fabrics between two kernels (qemu-test/pair): guest 2 has the target, guest 1
# the initiator and the tests. What serves and uses the disk is in verbs-nvme.sh. Sourced
# by qemu-test/verbs-storage, never run.

address=192.0.2.2

# ready: this guest has the modules, a device on the wire and, as guest 2, the target.
ready() {
	load ext4 && loaded && rdma link add kf0 type kfabric netdev eth0 || return
	[ "$HOST" = 2 ] || return 0
	gid kf0 $address && memory_disk && target
}

written_and_read() { write_random && read_back; }

# initiator: the tests, by the other kernel's disk. A test is a process of its own, so the number of
# the second meeting is set here.
initiator() {
	check "two kernels: the initiator has a device" ready
	check "two kernels: the target is there" meet
	check "two kernels: the initiator connects" connected
	check "two kernels: what is written is read" written_and_read
	check "two kernels: a file system is made and mounted" file_system
	check "two kernels: files are written" files
	check "two kernels: they are the same when it is mounted again" mounted_again
	check "two kernels: it is unmounted" umount /mnt/disk
	cp /tmp/sums "$work/sums"
	check "two kernels: the initiator disconnects" disconnected
	# The target compares, and ends.
	check "two kernels: the target gets the sums" given "$work/sums"
	step=1
	check "two kernels: the target has ended" meet
	check "two kernels: the device is deleted" rdma link delete kf0
}

# given FILE: the other guest has it.
given() {
	local tries=100
	until nc -w 5 "$there" 20999 <"$1"; do
		((tries--)) || return 1
		sleep 0.1
	done
}

# serve: the target, until the initiator has gone. Its file system is in order then. An initiator that
# has failed sends no sums.
serve() {
	ready && meet && timeout $((10 * limit)) nc -l -p 20999 >/tmp/sums </dev/null && [ -s /tmp/sums ] && checked && no_target || return
	meet && rdma link delete kf0
}
