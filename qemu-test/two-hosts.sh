# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2034
#
# Two hosts for tests in the guest: network namespaces "a" and "b", joined by a veth
# pair; tests of one program or of two, in TAP. Sourced, never run; the caller puts it
# in the guest at / (boot --put) and shares the toolchain root at /debian (boot
# --debian), or sets $debian to another root with the programs.

debian=${debian:-/debian}
work=$(mktemp -d)
count=0
failures=0
# Not empty: pair prints what each client says at the end.
said=''

# limit: seconds that a program of a test may take; patience: seconds that kfi waits for its
# peer; times: messages of an exchange. The sanitizing kernel takes a millisecond or two for a
# packet.
limit=60 patience=10 times=20
case $(uname -r) in *sanitize) limit=120 patience=60 times=5 ;; esac

# on HOST COMMAND...: run a command in that host's namespace, for at most $limit seconds.
on() {
	on-host "$limit" "/run/netns/$1" / "${@:2}"
}

# debian HOST COMMAND...: run a program of the root $debian in that host's namespace, for at most
# $limit seconds.
debian() {
	on-host "$limit" "/run/netns/$1" "$debian" "${@:2}"
}

# wanted NAME: whether the test runs. The words are the arguments of the script that sources this.
words=("$@")
wanted() {
	local word
	((${#words[@]} > 0)) || return 0
	for word in "${words[@]}"; do [[ $1 != *"$word"* ]] || { matched=1 && return 0; }; done
	return 1
}
matched=''

# result NAME STATUS: the line of a test, with the output of its programs if it
# failed.
result() {
	count=$((count + 1))
	if [ "$2" = 0 ]; then
		printf 'ok %d - %s\n' "$count" "$1"
		return
	fi
	failures=$((failures + 1))
	printf 'not ok %d - %s\n' "$count" "$1"
	local side
	for side in server client; do
		[ -e "$work/$side" ] || continue
		printf '#   %s: %s\n' "$side" "$(cat "$work/$side.command")"
		tail -n 12 "$work/$side" | sed 's/^/#     /'
	done
}

# soon COMMAND...: the command succeeds within so many tries, with pauses of 0.1 s.
soon_tries=100
soon() {
	local tries=$soon_tries
	until "$@"; do
		((tries--)) || return 1
		sleep 0.1
	done
}

# listens HOST PORT: a program there listens on that TCP port.
listens() {
	local port
	printf -v port '%04X' "$2"
	on "$1" grep -q "^ *[0-9]*: [0-9A-F]*:$port [0-9A-F:]* 0A " /proc/net/tcp /proc/net/tcp6
}

cm_listens() { on b rdma resource show cm_id state LISTEN | grep -q .; }

# tcp_on_a and the like: wait until a server is there.
tcp_on_a() { soon listens a 18515 2>/dev/null; }
tcp_on_b() { soon listens b 18515 2>/dev/null; }
cm_on_b() { soon cm_listens 2>/dev/null; }
rping_on_a() { soon grep -q waiting "$work/server"; }

# pair NAME READY SERVER... -- CLIENT...: a test of two programs. READY is a
# command that waits until the server is there.
pair() {
	local name=$1 ready=$2 server=() client status=0
	wanted "$name" || return 0
	shift 2
	while [ "$1" != -- ]; do
		server+=("$1")
		shift
	done
	shift
	client=("$@")
	: >"$work/server"
	: >"$work/client"
	printf '%s' "${server[*]}" >"$work/server.command"
	printf '%s' "${client[*]}" >"$work/client.command"
	("${server[@]}" >"$work/server" 2>&1) &
	local pid=$!
	$ready || status=1
	if [ $status = 0 ]; then
		"${client[@]}" >"$work/client" 2>&1 || status=$?
	fi
	if [ $status != 0 ]; then
		# The server would wait for a client for ever.
		kill $pid 2>/dev/null
	fi
	wait $pid || status=1
	result "$name" $status
	[ -z "$said" ] || printf '#   said: %s\n' \
		"$(grep '[[:alnum:]]' "$work/client" | tail -n 1 | tr -s '[:blank:]' ' ')"
}

# hosts [MTU]: both namespaces and the cable between them.
hosts() {
	local host mtu=${1:-1500}
	for host in a b; do
		ip netns add $host
		on $host ip link set lo up
	done
	ip link add va netns a type veth peer name vb netns b
	on a ip address add 192.0.2.1/24 dev va
	on b ip address add 192.0.2.2/24 dev vb
	on a ip address add 2001:db8::1/64 dev va nodad
	on b ip address add 2001:db8::2/64 dev vb nodad
	on a ip link set va mtu "$mtu" up
	on b ip link set vb mtu "$mtu" up
}

# no_hosts: removes both namespaces.
no_hosts() {
	ip netns delete a
	ip netns delete b
}

# gid DEVICE ADDRESS: the index of an IP address in a device's table of GIDs, as
# the InfiniBand programs want it.
gid() {
	local index want found try
	local -a part
	case $2 in
	2001:db8::*) want=$(printf '2001:0db8:0000:0000:0000:0000:0000:%04x' "0x${2##*:}") ;;
	*)
		read -ra part <<<"${2//./ }"
		want=$(printf 'ffff:%02x%02x:%02x%02x' "${part[@]}")
		;;
	esac
	# An address gets its GID a little later.
	for try in 1 2 3; do
		for index in {0..15}; do
			read -r found <"/sys/class/infiniband/$1/ports/1/gids/$index" || continue
			[[ $found != *"$want" ]] || break 2
		done 2>/dev/null
		((try == 3)) || sleep 1
	done
	echo "$index"
}

# with_kmod: the kernel and the script that sources this take modprobe and depmod of $debian. Those
# of busybox, which the guest has, do not know soft dependencies, and its depmod takes half a
# minute.
with_kmod() {
	local modules=/tmp/kmod/lib/modules
	mkdir -p "$debian$modules" && mount -o bind /lib/modules "$debian$modules" || return
	rm -f /bin/modprobe /bin/depmod
	# By their paths: busybox's chroot would prefer its own.
	printf '#!/bin/sh\nexec chroot %s /usr/sbin/modprobe -d /tmp/kmod "$@"\n' "$debian" \
		>/bin/modprobe
	printf '#!/bin/sh\nexec chroot %s /usr/sbin/depmod -b /tmp/kmod "$@"\n' "$debian" >/bin/depmod
	chmod 755 /bin/modprobe /bin/depmod
	echo /bin/modprobe >/proc/sys/kernel/modprobe
}

# install_modules: puts the modules where the kernel and modprobe find them.
install_modules() {
	local updates
	updates=/lib/modules/$(uname -r)/updates
	mkdir -p "$updates"
	mv /kfabric.ko /kfabric_ib.ko "$updates/"
	depmod
}

# finish: the end of all tests.
finish() {
	rm -rf "$work"
	((${#words[@]} == 0)) || [ -n "$matched" ] || {
		echo "# no test has one of: ${words[*]}"
		exit 3
	}
	echo "1..$count"
	((failures == 0))
}
