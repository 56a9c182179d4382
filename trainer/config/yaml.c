#include "trainer/config/yaml.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/nearest.h"
#include "formats/base/str.h"
#include "formats/base/yaml_tree.h"
#include "formats/io/regular.h"
#include "trainer/config/yaml_names.h"

struct reader {
	const char *name;
	struct mfs_flag_values *v;
	struct mfs_arena *arena;
	struct mfs_error *err;
};

static int fail(struct reader *r, const struct mfs_yaml_node *n, const char *what,
		const char *found)
{
	return mfs_fail(r->err, -EINVAL, "%s: line %u: %s '%.80s'", r->name, n->line, what, found);
}

/* ---- values ---- */

/* "[a,b]" of a sequence of scalars, as a pattern of layers is written on a command line. */
static int joined(struct reader *r, const struct mfs_yaml_node *n, struct mfs_buf *out)
{
	mfs_buf_adds(out, "[");
	for (const struct mfs_yaml_node *i = n->first; i; i = i->next) {
		if (i->kind != MFS_YAML_SCALAR)
			return fail(r, i, "expected a list of numbers", "a list in it");
		mfs_buf_printf(out, "%s%s", i->text, i->next ? "," : "");
	}
	mfs_buf_add(out, "]", 2);
	return out->failed ? mfs_fail_nomem(r->err) : 0;
}

static int words_of(struct reader *r, const struct mfs_yaml_node *n, const char ***ret,
		    size_t *ret_count)
{
	const struct mfs_yaml_node *first = n->kind == MFS_YAML_SCALAR ? n : n->first;
	size_t count = 0;

	for (const struct mfs_yaml_node *i = first; i; i = n == first ? NULL : i->next) {
		if (i->kind != MFS_YAML_SCALAR)
			return fail(r, i, "expected a list of values", "a list in it");
		count++;
	}
	*ret = mfs_arena_array(r->arena, count ? count : 1, sizeof(**ret));
	if (!*ret)
		return mfs_fail_nomem(r->err);
	*ret_count = count;
	for (size_t k = 0; k < count; k++, first = first->next)
		(*ret)[k] = first->text;
	return 0;
}

/* torch.bfloat16 and bfloat16 are bf16. */
static const char *plain_dtype(const char *text)
{
	const char *name = strncmp(text, "torch.", 6) ? text : text + 6;

	switch (mfs_dtype_from_torch(name)) {
	case MFS_F32:
		return "fp32";
	case MFS_BF16:
		return "bf16";
	case MFS_F16:
		return "fp16";
	default:
		return text;
	}
}

static int parse_value(struct reader *r, const struct mfs_flag *f, const char *key,
		       const struct mfs_yaml_node *n, struct mfs_flag_value *ret)
{
	const bool listed = f->kind == MFS_FLAG_PATTERN || f->kind == MFS_FLAG_TUPLE;
	struct mfs_buf text = {0};
	const char **words, *one;
	size_t count = 1;
	int rc;

	if (listed && n->kind == MFS_YAML_SEQUENCE) {
		rc = joined(r, n, &text);
		one = rc ? NULL : text.data;
		words = &one;
		/* A tuple has round brackets. */
		if (!rc && f->kind == MFS_FLAG_TUPLE)
			text.data[0] = '(', text.data[text.len - 2] = ')';
	} else {
		rc = words_of(r, n, &words, &count);
		if (!rc && f->kind == MFS_FLAG_DTYPE && count)
			words[0] = plain_dtype(words[0]);
	}
	if (!rc)
		rc = mfs_flag_value_parse(f, key, words, count, r->arena, ret, r->err);
	mfs_buf_release(&text);
	return rc;
}

static bool is_switch(const struct mfs_flag *f)
{
	return f->kind == MFS_FLAG_ON || f->kind == MFS_FLAG_OFF || f->kind == MFS_FLAG_SWITCH ||
	       f->kind == MFS_FLAG_TRUTH;
}

/* on: what true stands for. */
static int set(struct reader *r, size_t number, const char *key, const struct mfs_yaml_node *n,
	       bool on)
{
	const struct mfs_flag *f = mfs_flag_at(number);
	struct mfs_flag_value value = {0};
	bool truth;
	int rc;

	if (mfs_yaml_is_null(n))
		return 0;
	if (n->kind == MFS_YAML_MAPPING)
		return fail(r, n, "expected a value, found a mapping under", key);
	if (is_switch(f)) {
		if (!mfs_yaml_truth(n, &truth))
			return fail(r, n, "expected true or false under", key);
		value = (struct mfs_flag_value){.type = MFS_IS_BOOL, .truth = truth == on};
	} else {
		rc = parse_value(r, f, key, n, &value);
		if (rc)
			return r->err && rc != -ENOMEM
				       ? mfs_fail_in(r->err, "%s: line %u", r->name, n->line)
				       : rc;
	}
	if (r->v->from[number] == MFS_FROM_COMMAND_LINE)
		return 0;
	r->v->at[number] = value;
	r->v->from[number] = MFS_FROM_YAML;
	return 0;
}

