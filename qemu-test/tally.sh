# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What the tests gave: numbers and times from the output of cargo, TAP and KUnit,
# and the table at the end of a run. Sourced by qemu-test/run, never run.
#
# The folder $run has, of all parts together,
#   rows      NAME PASSED FAILED SKIPPED BUILD BOOT RUN: a line for each tally;
#             seconds
#   times     MILLISECONDS NAME TEST: a line for each test
#   failures  what failed

# Variables of run_part in qemu-test/run
# shellcheck disable=SC2154

# clock: a time in milliseconds.
clock() { printf '%s\n' $((${EPOCHREALTIME/[.,]/} / 1000)); }

# tally NAME PASSED FAILED SKIPPED: the row of a part, with the times in
# milliseconds that $build_ms, $boot_ms and $run_ms have. They are used once.
tally() {
	printf '%s %d %d %d %d %d %d\n' "$@" $((build_ms)) $((boot_ms)) $((run_ms)) >>"$run/rows"
	say "   $1: $2 passed, $3 failed, $4 skipped"
	build_ms=0 boot_ms=0 run_ms=0
}

# broken NAME WHY LOG: a part that did not come to its end is a failed test.
broken() {
	printf '%s: %s (log: %s)\n' "$1" "$2" "$3" >>"$run/failures"
	tally "$1" 0 1 0
}

# built COMMAND...: run it, and count its time as time of building.
built() {
	local start status=0
	start=$(clock)
	"$@" || status=$?
	build_ms=$((build_ms + $(clock) - start))
	return $status
}

# cargo_counts LOG: passed, failed and skipped tests, as the programs of tests sum them up. Tests
# that need the device are not skipped: the part library runs them.
cargo_counts() {
	awk '
		/^test result:/ { p += $4; f += $6; s += $8 }
		/^test .* ignored, needs \/dev\/kfabric$/ { s-- }
		END { print p+0, f+0, s+0 }' "$1"
}

# cargo_times NAME LOG: the lines for $run/times.
cargo_times() {
	sed -nE 's/^test (.*) \.\.\. (ok|FAILED) <([0-9]+)\.([0-9]{3})s>.*/\3\4 \1/p' "$2" |
		while read -r ms test; do printf '%d %s %s\n' "$((10#$ms))" "$1" "$test"; done
}

# tap_counts LOG LEAF: counts of the innermost results of (K)TAP, which match LEAF. KUnit nests: a
# line for a case is indented, one for its suite is not, and a suite's line must not count again.
tap_counts() {
	awk '
		/# SKIP/ { if ($0 ~ leaf) s++; next }
		$0 ~ "^ *not ok " && $0 ~ leaf { f++ }
		$0 ~ "^ *ok " && $0 ~ leaf { p++ }
		END { print p+0, f+0, s+0 }' leaf="$2" "$1"
}

# tap_times NAME LOG LEAF: the lines for $run/times.
tap_times() {
	sed -nE "/${3//\//\\/}/"'s/^ *(not )?ok ([0-9]+ )?(- )?(.*) # ([0-9]+) ms$/\5 '"$1"' \4/p' "$2"
}

# tap_failures NAME LOG: failed tests with their diagnostics. KUnit writes what it has to say
# about a case before its result, the other parts after it.
tap_failures() {
	awk '/^ *# (Subtest: |Totals: |.*speed: )/ { next }
		/^ *not ok / { printf "%s", before; print; before = ""; show = 1; next }
		/^ *ok / { before = ""; show = 0 }
		/^ *#/ { if (show) print; else before = before $0 "\n" }' "$2" |
		sed "s/^ */$1: /"
}

# timed: copy TAP, and add to each result without a time the milliseconds since
# the last result, or since the header.
timed() {
	local line last now
	last=$(clock)
	while IFS= read -r line; do
		case $line in
		'ok '* | 'not ok '*)
			now=$(clock)
			[[ $line == *' # '* ]] || line+=" # $((now - last)) ms"
			last=$now
			;;
		'TAP '* | 'KTAP '* | 1..*) last=$(clock) ;;
		esac
		printf '%s\n' "$line"
	done
}

# tap_timed COMMAND...: with its times, and the status of the command.
tap_timed() { "$@" | timed; }

# kunit_times LOG KERNEL_LOG: write into LOG, which has results of KUnit, the time of each case,
# from the times of the same lines in the kernel's log.
kunit_times() {
	awk '
		{ sub(/\r$/, "") }
		FNR == NR {
			if (!match($0, /^\[ *[0-9]+\.[0-9]+\] /)) next
			at = $0; sub(/^\[ */, "", at); at = at + 0
			line = substr($0, RLENGTH + 1)
			if (line ~ /^ *# Subtest: /) suite = $NF
			else if (line ~ /^ +(not )?ok [0-9]+ /) {
				match(line, /ok [0-9]+ [^ ]+/); name = substr(line, RSTART, RLENGTH)
				took[suite, name] = int((at - last) * 1000 + 0.5)
			} else if (line !~ /^ +(KTAP|1\.\.)/) next
			last = at
			next
		}
		/^ *# Subtest: / { suite = $NF }
		/^ +(not )?ok [0-9]+ / && !/ # [0-9]+ ms$/ {
			match($0, /ok [0-9]+ [^ ]+/); name = substr($0, RSTART, RLENGTH)
			if ((suite, name) in took) $0 = $0 " # " took[suite, name] " ms"
		}
		{ print }' "$2" "$1" >"$1.timed" && mv "$1.timed" "$1"
}

# report SECONDS: the table of the parts, and the slowest tests.
report() {
	say "== where the time was, in seconds ($1 in all)"
	{
		printf 'part passed failed skipped build boot run\n'
		sort "$run/rows" | awk '{ printf "%s %d %d %d %.1f %.1f %.1f\n", $1, $2, $3, $4, $5 / 1000, $6 / 1000, $7 / 1000 }'
	} | awk '{ printf "   %-24s %7s %7s %8s %8s %7s %8s\n", $1, $2, $3, $4, $5, $6, $7 }' >&2
	[ -s "$run/times" ] || return 0
	say "== the slowest tests, in seconds"
	sort -rn "$run/times" | awk 'NR <= 30 { ms = $1; part = $2; $1 = $2 = ""; printf "   %8.2f  %-12s%s\n", ms / 1000, part, $0 }' >&2
}
