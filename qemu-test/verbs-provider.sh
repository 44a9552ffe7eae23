# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2154
#
# The provider libkfabric, with which programs use the devices of a module that is
# loaded without ipath=1: tests of qemu-test/verbs. Sourced there, never run; the library
# for rdma-core 56 is at /libkfabric.so.1, and that for 65, if there is one, at
# /libkfabric-65.so.1; libibverbs 65 and programs of it, if there are, in /rdma-core-65.
#
# The functions cover and put_provider serve other scripts, too: pyverbs, verbs-storage,
# demo-guest and bench.

# The root whose libibverbs gets the provider.
debian=${debian:-/debian}
drivers=$debian/etc/libibverbs.d
providers=$debian/usr/lib/x86_64-linux-gnu/libibverbs

# cover FOLDER: put a copy over a folder of the shared root, which is read-only.
cover() {
	local copy
	copy=$(mktemp -d /tmp/cover.XXXXXX) && chmod 755 "$copy" && cp -a "$1/." "$copy/" &&
		mount -o bind "$copy" "$1"
}

# put_provider FILE [ABI]: install the library as the package does, but for the folder of
# libkfabric.so.1, for the libibverbs with this private ABI.
put_provider() {
	cp "$1" "$providers/libkfabric.so.1" &&
		ln -sf libkfabric.so.1 "$providers/libkfabric-rdmav${2:-34}.so" &&
		echo "driver ${providers#"$debian"}/libkfabric" >"$drivers/kfabric.driver"
}

no_warning() { ! grep -i warning "$work/client"; }
list_says() { says "$1" debian a ibv_devices && no_warning; }

# provider_test DEVICE TEST: a test of verbs-provider.c. Its program links to the library, and loads
# it as a provider: it is loaded once.
provider_test() { debian a /tmp/verbs-provider "$1" "$(gid kf0 192.0.2.1)" "$2"; }

# rxe_beside: the provider leaves a device of another driver alone.
rxe_beside() {
	modprobe rdma_rxe
	on b rdma link add rxb type rxe netdev vb
	check "provider: beside rxe, both are listed" list_says '^ *rxb '
	check "provider: beside rxe, the device of kfabric is listed" list_says '^ *kf0 '
	check "provider: ibv_devinfo shows the device of rxe" \
		says 'transport:' debian b ibv_devinfo -d rxb
	check "provider: the device of rxe is not one of the provider" provider_test rxb foreign
	check "provider: beside rxe, the UDP port of its namespace is in use" \
		says 'Address already in use' on b rdma link add kf1 type kfabric netdev vb
	provided_pairs "provider, rxe is the server" kf0 rxb
	on b rdma link delete rxb
}

# other_versions: the library is for another version of libibverbs.
other_versions() {
	[ -e /libkfabric-65.so.1 ] || return
	put_provider /libkfabric-65.so.1
	check "provider: libibverbs 56 refuses the library for 65, and says why" \
		says "couldn't load driver.*IBVERBS_PRIVATE_65' not found" debian a ibv_devices
	check "provider: the device is not opened then" fails debian a ibv_devinfo -d kf0
	put_provider /libkfabric.so.1
}

# provided PROGRAM TEST...: these tests of another program.
provided() {
	checks "provider: ${1#verbs-}" debian a "/tmp/$1" kf0 "$(gid kf0 192.0.2.1)" -- "${@:2}"
}

# Tests of what a program cannot do by the functions of the pages: offsets, sizes and numbers that
# no argument has, and objects that another thread destroys.
by_ioctl_only='^threads_|a_counter_is_destroyed|mapped_read_only|cannot_be_meant|not_known|cannot_be_stored|one_context'

