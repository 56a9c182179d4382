#include "trainer/config/parse/yaml.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/base/nearest.h"
#include "formats/base/str.h"
#include "formats/io/regular.h"
#include "trainer/config/help/foreign.h"
#include "trainer/config/precision.h"
#include "trainer/config/help/suggest.h"
#include "trainer/config/parse/yaml_i.h"
#include "trainer/config/parse/yaml_names.h"

int mft_yaml_fail(struct mft_yaml_reader *r, const struct mfs_yaml_node *n, const char *what,
		  const char *found)
{
	return mfs_fail(r->err, -EINVAL, "%s: line %u: %s '%.80s'", r->name, n->line, what, found);
}

/* ---- values ---- */

/* "[a,b]" of a sequence of scalars, as a pattern of layers is written on a command line. */
static int joined(struct mft_yaml_reader *r, const struct mfs_yaml_node *n, struct mfs_buf *out)
{
	mfs_buf_adds(out, "[");
	for (const struct mfs_yaml_node *i = n->first; i; i = i->next) {
		if (i->kind != MFS_YAML_SCALAR)
			return mft_yaml_fail(r, i, "expected a list of numbers", "a list in it");
		if (r->words++ == MFS_YAML_NODES)
			return mft_yaml_fail(r, i, "expected fewer values in lists, found",
					     i->text);
		mfs_buf_printf(out, "%s%s", i->text, i->next ? "," : "");
	}
	mfs_buf_add(out, "]", 2);
	return out->failed ? mfs_fail_nomem(r->err) : 0;
}

