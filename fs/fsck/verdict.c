#include "fs/fsck/verdict.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "fs/fsck/verdict_i.h"

static bool is(const char *text, const char *s, size_t len)
{
	return strlen(text) == len && !memcmp(text, s, len);
}

/* Letters, digits and underscores: a dot would be an attribute, and so another thing. */
static bool is_identifier(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_",
			    s[i]) ||
		    !s[i])
			return false;
	return len;
}

/* "_StorageInfo", by its capital. What a module has imported itself ("os", "reduce") is none. */
static bool is_class(const char *s, size_t len)
{
	size_t i = 0;

	while (i < len && s[i] == '_')
		i++;
	return i < len && s[i] >= 'A' && s[i] <= 'Z' && is_identifier(s, len);
}

/* Dots and what is no ASCII stand in the names of modules, too. */
static bool is_module(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (s[i] != '.' && !((uint8_t)s[i] & 0x80) && !is_identifier(s + i, 1))
			return false;
	return len;
}

static bool is_inside(const char *parent, const char *s, size_t len)
{
	const size_t parent_len = strlen(parent);

	return len >= parent_len && !memcmp(parent, s, parent_len) &&
	       (len == parent_len || s[parent_len] == '.');
}

static bool is_inside_any(const char *const *parents, const char *s, size_t len)
{
	for (; *parents; parents++)
		if (is_inside(*parents, s, len))
			return true;
	return false;
}

/* ---- what is harmless ---- */

static bool matches(const char *pattern, const char *s, size_t len)
{
	const char *star = strchr(pattern, '*');
	const size_t before = star ? (size_t)(star - pattern) : 0,
		     after = star ? strlen(star + 1) : 0;

	if (!star)
		return is(pattern, s, len);
	if (!strcmp(pattern, "**"))
		return is_identifier(s, len);
	if (!pattern[1])
		return is_class(s, len);
	return is_identifier(s, len) && len >= before + after && !memcmp(pattern, s, before) &&
	       !memcmp(star + 1, s + len - after, after);
}

static bool matches_module(const char *pattern, const char *s, size_t len)
{
	const size_t stem = strlen(pattern) - 2;

	if (strlen(pattern) < 2 || strcmp(pattern + stem, ".*"))
		return is(pattern, s, len);
	return len >= stem && !memcmp(pattern, s, stem) && (len == stem || s[stem] == '.');
}

static bool is_harmless(const char *module, size_t module_len, const char *name, size_t name_len)
{
	for (const struct mfs_known_name *k = mfs_harmless_names; k->module; k++)
		if (matches_module(k->module, module, module_len) &&
		    matches(k->name, name, name_len))
			return true;
	return false;
}

/* ---- what is told by a name ---- */

/* "read_pickle" and "_load_from_bytes" have words, between underscores. */
static bool has_telling_word(const char *s, size_t len)
{
	for (size_t at = 0, end; at < len; at = end + 1) {
		for (end = at; end < len && s[end] != '_'; end++)
			;
		for (const char *const *word = mfs_telling_words; *word; word++)
			if (strlen(*word) == end - at && !strncasecmp(*word, s + at, end - at))
				return true;
	}
	return false;
}

static bool has_telling_end(const char *s, size_t len)
{
	for (const char *const *word = mfs_telling_ends; *word; word++) {
		const size_t word_len = strlen(*word);

		if (len >= word_len && !memcmp(*word, s + len - word_len, word_len))
			return true;
	}
	return false;
}

static bool is_cython_state(const char *s, size_t len)
{
	return matches("__pyx_unpickle_*", s, len);
}

static enum mfs_verdict verdict_by_name(const char *module, size_t module_len, const char *name,
					size_t name_len)
{
	bool dangerous;

	if (is_class(name, name_len))
		dangerous = has_telling_end(name, name_len);
	else if (is_cython_state(name, name_len))
		dangerous = false;
	else
		dangerous = has_telling_word(name, name_len) ||
			    is_inside_any(mfs_known_packages, module, module_len);
	return dangerous ? MFS_DANGEROUS : MFS_UNKNOWN;
}

/* ---- all of it ---- */

/* The unpickler takes Python 3's package for Python 2's. */
static void translate(const char **module, size_t *len)
{
	for (const struct mfs_known_name *k = mfs_names_of_python2; k->module; k++)
		if (is_inside(k->module, *module, *len)) {
			*module = k->name;
			*len = strlen(k->name);
			return;
		}
}

enum mfs_verdict mfs_verdict(const char *module, size_t module_len, const char *name,
			     size_t name_len)
{
	if (!module)
		return MFS_DANGEROUS;
	translate(&module, &module_len);
	if (is_harmless(module, module_len, name, name_len))
		return MFS_HARMLESS;
	/* An attribute of something: torch and "os.system" is os.system. A module that has no name
	 * is asked for by those who want to be passed over. */
	if (!is_identifier(name, name_len) || !is_module(module, module_len))
		return MFS_DANGEROUS;
	if (is_inside_any(mfs_dangerous_modules, module, module_len))
		return MFS_DANGEROUS;
	return verdict_by_name(module, module_len, name, name_len);
}
