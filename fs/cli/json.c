#include "fs/cli/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *mfs_json_string(const char *s)
{
	json_t *value = s ? json_string(s) : json_null();
	char *copy;

	if (value)
		return value;
	copy = strdup(s);
	for (char *p = copy; p && *p; p++)
		if (*p & 0x80)
			*p = '?';
	value = copy ? json_string(copy) : NULL;
	free(copy);
	return value;
}

json_t *mfs_json_number(uint64_t n)
{
	return json_integer((json_int_t)n);
}

json_t *mfs_json_texts(const char *const *list, uint32_t count)
{
	json_t *array = json_array();

	for (uint32_t i = 0; i < count; i++)
		json_array_append_new(array, mfs_json_string(list[i]));
	return array;
}

json_t *mfs_json_numbers(const uint64_t *list, uint32_t count)
{
	json_t *array = json_array();

	for (uint32_t i = 0; i < count; i++)
		json_array_append_new(array, mfs_json_number(list[i]));
	return array;
}

int mfs_json_print(json_t *o)
{
	char *text = o ? json_dumps(o, JSON_INDENT(2)) : NULL;

	json_decref(o);
	if (!text)
		return -ENOMEM;
	puts(text);
	free(text);
	return 0;
}
