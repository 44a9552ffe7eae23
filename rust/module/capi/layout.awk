# SPDX-License-Identifier: GPL-2.0
#
# awk [-v only=NAMES] -f layout.awk layout.list: a C file that compiles only if include/kfi/, which
# it includes, is as layout.list states: the size of each structure, the offset, size and type of
# each member, the value of each constant, the prototype of each function.
#
# With `only`, a file of names, the C file includes the interface of ioctls instead, and compares
# the constants with these names.
#
# A spin lock is longer in kernels with lock debugging, and so is everything behind a struct
# completion: there only types are compared.

BEGIN {
	while (only && (getline name < only) > 0)
		wanted[name] = 1
	print "// SPDX-License-Identifier: GPL-2.0"
	print "// Made by layout.awk from layout.list."
	if (only) {
		print "#include <uapi/kfabric.h>"
	} else {
		split("kfabric errno eq domain endpoint rma tagged atomic cm prov trigger enosys log direct", names, " ")
		for (i = 1; i in names; i++)
			print "#include <kfi/" (i == 1 ? "" : "kfi_") names[i] ".h>"
	}
	print "#define CHECK(what, condition) \\"
	print "\t_Static_assert(condition, what \" is not that of kfabric 1.7\")"
	print "#define PLACE(what, condition) \\"
	print "\tCHECK(what, sizeof(struct completion) != 32 || (condition))"
	print "#define VALUE(name, number) \\"
	print "\tCHECK(#name, (unsigned long long)(name) == (unsigned long long)(number))"
}

/^#/ || NF == 0 { next }

# A line without a tab begins a group.
!/^\t/ {
	kind = $1
	owner = $1 " " $2
	if (kind == "struct" && !only)
		printf "PLACE(\"size of %s\", sizeof(%s) == %s);\n", owner, owner, $3
	next
}

# Of a member: the type is what follows three words.
kind == "struct" {
	if (only)
		next
	type = $0
	sub(/^\t[^ ]+ [^ ]+ [^ ]+ /, "", type)
	printf "PLACE(\"offset of %s, %s\", __builtin_offsetof(%s, %s) == %s);\n", owner, $1, owner, $1, $2
	if ($3 != 0)
		printf "PLACE(\"size of %s, %s\", sizeof(((%s *)0)->%s) == %s);\n", owner, $1, owner, $1, $3
	printf "CHECK(\"type of %s, %s\",\n\t__builtin_types_compatible_p(__typeof__(((%s *)0)->%s),\n\t\t%s));\n", owner, $1, owner, $1, type
	next
}

kind == "enum" || kind == "macros" {
	value = $0
	sub(/^\t[^ ]+ /, "", value)
	if (!only || $1 in wanted)
		printf "VALUE(%s, %s);\n", $1, value
	next
}

# A prototype that differs from that of the header is an error.
kind == "header" && !only {
	prototype = $0
	sub(/^\t(inline|function) /, "", prototype)
	sub(/\)[^)]*$/, ")", prototype)
	printf "%s%s;\n", $1 == "inline" ? "static inline " : "", prototype
	next
}