# Tests of what the provider does by itself: queries, creations and their errors, posts and the
# first work request that is refused, inline data, entries, and objects that the device does not
# have. What the provider only passes on has been tested before.
by_provider=(
	# verbs-calls.c
	query_init bad_create xrc device_and_port bad_middle regions cq_sizes bad_ah srq_sizes
	no_such_operation ah_of_another_pd left_out extended_attributes gid_entries
	# verbs-events.c
	one_event poll_many destroying_a_cq_waits_for_acks destroying_a_qp_waits_for_acks
	destroying_an_srq_waits_for_acks each_channel_has_its_events
	# verbs-qps.c
	order all_signaled gather inline_data immediate no_bytes atomics fence too_long reset
	bad_posts query shared_receives solicited destroyed datagrams sends_are_not_solicited
	datagrams_of_a_shared_queue
	# verbs-regions.c
	region_in_a_dma_buf part_of_a_dma_buf rights_of_a_dma_buf addresses_of_a_region
	# verbs-transfers.c
	inline_is_for_what_sends_data inline_others most_sges two_users answer no_checksum_offload
	unsignalled to_itself srq_immediate two_threads_post_and_two_poll
	# verbs-states.c
	states datagram_states
	# verbs-packets.c
	own_qkey datagram_without_bytes an_unknown_address_handle_is_refused
)
# The programs that connect QPs of one device.
qp_programs='verbs-calls verbs-events verbs-qps verbs-regions verbs-transfers verbs-states verbs-packets'

# chosen PROGRAM...: the tests of these programs that are run with the provider.
chosen() {
	local program names
	names=$(IFS='|' && echo "${by_provider[*]}")
	for program; do debian a "/tmp/$program" --list | grep -xE "$names"; done
}

