# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The parts of the tests, a function for each: part_NAME [TEST]... builds what it
# needs, runs the tests, all or those that are named, and tallies them (tally.sh).
# Sourced by qemu-test/run, never run.

# Variables of run_part in qemu-test/run, and those that need sets.
# shellcheck disable=SC2154

# Seconds that a guest may take. The longest, that of the scenarios, needs a quarter of it on a quiet
# machine, and a third on a sanitizing kernel.
guest_limit() { [ "$flavour" = sanitize ] && echo 10800 || echo 3000; }

# A guest in which threads meet wherever they can, and the groups of tests with many threads or
# with tasks that do not run.
preempting=(--smp 4 --append preempt=full)
threads=(races:: regressions:: threads:: processes:: connections::slow:: unscheduled::)

how_far_cargo() { grep -aE '^( +Compiling| +Running|test result)' "$1" | tail -n 1 | cut -c1-60; }
how_far_tap() { printf '%s tests' "$(grep -acE '^ *(not )?ok ' "$1")"; }
how_far_library() { printf '%s tests' "$(grep -acE '^(test .* \.\.\. |(not )?ok )' "$1")"; }
how_far_fuzz() { grep -aE '^round [0-9]+ SEED' "$1" | tail -n 1 | cut -c1-60; }
how_far_hostile() { grep -aE '^[A-Za-z].*newcomers' "$1" | tail -n 1 | cut -d: -f1; }

# timed_run TITLE LOG HOW_FAR COMMAND...: run_logged; the time is that of the run, or of the boot.
timed_run() {
	local title=$1 log=$2 how_far=$3 start status=0 boots=$run/boots-$BASHPID ms file
	shift 3
	start=$(clock)
	: >"$boots"
	KF_BOOT_TIMES=$boots run_logged "$title" "$log" "$how_far" -- "$@" || status=$?
	while read -r ms file; do
		boot_ms=$((boot_ms + ms)) kernel_log=$file
	done <"$boots"
	rm -f "$boots"
	run_ms=$((run_ms + $(clock) - start - boot_ms))
	return $status
}

# split ARGUMENT... -- [TEST]...: sets $arguments and $tests.
split() {
	arguments=()
	while [ "$1" != -- ]; do
		arguments+=("$1")
		shift
	done
	shift
	tests=("$@")
}

# The tests of cargo_part. The time of each test is an unstable option of the test programs, which
# Cargo and the tests of the documentation do not get.
cargo_tests() {
	local status=0
	CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER='env RUSTC_BOOTSTRAP=1' "$KF_TOP/scripts/inside" -C "$dir" \
		cargo test --no-fail-fast "${arguments[@]}" -- -Z unstable-options --report-time "${tests[@]}" ||
		status=$?
	[ -z "${documentation:-}" ] || "$KF_TOP/scripts/inside" -C "$dir" \
		cargo test --no-fail-fast --workspace --doc -- "${tests[@]}" || status=$?
	return $status
}

# cargo_part NAME DIRECTORY CARGO_ARGUMENT... -- [TEST]...; with $documentation its tests, too.
cargo_part() {
	local name=$1 dir=$KF_TOP/$2 log=$KF_LOG_DIR/test-$1.log status=0 arguments tests p f s
	shift 2
	local target=$KF_BUILD/cargo
	split "$@"
	restore_crates "${target##*/}" "$target"
	built run_logged "$name: cargo build" "$log" how_far_cargo -- "$KF_TOP/scripts/inside" -C "$dir" \
		cargo test --no-run "${arguments[@]}" || {
		broken "$name" "the tests do not build" "$log"
		return
	}
	# The part tools needs most crates.
	[ "$name" != tools ] || keep_crates "${target##*/}" "$target"
	timed_run "$name: cargo test" "$log" how_far_cargo cargo_tests || status=$?
	read -r p f s < <(cargo_counts "$log")
	cargo_times "$name" "$log" >>"$run/times"
	grep -aE '^test .* \.\.\. FAILED' "$log" | sed "s/^/$name: /" >>"$run/failures" || :
	tally "$name" "$p" "$f" "$s"
	((status == 0 || f > 0)) || broken "$name" "cargo failed" "$log"
	((p > 0)) || broken "$name" "no test ran" "$log"
	for s in "${tests[@]}"; do
		grep -aqE "^test .*$s.* \.\.\. " "$log" || broken "$name" "no test has the name $s" "$log"
	done
}

