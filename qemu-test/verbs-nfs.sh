# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2154
#
# NFS over RDMA between two hosts with devices of kfabric_ib.ko: tests of
# qemu-test/verbs-storage. Sourced there, never run.
#
# The server is on host b and serves a folder in memory; the client is on host a. The
# server writes and reads files by RDMA, in memory that the client registers for each call
# (REG_MR, and SEND_WITH_INV or LOCAL_INV).

exported=/tmp/exported
mounted=/tmp/mounted

# nfs_on HOST COMMAND...: a program of the root of the peers. It stays in this mount namespace; the
# names of network namespaces are mounts that the root does not have.
nfs_on() {
	local namespace=/run/netns/$1
	shift
	program /usr/bin/nsenter --net=/proc/self/fd/9 "$@" 9<"$namespace"
}

nfs_modules() {
	modprobe ib_uverbs && modprobe rdma_ucm && modprobe kfabric_ib && load -a nfsd nfsv4 rpcrdma
}

nfs_devices() {
	on a rdma link add kf0 type kfabric netdev va && on b rdma link add kf1 type kfabric netdev vb
}

# nfs_serves: NFSv4 alone, by RDMA. The daemon mountd tells the kernel what is exported.
nfs_serves() {
	local folder
	mkdir -p $exported && chmod 777 $exported
	for folder in /peers/etc /peers/var/lib/nfs; do cover $folder || return; done
	echo "$exported 192.0.2.0/24(rw,sync,fsid=0,no_subtree_check,no_root_squash,insecure)" >/peers/etc/exports
	nfs_on b mount -t nfsd nfsd /proc/fs/nfsd && nfs_on b exportfs -ra &&
		nfs_on b rpc.mountd -N 2 -N 3 &&
		nfs_on b rpc.nfsd -N 3 -V 4.2 --rdma=20049 -G 10 -L 10 4 &&
		nfs_on b grep 'rdma 20049' /proc/fs/nfsd/portlist
}

nfs_mounted() {
	mkdir -p $mounted
	nfs_on a mount.nfs4 192.0.2.2:/ $mounted -o rdma,port=20049,vers=4.1,soft,timeo=100,retrans=6 &&
		nfs_by_rdma true
}

# nfs_by_rdma COMMAND...: the command, if the client's folder is one of the server's.
nfs_by_rdma() { grep "$here nfs4 .*proto=rdma" /proc/mounts && "$@"; }

nfs_unmounted() { program umount $mounted; }

# The client's folder, in the mount namespace of the programs.
here=/peers$mounted

nfs_written() {
	dd if=/dev/urandom of=/tmp/random bs=1M count=$((2 * mib)) 2>/dev/null
	dd if=/tmp/random of=$here/large bs=1M conv=fsync && cmp /tmp/random $exported/large
}

nfs_read() { cmp /tmp/random $here/large; }
nfs_direct() {
	dd if=/tmp/random of=$here/direct bs=256k oflag=direct conv=fsync && cmp /tmp/random $exported/direct &&
		dd if=$here/direct bs=256k iflag=direct 2>/dev/null | cmp - /tmp/random
}

nfs_files() {
	local i
	mkdir $here/many || return
	for i in $(seq 1 50); do
		dd if=/tmp/random of="$here/many/$i" bs=$((i * 37)) skip="$i" count=$((i / 5 + 1)) 2>/dev/null || return
	done
	sync
	(cd $exported/many && md5sum ./*) >/tmp/sums && [ "$(wc -l </tmp/sums)" = 50 ] &&
		(cd $here/many && md5sum -c /tmp/sums)
}

nfs_names() {
	mv $here/many/7 $here/many/seven && ln $here/many/seven $here/many/siete && rm $here/many/8 &&
		ln -s many/9 $here/nine && cmp $here/nine $exported/many/9 &&
		[ ! -e $exported/many/8 ] && cmp $exported/many/seven $here/many/siete &&
		[ "$(ls $here/many)" = "$(ls $exported/many)" ]
}

nfs_writers() {
	local i
	for i in 1 2 3 4; do
		dd if=/tmp/random of=$here/writer-$i bs=64k skip=$((i * 2 * mib)) count=$((4 * mib)) conv=fsync 2>/dev/null &
	done
	wait
	for i in 1 2 3 4; do
		dd if=/tmp/random bs=64k skip=$((i * 2 * mib)) count=$((4 * mib)) 2>/dev/null | cmp - $exported/writer-$i || return
	done
}

nfs_read_again() { echo 3 >/proc/sys/vm/drop_caches && cmp /tmp/random $here/large; }

# nfs_device_returns: the client's device goes while a file is read, and the client goes on with a
# new one.
nfs_device_returns() {
	nfs_read_again &
	local pid=$!
	sleep 0.2
	on a rdma link delete kf0 && on a rdma link add kf0 type kfabric netdev va && wait $pid && nfs_read_again
}

nfs_ends() { nfs_on b rpc.nfsd 0 && kill "$(pidof rpc.mountd)" && nfs_on b umount /proc/fs/nfsd; }
nfs_devices_go() { on a rdma link delete kf0 && on b rdma link delete kf1; }

nfs() {
	hosts
	# Many, which a loaded emulator reads slowly.
	limit=200 check "NFS: the modules of the kernel" nfs_modules
	check "NFS: a device on each host" nfs_devices
	check "NFS: the server serves by RDMA" nfs_serves
	check "NFS: the client mounts by RDMA" nfs_mounted
	check "NFS: a large file is written" nfs_by_rdma nfs_written
	check "NFS: it is read" nfs_by_rdma nfs_read
	check "NFS: a file is written and read past the cache" nfs_by_rdma nfs_direct
	check "NFS: many small files" nfs_by_rdma nfs_files
	check "NFS: names, links and removals" nfs_by_rdma nfs_names
	check "NFS: four writers at once" nfs_by_rdma nfs_writers
	check "NFS: the client unmounts" nfs_unmounted
	check "NFS: it mounts again" nfs_mounted
	check "NFS: the file is read by RDMA" nfs_by_rdma nfs_read
	check "NFS: a device that goes and comes back" nfs_by_rdma nfs_device_returns
	check "NFS: the client unmounts again" nfs_unmounted
	check "NFS: the server ends" nfs_ends
	check "NFS: the devices go" nfs_devices_go
}
