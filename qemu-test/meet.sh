# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2034,SC2154
#
# Two guests that one wire joins (qemu-test/pair) wait for each other. Sourced there by
# scripts that run in both, never run; the caller sets $limit, in seconds.

# The address of the other guest.
there=192.0.2.$((3 - HOST))

# meet: wait until both guests have come to this point: guest 2 listens, guest 1 tries
# until it does.
meet() {
	local port=$((20000 + step))
	step=$((step + 1))
	if [ "$HOST" = 2 ]; then
		timeout "$limit" nc -l -p $port </dev/null >/dev/null
		return
	fi
	local tries=$((limit * 10))
	until nc -w 1 "$there" $port </dev/null >/dev/null 2>&1; do
		((tries--)) || return 1
		sleep 0.1
	done
}
step=0
