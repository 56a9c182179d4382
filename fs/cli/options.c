#define _GNU_SOURCE
#include "fs/cli/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/base/nearest.h"
#include "formats/dataset/gpt/rules.h"
#include "formats/model/families/family.h"

/* A size below this without a unit is refused: its unit was probably forgotten. */
#define LEAST_BARE_SIZE	  65536
#define TIMEOUT_MOST	  600 /* seconds */
#define OPEN_TIMEOUT_MOST 86400

struct option_row;

typedef int apply_fn(struct mfs_options *opt, const struct option_row *row, const char *value,
		     struct mfs_error *err);

enum value_rule { BARE, VALUED, EITHER };

struct option_row {
	const char *name;
	enum value_rule rule;
	apply_fn *apply; /* NULL: known and ignored */
};

void mfs_fuse_list_add(struct mfs_buf *list, const char *name, const char *value)
{
	mfs_buf_printf(list, "%s%s", list->len ? "," : "", name);
	if (!value)
		return;
	mfs_buf_adds(list, "=");
	for (const char *p = value; *p; p++) {
		if (*p == ',' || *p == '\\')
			mfs_buf_adds(list, "\\");
		mfs_buf_add(list, p, 1);
	}
}

static int forward(struct mfs_options *opt, const struct option_row *row, const char *value,
		   struct mfs_error *err)
{
	mfs_fuse_list_add(&opt->fuse, row->name, value);
	return opt->fuse.failed ? mfs_fail_nomem(err) : 0;
}

static int allow_other(struct mfs_options *opt, const struct option_row *row, const char *value,
		       struct mfs_error *err)
{
	opt->allow_other = true;
	return forward(opt, row, value, err);
}

static int set_ro(struct mfs_options *opt, const struct option_row *row, const char *value,
		  struct mfs_error *err)
{
	(void)row, (void)value, (void)err;
	opt->read_only = true;
	opt->said_rw = false;
	return 0;
}

static int set_rw(struct mfs_options *opt, const struct option_row *row, const char *value,
		  struct mfs_error *err)
{
	(void)row, (void)value, (void)err;
	opt->read_only = false;
	opt->said_rw = true;
	return 0;
}

static int set_remount(struct mfs_options *opt, const struct option_row *row, const char *value,
		       struct mfs_error *err)
{
	(void)row, (void)value, (void)err;
	opt->remount = true;
	return 0;
}

/* Ignored when mounting: mounts always have what these options would turn off. A remount refuses
 * them. */
static int take_note(struct mfs_options *opt, const struct option_row *row, const char *value,
		     struct mfs_error *err)
{
	(void)opt, (void)row, (void)value, (void)err;
	return 0;
}

static int replace_string(const char **field, const char *value, struct mfs_error *err)
{
	char *copy = strdup(value);

	if (!copy)
		return mfs_fail_nomem(err);
	free((char *)*field);
	*field = copy;
	return 0;
}

/* Makes a path absolute, since a daemon leaves its working directory. */
static int replace_path(const char **field, const char *value, struct mfs_error *err)
{
	char *cwd = *value == '/' ? NULL : getcwd(NULL, 0), *path = NULL;
	int rc;

	if (!cwd)
		return replace_string(field, value, err);
	rc = asprintf(&path, "%s/%s", cwd, value) < 0 ? mfs_fail_nomem(err)
						      : replace_string(field, path, err);
	free(path);
	free(cwd);
	return rc;
}

static int set_arch(struct mfs_options *opt, const struct option_row *row, const char *value,
		    struct mfs_error *err)
{
	(void)row;
	return replace_string(&opt->view.arch, value, err);
}

/* The family counts for all sources of this program. */
static int add_family(struct mfs_options *opt, const struct option_row *row, const char *value,
		      struct mfs_error *err)
{
	(void)opt;
	(void)row;
	return mfs_families_add(value, err);
}

static int set_ref(struct mfs_options *opt, const struct option_row *row, const char *value,
		   struct mfs_error *err)
{
	(void)row;
	/* A person who trains has the directory of --tokenizer-model at hand. */
	return replace_string(mfs_view_is_tokenizer(value) ? &opt->view.tokenizer : &opt->view.ref,
			      value, err);
}

