# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Code that all ways to boot a guest share: QEMU's machine, the kernel's command
# line, the folder of logs, and the check of the kernel's log and of the exit
# status. The code does not trust output of a guest. Sourced after scripts/lib.sh,
# never run.

# Patterns of faults in the kernel's log.
faults='WARNING: |BUG: |Oops|Kernel panic|general protection fault|kernel NULL pointer'
faults+='|INFO: possible|possible circular locking|possible recursive locking|suspicious RCU usage'
faults+='|trying to register non-static key|turning off the locking correctness validator'
faults+='|INFO: task .* blocked|blocked for more than|detected stall|INFO: lockdep is turned off'
faults+='|UBSAN: |KASAN: |ODEBUG: |refcount_t: |unreferenced object 0x|Bad page|DEBUG_LOCKS_WARN_ON'
# Taint flags that are a fault: machine check, bad page, died, warned, soft lockup.
fault_taint=$((1 << 4 | 1 << 5 | 1 << 7 | 1 << 9 | 1 << 14))

# The kernel's command line: every fault is reported, and a fatal one ends the
# guest. no_timer_check: on a loaded machine the emulated timer is late, not
# broken.
# shellcheck disable=SC2034
cmdline=(panic=-1 oops=panic kasan_multi_shot random.trust_cpu=on no_timer_check
	hung_task_panic=1 sysctl.kernel.hung_task_timeout_secs=60 sysctl.kernel.watchdog_thresh=30)

# The guest writes this to the kernel's log before it starts the command.
command_starts='kfabric: the command starts'

# set_machine ACCEL: sets $machine to QEMU's options for it, and completes $cmdline. With "count"
# the guest's clock advances one nanosecond per instruction of any of its CPUs, and to the next
# timer when all of them are idle. Emulated CPUs do not speculate, so mitigations are off; without
# ERMS and FSRM the kernel copies words, which the emulator does eight times faster than bytes. A
# caller whose $append names the mitigations, as benchmarks do, gets the whole CPU.
# shellcheck disable=SC2034,SC2154
set_machine() {
	local cpu=max,la57=off
	case $1 in
	kvm) machine=(-accel kvm -cpu host) ;;
	count) machine=(-accel 'tcg,thread=single' -icount 'shift=0,sleep=off' -cpu "$cpu") ;;
	*)
		[[ " ${append:-} " == *' mitigations='* ]] || cpu+=,erms=off,fsrm=off
		machine=(-accel 'tcg,thread=multi' -cpu "$cpu")
		;;
	esac
	# A later word cannot undo "off", which also clears the attack vectors.
	[ "$1" = kvm ] || [[ " ${append:-} " == *' mitigations='* ]] || cmdline+=(mitigations=off)
}

# printable: remove control characters, which could steer the terminal. Each line
# goes on at once.
printable() { stdbuf -oL tr -d '\000-\010\013-\037\177'; }

# new_logs KIND NAME: sets $logs to a new folder for the logs of this run; the
# newest hundred of its kind are kept.
new_logs() {
	local all=$KF_LOG_DIR/$1
	mkdir -p "$all"
	find "$all" -mindepth 1 -maxdepth 1 -type d -mmin +180 -printf '%T@ %p\n' |
		sort -rn | tail -n +100 | cut -d' ' -f2- | while read -r old; do rm -rf "$old"; done
	logs=$(mktemp -d "$all/$2.XXXXXX")
	chmod 755 "$logs"
}

# fault: the kernel's log has one.
fault() { grep -aqE "$faults" "$logs/kernel.log"; }

# boot_again SCRIPT ARGUMENT...: run the script again, once, if the kernel failed
# before the guest started the command: nothing of this project ran by then. An
# emulated CPU sometimes executes code that the kernel is just patching. Calls
# the script's function cleanup.
boot_again() {
	[ -z "${KF_BOOTED_AGAIN:-}" ] && fault && ! grep -aqF "$command_starts" "$logs/kernel.log" || return 0
	say "$(basename "$0"): the kernel failed before the command started, and is booted once more (kernel log: $logs/kernel.log)"
	cleanup
	KF_BOOTED_AGAIN=1 exec "$@"
}

# excerpt PATTERN LINES: the first match with what stands around it, or the end
# of the log.
excerpt() {
	local line
	line=$(grep -anE -m 1 "$1" "$logs/kernel.log" | cut -d: -f1) || :
	if [ -n "$line" ]; then
		sed -n "$((line > 5 ? line - 5 : 1)),$((line + $2))p" "$logs/kernel.log"
	else
		tail -n 30 "$logs/kernel.log"
	fi | printable | sed 's/^/   | /' >&2
}

# verdict STATUS CAUSE [PATTERN [LINES]]: the end of a run that went wrong, with
# an excerpt of the log.
verdict() {
	say "$(basename "$0"): $2"
	excerpt "${3:-$faults}" "${4:-45}"
	say "   kernel log: $logs/kernel.log"
	say "   output:     $logs/output.log"
	exit "$1"
}

# finish TIMED_OUT STATUS TAINT LIMIT: end the script with the exit status of the
# run. TIMED_OUT is 1 if the guest did not end within LIMIT seconds; STATUS, the
# command's, and TAINT, the kernel's flags, are what the guest wrote, or empty.
finish() {
	if [ "$1" = 1 ]; then
		say "   the last of its output:"
		tail -n 10 "$logs/output.log" | printable | sed 's/^/   | /' >&2
		verdict 124 "the guest did not end within $4 s; what it was doing:" 'sysrq: Show' 80
	elif fault; then
		verdict 125 "the guest's kernel reported a fault (command's status: $(printable <<<"${2:-none}"))"
	elif [[ ! $2 =~ ^[0-9]{1,3}$ || ! $3 =~ ^[0-9]{1,9}$ ]]; then
		verdict 126 "the guest ended without a status (it wrote: status $(printable <<<"${2:-none}"), taint flags $(printable <<<"${3:-none}"))"
	elif (($3 & fault_taint)); then
		verdict 125 "the guest's kernel is tainted by a fault (flags $3)"
	fi
	exit "$2"
}