# tap_part NAME LEAF COMMAND...: LEAF matches the lines that are tests.
tap_part() {
	local name=$1 leaf=$2 log=$KF_LOG_DIR/test-$flavour-$1.log status=0 p f s kernel_log=''
	shift 2
	timed_run "$name" "$log" how_far_tap tap_timed "$@" || status=$?
	[ -z "$kernel_log" ] || kunit_times "$log" "$kernel_log"
	read -r p f s < <(tap_counts "$log" "$leaf")
	tap_times "$name" "$log" "$leaf" >>"$run/times"
	tap_failures "$name" "$log" >>"$run/failures"
	tally "$name" "$p" "$f" "$s"
	# Status 125 is a fault that the kernel reported, whatever the tests said.
	((status == 0 || (f > 0 && status == 1))) || broken "$name" "ended with status $status" "$log"
	# A test of the scripts may be skipped whole, with its reason
	((p > 0)) || { [[ $name == test-* ]] && ((s > 0)); } || broken "$name" "no test ran" "$log"
}

# guest OPTION... -- COMMAND: 4 GiB, because some tests send messages of 1 GiB.
guest() {
	local how=boot
	[ "${VNG:-}" != 1 ] || case $part in kunit | scenarios | library) how=vng ;; esac
	"$KF_TOP/qemu-test/$how" --kernel "$part_flavour" --mem 4G --timeout "$(guest_limit)" "$@"
}

# The parts below need these builds; what another part has built is there at once. Each prints
# where the result is.
module() { "$KF_TOP/scripts/module" "$part_flavour" "$@" 2>"$KF_LOG_DIR/build-module-$part.log"; }
tools() { "$KF_TOP/scripts/tools" "${KF_PROGRAMS[@]}" 2>"$KF_LOG_DIR/build-tools-$part.log"; }
# The command kfi: with the other programs, if they are there, or alone, in a tenth of the time.
command_kfi() {
	local log=$KF_LOG_DIR/build-command_kfi-$part.log
	"$KF_TOP/scripts/tools" --built "${KF_PROGRAMS[@]}" 2>"$log" || "$KF_TOP/scripts/tools" -p kfi-cli --bins 2>"$log"
}
consumers() { "$KF_TOP/scripts/consumers" "$part_flavour" 2>"$KF_LOG_DIR/build-consumers.log"; }

callers() { "$KF_TOP/scripts/callers" "$part_flavour" 2>"$KF_LOG_DIR/build-callers.log"; }

verbs_provider() { "$KF_TOP/scripts/verbs-provider" "$1" 2>"$KF_LOG_DIR/build-verbs_provider-$1.log"; }

verbs_packages() { "$KF_TOP/scripts/rdma-core" --packages 65 2>"$KF_LOG_DIR/build-verbs_packages.log"; }

# verbs_program NAME [ARGUMENT]...: a verbs program in C, qemu-test/NAME.c; NAME-by-name and NAME-65
# are other programs of the same source.
verbs_program() {
	local source=${1%-by-name}
	"$KF_TOP/scripts/inside" -C "$KF_TOP" clang -O2 -Wall -Wextra -Werror \
		-o "$KF_BUILD/$1" "qemu-test/${source%-65}.c" "${@:2}" -libverbs \
		2>"$KF_LOG_DIR/build-verbs_program-$1.log" && printf '%s\n' "$KF_BUILD/$1"
}