static int set_tokenizer(struct mfs_options *opt, const struct option_row *row, const char *value,
			 struct mfs_error *err)
{
	(void)row;
	if (!mfs_view_has_tokenizer(value))
		return mfs_fail(err, -ENODATA,
				"tokenizer=%s: not a directory with a tokenizer.json, "
				"tokenizer_config.json, tokenizer.model or vocab.json",
				value);
	return replace_string(&opt->view.tokenizer, value, err);
}

/* Only digits; strtoull() would accept signs and spaces. */
static int parse_digits(const char *text, const char **end, uint64_t *ret)
{
	uint64_t v = 0;
	const char *p = text;

	for (; *p >= '0' && *p <= '9'; p++) {
		if (mfs_mul_overflows(v, 10, &v) || mfs_add_overflows(v, (uint64_t)(*p - '0'), &v))
			return -EINVAL;
	}
	if (p == text)
		return -EINVAL;
	*end = p;
	*ret = v;
	return 0;
}

static int set_vocab_size(struct mfs_options *opt, const struct option_row *row, const char *value,
			  struct mfs_error *err)
{
	const char *end;
	uint64_t v;

	if (!strcmp(value, "tokenizer")) {
		opt->view.vocab_size = MFS_VOCAB_TOKENIZER;
		opt->data.vocab_size = 0;
		return 0;
	}
	if (parse_digits(value, &end, &v) || *end || !v || v > UINT32_MAX)
		return mfs_fail(err, -EINVAL,
				"option '%s' takes a number of tokens or 'tokenizer', not '%s'",
				row->name, value);
	opt->view.vocab_size = v;
	opt->data.vocab_size = v;
	return 0;
}

static int take_size(const struct option_row *row, const char *value, const char *example,
		     uint64_t *ret, struct mfs_error *err)
{
	uint64_t v;

	if (mfs_parse_size(value, &v) || !v)
		return mfs_fail(err, -EINVAL, "option '%s' takes a size like %s, not '%s'",
				row->name, example, value);
	if (v < LEAST_BARE_SIZE && !value[strspn(value, "0123456789")])
		return mfs_fail(err, -EINVAL,
				"option '%s' needs a unit: %sGB, %sMiB or, for bytes, %sB",
				row->name, value, value, value);
	*ret = v;
	return 0;
}

static int set_shard_size(struct mfs_options *opt, const struct option_row *row, const char *value,
			  struct mfs_error *err)
{
	return take_size(row, value, "5GB or 512MiB", &opt->view.shard_size, err);
}

static int set_cache_size(struct mfs_options *opt, const struct option_row *row, const char *value,
			  struct mfs_error *err)
{
	return take_size(row, value, "100GB or 512MiB", &opt->view.cache_size, err);
}

static int set_timeout(struct mfs_options *opt, const struct option_row *row, const char *value,
		       struct mfs_error *err)
{
	const bool of_opening = strcmp(row->name, "timeout") != 0;
	const unsigned most = of_opening ? OPEN_TIMEOUT_MOST : TIMEOUT_MOST;
	const char *end;
	uint64_t v;

	if (parse_digits(value, &end, &v) || *end || !v || v > most)
		return mfs_fail(err, -EINVAL,
				"option '%s' takes a number of seconds from 1 to %u, not '%s'",
				row->name, most, value);
	*(of_opening ? &opt->view.open_timeout : &opt->view.timeout) = (unsigned)v;
	return 0;
}

static int set_private_redirects(struct mfs_options *opt, const struct option_row *row,
				 const char *value, struct mfs_error *err)
{
	(void)row, (void)value, (void)err;
	opt->view.private_redirects = true;
	return 0;
}

static int set_spec(struct mfs_options *opt, const struct option_row *row, const char *value,
		    struct mfs_error *err)
{
	if (!strcmp(value, "local"))
		opt->view.spec = MFS_VIEW_LAYER_SPEC_LOCAL;
	else if (!strcmp(value, "te"))
		opt->view.spec = MFS_VIEW_LAYER_SPEC_TE;
	else
		return mfs_fail(err, -EINVAL, "option '%s' takes 'local' or 'te', not '%s'",
				row->name, value);
	return 0;
}