# all_chosen: each test above is one of a program.
# shellcheck disable=SC2086 # words
all_chosen() { [ "$(chosen $qp_programs | wc -l)" = ${#by_provider[@]} ]; }

# provided_pairs NAME A B: some programs of Debian, the client with device A on host a, the server
# with device B on host b.
provided_pairs() {
	local name=$1 a=$2 b=$3 ga gb way
	ga=$(gid "$a" 192.0.2.1)
	gb=$(gid "$b" 192.0.2.2)
	for way in '' -e; do
		pair "$name: ibv_rc_pingpong $way" tcp_on_b \
			debian b ibv_rc_pingpong -d "$b" -g "$gb" -s 4096 -n "$times" -c $way -- \
			debian a ibv_rc_pingpong -d "$a" -g "$ga" -s 4096 -n "$times" -c $way 192.0.2.2
		pair "$name: ibv_srq_pingpong $way" tcp_on_b \
			debian b ibv_srq_pingpong -d "$b" -g "$gb" -n "$times" -q 4 -r 64 $way -- \
			debian a ibv_srq_pingpong -d "$a" -g "$ga" -n "$times" -q 4 -r 64 $way 192.0.2.2
		pair "$name: ibv_ud_pingpong $way" tcp_on_b \
			debian b ibv_ud_pingpong -d "$b" -g "$gb" -s 1024 -n "$times" $way -- \
			debian a ibv_ud_pingpong -d "$a" -g "$ga" -s 1024 -n "$times" $way 192.0.2.2
	done
	for way in send_lat write_bw read_lat atomic_bw; do
		pair "$name: ib_$way" tcp_on_b \
			debian b "ib_$way" -d "$b" -x "$gb" -n 100 -F -- \
			debian a "ib_$way" -d "$a" -x "$ga" -n 100 -F 192.0.2.2
	done
	pair "$name: rping" cm_on_b \
		debian b rping -s -a 192.0.2.2 -C 5 -S 4096 -V -- \
		debian a rping -c -a 192.0.2.2 -I 192.0.2.1 -C 5 -S 4096 -V
}

# debian_65 HOST PROGRAM...: as debian, with libibverbs 65 and its programs.
debian_65() {
	local host=$1
	shift
	debian "$host" env PATH=/tmp/rdma-core-65/bin LD_LIBRARY_PATH=/tmp/rdma-core-65/lib "$@"
}

list_says_65() { says "$1" debian_65 a ibv_devices && no_warning; }

# provided_65 PROGRAM TEST...: tests of a program that is built with the headers of 65.
provided_65() {
	checks "provider-65: ${1#verbs-}" debian_65 a "/tmp/$1-65" kf0 "$(gid kf0 192.0.2.1)" -- "${@:2}"
}

# with_rdma_core_65: libibverbs 65 beside the 56 of the root. If a device has no driver yet,
# libibverbs loads every driver of the folder, and 65 would not find the others. So the folder has
# ours alone.
with_rdma_core_65() {
	local way only ga gb
	[ -e /libkfabric-65.so.1 ] && [ -e /rdma-core-65 ] || {
		skipped "provider-65: programs and libibverbs of rdma-core 65" "no library or no programs of rdma-core 65 were built"
		return
	}
	cp -r /rdma-core-65 /tmp/
	ga=$(gid kf0 192.0.2.1)
	gb=$(gid kf1 192.0.2.2)
	only=$(mktemp -d)
	mount -o bind "$only" "$drivers"
	put_provider /libkfabric.so.1 65
	check "provider-65: libibverbs 65 refuses the library for 56, and says why" \
		says "couldn't load driver.*IBVERBS_PRIVATE_34' not found" debian_65 a ibv_devices
	put_provider /libkfabric-65.so.1 65
	check "provider-65: the device is listed" list_says_65 '^ *kf0 '
	check "provider-65: ibv_devinfo shows the port" \
		says 'fw_ver:.*kfabric' debian_65 a ibv_devinfo -v -d kf0
	for way in '' -e; do
		pair "provider-65: ibv_rc_pingpong $way" tcp_on_b \
			debian_65 b ibv_rc_pingpong -d kf1 -g "$gb" -n "$times" -c $way -- \
			debian_65 a ibv_rc_pingpong -d kf0 -g "$ga" -n "$times" -c $way 192.0.2.2
	done
	# Contexts, QPs and extended CQs, for which libibverbs 65 calls the provider in another way
	# than 56, and functions that 56 does not call.
	provided_65 verbs-provider wr_operations cq_extended arguments_of_counters_are_checked_by_name \
		objects_of_another_context_are_refused
	provided_65 verbs-mapped polling_makes_no_call objects_are_imported
	provided_65 verbs-extended creation_flags_are_refused other_attributes_are_refused \
		operations_that_a_qp_lacks_are_refused the_speed_of_a_port regions_by_attributes \
		buffers_of_a_parent_domain
	provided_65 verbs-counters each_count_is_set_and_incremented_by_verbs \
		memory_of_the_program_has_the_counts the_largest_value_is_reported
	provided_65 verbs-counted errors_count_in_the_error_count \
		each_operation_counts_at_its_initiator_and_its_target attaching_is_checked_by_verbs
	provided_65 verbs-flows a_static_point_counts_with_a_flow a_dynamic_point_counts_on_a_live_flow
	check "provider-65: a program that is built with 56 has its counters" debian_65 a \
		/tmp/verbs-counters-by-name kf0 "$ga" memory_of_the_program_has_the_counts
	umount "$drivers"
	put_provider /libkfabric.so.1
}

# with_provider: the module is loaded without a parameter.
with_provider() {
	local test
	add
	cover "$drivers"
	cover "$providers"
	check "provider: no program can use the device without the provider" \
		says "wasn't found" debian a ibv_devinfo -d kf0
	put_provider /libkfabric.so.1
	check "provider: ibv_devinfo shows the port" info_says 'fw_ver:.*kfabric'
	check "provider: libibverbs does not warn of a driver that is missing" no_warning
	rxe_beside
	other_versions
	# shellcheck disable=SC2046 # words
	checks provider debian a /tmp/verbs-provider kf0 "$(gid kf0 192.0.2.1)" -- \
		$(debian a /tmp/verbs-provider --list | grep -vx foreign)
	for test in limits cq-sizes cq-resize cq-channel srq-sizes srq-attributes srq-post left; do
		check "provider: queues: $test" queues "$test"
	done
	for test in attributes refused iova busy; do
		check "provider: memory: $test" memory "$test"
	done
	check "provider: the tests of what it does by itself are there" all_chosen
	for test in $qp_programs; do
		# shellcheck disable=SC2046 # words
		provided "$test" $(chosen "$test")
	done
	# shellcheck disable=SC2046 # words
	provided verbs-mapped $(debian a /tmp/verbs-mapped --list)
	# shellcheck disable=SC2046 # words
	provided verbs-extended $(debian a /tmp/verbs-extended --list)
	for test in verbs-{counters,counted,flows}-by-name; do
		# shellcheck disable=SC2046 # words
		provided "$test" $(debian a "/tmp/$test" --list | grep -vE "$by_ioctl_only")
	done
	on b rdma link add kf1 type kfabric netdev vb
	between provider kf0 kf1 "$(gid kf0 192.0.2.1)" "$(gid kf1 192.0.2.2)"
	with_rdma_core_65
	delete
	on a rdma link add rxa type rxe netdev va
	provided_pairs "provider, rxe is the client" rxa kf1
	on a rdma link delete rxa
	delete kf1
	umount "$drivers" "$providers"
}