static void set_truth(struct reader *r, const char *dest, bool truth)
{
	const size_t number = mfs_flag_of_dest(dest);

	if (r->v->from[number] == MFS_FROM_COMMAND_LINE)
		return;
	mfs_flag_set_truth(r->v, dest, truth);
	r->v->from[number] = MFS_FROM_YAML;
}

/* ---- names ---- */

/* A dest, or a flag with or without its hyphens. *ret_on: what true stands for. */
static size_t find(const char *key, bool *ret_on)
{
	char spelling[MFS_FLAG_SPELLING];
	size_t number = mfs_flag_of_dest(key);

	*ret_on = true;
	if (number != SIZE_MAX && mfs_flag_at(number)->kind != MFS_FLAG_DERIVED)
		return number;
	key += strspn(key, "-");
	if (snprintf(spelling, sizeof(spelling), "--%s", key) >= (int)sizeof(spelling))
		return SIZE_MAX;
	number = mfs_flag_of_spelling(spelling, strlen(spelling), ret_on);
	for (char *c = spelling; number == SIZE_MAX && *c; c++)
		if (*c == '_')
			*c = '-';
	return number != SIZE_MAX ? number
				  : mfs_flag_of_spelling(spelling, strlen(spelling), ret_on);
}

static int unknown(struct reader *r, const char *section, const struct mfs_yaml_node *key)
{
	struct mfs_nearest near = {.word = key->text};
	char hint[MFS_NEAREST_HINT];

	for (size_t i = 0; i < mfs_flag_count(); i++)
		if (mfs_flag_at(i)->kind != MFS_FLAG_DERIVED)
			mfs_nearest_try(&near, mfs_flag_at(i)->dest);
	return mfs_fail(r->err, -EINVAL, "%s: line %u: unknown name '%.80s' in %.40s%s", r->name,
			key->line, key->text, section, mfs_nearest_hint(&near, "", hint));
}

/* ---- what Megatron-Bridge says in another form ---- */

/* blend: [[prefix, ...], [weight, ...] or null] is --data-path weight prefix ... */
static int read_blend(struct reader *r, const struct mfs_yaml_node *n)
{
	const struct mfs_yaml_node *paths = n->first, *weights = paths ? paths->next : NULL;
	const size_t number = mfs_flag_of_dest("data_path");
	const struct mfs_yaml_node *w;
	struct mfs_yaml_node list = {.kind = MFS_YAML_SEQUENCE, .line = n->line}, **at;

	if (mfs_yaml_is_null(n))
		return 0;
	if (n->kind != MFS_YAML_SEQUENCE || !paths || paths->kind != MFS_YAML_SEQUENCE)
		return fail(r, n, "expected [[prefix, ...], [weight, ...]] under", "blend");
	at = &list.first;
	w = weights && weights->kind == MFS_YAML_SEQUENCE ? weights->first : NULL;
	for (const struct mfs_yaml_node *p = paths->first; p; p = p->next) {
		const struct mfs_yaml_node *pair[] = {w, p};

		for (int i = w ? 0 : 1; i < 2; i++) {
			*at = mfs_arena_alloc(r->arena, sizeof(**at));
			if (!*at)
				return mfs_fail_nomem(r->err);
			**at = *pair[i];
			(*at)->next = NULL;
			at = &(*at)->next;
		}
		if (w && !w->next != !p->next)
			return fail(r, n, "expected a weight for each prefix under", "blend");
		w = w ? w->next : NULL;
	}
	return set(r, number, "blend", &list, true);
}

/* The element type of weights: "torch.bfloat16", "bf16_mixed". */
static int read_precision(struct reader *r, const struct mfs_yaml_node *n)
{
	const char *text = n->kind == MFS_YAML_SCALAR ? n->text : "";
	const char *name = plain_dtype(text);

	if (mfs_yaml_is_null(n))
		return 0;
	if (mfs_str_is(name, "bf16") || mfs_str_is(text, "bf16_mixed")) {
		set_truth(r, "bf16", true);
	} else if (mfs_str_is(name, "fp16") || mfs_str_is(text, "fp16_mixed") ||
		   mfs_str_is(text, "16-mixed")) {
		set_truth(r, "fp16", true);
	} else if (!mfs_str_is(name, "fp32") && !mfs_str_is(text, "32")) {
		return fail(r, n, "expected bf16_mixed or fp16_mixed, found", text);
	}
	return 0;
}

/* With gated_linear_unit it is SwiGLU, which Megatron-Bridge names by its activation alone. */
static int read_activation(struct reader *r, const struct mfs_yaml_node *n)
{
	const char *text = n->kind == MFS_YAML_SCALAR ? n->text : "";
	const char *dot = strrchr(text, '.');
	const char *name = dot ? dot + 1 : text;

	if (mfs_yaml_is_null(n) || mfs_str_is(name, "silu") || mfs_str_is(name, "gelu"))
		return 0;
	if (mfs_str_is(name, "squared_relu")) {
		set_truth(r, "squared_relu", true);
		return 0;
	}
	return fail(r, n, "expected silu, gelu or squared_relu, found", text);
}