static int set_no_optim(struct mfs_options *opt, const struct option_row *row, const char *value,
			struct mfs_error *err)
{
	(void)row, (void)value, (void)err;
	opt->view.no_optim = true;
	return 0;
}

/* The optimizer's state is that of a model without the adapter. */
static int set_adapter(struct mfs_options *opt, const struct option_row *row, const char *value,
		       struct mfs_error *err)
{
	(void)row;
	opt->view.no_optim = true;
	return replace_path(&opt->view.adapter, value, err);
}

/* The optimizer's state is that of all parts. */
static int set_part(struct mfs_options *opt, const struct option_row *row, const char *value,
		    struct mfs_error *err)
{
	if (strcmp(value, "language") != 0)
		return mfs_fail(err, -EINVAL, "option '%s' takes 'language', not '%s'", row->name,
				value);
	opt->view.language = opt->view.no_optim = true;
	return 0;
}

static int set_verify(struct mfs_options *opt, const struct option_row *row, const char *value,
		      struct mfs_error *err)
{
	if (!strcmp(value, "crc"))
		opt->view.verify = MFS_PROOF_CRC;
	else if (!strcmp(value, "sha256"))
		opt->view.verify = MFS_PROOF_SHA256;
	else
		return mfs_fail(err, -EINVAL, "option '%s' takes 'crc' or 'sha256', not '%s'",
				row->name, value);
	return 0;
}

static int set_prefetch(struct mfs_options *opt, const struct option_row *row, const char *value,
			struct mfs_error *err)
{
	const char *end;
	uint64_t v;

	if (parse_digits(value, &end, &v) || *end || v > MFS_PREFETCH_FETCHERS)
		return mfs_fail(err, -EINVAL,
				"option '%s' takes a number of processes from 0 to %d, not '%s'",
				row->name, MFS_PREFETCH_FETCHERS, value);
	opt->said_prefetch = true;
	opt->prefetch = (unsigned)v;
	return 0;
}

/* ---- options of datasets ---- */

static int set_cache(struct mfs_options *opt, const struct option_row *row, const char *value,
		     struct mfs_error *err)
{
	(void)row;
	return replace_path(&opt->view.cache, value, err);
}

static int add_data(struct mfs_options *opt, const struct option_row *row, const char *value,
		    struct mfs_error *err)
{
	struct mfs_data_options *data = &opt->data;

	if (data->path_count == MFS_DATA_PATHS)
		return mfs_fail(err, -EINVAL,
				"option '%s' was given more than %u times: name a directory",
				row->name, MFS_DATA_PATHS);
	return replace_path(&data->paths[data->path_count++], value, err);
}

