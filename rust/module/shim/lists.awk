# SPDX-License-Identifier: GPL-2.0
#
# Lists the names that <uapi/kfabric.h> defines, as three macros in Rust. Kbuild appends them to the
# bindings that bindgen makes from the same header.
#
#   every_constant!(m)   m! { NAME ... }: each macro with a value, and each enumerator
#   every_structure!(m)  m! { name { field ... } ... }: each structure with its fields
#   every_command!(m)    m! { NAME number structure; ... }: each command
#
# The macro m compares such a list with the module's own tables, so a name that is in the
# header only does not compile. A name that is listed here by mistake does not compile either,
# because bindgen does not know it.

function name_of(text) {
	match(text, /[A-Za-z_][A-Za-z0-9_]*/)
	return substr(text, RSTART, RLENGTH)
}

# Removes comments, which may continue on further lines.
{
	while (comment || index($0, "/*")) {
		if (comment) {
			if (!(end = index($0, "*/")))
				next
			$0 = substr($0, end + 2)
			comment = 0
		} else {
			start = index($0, "/*")
			rest = substr($0, start + 2)
			$0 = substr($0, 1, start - 1)
			if (end = index(rest, "*/"))
				$0 = $0 " " substr(rest, end + 2)
			else {
				comment = 1
				break
			}
		}
	}
}

/^#define KFABRIC_IOC_[A-Z0-9_]+[ \t]+KFABRIC_IO\(/ {
	number = $0
	sub(/.*KFABRIC_IO\(/, "", number)
	argument = number
	sub(/,.*/, "", number)
	sub(/.*struct[ \t]+/, "", argument)
	commands = commands " " $2 " " number " " name_of(argument) ";"
	next
}

# Skips macros with parameters, and the header's own guard.
/^#[ \t]*define[ \t]+[A-Za-z_0-9]+[ \t]+[^ \t]/ {
	constants = constants " " name_of(substr($0, index($0, "define") + 6))
	next
}

/^(enum|struct)( [a-z_0-9]+)? \{$/ {
	block = $1
	if (block == "struct")
		structures = structures " " $2 " {"
	next
}

/^\};$/ {
	if (block == "struct")
		structures = structures " }"
	block = ""
	next
}

# Fields named like a keyword of Rust get an underscore at the end, as in bindgen's output.
block == "struct" && /;[ \t]*$/ {
	field = $NF
	sub(/[[;].*/, "", field)
	structures = structures " " field (field == "type" ? "_" : "")
}

block == "enum" {
	parts = split($0, part, ",")
	for (i = 1; i <= parts; i++)
		if (part[i] ~ /[A-Za-z]/)
			constants = constants " " name_of(part[i])
}

function list(name, what) {
	print "macro_rules! " name " { ($then:ident) => { $then! {" what " } }; }"
	print "pub(crate) use " name ";"
}

END {
	list("every_constant", constants)
	list("every_structure", structures)
	list("every_command", commands)
}
