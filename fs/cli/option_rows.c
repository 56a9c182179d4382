#define _GNU_SOURCE
#include "fs/cli/option_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/dataset/gpt/gpt_rules.h"
#include "formats/model/families/family.h"

/* A size below this without a unit is refused: its unit was probably forgotten. */
#define LEAST_BARE_SIZE 65536

/* ---- numbers ---- */

int mfs_parse_digits(const char *text, const char **ret_end, uint64_t *ret)
{
	uint64_t v = 0;
	const char *p = text;

	for (; *p >= '0' && *p <= '9'; p++) {
		if (mfs_mul_overflows(v, 10, &v) || mfs_add_overflows(v, (uint64_t)(*p - '0'), &v))
			return -EINVAL;
	}
	if (p == text)
		return -EINVAL;
	*ret_end = p;
	*ret = v;
	return 0;
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

	if (mfs_parse_digits(text, &end, &v))
		return -EINVAL;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(units); i++) {
		if (strcasecmp(end, units[i].suffix))
			continue;
		if (mfs_mul_overflows(v, units[i].bytes, &v))
			return -EINVAL;
		*ret = v;
		return 0;
	}
	return -EINVAL;
}

/* ---- setters ---- */

static void *member_of(struct mfs_options *opt, const struct mfs_option_row *row)
{
	char *holders[] = {
		[MFS_OPTION_IN_VIEW] = (char *)&opt->view,
		[MFS_OPTION_IN_DATA] = (char *)&opt->data,
		[MFS_OPTION_IN_OPTIONS] = (char *)opt,
	};

	return holders[row->in] + row->at;
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

static int set_text(struct mfs_options *opt, const struct mfs_option_row *row, const char *value,
		    struct mfs_error *err)
{
	return replace_string(member_of(opt, row), value, err);
}

static int set_path(struct mfs_options *opt, const struct mfs_option_row *row, const char *value,
		    struct mfs_error *err)
{
	return replace_path(member_of(opt, row), value, err);
}

static int set_flag(struct mfs_options *opt, const struct mfs_option_row *row, const char *value,
		    struct mfs_error *err)
{
	(void)value, (void)err;
	*(bool *)member_of(opt, row) = true;
	return 0;
}

static int set_size(struct mfs_options *opt, const struct mfs_option_row *row, const char *value,
		    struct mfs_error *err)
{
	uint64_t v;

	if (mfs_parse_size(value, &v) || !v)
		return mfs_fail(err, -EINVAL, "option '%s' takes a size like %s, not '%s'",
				row->name, row->example, value);
	if (v < LEAST_BARE_SIZE && !value[strspn(value, "0123456789")])
		return mfs_fail(err, -EINVAL,
				"option '%s' needs a unit: %sGB, %sMiB or, for bytes, %sB",
				row->name, value, value, value);
	*(uint64_t *)member_of(opt, row) = v;
	return 0;
}

static int set_seconds(struct mfs_options *opt, const struct mfs_option_row *row, const char *value,
		       struct mfs_error *err)
{
	const char *end;
	uint64_t v;

	if (mfs_parse_digits(value, &end, &v) || *end || !v || v > row->most)
		return mfs_fail(err, -EINVAL,
				"option '%s' takes a number of seconds from 1 to %u, not '%s'",
				row->name, row->most, value);
	*(unsigned *)member_of(opt, row) = (unsigned)v;
	return 0;
}

static int forward(struct mfs_options *opt, const struct mfs_option_row *row, const char *value,
		   struct mfs_error *err)
{
	mfs_fuse_list_add(&opt->fuse, row->name, value);
	return opt->fuse.failed ? mfs_fail_nomem(err) : 0;
}

static int allow_other(struct mfs_options *opt, const struct mfs_option_row *row, const char *value,
		       struct mfs_error *err)
{
	opt->allow_other = true;
	return forward(opt, row, value, err);
}

static int set_ro(struct mfs_options *opt, const struct mfs_option_row *row, const char *value,
		  struct mfs_error *err)
{
	(void)row, (void)value, (void)err;
	opt->read_only = true;
	opt->rw_given = false;
	return 0;
}

static int set_rw(struct mfs_options *opt, const struct mfs_option_row *row, const char *value,
		  struct mfs_error *err)
{
	(void)row, (void)value, (void)err;
	opt->read_only = false;
	opt->rw_given = true;
	return 0;
}

/* Ignored when mounting: mounts always have what these options would turn off. A remount refuses
 * them. */
static int take_note(struct mfs_options *opt, const struct mfs_option_row *row, const char *value,
		     struct mfs_error *err)
{
	(void)opt, (void)row, (void)value, (void)err;
	return 0;
}

/* The family counts for all sources of this program. */
static int add_family(struct mfs_options *opt, const struct mfs_option_row *row, const char *value,
		      struct mfs_error *err)
{
	(void)opt;
	(void)row;
	return mfs_families_add(value, err);
}

static int keep_tokenizer(struct mfs_options *opt, const char *value, struct mfs_error *err)
{
	int rc = replace_string(&opt->view.tokenizer, value, err);

	opt->data.tokenizer = opt->view.tokenizer;
	return rc;
}

static int set_ref(struct mfs_options *opt, const struct mfs_option_row *row, const char *value,
		   struct mfs_error *err)
{
	(void)row;
	/* A person who trains has the directory of --tokenizer-model at hand. */
	return mfs_view_is_tokenizer(value) ? keep_tokenizer(opt, value, err)
					    : replace_string(&opt->view.ref, value, err);
}

static int set_tokenizer(struct mfs_options *opt, const struct mfs_option_row *row,
			 const char *value, struct mfs_error *err)
{
	(void)row;
	if (!mfs_view_has_tokenizer(value))
		return mfs_fail(err, -ENODATA,
				"tokenizer=%s: not a directory with a tokenizer.json, "
				"tokenizer_config.json, tokenizer.model or vocab.json",
				value);
	return keep_tokenizer(opt, value, err);
}

static int set_vocab_size(struct mfs_options *opt, const struct mfs_option_row *row,
			  const char *value, struct mfs_error *err)
{
	const char *end;
	uint64_t v;

	if (!strcmp(value, "tokenizer")) {
		opt->view.vocab_size = MFS_VOCAB_TOKENIZER;
		opt->data.vocab_size = 0;
		return 0;
	}
	if (mfs_parse_digits(value, &end, &v) || *end || !v || v > UINT32_MAX)
		return mfs_fail(err, -EINVAL,
				"option '%s' takes a number of tokens or 'tokenizer', not '%s'",
				row->name, value);
	opt->view.vocab_size = v;
	opt->data.vocab_size = v;
	return 0;
}

static int set_spec(struct mfs_options *opt, const struct mfs_option_row *row, const char *value,
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

/* The optimizer's state is that of a model without the adapter. */
static int set_adapter(struct mfs_options *opt, const struct mfs_option_row *row, const char *value,
		       struct mfs_error *err)
{
	(void)row;
	opt->view.no_optim = true;
	return replace_path(&opt->view.adapter, value, err);
}

static int set_base(struct mfs_options *opt, const struct mfs_option_row *row, const char *value,
		    struct mfs_error *err)
{
	const bool is_url = strstr(value, "://");

	(void)row;
	return is_url ? replace_string(&opt->view.base, value, err)
		      : replace_path(&opt->view.base, value, err);
}

/* The optimizer's state is that of all parts. */
static int set_part(struct mfs_options *opt, const struct mfs_option_row *row, const char *value,
		    struct mfs_error *err)
{
	if (strcmp(value, "language") != 0)
		return mfs_fail(err, -EINVAL, "option '%s' takes 'language', not '%s'", row->name,
				value);
	opt->view.language = opt->view.no_optim = true;
	return 0;
}

static int set_verify(struct mfs_options *opt, const struct mfs_option_row *row, const char *value,
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

static int set_prefetch(struct mfs_options *opt, const struct mfs_option_row *row,
			const char *value, struct mfs_error *err)
{
	const char *end;
	uint64_t v;

	if (mfs_parse_digits(value, &end, &v) || *end || v > MFS_PREFETCH_FETCHERS)
		return mfs_fail(err, -EINVAL,
				"option '%s' takes a number of processes from 0 to %d, not '%s'",
				row->name, MFS_PREFETCH_FETCHERS, value);
	opt->prefetch_given = true;
	opt->prefetch = (unsigned)v;
	return 0;
}

/* ---- options of datasets ---- */

static int add_data(struct mfs_options *opt, const struct mfs_option_row *row, const char *value,
		    struct mfs_error *err)
{
	struct mfs_data_options *data = &opt->data;

	if (data->path_count == MFS_DATA_PATHS)
		return mfs_fail(err, -EINVAL,
				"option '%s' was given more than %u times: name a directory",
				row->name, MFS_DATA_PATHS);
	return replace_path(&data->paths[data->path_count++], value, err);
}

static int set_split(struct mfs_options *opt, const struct mfs_option_row *row, const char *value,
		     struct mfs_error *err)
{
	const struct mfs_dataset_rules rules = mfs_dataset_rules_default();
	struct mfs_splits splits;
	int rc = mfs_splits_parse(value, &rules, &splits, err);

	return rc ? rc : set_text(opt, row, value, err);
}

static int set_merge(struct mfs_options *opt, const struct mfs_option_row *row, const char *value,
		     struct mfs_error *err)
{
	if (strchr(value, '/') || *value == '.')
		return mfs_fail(err, -EINVAL, "option '%s' takes the name of a dataset, not '%s'",
				row->name, value);
	return set_text(opt, row, value, err);
}

static int set_megatron(struct mfs_options *opt, const struct mfs_option_row *row,
			const char *value, struct mfs_error *err)
{
	struct mfs_dataset_rules rules;
	int rc = mfs_dataset_rules_of(value, &rules, err);

	return rc ? rc : set_text(opt, row, value, err);
}

static int set_append_eod(struct mfs_options *opt, const struct mfs_option_row *row,
			  const char *value, struct mfs_error *err)
{
	const char *end;
	uint64_t v;

	if (mfs_parse_digits(value, &end, &v) || *end || v > INT64_MAX)
		return mfs_fail(err, -EINVAL, "option '%s' takes a token's id, not '%s'", row->name,
				value);
	opt->data.has_eod = true;
	opt->data.eod = (int64_t)v;
	return 0;
}

static int set_log_format(struct mfs_options *opt, const struct mfs_option_row *row,
			  const char *value, struct mfs_error *err)
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

static int set_metrics(struct mfs_options *opt, const struct mfs_option_row *row, const char *value,
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

/* ---- the table ---- */

const char mfs_option_of_mounts[] = "it is of a mount, and a gateway mounts nothing";
const char mfs_option_of_process[] =
	"it is of the whole gateway: give it on the command line, as -o";
static const char by_tokens[] = "--tokens determines who may read";

/* Which member an option sets. */
#define MEMBER(holder, type, member)                                                               \
	.in = (holder), .at = offsetof(type, member), .size = sizeof(((type *)0)->member),         \
	.is_text = _Generic(((type *)0)->member, const char *: true, default: false)
#define VIEW(member)	MEMBER(MFS_OPTION_IN_VIEW, struct mfs_view_options, member)
#define DATA(member)	MEMBER(MFS_OPTION_IN_DATA, struct mfs_data_options, member)
#define OPTIONS(member) MEMBER(MFS_OPTION_IN_OPTIONS, struct mfs_options, member)
#define OF(what)	.of = MFS_OPTION_##what
#define DIGEST(how)	.digest = MFS_DIGEST_##how
#define PROCESS		OF(OF_MOUNT), DIGEST(LEFT_OUT), .gateway = mfs_option_of_process
#define MOUNT(why)	OF(OF_MOUNT), DIGEST(LEFT_OUT), .gateway = (why)
#define BARE		MFS_OPTION_BARE
#define VALUED		MFS_OPTION_VALUED
#define PATH		MFS_OPTION_PATH

/* The digest has them in this order, so that an order which changes changes all commits.
 *
 * Options without an effect are here because mount(8), fstab and autofs pass them. nosuid and nodev
 * are libfuse's default, and a read-only mount keeps no access times. */
const struct mfs_option_row mfs_option_rows[] = {
	/* clang-format off */
	{"arch", VALUED, set_text, VIEW(arch), OF(OF_MODELS), DIGEST(TEXT)},
	{"ref", PATH, set_ref, VIEW(ref), OF(OF_MODELS), DIGEST(BY_VIEW)},
	{"tokenizer", PATH, set_tokenizer, VIEW(tokenizer), OF(OF_SOURCES), DIGEST(BY_VIEW)},
	{"adapter", PATH, set_adapter, VIEW(adapter), OF(OF_MODELS), DIGEST(BY_VIEW)},
	{"base", PATH, set_base, VIEW(base), OF(OF_MODELS), DIGEST(BY_VIEW)},
	{"vocab_size", VALUED, set_vocab_size, VIEW(vocab_size), OF(OF_SOURCES), DIGEST(NUMBER)},
	{"shard_size", VALUED, set_size, VIEW(shard_size), OF(OF_MODELS), DIGEST(NUMBER),
	 .example = "5GB or 512MiB"},
	{"stack_experts", BARE, set_flag, VIEW(stack_experts), OF(OF_MODELS), DIGEST(NUMBER)},
	{"spec", VALUED, set_spec, VIEW(spec), OF(OF_MODELS), DIGEST(NUMBER)},
	{"no_optim", BARE, set_flag, VIEW(no_optim), OF(OF_MODELS), DIGEST(NUMBER)},
	{"part", VALUED, set_part, VIEW(language), OF(OF_MODELS), DIGEST(NUMBER),
	 .digest_name = "language"},
	{"family", PATH, add_family, OF(OF_PROGRAM), DIGEST(FAMILIES), .digest_name = "families"},
	{"verify", VALUED, set_verify, VIEW(verify), OF(OF_SOURCES), DIGEST(LEFT_OUT)},
	{"cache", PATH, set_path, VIEW(cache), OF(OF_SOURCES), DIGEST(LEFT_OUT)},
	{"cache_size", VALUED, set_size, VIEW(cache_size), OF(OF_SOURCES), DIGEST(LEFT_OUT),
	 .example = "100GB or 512MiB"},
	{"timeout", VALUED, set_seconds, VIEW(timeout), OF(OF_SOURCES), DIGEST(LEFT_OUT),
	 .most = 600},
	{"open_timeout", VALUED, set_seconds, VIEW(open_timeout), OF(OF_SOURCES), DIGEST(LEFT_OUT),
	 .most = 86400},
	{"private_redirects", BARE, set_flag, VIEW(private_redirects), OF(OF_SOURCES),
	 DIGEST(LEFT_OUT)},

	{"data", PATH, add_data, OF(NAMES_DATASETS), DIGEST(BY_VIEW)},
	{"merge", VALUED, set_merge, DATA(merge), OF(NAMES_DATASETS), DIGEST(TEXT)},
	{"split", VALUED, set_split, DATA(split), OF(OF_DATASETS), DIGEST(TEXT)},
	{"data_path", VALUED, set_text, DATA(data_path), OF(NAMES_DATASETS), DIGEST(TEXT)},
	{"train_data_path", VALUED, set_text, DATA(split_data_path[MFS_TRAIN]), OF(NAMES_DATASETS),
	 DIGEST(SPLIT), .digest_name = "split_data_path"},
	{"valid_data_path", VALUED, set_text, DATA(split_data_path[MFS_VALID]), OF(NAMES_DATASETS),
	 DIGEST(SPLIT), .digest_name = "split_data_path"},
	{"test_data_path", VALUED, set_text, DATA(split_data_path[MFS_TEST]), OF(NAMES_DATASETS),
	 DIGEST(SPLIT), .digest_name = "split_data_path"},
	{"megatron", VALUED, set_megatron, DATA(megatron), OF(OF_DATASETS), DIGEST(TEXT)},
	{"column", VALUED, set_text, DATA(column), OF(OF_DATASETS), DIGEST(TEXT)},
	{"append_eod", VALUED, set_append_eod, DATA(eod), OF(OF_DATASETS), DIGEST(TOKEN),
	 .digest_name = "eod"},
	{"vocab_scan", BARE, set_flag, DATA(vocab_scan), OF(OF_DATASETS), DIGEST(TOKENS_IN)},
	{"text_scan", BARE, set_flag, DATA(text_scan), OF(OF_DATASETS), DIGEST(NUMBER)},
	{"arrow_batch", VALUED, set_size, DATA(arrow_batch), OF(OF_DATASETS), DIGEST(NUMBER),
	 .example = "256MiB"},
	{"data_args_path", PATH, set_path, DATA(data_args_path), OF(NAMES_DATASETS), DIGEST(FILE),
	 .digest_name = "data_args"},
	{"tokenizer_id", PATH, set_path, DATA(tokenizer_id), OF(OF_DATASETS), DIGEST(FILE)},
	{"dataset_cache", PATH, set_path, DATA(cache), OF(NAMES_DATASETS), DIGEST(LEFT_OUT),
	 .gateway = "a gateway takes no files"},

	{"log", PATH, set_path, OPTIONS(log), PROCESS},
	{"log_format", VALUED, set_log_format, PROCESS},
	{"metrics", VALUED, set_metrics, OPTIONS(metrics),
	 MOUNT("a gateway has its counters at /metrics of its own address")},
	{"prefetch", VALUED, set_prefetch, MOUNT("it is of a mount's readers")},
	{"setuid", VALUED, set_text, OPTIONS(run_as), PROCESS},
	{"drop_privileges", BARE, set_flag, OPTIONS(drop_privileges), PROCESS},
	{"sandbox", BARE, set_flag, OPTIONS(sandbox), PROCESS},
	{"allow_other", BARE, allow_other, MOUNT(by_tokens)},
	{"allow_root", BARE, allow_other, MOUNT(by_tokens)},
	{"auto_unmount", BARE, forward, MOUNT(mfs_option_of_mounts)},
	{"default_permissions", BARE, forward, MOUNT(mfs_option_of_mounts)},
	{"fsname", VALUED, forward, MOUNT(mfs_option_of_mounts)},
	{"max_read", VALUED, forward, MOUNT(mfs_option_of_mounts)},
	{"noexec", BARE, forward, MOUNT(mfs_option_of_mounts)},
	{"context", VALUED, forward, MOUNT(mfs_option_of_mounts)},
	{"fscontext", VALUED, forward, MOUNT(mfs_option_of_mounts)},
	{"defcontext", VALUED, forward, MOUNT(mfs_option_of_mounts)},
	{"rootcontext", VALUED, forward, MOUNT(mfs_option_of_mounts)},
	{"suid", BARE, take_note, MOUNT(mfs_option_of_mounts)},
	{"dev", BARE, take_note, MOUNT(mfs_option_of_mounts)},
	{"exec", BARE, take_note, MOUNT(mfs_option_of_mounts)},

	{"rw", BARE, set_rw, OF(OF_NONE)},
	{"ro", BARE, set_ro, OF(OF_NONE)},
	{"remount", BARE, set_flag, OPTIONS(remount)},
	{"user_id", VALUED, .apply = NULL}, /* shown by the kernel for a mount */
	{"group_id", VALUED, .apply = NULL},
	{"comment", VALUED, .apply = NULL},
	{"user", MFS_OPTION_EITHER, .apply = NULL},
	{"defaults", BARE, .apply = NULL},
	{"_netdev", BARE, .apply = NULL},
	{"nofail", BARE, .apply = NULL},
	{"auto", BARE, .apply = NULL},
	{"noauto", BARE, .apply = NULL},
	{"users", BARE, .apply = NULL},
	{"nouser", BARE, .apply = NULL},
	{"owner", BARE, .apply = NULL},
	{"group", BARE, .apply = NULL},
	{"nosuid", BARE, .apply = NULL},
	{"nodev", BARE, .apply = NULL},
	{"async", BARE, .apply = NULL},
	{"sync", BARE, .apply = NULL},
	{"dirsync", BARE, .apply = NULL},
	{"atime", BARE, .apply = NULL},
	{"noatime", BARE, .apply = NULL},
	{"diratime", BARE, .apply = NULL},
	{"nodiratime", BARE, .apply = NULL},
	{"relatime", BARE, .apply = NULL},
	{"norelatime", BARE, .apply = NULL},
	{"strictatime", BARE, .apply = NULL},
	{"nostrictatime", BARE, .apply = NULL},
	{"lazytime", BARE, .apply = NULL},
	{"nolazytime", BARE, .apply = NULL},
	{"silent", BARE, .apply = NULL},
	{"loud", BARE, .apply = NULL},
	/* clang-format on */
};

const size_t mfs_option_row_count = MFS_ARRAY_SIZE(mfs_option_rows);

const struct mfs_option_row *mfs_option_find(const char *option)
{
	const size_t len = strcspn(option, "=");

	for (size_t i = 0; i < mfs_option_row_count; i++)
		if (!strncmp(mfs_option_rows[i].name, option, len) && !mfs_option_rows[i].name[len])
			return &mfs_option_rows[i];
	return NULL;
}

const void *mfs_option_in_view(const struct mfs_option_row *row, const struct mfs_view_options *o)
{
	const char *holder = row->in == MFS_OPTION_IN_VIEW   ? (const char *)o
			     : row->in == MFS_OPTION_IN_DATA ? (const char *)o->data
							     : NULL;

	return holder ? holder + row->at : NULL;
}

const char *mfs_option_reads(const struct mfs_option_row *row, const struct mfs_view_options *o)
{
	const bool reads = row->digest == MFS_DIGEST_BY_VIEW || row->digest == MFS_DIGEST_FILE;
	const char *const *text = reads && row->is_text ? mfs_option_in_view(row, o) : NULL;

	return text ? *text : NULL;
}

/* True if the option's value is a path, which is kept absolute. */
static bool is_path(const struct mfs_option_row *row, const char *value)
{
	return row->value == MFS_OPTION_PATH ||
	       (row->apply == set_metrics && is_metrics_file(value));
}

static int add_setting(struct mfs_options *opt, const struct mfs_option_row *row, const char *value,
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

int mfs_option_apply(struct mfs_options *opt, const struct mfs_option_row *row, const char *value,
		     struct mfs_error *err)
{
	const bool needs = row->value == MFS_OPTION_VALUED || row->value == MFS_OPTION_PATH;
	int rc;

	if (needs && (!value || !*value))
		return mfs_fail(err, -EINVAL, "option '%s' needs a value: %s=...", row->name,
				row->name);
	if (row->value == MFS_OPTION_BARE && value)
		return mfs_fail(err, -EINVAL, "option '%s' takes no value, found '%s'", row->name,
				value);
	rc = row->apply ? row->apply(opt, row, value, err) : 0;
	return rc || row->of == MFS_OPTION_OF_NONE ? rc : add_setting(opt, row, value, err);
}

void mfs_option_texts_free(struct mfs_options *opt)
{
	for (size_t i = 0; i < mfs_option_row_count; i++)
		if (mfs_option_rows[i].is_text)
			free(*(char **)member_of(opt, &mfs_option_rows[i]));
	for (unsigned i = 0; i < opt->data.path_count; i++)
		free((char *)opt->data.paths[i]);
}

/* ---- what was given ---- */

const char *mfs_option_next_setting(const struct mfs_options *opt, const char *at)
{
	const char *next = at ? at + strlen(at) + 1 : opt->settings.data;

	return next && next < opt->settings.data + opt->settings.len ? next : NULL;
}

const struct mfs_option_row *mfs_option_given_of(const struct mfs_options *opt,
						 enum mfs_option_scope of)
{
	for (const char *at = NULL; (at = mfs_option_next_setting(opt, at));)
		if (mfs_option_find(at)->of == of)
			return mfs_option_find(at);
	return NULL;
}

static const char *given_of_models(const struct mfs_options *opt)
{
	const struct mfs_option_row *row = mfs_option_given_of(opt, MFS_OPTION_OF_MODELS);

	if (row)
		return row->name;
	return opt->view.vocab_size == MFS_VOCAB_TOKENIZER ? "vocab_size=tokenizer" : NULL;
}

int mfs_option_check_effect(const struct mfs_options *opt, bool datasets, bool model,
			    struct mfs_error *err)
{
	const char *of_models = model ? NULL : given_of_models(opt);
	const struct mfs_option_row *row;

	if (of_models)
		return mfs_fail(err, -EINVAL,
				"option '%s' has no effect: SOURCE holds datasets and no model",
				of_models);
	if (datasets)
		return 0;
	row = mfs_option_given_of(opt, MFS_OPTION_OF_DATASETS);
	if (!row)
		row = mfs_option_given_of(opt, MFS_OPTION_NAMES_DATASETS);
	if (row)
		return mfs_fail(err, -EINVAL,
				"option '%s' has no effect: there are no datasets, and data=PATH "
				"names none",
				row->name);
	return 0;
}