/* The field of an option whose text is kept unchanged, by its name. */
static const char **data_text(struct mfs_data_options *data, const char *name)
{
	const struct {
		const char *name;
		const char **field;
	} fields[] = {
		{"split", &data->split},
		{"data_path", &data->data_path},
		{"train_data_path", &data->split_data_path[MFS_TRAIN]},
		{"valid_data_path", &data->split_data_path[MFS_VALID]},
		{"test_data_path", &data->split_data_path[MFS_TEST]},
		{"column", &data->column},
		{"data_args_path", &data->data_args_path},
		{"tokenizer_id", &data->tokenizer_id},
		{"dataset_cache", &data->cache},
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
		if (!strcmp(fields[i].name, name))
			return fields[i].field;
	return NULL;
}

static int set_data_text(struct mfs_options *opt, const struct option_row *row, const char *value,
			 struct mfs_error *err)
{
	return replace_string(data_text(&opt->data, row->name), value, err);
}

static int set_data_file(struct mfs_options *opt, const struct option_row *row, const char *value,
			 struct mfs_error *err)
{
	return replace_path(data_text(&opt->data, row->name), value, err);
}

static int set_split(struct mfs_options *opt, const struct option_row *row, const char *value,
		     struct mfs_error *err)
{
	const struct mfs_dataset_rules rules = mfs_dataset_rules_default();
	struct mfs_splits splits;
	int rc = mfs_splits_parse(value, &rules, &splits, err);

	return rc ? rc : set_data_text(opt, row, value, err);
}

static int set_merge(struct mfs_options *opt, const struct option_row *row, const char *value,
		     struct mfs_error *err)
{
	if (strchr(value, '/') || *value == '.')
		return mfs_fail(err, -EINVAL, "option '%s' takes the name of a dataset, not '%s'",
				row->name, value);
	return replace_string(&opt->data.merge, value, err);
}

static int set_megatron(struct mfs_options *opt, const struct option_row *row, const char *value,
			struct mfs_error *err)
{
	struct mfs_dataset_rules rules;
	int rc = mfs_dataset_rules_of(value, &rules, err);

	(void)row;
	return rc ? rc : replace_string(&opt->data.megatron, value, err);
}

static int set_append_eod(struct mfs_options *opt, const struct option_row *row, const char *value,
			  struct mfs_error *err)
{
	const char *end;
	uint64_t v;

	if (parse_digits(value, &end, &v) || *end || v > INT64_MAX)
		return mfs_fail(err, -EINVAL, "option '%s' takes a token's id, not '%s'", row->name,
				value);
	opt->data.has_eod = true;
	opt->data.eod = (int64_t)v;
	return 0;
}

static int set_vocab_scan(struct mfs_options *opt, const struct option_row *row, const char *value,
			  struct mfs_error *err)
{
	(void)row;
	(void)value;
	(void)err;
	opt->data.vocab_scan = true;
	return 0;
}

static int set_arrow_batch(struct mfs_options *opt, const struct option_row *row, const char *value,
			   struct mfs_error *err)
{
	return take_size(row, value, "256MiB", &opt->data.arrow_batch, err);
}

static int set_log(struct mfs_options *opt, const struct option_row *row, const char *value,
		   struct mfs_error *err)
{
	(void)row;
	return replace_path(&opt->log, value, err);
}

static int set_log_format(struct mfs_options *opt, const struct option_row *row, const char *value,
			  struct mfs_error *err)
{
	if (strcmp(value, "json") && strcmp(value, "text"))
		return mfs_fail(err, -EINVAL, "option '%s' takes 'json' or 'text', not '%s'",
				row->name, value);
	opt->log_json = !strcmp(value, "json");
	return 0;
}

/* The path of a file has a slash; of addresses only unix:PATH has one. */
static bool is_metrics_file(const char *value)
{
	return strchr(value, '/') && strncmp(value, "unix:", 5);
}

static int set_metrics(struct mfs_options *opt, const struct option_row *row, const char *value,
		       struct mfs_error *err)
{
	opt->metrics_file = is_metrics_file(value);
	if (opt->metrics_file)
		return replace_path(&opt->metrics, value, err);
	if (!strchr(value, ':'))
		return mfs_fail(err, -EINVAL,
				"option '%s' takes HOST:PORT, or the path of a file with a '/' in "
				"it, not '%s'",
				row->name, value);
	return replace_string(&opt->metrics, value, err);
}

static int set_setuid(struct mfs_options *opt, const struct option_row *row, const char *value,
		      struct mfs_error *err)
{
	(void)row;
	return replace_string(&opt->run_as, value, err);
}

static int set_drop_privileges(struct mfs_options *opt, const struct option_row *row,
			       const char *value, struct mfs_error *err)
{
	(void)row, (void)value, (void)err;
	opt->drop_privileges = true;
	return 0;
}

static int set_sandbox(struct mfs_options *opt, const struct option_row *row, const char *value,
		       struct mfs_error *err)
{
	(void)row, (void)value, (void)err;
	opt->sandbox = true;
	return 0;
}

/* Options without an effect are here because mount(8), fstab and autofs pass them. nosuid and nodev
 * are libfuse's default, and a read-only mount keeps no access times. */
static const struct option_row table[] = {
	{"arch", VALUED, set_arch},
	{"family", VALUED, add_family},
	{"ref", VALUED, set_ref},
	{"tokenizer", VALUED, set_tokenizer},
	{"adapter", VALUED, set_adapter},
	{"part", VALUED, set_part},
	{"vocab_size", VALUED, set_vocab_size},
	{"shard_size", VALUED, set_shard_size},
	{"spec", VALUED, set_spec},
	{"no_optim", BARE, set_no_optim},
	{"verify", VALUED, set_verify},
	{"cache", VALUED, set_cache},
	{"cache_size", VALUED, set_cache_size},
	{"timeout", VALUED, set_timeout},
	{"open_timeout", VALUED, set_timeout},
	{"private_redirects", BARE, set_private_redirects},

	{"data", VALUED, add_data},
	{"merge", VALUED, set_merge},
	{"split", VALUED, set_split},
	{"data_path", VALUED, set_data_text},
	{"train_data_path", VALUED, set_data_text},
	{"valid_data_path", VALUED, set_data_text},
	{"test_data_path", VALUED, set_data_text},
	{"data_args_path", VALUED, set_data_file},
	{"megatron", VALUED, set_megatron},
	{"tokenizer_id", VALUED, set_data_file},
	{"column", VALUED, set_data_text},
	{"dataset_cache", VALUED, set_data_file},
	{"append_eod", VALUED, set_append_eod},
	{"vocab_scan", BARE, set_vocab_scan},
	{"arrow_batch", VALUED, set_arrow_batch},

	{"log", VALUED, set_log},
	{"log_format", VALUED, set_log_format},
	{"metrics", VALUED, set_metrics},
	{"prefetch", VALUED, set_prefetch},
	{"setuid", VALUED, set_setuid},
	{"drop_privileges", BARE, set_drop_privileges},
	{"sandbox", BARE, set_sandbox},
	{"allow_other", BARE, allow_other},
	{"allow_root", BARE, allow_other},
	{"auto_unmount", BARE, forward},
	{"default_permissions", BARE, forward},
	{"fsname", VALUED, forward},
	{"max_read", VALUED, forward},
	{"noexec", BARE, forward},
	{"context", VALUED, forward},
	{"fscontext", VALUED, forward},
	{"defcontext", VALUED, forward},
	{"rootcontext", VALUED, forward},

	{"rw", BARE, set_rw},
	{"ro", BARE, set_ro},
	{"remount", BARE, set_remount},
	{"user_id", VALUED, NULL}, /* shown by the kernel for a mount */
	{"group_id", VALUED, NULL},
	{"defaults", BARE, NULL},
	{"_netdev", BARE, NULL},
	{"nofail", BARE, NULL},
	{"auto", BARE, NULL},
	{"noauto", BARE, NULL},
	{"user", EITHER, NULL},
	{"users", BARE, NULL},
	{"nouser", BARE, NULL},
	{"owner", BARE, NULL},
	{"group", BARE, NULL},
	{"comment", VALUED, NULL},
	{"suid", BARE, take_note},
	{"nosuid", BARE, NULL},
	{"dev", BARE, take_note},
	{"nodev", BARE, NULL},
	{"exec", BARE, take_note},
	{"async", BARE, NULL},
	{"sync", BARE, NULL},
	{"dirsync", BARE, NULL},
	{"atime", BARE, NULL},
	{"noatime", BARE, NULL},
	{"diratime", BARE, NULL},
	{"nodiratime", BARE, NULL},
	{"relatime", BARE, NULL},
	{"norelatime", BARE, NULL},
	{"strictatime", BARE, NULL},
	{"nostrictatime", BARE, NULL},
	{"lazytime", BARE, NULL},
	{"nolazytime", BARE, NULL},
	{"silent", BARE, NULL},
	{"loud", BARE, NULL},
};

static const struct option_row *find_row(const char *name)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		if (!strcmp(table[i].name, name))
			return &table[i];
	}
	return NULL;
}

