# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Code that the scripts share: messages, progress of long steps, failures with the
# next step to take, the cache and its locks, packages of the host, and the way
# into the toolchain root. Sourced, never run.
#
# Standard output is for results (a path, a word); messages go to standard error.

set -euo pipefail
umask 022
# An ordinary user often lacks the folders that chroot and modprobe are in.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

KF_TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
KF_CACHE=${KFABRIC_CACHE:-${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/kfabric}
KF_BUILD=$KF_TOP/build
KF_LOG_DIR=$KF_BUILD/log
# What the guests of tests run, for scripts/tools. With another choice cargo builds
# the same programs again, because dependencies get other features.
# shellcheck disable=SC2034 # the scripts that source this file use it
KF_PROGRAMS=(--workspace --bins --test device)
mkdir -p "$KF_LOG_DIR"
# The scripts run programs from the cache: no other user may write to it, or hold
# its locks.
[ -d "$KF_CACHE" ] || (umask 077 && mkdir -p "$KF_CACHE")
KF_CACHE=$(cd "$KF_CACHE" && pwd -P)
export KFABRIC_CACHE=$KF_CACHE

# --- messages ---------------------------------------------------------------

say() { printf '%s\n' "$*" >&2; }

# step TITLE: print one line for each step that takes time.
step() { printf '== %s\n' "$*" >&2; }

# die CAUSE [NEXT [LOG]]: print the cause, the next step to take and the log, and
# exit.
die() {
	printf 'error: %s\n' "$1" >&2
	[ -z "${2:-}" ] || printf '  next: %s\n' "$2" >&2
	[ -z "${3:-}" ] || printf '  log:  %s\n' "$3" >&2
	exit 1
}

[ -O "$KF_CACHE" ] && [ -z "$(find "$KF_CACHE" -maxdepth 0 -perm /022)" ] ||
	die "the cache $KF_CACHE belongs to another user, or others may write to it" \
		"set KFABRIC_CACHE to a folder of your own"
case $KF_TOP$KF_CACHE in
*[[:space:]:\'\"]*)
	die "a path has a space, a colon or a quotation mark, with which the kernel's build does not work: $KF_TOP or $KF_CACHE" \
		"move the checkout, or set KFABRIC_CACHE"
	;;
esac

# run_logged TITLE LOG HOW_FAR -- COMMAND...
# Runs COMMAND with its output in LOG and shows how it goes: on a terminal one
# line that changes, elsewhere a line every 15 s. HOW_FAR is a function that
# prints how far the work is ("" for none). Returns the command's status; after
# a failure the end of the log has been shown.
run_logged() {
	local title=$1 log=$2 how_far=$3 start=$SECONDS shown=$SECONDS pid status=0
	shift 4
	mkdir -p "$(dirname "$log")"
	step "$title"
	# A process group of its own, so that all of it can be stopped
	set -m
	"$@" >"$log" 2>&1 </dev/null &
	pid=$!
	set +m
	# shellcheck disable=SC2064 # this pid, now
	trap "kill -- -$pid 2>/dev/null || :; exit 130" INT TERM HUP
	while kill -0 "$pid" 2>/dev/null; do
		if [ -t 2 ]; then
			printf '\r   %4d s  %s\033[K' $((SECONDS - start)) "$(${how_far:-:} "$log")" >&2
		elif ((SECONDS - shown >= 15)); then
			shown=$SECONDS
			say "   $title: $((SECONDS - start)) s  $(${how_far:-:} "$log")"
		fi
		sleep 0.5
	done
	wait "$pid" || status=$?
	trap - INT TERM HUP
	[ ! -t 2 ] || printf '\r\033[K' >&2
	if ((status)); then
		say "   failed after $((SECONDS - start)) s; the end of the log:"
		tail -n 25 "$log" | sed 's/^/   | /' >&2
	else
		say "   done in $((SECONDS - start)) s"
	fi
	return $status
}

# --- cache ------------------------------------------------------------------

# hash_of: sixteen hex digits of standard input, to key a cache entry.
hash_of() { sha256sum | cut -c1-16; }

# with_lock NAME COMMAND...: one holder of NAME at a time on this cache. The
# kernel drops the lock when the last process of the holder is gone, so that a
# killed build never blocks the next one, and never races with it either.
with_lock() {
	local name=$1 fd
	shift
	(umask 077 && mkdir -p "$KF_CACHE/lock")
	exec {fd}>"$KF_CACHE/lock/$name"
	if ! flock -n "$fd"; then
		say "   another build holds '$name'; waiting for it"
		flock "$fd"
	fi
	# Not in a condition: that would switch "set -e" off in COMMAND.
	"$@"
	exec {fd}>&-
}

# used ENTRY: note that an entry of the cache is in use.
used() {
	mkdir -p "$KF_CACHE/used"
	: >"$KF_CACHE/used/$(basename "$1")"
}

# prune KIND: remove entries that were not used for 30 days, and unfinished ones
# of killed builds: temporary folders, and entries of more than a day that were
# never used. An entry whose lock is held stays.
prune() {
	local entry file name fd
	for entry in "$KF_CACHE/$1"-*; do
		[ -e "$entry" ] || continue
		file=$(basename "$entry")
		name=${file%%.tmp*}
		if [ "$file" = "$name" ]; then
			if [ -e "$KF_CACHE/used/$name" ]; then
				[ -n "$(find "$KF_CACHE/used/$name" -mtime +30)" ] || continue
			else
				[ -n "$(find "$entry" -maxdepth 0 -mtime +0)" ] || continue
			fi
		fi
		exec {fd}>"$KF_CACHE/lock/$name"
		if flock -n "$fd"; then
			as_root_here rm -rf --one-file-system "$entry" "$KF_CACHE/used/$name"
		fi
		exec {fd}>&-
	done
}

# hash_of_sources PATH...: a hash of the files below these paths of the checkout, names
# and contents. What only cargo's own runs use is left out: the integration tests and
# fuzz targets of the crates.
hash_of_sources() {
	(cd "$KF_TOP" && find "$@" \( -path 'rust/core/tests' -o -path 'rust/core/fuzz' -o -path 'rust/roce/tests' \
		-o -path 'rust/roce/fuzz' -o -name target \) -prune -o -type f -print0 |
		LC_ALL=C sort -z | xargs -0 sha256sum) | hash_of
}

# toolchain_versions: the compilers in the toolchain root, which --renew replaces.
toolchain_versions() {
	awk '/^Package: / { name = $2 } /^Version: / { print name, $2 }' "$("$KF_TOP/scripts/toolchain")/var/lib/dpkg/status" |
		grep -E '^(rustc|cargo|bindgen|clang|lld|gcc|linux-source)[-0-9.]* '
}

# restore KIND KEY DIRECTORY: DIRECTORY gets the files that a checkout on this machine
# built from the same sources; fails if there are none. A DIRECTORY that has them stays
# as it is. The files are new: other builds compare their times.
restore() {
	local entry=$KF_CACHE/$1-$2
	if [ "$(cat "$3/.built" 2>/dev/null)" = "$2" ]; then
		[ ! -e "$entry" ] || used "$entry"
		return 0
	fi
	[ -e "$entry" ] || return
	used "$entry"
	mkdir -p "$3"
	rm -f "$3/.built"
	cp -r --preserve=mode --reflink=auto --remove-destination "$entry/." "$3/" || return
	# Last: a copy that was interrupted is none
	printf '%s\n' "$2" >"$3/.built"
}

# keep KIND KEY NUMBER DIRECTORY FILE...: keep these files of DIRECTORY for restore; of each
# kind the last NUMBER. With KF_KEEP=0 nothing is kept. A cache without room fails no build.
keep() {
	local entry=$KF_CACHE/$1-$2 tmp=$KF_CACHE/$1-$2.tmp.$BASHPID kind=$1 number=$3 dir=$4 old
	printf '%s\n' "$2" >"$dir/.built"
	[ "${KF_KEEP:-1}" != 0 ] || return 0
	shift 4
	if [ ! -e "$entry" ]; then
		mkdir -p "$tmp"
		# Another checkout may have been faster
		(cd "$dir" && cp -a --reflink=auto --parents "$@" "$tmp/") && mv -T "$tmp" "$entry" 2>/dev/null ||
			rm -rf "$tmp"
	fi
	used "$entry"
	find "$KF_CACHE" -maxdepth 1 -name "$kind-*.tmp.*" -mmin +60 -exec rm -rf {} +
	find "$KF_CACHE/used" -name "$kind-*" -printf '%T@ %f\n' | sort -rn | tail -n "+$((number + 1))" |
		while read -r _ old; do rm -rf "${KF_CACHE:?}/$old" "$KF_CACHE/used/$old"; done
}

# Crates of the registry that one checkout has compiled need no compiling in the next one:
# its folder for Cargo's output gets them from the cache, and Cargo checks that they fit.

# crates_key: what the compiled crates depend on.
crates_key() { { "$KF_TOP/scripts/toolchain" && cat "$KF_TOP"/tools/Cargo.{toml,lock} "$KF_TOP"/rust/*/Cargo.toml; } | hash_of; }

# restore_crates NAME DIRECTORY: fill DIRECTORY, a folder for Cargo's output, if it is not
# there.
restore_crates() {
	local entry tmp=$2.tmp.$BASHPID
	entry=$KF_CACHE/crates-$1-$(crates_key)
	[ ! -e "$2" ] && [ -e "$entry" ] || return 0
	used "$entry"
	mkdir -p "$(dirname "$2")"
	cp -a --reflink=auto "$entry" "$tmp" && mv -T "$tmp" "$2" 2>/dev/null || rm -rf "$tmp"
}

# keep_crates NAME DIRECTORY: keep what Cargo compiled of other projects for
# restore_crates.
keep_crates() {
	local entry tmp
	entry=$KF_CACHE/crates-$1-$(crates_key)
	tmp=$entry.tmp.$BASHPID
	[ ! -e "$entry" ] && [ "${KF_KEEP:-1}" != 0 ] || return 0
	copy_crates "$2" "$tmp" && mv -T "$tmp" "$entry" 2>/dev/null || rm -rf "$tmp"
	used "$entry"
	find "$KF_CACHE" -maxdepth 1 -name 'crates-*.tmp.*' -mmin +60 -exec rm -rf {} +
	find "$KF_CACHE" -maxdepth 1 -name "crates-$1-*" ! -name '*.tmp.*' -printf '%f\n' | while read -r entry; do
		[ -z "$(find "$KF_CACHE/used/$entry" -mtime +30 2>/dev/null)" ] ||
			rm -rf "${KF_CACHE:?}/$entry" "$KF_CACHE/used/$entry"
	done
}

# copy_crates FROM TO: libraries, without those of this project, with what Cargo knows of
# them.
copy_crates() {
	local profile
	while read -r profile; do
		mkdir -p "$2/$profile/deps" &&
			find "$1/$profile/deps" -maxdepth 1 \( -name 'lib*' ! -name 'libkfi*' -o -name '*.d' ! -name 'kfi*' \) \
				-exec cp -a --reflink=auto -t "$2/$profile/deps" {} + &&
			(cd "$1/$profile" && find .fingerprint build -mindepth 1 -maxdepth 1 ! -name 'kfi*' \
				-exec cp -a --reflink=auto --parents -t "$2/$profile" {} +) || return
	done < <(cd "$1" && find . -name .fingerprint -printf '%h\n')
}

# more_space DIRECTORY: print the remedy if its file system is full.
more_space() {
	case $1 in
	"$KF_CACHE") echo "free some space, or set KFABRIC_CACHE to a folder on another disk" ;;
	*) echo "free some space, or use a checkout on another disk" ;;
	esac
}

# full_disk LOG [DIRECTORY]: stop with that cause if the log has it. DIRECTORY is
# the folder that was written to, by default the cache.
full_disk() {
	local dir=${2:-$KF_CACHE}
	! grep -aqE 'No space left on device|Disk quota exceeded' "$1" ||
		die "the disk is full: $dir has $(df --output=avail -h "$dir" | tail -n 1 | tr -d ' ') left" \
			"$(more_space "$dir")" "$1"
}

# need_space MEGABYTES [DIRECTORY]: the file system of DIRECTORY, by default the
# cache, has that much free space.
need_space() {
	local free dir=${2:-$KF_CACHE}
	free=$(df --output=avail -m "$dir" | tail -n 1)
	((free > $1)) ||
		die "the disk is full: $dir has $((free)) MB left, and $1 MB are needed" "$(more_space "$dir")"
}

# --- the host ---------------------------------------------------------------

# need_host COMMAND=PACKAGE...: the host has these commands (or files, if they
# begin with /), or gets them. Root installs missing packages; for other users the
# message has the line to run.
need_host() {
	local pair missing=()
	for pair; do
		[[ $pair == /* && -e ${pair%%=*} ]] || command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
	done
	((${#missing[@]})) || return 0
	command -v apt-get >/dev/null ||
		die "missing on this machine: ${missing[*]}" "install them with your package manager"
	if [ "$(id -u)" != 0 ]; then
		die "missing on this machine: ${missing[*]}" "sudo apt-get install ${missing[*]}"
	fi
	with_lock apt install_host "${missing[@]}"
}

install_host() {
	local log=$KF_LOG_DIR/apt.log
	export DEBIAN_FRONTEND=noninteractive
	run_logged "apt-get install $* (on this machine)" "$log" "" -- \
		sh -c 'apt-get install -y --no-install-recommends "$@" ||
			{ apt-get update && apt-get install -y --no-install-recommends "$@"; }' sh "$@" ||
		die "apt-get could not install: $*" "apt-get update && apt-get install $*" "$log"
}

# as_root_here COMMAND...: run in a mount namespace of its own, as root of it.
# Root needs nothing more; a user becomes root of a user namespace in which the
# user's subordinate ids are mapped too.
as_root_here() {
	if [ "$(id -u)" = 0 ]; then
		unshare --mount --propagation private -- "$@"
	else
		unshare --user --map-root-user --map-auto --mount --propagation private -- "$@"
	fi
}