# need VARIABLE BUILD [ARGUMENT]...: what a build prints, in a variable. A build that fails ends the
# part.
need() {
	local variable=$1 start status=0 said
	shift
	step "$part: building: $*"
	start=$(clock)
	said=$("$@") || status=$?
	build_ms=$((build_ms + $(clock) - start))
	if ((status)); then
		broken "$part" "a build failed ($*)" "$KF_LOG_DIR/build-$1*.log"
		exit 0
	fi
	printf -v "$variable" '%s' "$said"
}

part_core() { cargo_part core rust/core --tests -- "$@"; }
part_roce() { cargo_part roce rust/roce --tests -- "$@"; }

part_tools() { documentation=1 cargo_part tools tools --workspace --tests -- "$@"; }

part_scripts() {
	local script name
	for script in "$KF_TOP"/scripts/test-* "$KF_TOP"/qemu-test/test-*; do
		name=$(basename "$script")
		[ $# -eq 0 ] || wanted "$name" "$@" || continue
		tap_part "$name" '.' "$script"
	done
}

# wanted NAME WORD...: the name has one of the words.
wanted() {
	local name=$1 word
	shift
	for word; do [[ $name != *"$word"* ]] || return 0; done
	return 1
}

# kunit_part NAME BOOT_OPTION... -- [SUITE[.CASE]]...: the suites of the module $ko, in a guest. The
# kernel's own suites ran when it booted.
kunit_part() {
	local name=$1 commands='' filter arguments tests
	split "${@:2}"
	for filter in "${tests[@]:-*}"; do
		[[ $filter == *.* ]] || filter+='.*'
		commands+="printf '%s' '$filter' >/sys/module/kunit/parameters/filter_glob
			insmod /kfabric.ko && results '$filter' && rmmod kfabric || status=1
		"
	done
	tap_part "$name" '^    +(not )?ok ' guest --name "$name" "${arguments[@]}" --put "$ko:kfabric.ko" -- "
		cd /sys/kernel/debug/kunit && own=\" \$(echo *) \" status=0
		results() {
			local suite found=
			for suite in *; do
				case \$own in *\" \$suite \"*) ;; *) cat \$suite/results && found=1 ;; esac
			done
			[ -n \"\$found\" ] || { echo \"    not ok - no suite has the name \$1\" && status=1; }
		}
		$commands
		exit \$status"
}

part_kunit() {
	need ko module KFI_KUNIT=1
	kunit_part kunit -- "$@"
}

part_consumers() {
	local modules puts=() consumer
	# The part kunit has the same module.
	need ko module KFI_KUNIT=1
	need bin command_kfi
	need modules consumers
	for consumer in $modules; do puts+=(--put "$consumer:${consumer##*/}"); done
	tap_part consumers '^    +(not )?ok ' guest --name consumers --put "$ko:kfabric.ko" \
		--put "$bin/kfi" "${puts[@]}" -- "$KF_TOP/qemu-test/consumers/run-guest" "${shard[@]}" "$@"
}

# scenarios_part NAME BOOT_OPTION... -- [ARGUMENT]...: kfi-scenarios with these arguments.
scenarios_part() {
	local name=$1 arguments tests
	split "${@:2}"
	tap_part "$name" '.' guest --name "$name" "${arguments[@]}" --put "$ko:kfabric.ko" --put "$bin/kfi" \
		--put "$bin/kfi-scenarios" -- \
		"insmod /kfabric.ko && kfi-scenarios ${tests[*]}; status=\$?; rmmod kfabric && exit \$status"
}

# All that are named; without names those that do not wait for time-outs. For qemu-test/quick with
# the module that has the suites, which do not run, and for $QUICK seconds.
part_scenarios() {
	if [ -n "${QUICK:-}" ]; then
		# The part kunit builds the module meanwhile.
		need bin tools
		need ko module KFI_KUNIT=1
		scenarios_part scenarios --append kunit.enable=0 -- "--for=$QUICK" "$@"
		return
	fi
	need ko module
	need bin tools
	[ $# -gt 0 ] || set -- --no-timeouts
	scenarios_part scenarios -- "${shard[@]}" "$@"
}

# The clock of this guest counts instructions, and jumps while nothing runs.
part_timeouts() {
	need ko module
	need bin tools
	scenarios_part timeouts --count -- --timeouts "${shard[@]}" "$@"
}

part_faults() {
	need ko module
	need bin tools
	[ "$*" = uverbs ] || scenarios_part faults -- --faults "$@"
	[ -n "${*#uverbs}" ] || verbs_only faults-verbs faults verbs-faults verbs-faults-device
}

# verbs_only NAME SECTION PROGRAM...: a section of qemu-test/verbs with these verbs programs.
verbs_only() {
	local name=$1 section=$2 program puts=()
	for program in "${@:3}"; do
		need program verbs_program "$program"
		puts+=(--put "$program")
	done
	tap_part "$name" '.' guest --name "$name" --debian --put "$ko:kfabric.ko" \
		--put "${ko%/*}/kfabric_ib.ko:kfabric_ib.ko" --put "$bin/kfi" "${puts[@]}" \
		"${verbs_scripts[@]}" -- "$KF_TOP/qemu-test/verbs" --only "$section"
}

# What qemu-test/verbs sources.
verbs_scripts=(--put "$KF_TOP/qemu-test/two-hosts.sh:two-hosts.sh"
	--put "$KF_TOP/qemu-test/verbs-provider.sh:verbs-provider.sh"
	--put "$KF_TOP/qemu-test/verbs-safety.sh:verbs-safety.sh")

part_races() {
	need ko module KFI_KUNIT=1
	[ $# -gt 0 ] || kunit_part races-kunit "${preempting[@]}" --
	need ko module
	need bin tools
	scenarios_part races "${preempting[@]}" -- "${@:-${threads[@]}}"
}

# A test program's output, and a line of TAP for each example.
part_library() {
	local log=$KF_LOG_DIR/test-$flavour-library.log status=0 p f s good bad rest
	local examples='atomic counter pingpong ring barrier credits' example puts=()
	need ko module
	need bin tools
	for example in $examples; do puts+=(--put "$bin/$example"); done
	[ $# -eq 0 ] || examples=''
	timed_run library "$log" how_far_library tap_timed guest --name library \
		--put "$ko:kfabric.ko" --put "$bin/test-device:bin/test-device" --put "$bin/kfi" "${puts[@]}" -- "
		insmod /kfabric.ko && kfi link add kfi0 netdev lo || exit 3
		RUSTC_BOOTSTRAP=1 test-device --ignored --test-threads=1 -Z unstable-options --report-time $*
		status=\$?
		[ \$status = 0 ] || status=1
		for example in $examples; do
			if \$example kfi0; then echo \"ok - example \$example\"
			else echo \"not ok - example \$example\"; status=1; fi
		done
		rmmod kfabric && exit \$status" || status=$?
	read -r p f s < <(cargo_counts "$log")
	read -r good bad rest < <(tap_counts "$log" '.')
	{ cargo_times library "$log" && tap_times library "$log" .; } >>"$run/times"
	grep -aE '^(test .* \.\.\. FAILED|not ok .*)' "$log" | sed "s/^/library: /" >>"$run/failures" || :
	tally library $((p + good)) $((f + bad)) $((s + rest))
	((status == 0 || (f + bad > 0 && status == 1))) || broken library "ended with status $status" "$log"
	((p > 0)) || broken library "no test ran" "$log"
}

part_interop() {
	local peer
	need ko module
	need bin tools
	need peer verbs_program verbs-peer
	tap_part interop '.' guest --name interop --debian --put "$ko:kfabric.ko" --put "$bin/kfi" \
		--put "$bin/kfi-scenarios" --put "$peer" --put "$KF_TOP/qemu-test/two-hosts.sh:two-hosts.sh" -- \
		"$KF_TOP/qemu-test/interop" "$@"
}

# put_rdma_core_65 PROVIDER PACKAGES: $programs has libibverbs 65, programs of it, and programs that are
# built with its headers. Its libnl is that of Debian 13, whose symbols have no versions.
put_rdma_core_65() {
	local lib=$2/usr/lib/x86_64-linux-gnu name program
	programs+=(--put "$lib/libibverbs.so.1:rdma-core-65/lib/libibverbs.so.1")
	for name in ibv_devices ibv_devinfo ibv_rc_pingpong; do
		programs+=(--put "$2/usr/bin/$name:rdma-core-65/bin/$name")
	done
	for name in verbs-{provider,mapped,extended,counters,counted,flows}-65; do
		need program verbs_program "$name" -DBY_NAME -DRDMA_CORE_65 -Itools/verbs -isystem "$2/usr/include" -L"$lib" \
			"$1/libkfabric.so.1" -Wl,-rpath,/usr/lib/x86_64-linux-gnu/libibverbs -Wl,--allow-shlib-undefined
		programs+=(--put "$program")
	done
}

part_verbs() {
	local name program programs=() caller provider newer packages times=20
	need ko module
	need caller callers
	need bin command_kfi
	need provider verbs_provider 56
	programs=(--put "$provider/libkfabric.so.1:libkfabric.so.1")
	for name in verbs-provider verbs-mapped verbs-extended verbs-{counters,counted,flows}-by-name; do
		need program verbs_program "$name" -DBY_NAME -Itools/verbs "$provider/libkfabric.so.1" \
			-Wl,-rpath,/usr/lib/x86_64-linux-gnu/libibverbs
		programs+=(--put "$program")
	done
	# A mirror may not have that rdma-core any more.
	if newer=$(verbs_provider 65); then
		programs+=(--put "$newer/libkfabric.so.1:libkfabric-65.so.1")
		if packages=$(verbs_packages); then
			put_rdma_core_65 "$newer" "$packages"
		else
			say "   verbs: no libibverbs 65, and no test with it (log: $KF_LOG_DIR/build-verbs_packages.log)"
		fi
	else
		say "   verbs: no library for rdma-core 65, and no test of it (log: $KF_LOG_DIR/build-verbs_provider-65.log)"
	fi
	[ "$flavour" != sanitize ] || times=200
	for name in verbs-memory verbs-queues verbs-qps verbs-calls verbs-events verbs-regions \
		verbs-transfers verbs-states verbs-packets verbs-rings verbs-counters verbs-counted verbs-flows verbs-held; do
		need program verbs_program "$name"
		programs+=(--put "$program")
	done
	tap_part verbs '.' guest --name verbs --debian --put "$ko:kfabric.ko" \
		--put "${ko%/*}/kfabric_ib.ko:kfabric_ib.ko" --put "$caller:verbs_callers.ko" --put "$bin/kfi" "${programs[@]}" \
		"${verbs_scripts[@]}" -- "$KF_TOP/qemu-test/verbs" --times "$times" "$@"
}

part_pyverbs() {
	local provider
	need ko module
	need provider verbs_provider 56
	tap_part pyverbs '.' guest --name pyverbs --peers --put "$ko:kfabric.ko" \
		--put "${ko%/*}/kfabric_ib.ko:kfabric_ib.ko" --put "$provider/libkfabric.so.1:libkfabric.so.1" \
		--put "$KF_TOP/qemu-test/verbs-provider.sh:verbs-provider.sh" \
		--put "$KF_TOP/qemu-test/two-hosts.sh:two-hosts.sh" \
		--put "$KF_TOP/qemu-test/pyverbs-results.py:pyverbs-results.py" -- "$KF_TOP/qemu-test/pyverbs" "$@"
}

# The storage of the kernel on devices for verbs: NVMe and NFS, which the plain kernel does not have.
part_storage() {
	local name scripts=()
	[ "$flavour" != plain ] || part_flavour=stock
	need ko module
	for name in verbs-nvme.sh verbs-nvme-pair.sh verbs-nfs.sh verbs-provider.sh verbs-storage two-hosts.sh meet.sh; do
		scripts+=(--put "$KF_TOP/qemu-test/$name:$name")
	done
	scripts+=(--debian --peers --put "$ko:kfabric.ko" --put "${ko%/*}/kfabric_ib.ko:kfabric_ib.ko")
	tap_part storage '.' guest --name storage "${scripts[@]}" -- "bash /verbs-storage $*"
	# The initiator and the target of one kernel are in one namespace. Words choose tests of one guest.
	[ $# -gt 0 ] || tap_part storage-pair '.' "$KF_TOP/qemu-test/pair" --kernel "$part_flavour" \
		--timeout "$(guest_limit)" "${scripts[@]}" -- bash /verbs-storage
}

# What takes minutes: messages of 2 GiB by verbs.
part_long() {
	need ko module
	need bin command_kfi
	verbs_only long long verbs-transfers
}

# Open MPI and UCX of Debian on devices for verbs.
part_mpi() {
	local name scripts=() provider
	need ko module
	need provider verbs_provider 56
	for name in verbs-mpi.py verbs-provider.sh two-hosts.sh; do
		scripts+=(--put "$KF_TOP/qemu-test/$name:$name")
	done
	tap_part mpi '.' guest --name mpi --peers --put "$ko:kfabric.ko" --put "${ko%/*}/kfabric_ib.ko:kfabric_ib.ko" \
		--put "$provider/libkfabric.so.1:libkfabric.so.1" "${scripts[@]}" -- "$KF_TOP/qemu-test/verbs-mpi" "$@"
}

# The demonstration of the README.
part_demo() { tap_part demo '.' demo; }
demo() {
	local status=0
	KERNEL=$part_flavour "$KF_TOP/qemu-test/demo" || status=$?
	((status == 0)) || printf 'not '
	echo 'ok 1 - the demonstration'
	return $status
}

part_pair() {
	need ko module
	need bin command_kfi
	tap_part pair '.' "$KF_TOP/qemu-test/pair" --kernel "$part_flavour" --timeout "$(guest_limit)" \
		--put "$ko:kfabric.ko" --put "$bin/kfi" \
		--put "$KF_TOP/qemu-test/meet.sh:meet.sh" \
		--put "$KF_TOP/qemu-test/pair-tests:bin/pair-tests" -- pair-tests "$@"
}

part_cost() { tap_part cost '.' "$KF_TOP/qemu-test/bench" --cost "$@"; }

part_packages() {
	local passed
	# The module itself is left out: the other parts test it.
	passed=$KF_CACHE/passed/packages-$(hash_of_sources packaging scripts Kbuild Kconfig Makefile LICENSES include \
		Documentation/man Documentation/packaging.md Documentation/abi.md tools qemu-test/packages \
		qemu-test/packages-guest qemu-test/lib.sh qemu-test/consumers/consumer_example.c)
	if [ -z "$all" ] && [ -e "$passed" ]; then
		say "   packages: they passed with the same packaging, scripts, Kbuild and tools; make test-all runs them again"
		printf 'packages 0 0 0 0 0 0\n' >>"$run/rows"
		return
	fi
	tap_part packages '.' "$KF_TOP/qemu-test/packages"
	if ! grep -q '^packages: ' "$run/failures"; then
		mkdir -p "$KF_CACHE/passed"
		: >"$passed"
	fi
}

# attack_part NAME HOW_FAR SECONDS FAILURE [SUCCESS]: fuzz or hostile, one test each. FAILURE and
# SUCCESS are patterns of lines.
attack_part() {
	local name=$1 log=$KF_LOG_DIR/test-$flavour-$1.log why
	if timed_run "$name" "$log" "$2" env TIME="$3" FLAVOUR="$flavour" "$KF_TOP/qemu-test/$name" &&
		{ [ $# -lt 5 ] || grep -aqE "$5" "$log"; }; then
		tally "$name" 1 0 0
	else
		why=$(grep -aE "$4" "$log" | tail -n 1) || :
		broken "$name" "${why:-it did not come to its end}" "$log"
	fi
}

part_fuzz() { attack_part fuzz how_far_fuzz 20 '^(# fuzz: failed|round [0-9]+ SEED)'; }
part_hostile() {
	attack_part hostile how_far_hostile 60 '^hostile: failed' '^hostile: [0-9]+ packets, .*: ok'
}
