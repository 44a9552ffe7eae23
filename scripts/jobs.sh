# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Jobs that run beside each other: parts of the tests, parts of the checks. A job
# has a kind, and of each kind as many run at once as ${lanes[KIND]} says. The
# output of a job goes to a file, and a line tells every 30 s what is running; with
# $direct a single job writes to the terminal instead. A job of the kind "alone" runs when
# no other one does. Sourced after lib.sh, never run.

declare -A lanes
job_kinds=() job_names=() job_commands=()

# job KIND NAME COMMAND...: a job that run_jobs starts later. COMMAND may be a function.
job() {
	job_kinds+=("$1") job_names+=("$2")
	shift 2
	job_commands+=("$(printf '%q ' "$@")")
}

# The output of a job.
job_log() { printf '%s\n' "$KF_LOG_DIR/job-$1.log"; }

# begin NUMBER: start a job in a process group of its own.
begin() {
	local name=${job_names[$1]} log
	log=$(job_log "$name")
	set -m
	(eval "${job_commands[$1]}") >"$log" 2>&1 </dev/null &
	set +m
	running[$!]=$1
	began[$1]=$SECONDS
}

# what_runs: the running jobs, each with the last line of its output.
what_runs() {
	local pid name said all=''
	for pid in "${!running[@]}"; do
		name=${job_names[${running[$pid]}]}
		said=$(tail -n 1 "$(job_log "$name")" | printable_line)
		all+="${all:+; }$name $((SECONDS - began[${running[$pid]}])) s${said:+ ($said)}"
	done
	printf '%s' "$all"
}

printable_line() { tr -d '\000-\037\177' | sed 's/^[ =]*//' | cut -c1-70; }

stop_jobs() {
	local pid
	for pid in "${!running[@]}"; do kill -TERM -- "-$pid" 2>/dev/null || :; done
	exit 130
}

# has_lane KIND: a job of this kind may start.
has_lane() {
	if [ "$1" = alone ]; then
		((${#running[@]} == 0))
	else
		((${busy[alone]:-0} == 0 && ${busy[$1]:-0} < ${lanes[$1]}))
	fi
}

# run_jobs ENDED: run all jobs, in their order as far as lanes are free. Calls the
# function ENDED with the name, the status and the seconds of each as it ends.
run_jobs() {
	local ended=$1 number kind pid status columns shown=$SECONDS start=$SECONDS
	local -A running=() began=() busy=()
	local waiting=("${!job_names[@]}")
	if [ -n "${direct:-}" ] && ((${#job_names[@]} == 1)); then
		# Not in a condition, which would switch "set -e" off in the job
		set +e
		(set -e && eval "${job_commands[0]}")
		status=$?
		set -e
		"$ended" "${job_names[0]}" $status $((SECONDS - start))
		return
	fi
	trap stop_jobs INT TERM HUP
	while ((${#waiting[@]} + ${#running[@]})); do
		for number in "${!waiting[@]}"; do
			kind=${job_kinds[${waiting[$number]}]}
			has_lane "$kind" || continue
			busy[$kind]=$((${busy[$kind]:-0} + 1))
			begin "${waiting[$number]}"
			unset "waiting[$number]"
		done
		for pid in "${!running[@]}"; do
			! kill -0 "$pid" 2>/dev/null || continue
			status=0
			wait "$pid" || status=$?
			number=${running[$pid]}
			unset "running[$pid]"
			busy[${job_kinds[$number]}]=$((busy[${job_kinds[$number]}] - 1))
			[ ! -t 2 ] || printf '\r\033[K' >&2
			"$ended" "${job_names[$number]}" $status $((SECONDS - began[$number]))
		done
		if [ -t 2 ]; then
			columns=$(stty size <&2 2>/dev/null | cut -d' ' -f2)
			printf '\r   %4d s  %s\033[K' $((SECONDS - start)) "$(what_runs | cut -c1-$((${columns:-100} - 12)))" >&2
		elif ((SECONDS - shown >= 30)); then
			shown=$SECONDS
			say "   $((SECONDS - start)) s: $(what_runs)"
		fi
		sleep 0.3
	done
	[ ! -t 2 ] || printf '\r\033[K' >&2
	trap - INT TERM HUP
}