static int words_of(struct mft_yaml_reader *r, const struct mfs_yaml_node *n, const char ***ret,
		    size_t *ret_count)
{
	const struct mfs_yaml_node *first = n->kind == MFS_YAML_SCALAR ? n : n->first;
	size_t count = 0;

	for (const struct mfs_yaml_node *i = first; i; i = n == first ? NULL : i->next) {
		if (i->kind != MFS_YAML_SCALAR)
			return mft_yaml_fail(r, i, "expected a list of values", "a list in it");
		if (r->words++ == MFS_YAML_NODES)
			return mft_yaml_fail(r, i, "expected fewer values in lists, found",
					     i->text);
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

const char *mft_yaml_plain_dtype(const char *text)
{
	const char *name = strncmp(text, "torch.", 6) ? text : text + 6;
	const enum mfs_dtype type = mfs_dtype_from_torch(name);
	const char *word = mfs_dtype_is_float(type) ? mft_precision_word(type) : NULL;

	return word ? word : text;
}

/* What a number is called on a command line: 10000.0 is the integer 10000, and 15 is SIGTERM. */
static int spell(struct mft_yaml_reader *r, const struct mft_flag *f, const struct mfs_yaml_node *n,
		 const char **word)
{
	int64_t member;
	double real;

	if (f->kind == MFT_FLAG_DTYPE)
		*word = mft_yaml_plain_dtype(*word);
	if (n->kind != MFS_YAML_SCALAR)
		return 0;
	if (f->kind == MFT_FLAG_INT && mfs_yaml_real(n, &real) && strpbrk(n->text, ".eE") &&
	    real == floor(real) && fabs(real) < 1e15)
		*word = mfs_arena_printf(r->arena, "%.0f", real);
	if (f->kind == MFT_FLAG_ENUM && mfs_yaml_int(n, &member))
		for (int64_t i = 0; f->of->names[i]; i++)
			if (i + 1 == member)
				*word = f->of->names[i];
	return *word ? 0 : mfs_fail_nomem(r->err);
}

static int parse_value(struct mft_yaml_reader *r, const struct mft_flag *f, const char *key,
		       const struct mfs_yaml_node *n, struct mft_flag_value *ret)
{
	const bool listed = f->kind == MFT_FLAG_PATTERN || f->kind == MFT_FLAG_TUPLE;
	struct mfs_buf text = {0};
	const char **words, *one;
	size_t count = 1;
	int rc;

	if (listed && n->kind == MFS_YAML_SEQUENCE) {
		rc = joined(r, n, &text);
		one = rc ? NULL : text.data;
		words = &one;
		/* A tuple has round brackets. */
		if (!rc && f->kind == MFT_FLAG_TUPLE)
			text.data[0] = '(', text.data[text.len - 2] = ')';
	} else {
		rc = words_of(r, n, &words, &count);
		if (!rc && count)
			rc = spell(r, f, n, &words[0]);
	}
	if (!rc)
		rc = mft_flag_value_parse(f, key, words, count, r->arena, ret, r->err);
	mfs_buf_release(&text);
	return rc;
}

static bool is_switch(const struct mft_flag *f)
{
	return f->kind == MFT_FLAG_ON || f->kind == MFT_FLAG_OFF || f->kind == MFT_FLAG_SWITCH ||
	       f->kind == MFT_FLAG_TRUTH;
}

/* A list that may have no items: an argument that takes them is not given then. */
static bool is_no_list(const struct mft_flag *f, const struct mfs_yaml_node *n)
{
	return f->words == '+' && n->kind == MFS_YAML_SEQUENCE && !n->first;
}

static int set(struct mft_yaml_reader *r, size_t number, const char *key,
	       const struct mfs_yaml_node *n, bool on)
{
	const struct mft_flag *f = mft_flag_at(number);
	struct mft_flag_value value = {0};
	bool truth;
	int rc;

	if (mfs_yaml_is_null(n) || is_no_list(f, n))
		return 0;
	if (n->kind == MFS_YAML_MAPPING)
		return mft_yaml_fail(r, n, "expected a value, found a mapping under", key);
	if (is_switch(f)) {
		if (!mfs_yaml_truth(n, &truth))
			return mft_yaml_fail(r, n, "expected true or false under", key);
		value = (struct mft_flag_value){.type = MFT_IS_BOOL, .truth = truth == on};
	} else {
		rc = parse_value(r, f, key, n, &value);
		if (rc)
			return r->err && rc != -ENOMEM
				       ? mfs_fail_in(r->err, "%s: line %u", r->name, n->line)
				       : rc;
	}
	if (r->v->from[number] == MFT_FROM_COMMAND_LINE)
		return 0;
	r->v->at[number] = value;
	r->v->from[number] = MFT_FROM_YAML;
	return 0;
}

int mft_yaml_set(struct mft_yaml_reader *r, const char *dest, const char *key,
		 const struct mfs_yaml_node *n, bool on)
{
	return set(r, mft_flag_of_dest(dest), key, n, on);
}

bool mft_yaml_is_taken(const struct mft_yaml_reader *r, const char *dest)
{
	return r->v->from[mft_flag_of_dest(dest)] == MFT_FROM_COMMAND_LINE;
}

void mft_yaml_set_truth(struct mft_yaml_reader *r, const char *dest, bool truth)
{
	if (mft_yaml_is_taken(r, dest))
		return;
	mft_flag_set_truth(r->v, dest, truth);
	r->v->from[mft_flag_of_dest(dest)] = MFT_FROM_YAML;
}

void mft_yaml_set_number(struct mft_yaml_reader *r, const char *dest, int64_t number)
{
	if (mft_yaml_is_taken(r, dest))
		return;
	mft_flag_set_number(r->v, dest, number);
	r->v->from[mft_flag_of_dest(dest)] = MFT_FROM_YAML;
}

/* ---- names ---- */

/* A dest, or a flag with or without its hyphens. *ret_on: what true stands for. */
static size_t find(const char *key, bool *ret_on)
{
	char spelling[MFT_FLAG_SPELLING];
	size_t number = mft_flag_of_dest(key);

	*ret_on = true;
	if (number != SIZE_MAX && mft_flag_at(number)->kind != MFT_FLAG_DERIVED)
		return number;
	key += strspn(key, "-");
	if (snprintf(spelling, sizeof(spelling), "--%s", key) >= (int)sizeof(spelling))
		return SIZE_MAX;
	number = mft_flag_of_spelling(spelling, strlen(spelling), ret_on);
	for (char *c = spelling; number == SIZE_MAX && *c; c++)
		if (*c == '_')
			*c = '-';
	return number != SIZE_MAX ? number
				  : mft_flag_of_spelling(spelling, strlen(spelling), ret_on);
}

/* A flag of another program's: true of one that takes no value. *ret_done: it is one. */
static int read_foreign(struct mft_yaml_reader *r, const struct mfs_yaml_node *key,
			const struct mfs_yaml_node *value, bool *ret_done)
{
	const char *name = key->text + strspn(key->text, "-");
	const char *spelling = mfs_arena_printf(r->arena, "--%.80s", name);
	const struct mft_foreign *f =
		spelling ? mft_foreign_find(spelling, strlen(spelling),
					    value->kind == MFS_YAML_SCALAR ? value->text : NULL)
			 : NULL;
	const char **words = NULL;
	size_t count = 0;
	bool on = true;
	int rc = 0;

	*ret_done = f;
	if (!f || mfs_yaml_is_null(value))
		return spelling ? 0 : mfs_fail_nomem(r->err);
	if (value->kind == MFS_YAML_MAPPING)
		return mft_yaml_fail(r, value, "expected a value, found a mapping under",
				     key->text);
	if (f->words == '0' && !mfs_yaml_truth(value, &on))
		return mft_yaml_fail(r, value, "expected true or false under", key->text);
	if (f->words != '0')
		rc = words_of(r, value, &words, &count);
	if (!rc && on)
		rc = mft_foreign_take(f, key->text, words, count, MFT_FROM_YAML, r->v, r->arena,
				      r->err);
	return rc && rc != -ENOMEM && r->err
		       ? mfs_fail_in(r->err, "%s: line %u", r->name, key->line)
		       : rc;
}

static int unknown(struct mft_yaml_reader *r, const char *section, const struct mfs_yaml_node *key)
{
	struct mfs_nearest near = {.word = key->text};
	char hint[MFS_NEAREST_HINT];

	near.name = mft_flag_suggest(key->text);
	if (!near.name)
		mft_yaml_try_names(section, &near);
	return mfs_fail(r->err, -EINVAL, "%s: line %u: unknown name '%.80s' in %.40s%s", r->name,
			key->line, key->text, section, mfs_nearest_hint(&near, "", hint));
}

/* ---- sections ---- */

static int read_pair(struct mft_yaml_reader *r, const char *section,
		     const struct mfs_yaml_node *key, const struct mfs_yaml_node *value)
{
	const bool bridge = !mfs_str_is(section, "megatron");
	const struct mft_yaml_alias *alias = bridge ? mft_yaml_alias(section, key->text) : NULL;
	bool on = true, done = false;
	size_t number;
	int rc;

	if (bridge)
		value = mft_yaml_unwrap(value);
	rc = bridge ? mft_yaml_bridge_pair(r, section, key, value, &done) : 0;
	if (rc || done)
		return rc;
	number = alias ? mft_flag_of_dest(alias->dest) : find(key->text, &on);
	if (!bridge)
		rc = read_foreign(r, key, value, &done);
	if (rc || done)
		return rc;
	if (number == SIZE_MAX || mft_flag_at(number)->ours)
		return unknown(r, section, key);
	return set(r, number, key->text, value, alias ? !alias->inverse : on);
}

/* Groups of names within megatron:, as Oumi has them: a section of Bridge's with its names. NULL:
 * it is none. */
static const char *group_of(const char *section, const char *key)
{
	static const struct {
		const char *key, *section;
	} groups[] = {{"ddp_config", "ddp"},
		      {"optimizer_config", "optimizer"},
		      {"transformer_config", "model"},
		      {"checkpoint_config", "checkpoint"}};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(groups); i++)
		if (mfs_str_is(section, "megatron") && mfs_str_is(key, groups[i].key))
			return groups[i].section;
	return NULL;
}

static int read_pairs(struct mft_yaml_reader *r, const char *section,
		      const struct mfs_yaml_node *pairs)
{
	int rc = 0;

	for (const struct mfs_yaml_node *k = pairs->first; k && !rc; k = k->next->next)
		if (mfs_str_is(section, "model") && mfs_str_is(k->text, "transformer") &&
		    k->next->kind == MFS_YAML_MAPPING)
			rc = read_pairs(r, "transformer", k->next);
		else if (group_of(section, k->text) && k->next->kind == MFS_YAML_MAPPING)
			rc = read_pairs(r, group_of(section, k->text), k->next);
		else
			rc = read_pair(r, mfs_str_is(section, "transformer") ? "model" : section, k,
				       k->next);
	return rc;
}

static int read_section(struct mft_yaml_reader *r, const struct mfs_yaml_node *key,
			const struct mfs_yaml_node *value)
{
	bool done;
	int rc = mft_yaml_bridge_section(r, key, value, &done);

	if (rc || done)
		return rc;
	if (!mfs_str_is(key->text, "megatron") && !mft_yaml_is_section(key->text))
		return mft_yaml_fail(
			r, key,
			"expected megatron, or a section of Megatron-Bridge (model, "
			"train, optimizer, scheduler, ddp, dataset, checkpoint, logger, "
			"rng), or a file of NeMo-RL (policy.megatron_cfg), Oumi "
			"(model.model_name and megatron) or Accelerate "
			"(megatron_lm_config), found",
			key->text);
	if (mfs_yaml_is_null(value))
		return 0;
	if (value->kind != MFS_YAML_MAPPING)
		return mft_yaml_fail(r, value, "expected names with values under", key->text);
	if (mfs_str_is(key->text, "mixed_precision"))
		rc = mft_yaml_precision_begin(r, value);
	return rc ? rc : read_pairs(r, key->text, value);
}

/* ---- Accelerate ---- */

#define PREFIX "megatron_lm_"

/* accelerate/utils/dataclasses.py: MegatronLMPlugin. Other names are dests. */
static int read_plugin(struct mft_yaml_reader *r, const struct mfs_yaml_node *key)
{
	static const struct {
		const char *name, *dest;
	} names[] = {{"tp_degree", "tensor_model_parallel_size"},
		     {"pp_degree", "pipeline_model_parallel_size"},
		     {"gradient_clipping", "clip_grad"},
		     {"sequence_parallelism", "sequence_parallel"},
		     {"use_custom_fsdp", "use_megatron_fsdp"}};
	const bool has_prefix = !strncmp(key->text, PREFIX, sizeof(PREFIX) - 1);
	const char *name = key->text + (has_prefix ? sizeof(PREFIX) - 1 : 0);
	int64_t count;
	size_t number;

	if (mfs_str_is(name, "num_micro_batches")) {
		if (mft_yaml_is_taken(r, "global_batch_size") || !mfs_yaml_int(key->next, &count))
			return mft_yaml_unused(r, "megatron_lm_config", key->text);
		return mfs_fail(r->err, -ENOTSUP,
				"%s: line %u: %.80s: give --global-batch-size, which is %lld times "
				"--micro-batch-size of each process that has its own samples",
				r->name, key->line, key->text, (long long)count);
	}
	for (size_t i = 0; i < MFS_ARRAY_SIZE(names); i++)
		if (mfs_str_is(name, names[i].name))
			name = names[i].dest;
	number = mft_flag_of_dest(name);
	if (number == SIZE_MAX || mft_flag_at(number)->ours)
		return unknown(r, "megatron_lm_config", key);
	return set(r, number, key->text, key->next, true);
}

/* The rest says how Accelerate starts processes, but for the precision. */
static int read_accelerate(struct mft_yaml_reader *r)
{
	int rc = 0;

	for (const struct mfs_yaml_node *k = r->root->first; k && !rc; k = k->next->next) {
		const struct mfs_yaml_node *v = k->next;

		if (mfs_str_is(k->text, "megatron_lm_config") && v->kind == MFS_YAML_MAPPING) {
			for (const struct mfs_yaml_node *p = v->first; p && !rc; p = p->next->next)
				rc = read_plugin(r, p);
		} else if (mfs_str_is(k->text, "mixed_precision") && v->kind == MFS_YAML_SCALAR) {
			if (mfs_str_is(v->text, "bf16") || mfs_str_is(v->text, "fp16"))
				mft_yaml_set_truth(r, v->text, true);
			else if (!mfs_str_is(v->text, "no"))
				rc = mft_yaml_fail(r, v, "expected no, bf16 or fp16, found",
						   v->text);
		} else {
			rc = mft_yaml_unused(r, k->text, "");
		}
	}
	return rc;
}

/* In Bridge the precision has the last word over the model, the optimizer and their gradients. */
static int read_sections(struct mft_yaml_reader *r)
{
	int rc = 0;

	for (int last = 0; last < 2; last++)
		for (const struct mfs_yaml_node *k = r->root->first; k && !rc; k = k->next->next)
			if (mfs_str_is(k->text, "mixed_precision") == last)
				rc = read_section(r, k, k->next);
	return rc;
}

/* What Bridge has saved begins with its class. PyYAML writes an object that it meets twice as an
 * anchor and an alias, and tuples with a tag. */
static bool is_saved(const char *bytes, size_t len)
{
	static const char begin[] = "_target_:";

	return len >= sizeof(begin) - 1 && !memcmp(bytes, begin, sizeof(begin) - 1);
}

int mft_yaml_parse(const char *name, const void *bytes, size_t len, struct mft_flag_values *v,
		   struct mfs_arena *arena, struct mfs_error *err)
{
	struct mft_yaml_reader r = {.name = name, .v = v, .arena = arena, .err = err};
	struct mfs_yaml_node *root;
	int rc = mfs_yaml_tree(name, bytes, len, is_saved(bytes, len) ? 0 : MFS_YAML_PLAIN, arena,
			       &root, err);

	if (rc || !root)
		return rc;
	if (root->kind != MFS_YAML_MAPPING)
		return mft_yaml_fail(&r, root, "expected sections, found",
				     root->text ? root->text : "a list");
	r.root = root;
	if (mfs_yaml_get(root, "megatron_lm_config"))
		return read_accelerate(&r);
	rc = mft_yaml_dialect(&r, &root);
	r.root = root;
	if (!rc)
		rc = read_sections(&r);
	return rc ? rc : mft_yaml_together(&r);
}

/* At most one byte more than is taken, so that a larger file is known. */
int mft_yaml_slurp(const char *path, char **ret, size_t *ret_len, struct mfs_error *err)
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

int mft_yaml_read(const char *path, struct mft_flag_values *v, struct mfs_arena *arena,
		  struct mfs_error *err)
{
	char *bytes;
	size_t len;
	int rc = mft_yaml_slurp(path, &bytes, &len, err);

	if (rc)
		return rc;
	rc = mft_yaml_parse(path, bytes, len, v, arena, err);
	free(bytes);
	return rc;
}
