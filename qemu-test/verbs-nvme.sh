# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2119,SC2120,SC2154
#
# NVMe over Fabrics on a device of kfabric_ib.ko: tests of qemu-test/verbs-storage. Sourced
# there, never run.
#
# The target and the initiator of the kernel work in the first network namespace only. So
# the initiator connects to an address of its own device. The disk is memory of the kernel.

nvmet=/sys/kernel/config/nvmet
address=192.0.2.1

device() { rdma link add kf0 type kfabric netdev va && gid kf0 $address; }

# target: serves /dev/ram0.
target() {
	local subsystem=$nvmet/subsystems/kf port=$nvmet/ports/1
	mkdir "$subsystem" "$port" || return
	echo 1 >"$subsystem/attr_allow_any_host"
	mkdir "$subsystem/namespaces/1"
	echo /dev/ram0 >"$subsystem/namespaces/1/device_path"
	echo 1 >"$subsystem/namespaces/1/enable" || return
	echo rdma >"$port/addr_trtype"
	echo ipv4 >"$port/addr_adrfam"
	echo $address >"$port/addr_traddr"
	echo 4420 >"$port/addr_trsvcid"
	ln -s "$subsystem" "$port/subsystems/kf"
}

# prove_locking VALUE: whether lockdep looks for locks that are taken in two orders.
prove_locking() { [ ! -e /proc/sys/kernel/prove_locking ] || echo "$1" >/proc/sys/kernel/prove_locking; }

# port_removed: nvmet destroys its listener under nvmet_config_sem, and the handler of a connection
# takes that semaphore. Both hold a mutex, of two rdma_cm IDs, which are one lock for lockdep.
port_removed() {
	local status=0
	prove_locking 0
	rm "$nvmet/ports/1/subsystems/kf" || status=1
	prove_locking 1
	return $status
}

no_target() {
	port_removed && rmdir "$nvmet/ports/1" &&
		echo 0 >"$nvmet/subsystems/kf/namespaces/1/enable" &&
		rmdir "$nvmet/subsystems/kf/namespaces/1" "$nvmet/subsystems/kf"
}

# disk: the device of the initiator.
disk() {
	local disk
	for disk in /dev/nvme*n1; do [ -b "$disk" ] && echo "$disk" && return; done
	return 1
}

# connected [OPTION]: the initiator connects, and has a disk.
connected() {
	printf '%s' "transport=rdma,traddr=$address,trsvcid=4420,nqn=kf,nr_io_queues=2,queue_size=32${1:-}" \
		>/dev/nvme-fabrics && soon disk
}

disconnected() {
	local controller
	for controller in /sys/class/nvme/nvme*; do
		echo 1 >"$controller/delete_controller"
	done
	soon not disk
}

# write_random: random bytes go to the target.
write_random() {
	dd if=/dev/urandom of=/tmp/random bs=1M count="$mib" 2>/dev/null
	dd if=/tmp/random of="$(disk)" bs=1M oflag=direct
}

# written: random bytes reach the target's memory, past all caches.
written() {
	write_random && blockdev --flushbufs /dev/ram0 && cmp -n $((mib << 20)) /tmp/random /dev/ram0
}

read_back() { dd if="$(disk)" bs=1M count="$mib" iflag=direct 2>/dev/null | cmp - /tmp/random; }

# small: requests of one sector, which many of the queue have at once.
small() {
	local part
	for part in 0 1 2 3; do
		dd if=/tmp/random of="$(disk)" bs=512 skip=$((part * sectors)) seek=$((part * sectors)) \
			count="$sectors" oflag=direct 2>/dev/null &
	done
	wait
	blockdev --flushbufs /dev/ram0
	cmp -n $((4 * sectors * 512)) /tmp/random /dev/ram0
}

file_system() {
	program /usr/sbin/mke2fs -q -t ext4 "$(disk)" && mkdir -p /mnt/disk && mount -t ext4 "$(disk)" /mnt/disk
}

