# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The source of packages for a Debian root: the mirror that the host's own apt
# uses, the way in which apt reaches it, and the reason why a root could not be
# made from it. Sourced after scripts/lib.sh, never run.

# The kernel that kfabric is for.
series=7.3

# The Debian mirror of the host's apt; empty if it has none (Ubuntu).
host_mirror() {
	apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)|$(COMPONENT)' \
		'Created-By: Packages' 2>/dev/null |
		awk -F'|' '$1 == "Debian" && $2 == "Debian" && $4 == "main" { print $3; exit }'
}

# default_mirror DIRECTORY: the mirror that mmdebstrap itself would take: asked by
# a hook that then stops it. DIRECTORY is for its attempt, and is gone then.
default_mirror() {
	{ as_root_here mmdebstrap --quiet --mode=root --variant=custom --format=directory \
		--setup-hook='cat "$1"/etc/apt/sources.list >&2; exit 1' \
		trixie "$1" </dev/null 2>&1 || :; } |
		awk '$1 == "deb" && $3 == "trixie" && !mirror { mirror = $2 } END { print mirror }'
	as_root_here rm -rf --one-file-system "$1"
}

# The way in which the host's apt reaches its mirrors: proxies, certificates,
# retries.
host_apt_options() {
	apt-config dump | grep -E '^Acquire::(http|https|Retries)[: ]' || :
}

sources() {
	local mirror=$1 suite
	for suite in trixie trixie-updates trixie-backports; do
		printf 'deb %s %s main\n' "$mirror" "$suite"
	done
}

# find_mirror DIRECTORY: print the mirror, or stop with an error. KFABRIC_MIRROR=
# overrides it; DIRECTORY is for default_mirror.
find_mirror() {
	local mirror=${KFABRIC_MIRROR:-$(host_mirror)}
	[ -n "$mirror" ] || mirror=$(default_mirror "$1")
	[ -n "$mirror" ] ||
		die "this machine's apt has no Debian mirror" \
			"KFABRIC_MIRROR=<address of a Debian mirror> make ..."
	printf '%s\n' "$mirror"
}

# no_kernel LOG MIRROR: stop, because the mirror has another stock kernel.
no_kernel() {
	die "the mirror $2 has no stock kernel $series any more, and kfabric is for Linux $series" \
		"KFABRIC_MIRROR=<address of a mirror that has it> make ..." "$1"
}

# explain_failure LOG MIRROR CAUSE: stop with the cause that the log of mmdebstrap
# shows, or, if it shows none, with CAUSE.
explain_failure() {
	full_disk "$1"
	if grep -aqE "Unable to locate package linux-source|Depends: linux-source-.* but|Release '[^']*' for 'linux-" "$1"; then
		die "the mirror $2 has no Linux $series any more, and kfabric is for Linux $series" \
			"KFABRIC_MIRROR=<address of a mirror that has it> make ..." "$1"
	elif grep -aqE 'Unable to locate package|has no installation candidate' "$1"; then
		die "the mirror $2 lacks a package: $(grep -aoE "(locate package|Package) [^ ]+" "$1" | tail -n 1)" \
			"KFABRIC_MIRROR=<address of another mirror> make ..." "$1"
	elif grep -aqE 'Could not resolve|Temporary failure resolving|Could not connect|does not have a Release file|Certificate verification failed|Proxy|Network is unreachable|Connection (refused|timed out)' "$1"; then
		die "the mirror $2 cannot be reached" \
			"is there a network? KFABRIC_MIRROR=<address of a Debian mirror> names another" "$1"
	fi
	die "$3" "see the log" "$1"
}