/* True if name is the rest of a value like "99,1,0" that a comma has cut. rest: the list after
 * name. */
static bool was_split(const struct mfs_options *opt, const char *before, const char *name,
		      const char *rest, struct mfs_error *err)
{
	char numbers[128];
	size_t len;

	if (!before || strcmp(before, "split") || !opt->data.split ||
	    name[strspn(name, "0123456789.")])
		return false;
	len = strspn(rest, "0123456789.,");
	if (rest[len]) /* another option follows: stop at the comma */
		while (len && rest[--len] != ',')
			;
	snprintf(numbers, sizeof(numbers), "%s/%s%s%.*s", opt->data.split, name, len ? "/" : "",
		 (int)len, rest);
	for (char *p = numbers; *p; p++)
		if (*p == ',')
			*p = '/';
	mfs_error_set(err, -EINVAL, "a comma ends an option: use slashes, split=%s", numbers);
	return true;
}

static int unknown_option(const char *name, struct mfs_error *err)
{
	struct mfs_nearest near = {.word = name};
	char hint[MFS_NEAREST_HINT];

	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
		mfs_nearest_try(&near, table[i].name);
	return mfs_fail(err, -EINVAL, "unknown option '-o %s'%s", name,
			mfs_nearest_hint(&near, "-o ", hint));
}