files() {
	local i
	for i in $(seq 1 20); do
		dd if=/dev/urandom of="/mnt/disk/$i" bs=1000 count=$((i * mib * 6)) 2>/dev/null || return
	done
	(cd /mnt/disk && md5sum ./[0-9]*) >/tmp/sums
}

same_files() { (cd "${1:-/mnt/disk}" && md5sum -c /tmp/sums); }
mounted_again() { umount /mnt/disk && mount -t ext4 "$(disk)" /mnt/disk && same_files; }

# checked: the file system is in order, as the target has it.
checked() {
	blockdev --flushbufs /dev/ram0
	program /usr/sbin/e2fsck -fn /dev/ram0 || return
	mkdir -p /mnt/target
	mount -t ext4 -o ro /dev/ram0 /mnt/target && same_files /mnt/target && umount /mnt/target
}

# round NAME: what programs do with the disk.
round() {
	check "$1: what is written reaches the target" written
	check "$1: what is there is read" read_back
	check "$1: small requests, many at once" small
	check "$1: a file system is made and mounted" file_system
	check "$1: files are written" files
	check "$1: they are the same when it is mounted again" mounted_again
	check "$1: it is unmounted" umount /mnt/disk
	check "$1: the target has the file system in order" checked
}

# same_as_target: the initiator reads what the target has.
same_as_target() {
	blockdev --flushbufs /dev/ram0
	dd if="$(disk)" bs=1M count="$mib" iflag=direct 2>/dev/null | cmp -n $((mib << 20)) - /dev/ram0
}

# device_deleted: while the initiator is connected and reads.
device_deleted() {
	dd if="$(disk)" of=/dev/null bs=64k iflag=direct 2>/dev/null &
	sleep 0.3
	rdma link delete kf0 || return
	soon not test -e /sys/class/infiniband/kf0
}

# loaded [ib_core OPTION] [nvme_rdma OPTION]: the modules of both sides.
loaded() {
	load ib_core ${1:+"$1"} && modprobe ib_uverbs && modprobe rdma_ucm && load nvmet-rdma && load nvme-rdma ${2:+"$2"}
}

unloaded() {
	rmmod kfabric_ib && load -ra nvme-rdma nvmet-rdma rdma_ucm ib_uverbs rdma_cm iw_cm ib_cm ib_uverbs_support &&
		! grep '^ib_core ' /proc/modules
}

# memory_disk: what the target serves, and the files by which it is configured.
memory_disk() {
	load -a ext4 configfs && load brd rd_nr=1 rd_size=65536 && mount -t configfs none /sys/kernel/config
}

# disk_and_address: what the target serves, and where.
disk_and_address() {
	memory_disk || return
	ip link add va type veth peer name vb
	ip address add $address/24 dev va
	ip link set va up
	ip link set vb up
}

nvme() {
	check "a disk in memory" disk_and_address
	check "the modules of the kernel" loaded
	check "a device" device
	check "the target serves a disk" target
	check "the initiator connects" connected
	round "with registered memory at the initiator"
	check "the initiator disconnects" disconnected
	check "it connects again" connected
	check "it reads what the target has" same_as_target
	check "the device is deleted meanwhile" device_deleted
	check "the disk goes" soon not disk
	check "the target ends" no_target
	[ -z "$stock" ] || nvme_again
	ip link delete va
}

# The core registers memory of the target for its READs, and the initiator none for short lists. A
# kernel with the core built in cannot load it with other options.
nvme_again() {
	check "the modules are unloaded" unloaded
	check "the modules with other options" loaded force_mr=1 register_always=0
	check "the initiator has its option" grep N /sys/module/nvme_rdma/parameters/register_always
	check "a device again" device
	check "the target serves a disk again" target
	check "the initiator connects to it" connected
	round "with registered memory at the target"
	check "the initiator disconnects again" disconnected
	check "the target ends again" no_target
	check "the device is deleted" rdma link delete kf0
}
