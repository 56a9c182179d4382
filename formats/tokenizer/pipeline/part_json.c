#include "formats/tokenizer/pipeline/part_json.h"

#include <string.h>

#include "formats/tokenizer/unicode/utf8.h"

const char *mfs_part_type(const json_t *part)
{
	return json_string_value(json_object_get(part, "type"));
}

static int wrong(const json_t *part, const char *name, const char *expected, struct mfs_error *err)
{
	const char *type = mfs_part_type(part);

	return mfs_fail(err, -EINVAL, "%s.%s is no %s", type ? type : "a part", name, expected);
}

int mfs_part_bool(const json_t *part, const char *name, bool *ret, struct mfs_error *err)
{
	const json_t *value = json_object_get(part, name);

	if (!json_is_boolean(value))
		return wrong(part, name, "true or false", err);
	*ret = json_is_true(value);
	return 0;
}

int mfs_part_text(const json_t *part, const char *name, struct mfs_buf *ret, struct mfs_error *err)
{
	const json_t *value = json_object_get(part, name);

	if (!json_is_string(value))
		return wrong(part, name, "text", err);
	mfs_buf_add(ret, json_string_value(value), json_string_length(value));
	return ret->failed ? mfs_fail_nomem(err) : 0;
}

int mfs_part_count(const json_t *part, const char *name, size_t *ret, struct mfs_error *err)
{
	const json_t *value = json_object_get(part, name);

	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return wrong(part, name, "number of 0 or more", err);
	*ret = (size_t)json_integer_value(value);
	return 0;
}

int mfs_part_character(const json_t *part, const char *name, uint32_t *ret, struct mfs_error *err)
{
	const json_t *value = json_object_get(part, name);
	size_t size;

	if (!json_is_string(value) || !json_string_length(value))
		return wrong(part, name, "character", err);
	*ret = mfs_utf8_get(json_string_value(value), &size);
	return size == json_string_length(value) ? 0 : wrong(part, name, "character", err);
}

int mfs_part_pattern(const json_t *part, struct mfs_regex **ret, struct mfs_error *err)
{
	const json_t *pattern = json_object_get(part, "pattern");
	const json_t *text = json_object_get(pattern, "String");
	const json_t *regex = json_object_get(pattern, "Regex");

	if (json_is_string(text))
		return mfs_regex_new(json_string_value(text), json_string_length(text),
				     MFS_REGEX_LITERAL, ret, err);
	if (json_is_string(regex))
		return mfs_regex_new(json_string_value(regex), json_string_length(regex),
				     MFS_REGEX_ONIGURUMA, ret, err);
	return wrong(part, "pattern", "String or Regex", err);
}