static bool is_setting(const struct option_row *row)
{
	return row->apply && row->apply != set_ro && row->apply != set_rw &&
	       row->apply != set_remount;
}

/* True if the option's value is a path, which is kept absolute. */
static bool is_path(const struct option_row *row, const char *value)
{
	if (row->apply == set_metrics)
		return is_metrics_file(value);
	return row->apply == add_data || row->apply == set_data_file || row->apply == set_log ||
	       row->apply == add_family || row->apply == set_cache || row->apply == set_adapter;
}

static int add_setting(struct mfs_options *opt, const struct option_row *row, const char *value,
		       struct mfs_error *err)
{
	struct mfs_buf *list = &opt->settings;
	const char *path = NULL;
	int rc = 0;

	if (value && is_path(row, value)) {
		rc = replace_path(&path, value, err);
		value = path;
	}
	if (!rc) {
		mfs_buf_printf(list, "%s%s%s", row->name, value ? "=" : "", value ? value : "");
		mfs_buf_add(list, "", 1);
		rc = list->failed ? mfs_fail_nomem(err) : 0;
	}
	free((char *)path);
	return rc;
}

static int apply_option(struct mfs_options *opt, char *name, struct mfs_error *err)
{
	char *value = strchr(name, '=');
	const struct option_row *row;
	int rc;

	if (value)
		*value++ = '\0';
	if (!strncasecmp(name, "x-", 2))
		return 0; /* for systemd, gvfs, udisks */
	row = find_row(name);
	if (!row)
		return opt->sloppy ? 0 : unknown_option(name, err);
	if (row->rule == VALUED && (!value || !*value))
		return mfs_fail(err, -EINVAL, "option '%s' needs a value: %s=...", name, name);
	if (row->rule == BARE && value)
		return mfs_fail(err, -EINVAL, "option '%s' takes no value, found '%s'", name,
				value);
	rc = row->apply ? row->apply(opt, row, value, err) : 0;
	return rc || !is_setting(row) ? rc : add_setting(opt, row, value, err);
}

/* Cuts the next option off *rest, in place. A backslash quotes the next character. */
static char *next_option(char **rest)
{
	char *start = *rest, *to = start, *from = start;

	for (; *from && *from != ','; from++) {
		if (*from == '\\' && from[1])
			from++;
		*to++ = *from;
	}
	*rest = *from ? from + 1 : from;
	*to = '\0';
	return start;
}

int mfs_options_parse_o(const char *list, struct mfs_options *opt, struct mfs_error *err)
{
	char *copy = strdup(list), *rest = copy;
	const char *before = NULL; /* the option before this one */
	int rc = 0;

	if (!copy)
		return mfs_fail_nomem(err);
	/* the end of a line of a file that was written on Windows */
	copy[strcspn(copy, "\r\n")] = '\0';
	opt->view.data = &opt->data;
	while (!rc && *rest) {
		char *name = next_option(&rest);

		if (*name && was_split(opt, before, name, rest, err))
			rc = -EINVAL;
		else if (*name)
			rc = apply_option(opt, name, err); /* it cuts the value off name */
		before = name;
	}
	free(copy);
	if (!rc && opt->said_rw && !opt->data.cache && !opt->remount && !opt->mount8)
		return mfs_fail(err, -EROFS,
				"option 'rw' is refused: a mount of mcorefs is read-only without "
				"'dataset_cache'");
	return rc;
}