static int read_special(struct reader *r, const char *section, const struct mfs_yaml_node *key,
			const struct mfs_yaml_node *value, bool *ret_done)
{
	const bool model = mfs_str_is(section, "model"), data = mfs_str_is(section, "dataset");

	*ret_done = true;
	if (mfs_str_is(key->text, "_target_"))
		return 0; /* the Python class that it is made of */
	if (data && mfs_str_is(key->text, "blend"))
		return read_blend(r, value);
	if (mfs_str_is(key->text, "params_dtype"))
		return read_precision(r, value);
	if (model && mfs_str_is(key->text, "activation_func"))
		return read_activation(r, value);
	/* Fewer groups than heads are said there without --group-query-attention. */
	if (model && mfs_str_is(key->text, "num_query_groups") && !mfs_yaml_is_null(value))
		set_truth(r, "group_query_attention", true);
	*ret_done = false;
	return 0;
}

/* ---- sections ---- */

static int read_pair(struct reader *r, const char *section, const struct mfs_yaml_node *key,
		     const struct mfs_yaml_node *value)
{
	const bool bridge = !mfs_str_is(section, "megatron");
	const struct mfs_yaml_alias *alias = bridge ? mfs_yaml_alias(section, key->text) : NULL;
	bool on = true, done = false;
	size_t number;
	int rc = bridge ? read_special(r, section, key, value, &done) : 0;

	if (rc || done)
		return rc;
	number = alias ? mfs_flag_of_dest(alias->dest) : find(key->text, &on);
	if (number == SIZE_MAX || mfs_flag_at(number)->ours)
		return unknown(r, section, key);
	return set(r, number, key->text, value, alias ? !alias->inverse : on);
}

static int read_section(struct reader *r, const struct mfs_yaml_node *key,
			const struct mfs_yaml_node *value)
{
	int rc = 0;

	if (mfs_str_is(key->text, "mixed_precision"))
		return read_precision(r, value);
	if (!mfs_str_is(key->text, "megatron") && !mfs_yaml_is_section(key->text))
		return fail(r, key,
			    "expected a section as megatron, model, train, optimizer, scheduler, "
			    "dataset, checkpoint, logger or rng, found",
			    key->text);
	if (mfs_yaml_is_null(value))
		return 0;
	if (value->kind != MFS_YAML_MAPPING)
		return fail(r, value, "expected names with values under", key->text);
	for (const struct mfs_yaml_node *k = value->first; k && !rc; k = k->next->next)
		rc = read_pair(r, key->text, k, k->next);
	return rc;
}

int mfs_yaml_parse(const char *name, const void *bytes, size_t len, struct mfs_flag_values *v,
		   struct mfs_arena *arena, struct mfs_error *err)
{
	struct reader r = {name, v, arena, err};
	struct mfs_yaml_node *root;
	int rc = mfs_yaml_tree(name, bytes, len, MFS_YAML_PLAIN, arena, &root, err);

	if (rc || !root)
		return rc;
	if (root->kind != MFS_YAML_MAPPING)
		return fail(&r, root, "expected sections, found",
			    root->text ? root->text : "a list");
	for (const struct mfs_yaml_node *k = root->first; k && !rc; k = k->next->next)
		rc = read_section(&r, k, k->next);
	return rc;
}

/* At most one byte more than is taken, so that a larger file is known. */
int mfs_yaml_slurp(const char *path, char **ret, size_t *ret_len, struct mfs_error *err)
{
	char *bytes;
	ssize_t n = 1;
	size_t len = 0;
	int fd, rc = mfs_open_regular(AT_FDCWD, path, 0, &fd, NULL);

	if (rc)
		return mfs_fail(err, rc, "%s: %s", path, mfs_open_regular_why(rc));
	bytes = malloc(MFS_YAML_BYTES + 1);
	while (bytes && n > 0 && len <= MFS_YAML_BYTES) {
		n = read(fd, bytes + len, MFS_YAML_BYTES + 1 - len);
		len += n > 0 ? (size_t)n : 0;
	}
	if (!bytes)
		rc = mfs_fail_nomem(err);
	else if (n < 0)
		rc = mfs_fail_errno(err, "%s", path);
	close(fd);
	if (rc) {
		free(bytes);
		return rc;
	}
	*ret = bytes;
	*ret_len = len;
	return 0;
}

int mfs_yaml_read(const char *path, struct mfs_flag_values *v, struct mfs_arena *arena,
		  struct mfs_error *err)
{
	char *bytes;
	size_t len;
	int rc = mfs_yaml_slurp(path, &bytes, &len, err);

	if (rc)
		return rc;
	rc = mfs_yaml_parse(path, bytes, len, v, arena, err);
	free(bytes);
	return rc;
}
