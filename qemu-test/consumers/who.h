/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The providers that answer a request for entries.
 */
#ifndef _CONSUMER_WHO_H
#define _CONSUMER_WHO_H

#include <linux/string.h>

#include <kfi/kfi_domain.h>

/*
 * The providers of the answer to @flags and @hints, in order, without repetitions. One caller at a
 * time: the next call writes over the text.
 */
static inline const char *who(u64 flags, struct kfi_info *hints)
{
	static char text[64];
	struct kfi_info *info, *entry;
	const char *last = "";

	text[0] = '\0';
	if (kfi_getinfo(0, NULL, NULL, flags, hints, &info))
		return "nobody";
	for (entry = info; entry; entry = entry->next) {
		if (!strcmp(last, entry->fabric_attr->prov_name))
			continue;
		last = entry->fabric_attr->prov_name;
		strlcat(text, last, sizeof(text));
		strlcat(text, " ", sizeof(text));
	}
	kfi_freeinfo(info);
	return text;
}

#endif /* _CONSUMER_WHO_H */