void mfs_options_for_mount8(struct mfs_options *opt, bool sloppy)
{
	opt->mount8 = true;
	opt->view.may_be_empty = true;
	opt->sloppy = sloppy;
}

static int unknown_letter(char **argv, struct mfs_error *err)
{
	if (optopt)
		return mfs_fail(err, -EINVAL, "unknown option '-%c'", optopt);
	return mfs_fail(err, -EINVAL, "unknown option '%s'", argv[optind - 1]);
}

static int parse_letter(int letter, struct mfs_options *opt, char **argv, struct mfs_error *err)
{
	switch (letter) {
	case 'o':
		return mfs_options_parse_o(optarg, opt, err);
	case 'd':
		opt->debug = true;
		opt->foreground = true;
		return 0;
	case 'f':
		opt->foreground = true;
		return 0;
	case 's':
		opt->single_thread = true;
		return 0;
	case ':':
		return mfs_fail(err, -EINVAL, "option '-%c' needs a value", optopt);
	default:
		return unknown_letter(argv, err);
	}
}

int mfs_options_parse_mount(int argc, char **argv, struct mfs_options *opt, struct mfs_error *err)
{
	static const struct option no_long[] = {{0}};
	int letter, rc;

	optind = 0; /* glibc: begin again */
	while ((letter = getopt_long(argc, argv, ":o:fds", no_long, NULL)) != -1) {
		rc = parse_letter(letter, opt, argv, err);
		if (rc)
			return rc;
	}
	if (argc - optind > 2)
		return mfs_fail(err, -EINVAL, "one argument too many: '%s'", argv[optind + 2]);
	if (argc - optind < 2)
		return mfs_fail(err, -EINVAL, "%s is missing",
				argc - optind ? "MOUNTPOINT" : "SOURCE");
	opt->view.may_be_empty = true;
	opt->source = argv[optind];
	opt->mountpoint = argv[optind + 1];
	return 0;
}

static void release_data(struct mfs_data_options *data)
{
	for (unsigned i = 0; i < data->path_count; i++)
		free((char *)data->paths[i]);
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
		if (table[i].apply && data_text(data, table[i].name))
			free((char *)*data_text(data, table[i].name));
	free((char *)data->merge);
	free((char *)data->megatron);
}

void mfs_options_release(struct mfs_options *opt)
{
	free((char *)opt->view.arch);
	free((char *)opt->view.ref);
	free((char *)opt->view.tokenizer);
	free((char *)opt->view.adapter);
	free((char *)opt->view.cache);
	free((char *)opt->log);
	free((char *)opt->metrics);
	free((char *)opt->run_as);
	release_data(&opt->data);
	mfs_buf_release(&opt->settings);
	mfs_buf_release(&opt->fuse);
	memset(opt, 0, sizeof(*opt));
}

int mfs_parse_size(const char *text, uint64_t *ret)
{
	static const struct {
		const char *suffix;
		uint64_t bytes;
	} units[] = {
		{"", 1},
		{"B", 1},
		{"KB", 1000},
		{"MB", 1000000},
		{"GB", 1000000000},
		{"TB", 1000000000000},
		{"KiB", 1ull << 10},
		{"MiB", 1ull << 20},
		{"GiB", 1ull << 30},
		{"TiB", 1ull << 40},
	};
	const char *end;
	uint64_t v;

	if (parse_digits(text, &end, &v))
		return -EINVAL;
	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
		if (strcasecmp(end, units[i].suffix))
			continue;
		if (mfs_mul_overflows(v, units[i].bytes, &v))
			return -EINVAL;
		*ret = v;
		return 0;
	}
	return -EINVAL;
}
