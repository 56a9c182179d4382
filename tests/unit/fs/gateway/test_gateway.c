/* Repositories, tokens, the configuration, and the protocols, without a socket: fs/gateway. */
#include "tests/unit/unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/model/families/family.h"
#include "formats/plan/vfile.h"
#include "fs/cli/option_rows.h"
#include "fs/data/data.h"
#include "fs/gateway/gateway_config.h"
#include "fs/gateway/call/reply.h"
#include "fs/gateway/gateway.h"
#include "fs/gateway/web/gateway_metrics.h"
#include "fs/gateway/repos/repos_i.h"
#include "fs/source/root.h"
#include "fs/stats/stats.h"
#include "fs/view/view.h"
#include "fs/view/views.h"

#define LLAMA "weights/llama-torch-tp2-pp2"

static struct mfs_error err;
static const struct mfs_view_options options = {.vocab_size = 1000};

/* ---- names ---- */

START_TEST(names_of_repositories_are_the_hubs)
{
	static const char *const good[] = {"a/b", "lab/llama-3.1_8B", "_/_", "a.b/c__d"};
	static const char *const bad[] = {"",	    "a",       "a/",	    "/b",   "a/b/c",
					  "a/b--c", "a/b..c",  "-a/b",	    "a/b.", "a/.b",
					  "a/b c",  "a/b.git", "a/\xc3\xa4"};
	static const struct {
		const char *disk, *part;
	} parts[] = {{"llama", "llama"}, {"a b", "a-b"}, {"..x--y", "x-y"},
		     {"a__b", "a_b"},	 {"---", "_"},	 {"x.-", "x"}};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(good); i++)
		ck_assert_msg(mfs_repo_name_ok(good[i]), "%s", good[i]);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(bad); i++)
		ck_assert_msg(!mfs_repo_name_ok(bad[i]), "%s", bad[i]);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(parts); i++) {
		char *part = mfs_repo_part(parts[i].disk);

		ck_assert_str_eq(part, parts[i].part);
		free(part);
	}
}
END_TEST

START_TEST(refused_sources)
{
	struct mfs_repos *repos = mfs_repos_new(0);
	const char *llama = unit_fixture(LLAMA);

	unit_fails(mfs_repos_add(repos, "llama", llama, &options, &err), &err, -EINVAL, "ORG/NAME");
	unit_fails(mfs_repos_add(repos, "a/b__c", llama, &options, &err), &err, -EINVAL, "'__'");
	unit_fails(mfs_repos_add(repos, "api/b", llama, &options, &err), &err, -EINVAL, "begin");
	unit_fails(mfs_repos_add(repos, "a/b", "/nonexistent", &options, &err), &err, -ENOENT,
		   "nonexistent");
	unit_ok(mfs_repos_add(repos, "a/b", llama, &options, &err), &err);
	unit_fails(mfs_repos_add(repos, "a/b", llama, &options, &err), &err, -EEXIST,
		   "both be the repository a/b");
	unit_fails(mfs_repos_add(repos, "datasets/a/b", llama, &options, &err), &err, -EINVAL,
		   "a dataset is named ORG/NAME, too");
	mfs_repos_free(repos);
}
END_TEST

static int list_name(void *arg, const char *name)
{
	mfs_buf_printf(arg, "%s ", name);
	return 0;
}

/* A dataset has the name that it is given, also if another one's files are called the same. One of
 * several has its own. */
START_TEST(names_of_datasets)
{
	const char *tales = unit_fixture("data/tales_text_document");
	struct mfs_repos *repos = mfs_repos_new(0);
	char command[3 * PATH_MAX], other[PATH_MAX], both[PATH_MAX];
	struct mfs_buf names = {0};
	struct mfs_revision r;
	enum mfs_absent_kind what;

	snprintf(both, sizeof(both), "%s/both", unit_tmpdir());
	snprintf(other, sizeof(other), "%s/both/tales_text_document", unit_tmpdir());
	snprintf(command, sizeof(command), "mkdir '%s' && cp '%s'.* '%s'", both, tales, both);
	ck_assert_int_eq(system(command), 0);
	unit_ok(mfs_repos_add(repos, "lab/mine", tales, &options, &err), &err);
	unit_ok(mfs_repos_add(repos, "lab/other", other, &options, &err), &err);
	unit_ok(mfs_repos_add(repos, "lab/dir", both, &options, &err), &err);
	unit_ok(mfs_repos_add(repos, NULL, tales, &options, &err), &err);
	unit_fails(mfs_repos_add(repos, "lab/mine", other, &options, &err), &err, -EEXIST,
		   "both be the repository lab/mine");
	snprintf(command, sizeof(command),
		 "cd '%s' && mkdir ../two && cp *.bin *.idx ../two && cp *.bin ../two/b.bin && cp "
		 "*.idx ../two/b.idx",
		 both);
	ck_assert_int_eq(system(command), 0);
	snprintf(both, sizeof(both), "%s/two", unit_tmpdir());
	unit_ok(mfs_repos_add(repos, "two/dir", both, &options, &err), &err);
	ck_assert_int_eq(mfs_repos_each(repos, MFS_REPO_DATASET, list_name, &names), 0);
	ck_assert_str_eq(names.data, "lab/mine lab/other lab/dir local/tales_text_document two/b "
				     "two/tales_text_document ");
	unit_ok(mfs_repos_hold(repos, MFS_REPO_DATASET, "lab/other__jsonl", "main", &r, &what,
			       &err),
		&err);
	mfs_revision_drop(&r);
	unit_ok(mfs_repos_hold(repos, MFS_REPO_DATASET, "two/b", "main", &r, &what, &err), &err);
	mfs_revision_drop(&r);
	unit_fails(mfs_repos_hold(repos, MFS_REPO_DATASET, "lab/tales_text_document", "main", &r,
				  &what, &err),
		   &err, -ENOENT, NULL);
	mfs_buf_release(&names);
	mfs_repos_free(repos);
}
END_TEST

/* ---- revisions ---- */

/* A copy with the times of its files, as another machine sees a storage. */
static void copy(const char *from, const char *to)
{
	char command[2 * PATH_MAX];

	snprintf(command, sizeof(command), "cp -a '%s' '%s'", from, to);
	ck_assert_int_eq(system(command), 0);
}

static void hold(struct mfs_repos *repos, const char *name, const char *revision,
		 struct mfs_revision *r)
{
	enum mfs_absent_kind what;

	unit_ok(mfs_repos_hold(repos, MFS_REPO_MODEL, name, revision, r, &what, &err), &err);
}

static enum mfs_absent_kind absent(struct mfs_repos *repos, const char *name, const char *revision)
{
	enum mfs_absent_kind what;
	struct mfs_revision r;

	unit_fails(mfs_repos_hold(repos, MFS_REPO_MODEL, name, revision, &r, &what, &err), &err,
		   -ENOENT, NULL);
	return what;
}

/* Two gateways agree on a commit, and one finds what the other has named; a changed source has
 * another. */
START_TEST(gateways_agree_on_commits)
{
	struct mfs_repos *a = mfs_repos_new(0), *b = mfs_repos_new(0);
	char path[PATH_MAX], weights[PATH_MAX + 64], etag[2][MFS_COMMIT_SIZE];
	struct mfs_revision ra, rb, fp16;

	snprintf(path, sizeof(path), "%s/other", unit_tmpdir());
	copy(unit_fixture(LLAMA), path);
	unit_ok(mfs_repos_add(a, "lab/llama", unit_fixture(LLAMA), &options, &err), &err);
	unit_ok(mfs_repos_add(b, "lab/llama", path, &options, &err), &err);
	hold(a, "lab/llama", "main", &ra);
	hold(b, "lab/llama", ra.commit, &rb);
	ck_assert_str_eq(ra.commit, rb.commit);
	ck_assert_uint_eq(strlen(ra.commit), MFS_COMMIT_CHARS);
	ck_assert_str_eq(rb.iteration, "iter_0000040");
	mfs_revision_etag(&ra, "config.json", etag[0]);
	mfs_revision_etag(&rb, "config.json", etag[1]);
	ck_assert_str_eq(etag[0], etag[1]);
	mfs_revision_etag(&rb, "model.safetensors", etag[1]);
	ck_assert_str_ne(etag[0], etag[1]);
	hold(a, "lab/llama__hf-fp16", "40", &fp16);
	ck_assert_str_ne(ra.commit, fp16.commit);
	mfs_revision_drop(&fp16);
	mfs_revision_drop(&rb);
	mfs_repos_free(b);

	snprintf(weights, sizeof(weights), "%s/iter_0000040/mp_rank_00_000/model_optim_rng.pt",
		 path);
	ck_assert_int_eq(utimensat(AT_FDCWD, weights, NULL, 0), 0);
	b = mfs_repos_new(0);
	unit_ok(mfs_repos_add(b, "lab/llama", path, &options, &err), &err);
	hold(b, "lab/llama", "main", &rb);
	ck_assert_str_ne(ra.commit, rb.commit);
	ck_assert_int_eq(absent(b, "lab/llama", ra.commit), MFS_ABSENT_REVISION);
	mfs_revision_drop(&ra);
	mfs_revision_drop(&rb);
	mfs_repos_free(a);
	mfs_repos_free(b);
}
END_TEST

/* ---- options ---- */

#define FAMILY                                                                                     \
	"[family]\nname = heron\narchitecture = HeronModel\nmodel_type = heron\nbase = llama\n"

static int copy_name(void *arg, const char *name)
{
	snprintf(arg, MFS_REPO_NAME, "%s", name);
	return 0;
}

/* The commit of a dataset's or a model's view, by a gateway of its own. */
static void commit_of(const char *source, enum mfs_repo_kind kind, const char *name,
		      const struct mfs_view_options *o, char ret[MFS_COMMIT_SIZE])
{
	struct mfs_repos *repos = mfs_repos_new(0);
	enum mfs_absent_kind what;
	struct mfs_revision r;

	unit_ok(mfs_repos_add(repos, "lab/x", source, o, &err), &err);
	unit_ok(mfs_repos_hold(repos, kind, name, "main", &r, &what, &err), &err);
	memcpy(ret, r.commit, MFS_COMMIT_SIZE);
	mfs_revision_drop(&r);
	mfs_repos_free(repos);
}

/* Options change bytes where sizes stay: another option is another commit. */
START_TEST(commits_of_options)
{
	const char *model = unit_fixture(LLAMA), *rows = unit_fixture("data/hf_dataset/cache");
	const struct mfs_data_options eod[] = {{.has_eod = true, .eod = 1},
					       {.has_eod = true, .eod = 2}};
	const struct mfs_view_options of_rows[] = {{.data = &eod[0]}, {.data = &eod[1]}},
				      sharded = {.vocab_size = 1000, .shard_size = 1 << 30};
	char a[MFS_COMMIT_SIZE], b[MFS_COMMIT_SIZE];

	commit_of(model, MFS_REPO_MODEL, "lab/x", &options, a);
	commit_of(model, MFS_REPO_MODEL, "lab/x", &sharded, b);
	ck_assert_str_ne(a, b);
	for (int i = 0; i < 2; i++) {
		struct mfs_repos *repos = mfs_repos_new(0);
		char name[MFS_REPO_NAME] = "";

		unit_ok(mfs_repos_add(repos, "lab/x", rows, &of_rows[i], &err), &err);
		mfs_repos_each(repos, MFS_REPO_DATASET, copy_name, name);
		mfs_repos_free(repos);
		commit_of(rows, MFS_REPO_DATASET, name, &of_rows[i], i ? b : a);
	}
	ck_assert_str_ne(a, b);
}
END_TEST

/* Files that options name count by what is in them, and a change shows while it is served. */
START_TEST(commits_of_option_files)
{
	char path[2][PATH_MAX], a[MFS_COMMIT_SIZE], b[MFS_COMMIT_SIZE];
	struct mfs_data_options data = {0};
	const struct mfs_view_options o = {.data = &data};
	struct mfs_repos *repos = mfs_repos_new(0);
	enum mfs_absent_kind what;
	struct mfs_revision r;

	for (int i = 0; i < 2; i++) {
		snprintf(path[i], sizeof(path[i]), "%s/words-%d", unit_tmpdir(), i);
		unit_write(unit_tmpdir(), i ? "words-1" : "words-0", "1 a", 3);
		data.data_args_path = path[i];
		unit_ok(mfs_options_digest(&o, i ? b : a, &err), &err);
	}
	ck_assert_str_eq(a, b);
	unit_write(unit_tmpdir(), "words-1", "1 b", 3);
	unit_ok(mfs_options_digest(&o, b, &err), &err);
	ck_assert_str_ne(a, b);

	unit_ok(mfs_repos_add(repos, "lab/x", unit_fixture(LLAMA), &o, &err), &err);
	hold(repos, "lab/x", "main", &r);
	memcpy(a, r.commit, sizeof(a));
	mfs_revision_drop(&r);
	unit_write(unit_tmpdir(), "words-1", "1 c", 3);
	unit_fails(mfs_repos_hold(repos, MFS_REPO_MODEL, "lab/x", "main", &r, &what, &err), &err,
		   -ESTALE, "option");
	hold(repos, "lab/x", "main", &r);
	ck_assert_str_ne(a, r.commit);
	mfs_revision_drop(&r);
	mfs_repos_free(repos);

	data.data_args_path = NULL;
	unit_ok(mfs_options_digest(&o, a, &err), &err);
	unit_write(unit_tmpdir(), "f.conf", FAMILY, sizeof(FAMILY) - 1);
	snprintf(path[0], sizeof(path[0]), "%s/f.conf", unit_tmpdir());
	unit_ok(mfs_families_add(path[0], &err), &err);
	unit_ok(mfs_options_digest(&o, b, &err), &err);
	ck_assert_str_ne(a, b);
	ck_assert_uint_ne(mfs_families_stamp(), 0);
}
END_TEST

/* Commits of a release are those of the one before: what all options together make is known. */
START_TEST(digest_of_all_options)
{
	char list[3 * PATH_MAX], digest[MFS_COMMIT_SIZE];
	struct mfs_options opt = {0};

	unit_write(unit_tmpdir(), "words", "1 a", 3);
	snprintf(
		list, sizeof(list),
		"arch=llama,vocab_size=7,shard_size=1MiB,spec=te,part=language,merge=m,split=9/1/0,"
		"data_path=a,train_data_path=b,valid_data_path=c,test_data_path=d,megatron=0.10,"
		"column=e,append_eod=0,vocab_scan,arrow_batch=1MiB,data_args_path=%s/words,"
		"tokenizer_id=%s/words,cache=/c,verify=crc,log=/l",
		unit_tmpdir(), unit_tmpdir());
	unit_ok(mfs_options_parse_o(list, &opt, &err), &err);
	unit_ok(mfs_options_digest(&opt.view, digest, &err), &err);
	ck_assert_str_eq(digest, "9c320713d3b91d3e674013da7399c6ce710c0b7d");
	mfs_options_release(&opt);
	unit_ok(mfs_options_parse_o("ref=/r", &opt, &err), &err);
	unit_ok(mfs_options_digest(&opt.view, digest, &err), &err);
	ck_assert_str_eq(digest, "3fe20bfc4ce14f74ae061e05efd256e9ea68d92c");
	mfs_options_release(&opt);
}
END_TEST

/* A value that the option takes: the first of many that does. */
static void give(const struct mfs_option_row *row, struct mfs_options *ret)
{
	const char *const values[] = {"",	   "=7",      "=1MiB",	    "=te",
				      "=language", "=9/1/0",  "=0.10",	    "=crc",
				      "=json",	   "=/tmp/x", "=%s/f.conf", "=%s/tokens"};
	char list[PATH_MAX + 64], value[PATH_MAX];
	int rc = -EINVAL;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(values) && rc; i++) {
		snprintf(value, sizeof(value), values[i], unit_tmpdir());
		snprintf(list, sizeof(list), "%s%s", row->name, value);
		*ret = (struct mfs_options){0};
		rc = mfs_options_parse_o(list, ret, &err);
		if (rc)
			mfs_options_release(ret);
	}
	ck_assert_msg(!rc, "no value that the test knows is one of '%s': %s", row->name, err.msg);
}

/* A row of an option that changes bytes says how it counts in commits, and it does: a gateway would
 * serve a stale ETag otherwise. */
START_TEST(options_are_in_the_digest)
{
	char none[MFS_COMMIT_SIZE], digest[MFS_COMMIT_SIZE], dir[PATH_MAX];
	struct mfs_options opt = {0};

	unit_write(unit_tmpdir(), "f.conf", FAMILY, sizeof(FAMILY) - 1);
	snprintf(dir, sizeof(dir), "%s/tokens", unit_tmpdir());
	ck_assert_int_eq(mkdir(dir, 0700), 0);
	unit_write(dir, "vocab.json", "{}", 2);
	unit_ok(mfs_options_parse_o("", &opt, &err), &err);
	for (size_t i = 0; i < mfs_option_row_count; i++) {
		const struct mfs_option_row *row = &mfs_option_rows[i];

		if (row->of == MFS_OPTION_OF_NONE)
			continue;
		ck_assert_msg(row->digest != MFS_DIGEST_NONE, "%s", row->name);
		unit_ok(mfs_options_digest(&opt.view, none, &err), &err);
		mfs_options_release(&opt);
		give(row, &opt);
		unit_ok(mfs_options_digest(&opt.view, digest, &err), &err);
		if (row->digest == MFS_DIGEST_LEFT_OUT)
			ck_assert_msg(!strcmp(none, digest), "%s", row->name);
		else if (row->digest == MFS_DIGEST_FILE)
			ck_assert_msg(mfs_options_have_files(&opt.view), "%s", row->name);
		else if (row->digest != MFS_DIGEST_BY_VIEW)
			ck_assert_msg(strcmp(none, digest) != 0, "%s", row->name);
		mfs_options_release(&opt);
		unit_ok(mfs_options_parse_o("", &opt, &err), &err);
	}
	mfs_options_release(&opt);
}
END_TEST

/* As long as nobody writes them they are not read: here, nothing can be opened. */
START_TEST(option_files_are_read_once)
{
	struct mfs_data_options data = {0};
	const struct mfs_view_options o = {.data = &data};
	struct mfs_repos *repos = mfs_repos_new(0);
	const struct timespec old = {.tv_sec = 1, .tv_nsec = 100000000};
	struct rlimit limit, none = {0};
	enum mfs_absent_kind what;
	struct mfs_revision r;
	char dir[PATH_MAX], path[PATH_MAX];
	int rc;

	snprintf(dir, sizeof(dir), "%s", unit_tmpdir());
	snprintf(path, sizeof(path), "%.4000s/words", dir);
	data.data_args_path = path;
	unit_write(dir, "words", "1 a", 3);
	ck_assert_uint_eq(mfs_options_stamp(&o), 0);
	nanosleep(&old, NULL);
	ck_assert_uint_ne(mfs_options_stamp(&o), 0);
	unit_ok(mfs_repos_add(repos, "lab/x", unit_fixture(LLAMA), &o, &err), &err);
	hold(repos, "lab/x", "main", &r);
	mfs_revision_drop(&r);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none.rlim_max = limit.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	rc = mfs_repos_hold(repos, MFS_REPO_MODEL, "lab/x", "main", &r, &what, &err);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	unit_ok(rc, &err);
	mfs_revision_drop(&r);
	mfs_repos_free(repos);
}
END_TEST

/* ---- changes ---- */

/* An HF directory and a dataset are opened again when their files change. */
START_TEST(changed_directory)
{
	static const char *const sources[][2] = {{"hf/llama-safetensors", "model.safetensors"},
						 {"hf/llama-bin", "pytorch_model.bin"}};
	static const struct mfs_view_options plain = {0};

	for (int i = 0; i < 2; i++) {
		struct mfs_repos *repos = mfs_repos_new(0);
		char path[PATH_MAX], file[PATH_MAX + 64], commit[MFS_COMMIT_SIZE];
		struct mfs_revision r;

		snprintf(path, sizeof(path), "%s/hf-%d", unit_tmpdir(), i);
		copy(unit_fixture(sources[i][0]), path);
		snprintf(file, sizeof(file), "%s/%s", path, sources[i][1]);
		unit_ok(mfs_repos_add(repos, "lab/x", path, &plain, &err), &err);
		hold(repos, "lab/x", "main", &r);
		memcpy(commit, r.commit, sizeof(commit));
		ck_assert_int_eq(utimensat(AT_FDCWD, file, NULL, 0), 0);
		unit_fails(mfs_view_check_sources(r.view, &err), &err, -ESTALE, NULL);
		mfs_revision_suspect(&r);
		mfs_revision_drop(&r);
		ck_assert_uint_eq(mfs_repos_state(repos).open, 0);
		hold(repos, "lab/x", "main", &r);
		ck_assert_str_ne(r.commit, commit);
		unit_ok(mfs_view_check_sources(r.view, &err), &err);
		mfs_revision_drop(&r);
		mfs_repos_free(repos);
	}
}
END_TEST

static void write_file_of(const struct mfs_view *view, const char *name, const char *dir)
{
	struct mfs_vfile *data = view->files[mfs_view_find(view, name)].data;
	char bytes[4096];
	size_t n;

	unit_ok(mfs_vfile_pread(data, 0, bytes, sizeof(bytes), &n, &err), &err);
	ck_assert_uint_lt(n, sizeof(bytes));
	unit_write(dir, name, bytes, n);
}

/* A file of ref= is none of the iteration's. The view that has it is made anew, though somebody
 * still reads the old one. */
START_TEST(changed_reference)
{
	struct mfs_repos *repos = mfs_repos_new(0);
	struct mfs_view_options with = options;
	char path[PATH_MAX], commit[MFS_COMMIT_SIZE];
	struct mfs_revision reader, r;

	snprintf(path, sizeof(path), "%s/ref", unit_tmpdir());
	mkdir(path, 0755);
	unit_ok(mfs_repos_add(repos, "lab/plain", unit_fixture(LLAMA), &options, &err), &err);
	hold(repos, "lab/plain", "main", &r);
	write_file_of(r.view, "config.json", path);
	mfs_revision_drop(&r);
	unit_write(path, "tokenizer_config.json", "{}", 2);
	with.ref = path;
	unit_ok(mfs_repos_add(repos, "lab/x", unit_fixture(LLAMA), &with, &err), &err);
	hold(repos, "lab/x", "main", &reader);
	memcpy(commit, reader.commit, sizeof(commit));
	unit_write(path, "tokenizer_config.json", "{\"a\": 1}", 8);
	hold(repos, "lab/x", "main", &r);
	unit_fails(mfs_view_check_sources(r.view, &err), &err, -ESTALE, "tokenizer_config.json");
	mfs_revision_suspect(&r);
	mfs_revision_drop(&r);
	hold(repos, "lab/x", "main", &r);
	unit_ok(mfs_view_check_sources(r.view, &err), &err);
	ck_assert_str_ne(r.commit, commit);
	ck_assert_str_eq(reader.commit, commit);
	mfs_revision_drop(&reader);
	mfs_revision_drop(&r);
	mfs_repos_free(repos);
}
END_TEST

static int count_iteration(void *arg, const char *name)
{
	(void)name;
	++*(int *)arg;
	return 0;
}

/* A list of iterations has those that came after SOURCE was opened. */
START_TEST(new_iteration)
{
	static const struct timespec second = {.tv_sec = 1, .tv_nsec = 100000000};
	struct mfs_repos *repos = mfs_repos_new(0);
	char path[PATH_MAX], from[PATH_MAX], to[PATH_MAX + 32];
	int count = 0;

	snprintf(path, sizeof(path), "%s/run", unit_tmpdir());
	copy(unit_fixture(LLAMA), path);
	unit_ok(mfs_repos_add(repos, "lab/x", path, &options, &err), &err);
	unit_ok(mfs_repos_each_iteration(repos, MFS_REPO_MODEL, "lab/x", count_iteration, &count,
					 &err),
		&err);
	ck_assert_int_eq(count, 1);
	snprintf(from, sizeof(from), "%.4000s/iter_0000040", path);
	snprintf(to, sizeof(to), "%s/iter_0000050", path);
	copy(from, to);
	unit_write(path, "latest_checkpointed_iteration.txt", "50", 2);
	nanosleep(&second, NULL); /* it looks at most once a second */
	unit_ok(mfs_repos_each_iteration(repos, MFS_REPO_MODEL, "lab/x", count_iteration, &count,
					 &err),
		&err);
	ck_assert_int_eq(count, 3);
	mfs_repos_free(repos);
}
END_TEST

/* A client that asks for a commit that is known opens no other iteration. */
START_TEST(a_known_commit_opens_no_other_iteration)
{
	struct mfs_repos *repos = mfs_repos_new(0);
	char path[PATH_MAX], from[PATH_MAX], to[PATH_MAX + 32], commit[MFS_COMMIT_SIZE];
	const struct mfs_root_snapshot *s;
	struct mfs_revision r;

	snprintf(path, sizeof(path), "%s/run", unit_tmpdir());
	copy(unit_fixture(LLAMA), path);
	snprintf(from, sizeof(from), "%.4000s/iter_0000040", path);
	snprintf(to, sizeof(to), "%s/iter_0000050", path);
	copy(from, to);
	unit_write(path, "latest_checkpointed_iteration.txt", "50", 2);
	unit_ok(mfs_repos_add(repos, "lab/x", path, &options, &err), &err);
	hold(repos, "lab/x", "40", &r);
	memcpy(commit, r.commit, sizeof(commit));
	mfs_revision_drop(&r);
	hold(repos, "lab/x", commit, &r);
	s = mfs_root_snapshot(r.shared->root);
	ck_assert_uint_eq(s->count, 2);
	ck_assert_str_eq(mfs_iteration_name(s->iterations[1]), "iter_0000050");
	ck_assert_ptr_eq(s->latest, s->iterations[1]);
	ck_assert_uint_eq(mfs_open_set_count(&mfs_iteration_views(s->iterations[0])->open), 1);
	ck_assert_uint_eq(mfs_open_set_count(&mfs_iteration_views(s->iterations[1])->open), 0);
	mfs_revision_drop(&r);
	mfs_repos_free(repos);
}
END_TEST

/* How many iterations have an open view. */
static unsigned count_open(const struct mfs_root_snapshot *s)
{
	unsigned count = 0;

	for (uint32_t i = 0; i < s->count; i++)
		count += mfs_open_set_count(&mfs_iteration_views(s->iterations[i])->open) > 0;
	return count;
}

#define ITERATIONS 20 /* more than stay open */

/* An unknown commit opens nothing, however many iterations there are; one that another gateway has
 * named opens its own; and one of an iteration that has changed opens that. */
START_TEST(unknown_commits)
{
	struct mfs_repos *a = mfs_repos_new(0), *b = mfs_repos_new(0);
	char path[PATH_MAX], from[PATH_MAX], to[PATH_MAX + 32], commit[MFS_COMMIT_SIZE];
	const struct mfs_root_snapshot *s;
	struct mfs_shared_root *shared;
	struct mfs_revision r;

	snprintf(path, sizeof(path), "%s/run", unit_tmpdir());
	copy(unit_fixture(LLAMA), path);
	snprintf(from, sizeof(from), "%.4000s/iter_0000040", path);
	for (int i = 1; i < ITERATIONS; i++) {
		snprintf(to, sizeof(to), "%s/iter_%07d", path, 40 - i);
		copy(from, to);
	}
	unit_ok(mfs_repos_add(a, "lab/x", path, &options, &err), &err);
	unit_ok(mfs_repos_add(b, "lab/x", path, &options, &err), &err);
	hold(b, "lab/x", "33", &r);
	memcpy(commit, r.commit, sizeof(commit));
	mfs_revision_drop(&r);
	mfs_repos_free(b);

	unit_ok(mfs_roots_hold(a->roots, path, &options, &shared, &err), &err);
	s = mfs_root_snapshot(shared->root);
	ck_assert_uint_eq(s->count, ITERATIONS);
	for (const char *c = "0123456789abcdef"; *c; c++) {
		char other[MFS_COMMIT_SIZE];

		memset(other, *c, MFS_COMMIT_CHARS);
		other[MFS_COMMIT_CHARS] = '\0';
		ck_assert_int_eq(absent(a, "lab/x", other), MFS_ABSENT_REVISION);
	}
	ck_assert_uint_eq(count_open(s), 0);
	hold(a, "lab/x", commit, &r);
	ck_assert_str_eq(r.iteration, "iter_0000033");
	mfs_revision_drop(&r);
	commit[MFS_COMMIT_CHARS - 1] = commit[MFS_COMMIT_CHARS - 1] == '0' ? '1' : '0';
	ck_assert_int_eq(absent(a, "lab/x", commit), MFS_ABSENT_REVISION);
	ck_assert_uint_eq(count_open(s), 1);
	mfs_roots_drop(a->roots, shared);
	mfs_repos_free(a);
}
END_TEST

/* A lack that passes is told as such, and the commit is found later. */
START_TEST(passing_failure)
{
	static const char name[] = "lab/x__megatron.torch.tp1-pp2";
	struct mfs_repos *repos = mfs_repos_new(0);
	struct rlimit limit, none = {0};
	char commit[MFS_COMMIT_SIZE];
	enum mfs_absent_kind what;
	struct mfs_revision r;
	int rc;

	commit_of(unit_fixture(LLAMA), MFS_REPO_MODEL, name, &options, commit);
	unit_ok(mfs_repos_add(repos, "lab/x", unit_fixture(LLAMA), &options, &err), &err);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none.rlim_max = limit.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	rc = mfs_repos_hold(repos, MFS_REPO_MODEL, name, commit, &r, &what, &err);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_int_eq(rc, -EMFILE);
	hold(repos, name, commit, &r);
	ck_assert_str_eq(r.commit, commit);
	mfs_revision_drop(&r);
	mfs_repos_free(repos);
}
END_TEST

START_TEST(what_is_not_there_is_told_by_kind)
{
	struct mfs_repos *repos = mfs_repos_new(0);
	struct mfs_revision r;

	unit_ok(mfs_repos_add(repos, "lab/llama", unit_fixture(LLAMA), &options, &err), &err);
	ck_assert_int_eq(absent(repos, "lab/other", "main"), MFS_ABSENT_REPO);
	ck_assert_int_eq(absent(repos, "lab", "main"), MFS_ABSENT_REPO);
	ck_assert_int_eq(absent(repos, "lab/llama__nope", "main"), MFS_ABSENT_REPO);
	ck_assert_int_eq(absent(repos, "lab/llama__megatron.torch.tp3-pp1", "main"),
			 MFS_ABSENT_REPO);
	ck_assert_int_eq(absent(repos, "lab/llama", "41"), MFS_ABSENT_REVISION);
	ck_assert_int_eq(absent(repos, "lab/llama", "release"), MFS_ABSENT_REVISION);
	ck_assert_int_eq(absent(repos, "lab/llama", "0123456789012345678901234567890123456789"),
			 MFS_ABSENT_REVISION);
	hold(repos, "lab/llama__megatron.torch.tp1-pp2", "latest", &r);
	ck_assert_int_ge(mfs_view_find(r.view, "iter_0000040/mp_rank_00_000/model_optim_rng.pt"),
			 0);
	ck_assert_int_eq(mfs_view_find(r.view, "iter_0000040"), -1);
	mfs_revision_drop(&r);
	mfs_repos_free(repos);
}
END_TEST

/* ---- a directory of runs, from several threads ---- */

static int count_name(void *arg, const char *name)
{
	(void)name;
	++*(unsigned *)arg;
	return 0;
}

static void *use_runs(void *arg)
{
	struct mfs_repos *repos = arg;
	char buf[4096];

	for (int i = 0; i < 12; i++) {
		static const char *const names[] = {"runs/a", "runs/b", "runs/c"};
		enum mfs_absent_kind what;
		struct mfs_revision r;
		struct mfs_error e;
		size_t n;

		ck_assert_msg(
			!mfs_repos_hold(repos, MFS_REPO_MODEL, names[i % 3], "main", &r, &what, &e),
			"%s", e.msg);
		ck_assert_int_eq(
			mfs_vfile_pread(r.view->files[0].data, 0, buf, sizeof(buf), &n, &e), 0);
		ck_assert_uint_gt(n, 0);
		mfs_revision_drop(&r);
	}
	return NULL;
}

START_TEST(a_directory_of_runs_is_repositories)
{
	struct mfs_repos *repos = mfs_repos_new(1);
	pthread_t threads[4];
	char path[PATH_MAX];
	unsigned count = 0;

	for (const char *name = "abc"; *name; name++) {
		snprintf(path, sizeof(path), "%s/%c", unit_tmpdir(), *name);
		copy(unit_fixture(LLAMA), path);
	}
	snprintf(path, sizeof(path), "%s/not-a-run", unit_tmpdir());
	mkdir(path, 0755);
	unit_write(unit_tmpdir(), "file", "x", 1);
	unit_ok(mfs_repos_add(repos, "runs/*", unit_tmpdir(), &options, &err), &err);
	mfs_repos_each(repos, MFS_REPO_MODEL, count_name, &count);
	ck_assert_uint_eq(count, 3);
	ck_assert_uint_eq(mfs_repos_state(repos).open, 0);
	ck_assert_int_eq(absent(repos, "runs/not-a-run", "main"), MFS_ABSENT_REPO);
	ck_assert_int_eq(absent(repos, "runs/file", "main"), MFS_ABSENT_REPO);
	ck_assert_uint_eq(mfs_repos_state(repos).open, 0);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, use_runs, repos), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_le(mfs_repos_state(repos).open, 1);
	ck_assert_uint_eq(mfs_repos_state(repos).users, 0);
	mfs_repos_free(repos);
}
END_TEST

struct listed {
	struct mfs_repos *repos;
	char names[1024];
};

static int note_name(void *arg, const char *name)
{
	struct listed *l = arg;
	const size_t len = strlen(l->names);

	snprintf(l->names + len, sizeof(l->names) - len, "%s%s", len ? " " : "", name);
	return 0;
}

/* What a directory of runs lists of a kind, opened or not. */
static const char *list_runs(const char *dir, const struct mfs_view_options *o,
			     enum mfs_repo_kind kind)
{
	static struct listed l;

	l = (struct listed){.repos = mfs_repos_new(0)};
	unit_ok(mfs_repos_add(l.repos, "d/*", dir, o, &err), &err);
	ck_assert_int_eq(mfs_repos_each(l.repos, kind, note_name, &l), 0);
	ck_assert_uint_eq(mfs_repos_state(l.repos).open, 0);
	mfs_repos_free(l.repos);
	return l.names;
}

/* Models are listed among models, datasets among datasets, and nothing else is; and what is listed
 * is there. */
START_TEST(kinds_of_runs)
{
	static const char *const sets[] = {"d/cache", "d/indices", "d/saved"};
	const struct mfs_data_options blend = {.data_path = "1 a"};
	const struct mfs_view_options blended = {.data = &blend};
	struct mfs_repos *repos = mfs_repos_new(0);
	const char *dir = unit_tmpdir();
	char path[PATH_MAX];
	enum mfs_absent_kind what;
	struct mfs_revision r;

	ck_assert_str_eq(list_runs(unit_fixture("data"), &options, MFS_REPO_MODEL), "");
	ck_assert_str_eq(list_runs(unit_fixture("data"), &options, MFS_REPO_DATASET), "");
	ck_assert_str_eq(list_runs(unit_fixture("data/hf_dataset"), &options, MFS_REPO_MODEL), "");
	ck_assert_str_eq(list_runs(unit_fixture("data/hf_dataset"), &options, MFS_REPO_DATASET),
			 "d/cache d/indices d/saved");
	unit_ok(mfs_repos_add(repos, "d/*", unit_fixture("data/hf_dataset"), &options, &err), &err);
	for (int i = 0; i < 3; i++) {
		unit_ok(mfs_repos_hold(repos, MFS_REPO_DATASET, sets[i], "main", &r, &what, &err),
			&err);
		mfs_revision_drop(&r);
	}
	mfs_repos_free(repos);

	snprintf(path, sizeof(path), "%s/model", dir);
	copy(unit_fixture(LLAMA), path);
	snprintf(path, sizeof(path), "%s/tokens", dir);
	mkdir(path, 0755);
	unit_write(path, "a.idx", "", 0);
	unit_write(path, "a.bin", "", 0);
	snprintf(path, sizeof(path), "%s/verl", dir);
	mkdir(path, 0755);
	unit_write(path, "latest_checkpointed_iteration.txt", "5", 1);
	snprintf(path, sizeof(path), "%s/verl/global_step_5", dir);
	mkdir(path, 0755);
	ck_assert_str_eq(list_runs(dir, &options, MFS_REPO_MODEL), "d/model d/verl");
	ck_assert_str_eq(list_runs(dir, &options, MFS_REPO_DATASET), "d/tokens");
	ck_assert_str_eq(list_runs(dir, &blended, MFS_REPO_DATASET), "");
	snprintf(path, sizeof(path), "%s/tokens", dir);
	unit_write(path, "b.idx", "", 0);
	unit_write(path, "b.bin", "", 0);
	ck_assert_str_eq(list_runs(dir, &options, MFS_REPO_DATASET), "");
}
END_TEST

/* ---- tokens ---- */

START_TEST(rules_allow_and_except)
{
	static const char text[] =
		"# who\n"
		"everybody - lab/public\n"
		"alice hf_alice_secret lab/* !lab/hidden datasets/lab/*\r\n"
		"  bob\tsha256:5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5 "
		"x/y  metrics # 12345\n";
	struct mfs_rules *rules;
	int alice, bob, all;

	unit_ok(mfs_rules_parse("t", text, sizeof(text) - 1, &rules, &err), &err);
	ck_assert_uint_eq(mfs_rules_count(rules), 3);
	all = mfs_rules_find(rules, NULL);
	alice = mfs_rules_find(rules, "hf_alice_secret");
	bob = mfs_rules_find(rules, "12345");
	ck_assert_int_eq(mfs_rules_find(rules, "hf_alice_secre"), -1);
	ck_assert_int_eq(mfs_rules_find(rules, "-"), -1);
	ck_assert_str_eq(mfs_rules_name(rules, alice), "alice");
	ck_assert_str_eq(mfs_rules_name(rules, -1), "");
	ck_assert(mfs_rules_allow(rules, all, "lab/public"));
	ck_assert(!mfs_rules_allow(rules, all, "lab/llama"));
	ck_assert(mfs_rules_allow(rules, alice, "lab/llama"));
	ck_assert(!mfs_rules_allow(rules, alice, "lab/hidden"));
	ck_assert(!mfs_rules_allow(rules, alice, "lab/a/b"));
	ck_assert(mfs_rules_allow(rules, alice, "datasets/lab/tales"));
	ck_assert(!mfs_rules_allow(rules, alice, "metrics"));
	ck_assert(mfs_rules_allow(rules, bob, "metrics"));
	ck_assert(!mfs_rules_allow(rules, bob, "lab/llama"));
	ck_assert(!mfs_rules_allow(rules, -1, "lab/public"));
	mfs_rules_free(rules);
}
END_TEST

START_TEST(bad_rules)
{
	static const char *const bad[] = {
		"alice\n",
		"alice short lab/*\n",
		"alice sha256:00 lab/*\n",
		"a longenough !\n",
		"a longenough x/y\nb longenough x/z\n",
		"a - x/y\nb - x/z\n",
	};
	struct mfs_rules *rules;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(bad); i++)
		unit_fails(mfs_rules_parse("t", bad[i], strlen(bad[i]), &rules, &err), &err,
			   -EINVAL, "t:");
	unit_fails(mfs_rules_parse("t", "a\0b", 3, &rules, &err), &err, -EINVAL, "text");
}
END_TEST

START_TEST(tokens_file)
{
	char path[PATH_MAX], name[64];
	struct mfs_tokens *tokens;
	struct mfs_grant g;

	snprintf(path, sizeof(path), "%s/tokens", unit_tmpdir());
	unit_write(unit_tmpdir(), "tokens", "a abcdefgh x/y\nall - p/q\n", 25);
	chmod(path, 0644);
	unit_fails(mfs_tokens_open(path, &tokens, &err), &err, -EACCES, "644");
	chmod(path, 0640);
	unit_ok(mfs_tokens_open(path, &tokens, &err), &err);
	g = mfs_tokens_grant(tokens, "Bearer abcdefgh", name, sizeof(name));
	ck_assert_str_eq(name, "a");
	ck_assert(mfs_grant_allows(&g, "x/y") && mfs_grant_allows(&g, "p/q"));
	ck_assert(!mfs_grant_allows(&g, "x/z"));
	/* It is read again, and rules that are in use stay until they are dropped. */
	unit_write(unit_tmpdir(), "tokens", "b ijklmnop x/y\n", 15);
	usleep(1100000);
	{
		struct mfs_grant after =
			mfs_tokens_grant(tokens, "bearer  ijklmnop", name, sizeof(name));

		ck_assert_str_eq(name, "b");
		ck_assert(mfs_grant_allows(&after, "x/y"));
		mfs_grant_drop(tokens, &after);
		after = mfs_tokens_grant(tokens, "Basic abcdefgh", name, sizeof(name));
		ck_assert(!mfs_grant_allows(&after, "x/y") && !after.sent);
		mfs_grant_drop(tokens, &after);
	}
	ck_assert(mfs_grant_allows(&g, "x/y"));
	mfs_grant_drop(tokens, &g);
	mfs_tokens_free(tokens);

	unit_ok(mfs_tokens_open(NULL, &tokens, &err), &err);
	g = mfs_tokens_grant(tokens, NULL, name, sizeof(name));
	ck_assert(mfs_grant_allows(&g, "x/y"));
	mfs_grant_drop(tokens, &g);
	mfs_tokens_free(tokens);
}
END_TEST

/* ---- the configuration ---- */

START_TEST(a_configuration_has_limits_and_repositories)
{
	static const char text[] =
		"listen: :9000\n"
		"limits: {connections: 7, open: 3}\n"
		"repositories:\n"
		"  lab/llama: /ckpts/llama\n"
		"  lab/mixtral: {source: /m, options: \"vocab_size=77,no_optim\"}\n";
	struct mfs_serve_config c;

	mfs_serve_config_init(&c);
	unit_ok(mfs_serve_config_parse(&c, "c.yaml", text, sizeof(text) - 1, &err), &err);
	ck_assert_str_eq(c.listen[MFS_LISTENER_WEB], ":9000");
	ck_assert_uint_eq(c.limits.connections, 7);
	ck_assert_uint_eq(c.open, 3);
	ck_assert_str_eq(c.first->name, "lab/llama");
	ck_assert_str_eq(c.first->source, "/ckpts/llama");
	ck_assert_uint_eq(c.first->next->options.view.vocab_size, 77);
	ck_assert(c.first->next->options.view.no_optim);
	ck_assert_ptr_null(c.first->next->next);
	mfs_serve_config_release(&c);
}
END_TEST

START_TEST(bad_configs)
{
	static const char *const bad[] = {
		"",
		"- a\n",
		"listen: [a]\n",
		"nothing: a\n",
		"limits: {connections: 0}\n",
		"limits: {nothing: 1}\n",
		"limits: 7\n",
		"repositories: [a]\n",
		"repositories: {a/b: {options: ro}}\n",
		"repositories: {a/b: {source: /m, options: nonsense=1}}\n",
		"repositories: {a/b: {source: /m, name: x}}\n",
		"repositories: {a/b: [x]}\n",
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(bad); i++) {
		struct mfs_serve_config c;

		mfs_serve_config_init(&c);
		unit_fails(mfs_serve_config_parse(&c, "c.yaml", bad[i], strlen(bad[i]), &err), &err,
			   -EINVAL, "c.yaml");
		mfs_serve_config_release(&c);
	}
}
END_TEST

/* ---- protocols ---- */

struct headers {
	const char *name, *value;
};

static const char *header(const struct mfs_request *q, const char *name)
{
	for (const struct headers *h = q->headers; h && h->name; h++)
		if (!strcmp(h->name, name))
			return h->value;
	return NULL;
}

static struct mfs_gateway gateway;

static void try(enum mfs_method method, const char *target, const struct headers *headers,
		const char *body, struct mfs_reply *a)
{
	struct mfs_request q = {
		.method = method, .target = target, .header = header, .headers = headers};

	*a = (struct mfs_reply){0};
	unit_ok(mfs_url_parse(target, &q.url, &err), &err);
	if (body)
		mfs_buf_adds(&q.body, body);
	mfs_gateway_answer(&gateway, MFS_LISTENER_WEB, &q, a);
	mfs_url_release(&q.url);
	mfs_buf_release(&q.body);
}

static const char *value_of(const struct mfs_reply *a, const char *name)
{
	for (unsigned i = 0; i < a->header_count; i++)
		if (!strcmp(a->headers[i].name, name))
			return a->headers[i].value;
	return "";
}

/* Asks, and compares the status and one header. */
static void ask(enum mfs_method method, const char *target, const struct headers *headers,
		const char *body, struct mfs_reply *a)
{
	try(method, target, headers, body, a);
	ck_assert(!a->failed);
}

static void check(enum mfs_method method, const char *target, const struct headers *headers,
		  const char *body, unsigned status, const char *name, const char *value)
{
	struct mfs_reply a;

	ask(method, target, headers, body, &a);
	ck_assert_msg(a.status == status, "%s: %u instead of %u: %s", target, a.status, status,
		      a.why);
	if (name)
		ck_assert_msg(!strcmp(value_of(&a, name), value), "%s: %s: '%s' instead of '%s'",
			      target, name, value_of(&a, name), value);
	mfs_reply_release(&a);
}

static void begin_gateway(const char *tokens)
{
	gateway = (struct mfs_gateway){.repos = mfs_repos_new(0), .access_log = -1};
	unit_ok(mfs_repos_add(gateway.repos, "lab/llama", unit_fixture(LLAMA), &options, &err),
		&err);
	unit_ok(mfs_repos_add(gateway.repos, NULL, unit_fixture("data/tales_text_document"),
			      &options, &err),
		&err);
	unit_ok(mfs_tokens_open(tokens, &gateway.tokens, &err), &err);
}

static void end_gateway(void)
{
	mfs_tokens_free(gateway.tokens);
	mfs_repos_free(gateway.repos);
}

static void note_freed(void *arg)
{
	*(bool *)arg = true;
}

/* A reply that is under way keeps what it is made of when another configuration comes into force;
 * then that goes. */
START_TEST(a_reply_outlives_its_configuration)
{
	const struct mfs_view_options other = {.shard_size = 100000};
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	char before[256], after[256];
	struct mfs_repos *repos;
	struct mfs_tokens *tokens;
	bool freed = false;
	struct mfs_reply a;

	begin_gateway(NULL);
	gateway.lock = &lock;
	tokens = gateway.tokens;
	mfs_repos_on_free(gateway.repos, note_freed, &freed);
	ask(MFS_METHOD_GET, "/lab/llama/resolve/main/model.safetensors", NULL, NULL, &a);
	ck_assert_uint_eq(a.status, 200);
	ck_assert_int_eq(a.stream->read(a.object, 0, before, sizeof(before)), sizeof(before));

	repos = mfs_repos_new(0);
	unit_ok(mfs_repos_add(repos, "lab/other", unit_fixture(LLAMA), &other, &err), &err);
	mfs_gateway_replace(&gateway, repos, tokens, &gateway.redirects, NULL);
	ck_assert(!freed);
	ck_assert_int_eq(a.stream->read(a.object, 0, after, sizeof(after)), sizeof(after));
	ck_assert_mem_eq(before, after, sizeof(before));
	mfs_reply_release(&a);
	ck_assert(freed);
	check(MFS_METHOD_GET, "/lab/llama/resolve/main/config.json", NULL, NULL, 404, NULL, NULL);
	check(MFS_METHOD_GET, "/lab/other/resolve/main/config.json", NULL, NULL, 200, NULL, NULL);
	end_gateway();
}
END_TEST

START_TEST(the_hubs_routes_answer)
{
	static const struct headers json[] = {{"Content-Type", "application/json"}, {0}};
	struct mfs_reply a;
	struct mfs_revision r;
	char commit[MFS_COMMIT_SIZE];

	begin_gateway(NULL);
	hold(gateway.repos, "lab/llama", "main", &r);
	memcpy(commit, r.commit, sizeof(commit));
	mfs_revision_drop(&r);
	check(MFS_METHOD_GET, "/api/models/lab/llama", NULL, NULL, 200, "X-Repo-Commit", commit);
	check(MFS_METHOD_GET, "/api/models/lab/llama/revision/iter_0000040", NULL, NULL, 200,
	      "X-Repo-Commit", commit);
	check(MFS_METHOD_GET, "/lab/llama/resolve/main/nope", NULL, NULL, 404, "X-Error-Code",
	      "EntryNotFound");
	check(MFS_METHOD_GET, "/lab/llama/resolve/main/nope", NULL, NULL, 404, "X-Repo-Commit",
	      commit);
	check(MFS_METHOD_HEAD, "/lab/llama/resolve/99/config.json", NULL, NULL, 404, "X-Error-Code",
	      "RevisionNotFound");
	check(MFS_METHOD_HEAD, "/lab/none/resolve/main/config.json", NULL, NULL, 404,
	      "X-Error-Code", "RepoNotFound");
	check(MFS_METHOD_GET, "/datasets/lab/llama/resolve/main/config.json", NULL, NULL, 404,
	      "X-Error-Code", "RepoNotFound");
	check(MFS_METHOD_GET, "/api/models/lab/llama/tree/main/nope", NULL, NULL, 404,
	      "X-Error-Code", "EntryNotFound");
	check(MFS_METHOD_GET, "/api/models/lab/llama/auth-check", NULL, NULL, 200, NULL, NULL);
	check(MFS_METHOD_GET, "/api/datasets/local/tales_text_document/auth-check", NULL, NULL, 200,
	      NULL, NULL);
	check(MFS_METHOD_GET, "/api/datasets/lab/llama/auth-check", NULL, NULL, 404, "X-Error-Code",
	      "RepoNotFound");
	check(MFS_METHOD_GET, "/api/models/lab/none/auth-check", NULL, NULL, 404, "X-Error-Code",
	      "RepoNotFound");
	check(MFS_METHOD_GET, "/api/models/lab/llama/auth-check/write", NULL, NULL, 403,
	      "X-Error-Code", "Forbidden");
	check(MFS_METHOD_GET, "/api/models/lab/llama/auth-check/more", NULL, NULL, 404,
	      "X-Error-Code", "NotFound");
	check(MFS_METHOD_GET, "/api/whoami", NULL, NULL, 404, "X-Error-Code", "NotFound");
	check(MFS_METHOD_GET, "/favicon.ico", NULL, NULL, 404, NULL, NULL);
	check(MFS_METHOD_POST, "/lab/llama/resolve/main/config.json", NULL, NULL, 405, "Allow",
	      "GET, HEAD");
	check(MFS_METHOD_POST, "/api/models/lab/llama/paths-info/main", json, "{", 400,
	      "X-Error-Code", "BadRequest");
	check(MFS_METHOD_POST, "/api/models/lab/llama/paths-info/main", NULL, "paths=%zz", 400,
	      "X-Error-Code", "BadRequest");
	ask(MFS_METHOD_POST, "/api/models/lab/llama/paths-info/main", NULL,
	    "paths=config.json&paths=nope&expand=True", &a);
	ck_assert_ptr_nonnull(strstr(a.text.data, "\"path\":\"config.json\""));
	ck_assert_ptr_nonnull(strstr(a.text.data, "lastCommit"));
	ck_assert_ptr_null(strstr(a.text.data, "nope"));
	mfs_reply_release(&a);
	ask(MFS_METHOD_POST, "/api/models/lab/llama/paths-info/main", json,
	    "{\"paths\": [\"config.json\"]}", &a);
	ck_assert_ptr_nonnull(strstr(a.text.data, "\"path\":\"config.json\""));
	mfs_reply_release(&a);
	ask(MFS_METHOD_GET, "/api/datasets/local/tales_text_document/tree/main", NULL, NULL, &a);
	ck_assert_ptr_nonnull(strstr(a.text.data, "data-00000-of-00001.parquet"));
	mfs_reply_release(&a);
	end_gateway();
}
END_TEST

/* A tree of directories: each is told once, before its files. */
START_TEST(each_directory_is_listed_once_before_its_files)
{
	struct mfs_reply a;
	const char *at, *first;

	begin_gateway(NULL);
	ask(MFS_METHOD_GET,
	    "/api/models/lab/llama__megatron.torch.tp2-pp1/tree/main?recursive=True", NULL, NULL,
	    &a);
	ck_assert_uint_eq(a.status, 200);
	first = strstr(a.text.data, "\"path\":\"iter_0000040\"");
	ck_assert_ptr_nonnull(first);
	ck_assert_ptr_null(strstr(first + 1, "\"path\":\"iter_0000040\""));
	at = strstr(a.text.data, "\"path\":\"iter_0000040/mp_rank_01\"");
	ck_assert_ptr_nonnull(at);
	ck_assert_ptr_nonnull(
		strstr(at, "\"path\":\"iter_0000040/mp_rank_01/model_optim_rng.pt\""));
	mfs_reply_release(&a);
	ask(MFS_METHOD_GET,
	    "/api/models/lab/llama__megatron.torch.tp2-pp1/tree/main/iter_0000040%2Fmp_rank_01",
	    NULL, NULL, &a);
	ck_assert_ptr_nonnull(strstr(a.text.data, "model_optim_rng.pt"));
	ck_assert_ptr_null(strstr(a.text.data, "directory"));
	mfs_reply_release(&a);
	ask(MFS_METHOD_GET, "/api/models/lab/llama__megatron.torch.tp2-pp1/tree/main", NULL, NULL,
	    &a);
	ck_assert_ptr_null(strstr(a.text.data, "mp_rank_01"));
	mfs_reply_release(&a);
	end_gateway();
}
END_TEST

START_TEST(plain_files_come_by_range)
{
	struct headers range[] = {{"Range", "bytes=2-9"}, {NULL, NULL}};
	struct mfs_reply a;
	char buf[16];

	begin_gateway(NULL);
	ask(MFS_METHOD_GET, "/files/lab/llama/main/config.json", range, NULL, &a);
	ck_assert_uint_eq(a.status, 206);
	ck_assert_uint_eq(a.length, 8);
	ck_assert_int_eq(a.stream->read(a.object, 0, buf, sizeof(buf)), 8);
	ck_assert(!memcmp(buf, "  \"archi", 8));
	mfs_reply_release(&a);
	check(MFS_METHOD_HEAD, "/files/lab/llama/main/config.json", range, NULL, 200,
	      "Content-Range", "");
	range[0] = (struct headers){"If-Match", "\"other\""};
	check(MFS_METHOD_GET, "/files/lab/llama/main/config.json", range, NULL, 412, NULL, NULL);
	range[0] = (struct headers){"Range", "bytes=900000-"};
	check(MFS_METHOD_GET, "/files/lab/llama/main/config.json", range, NULL, 416,
	      "Content-Range", "bytes */851");
	check(MFS_METHOD_GET, "/files/lab/llama/main", NULL, NULL, 301, "Location",
	      "/files/lab/llama/main/");
	check(MFS_METHOD_GET, "/files/lab/llama/main/", NULL, NULL, 200, NULL, NULL);
	check(MFS_METHOD_GET, "/files/lab/llama/", NULL, NULL, 200, NULL, NULL);
	check(MFS_METHOD_GET, "/files/", NULL, NULL, 200, NULL, NULL);
	check(MFS_METHOD_GET, "/files/lab/llama/main/nope", NULL, NULL, 404, NULL, NULL);
	check(MFS_METHOD_GET, "/files/lab/llama/main/config.json/", NULL, NULL, 404, NULL, NULL);
	check(MFS_METHOD_GET, "/files/lab/", NULL, NULL, 200, NULL, NULL);
	check(MFS_METHOD_GET, "/files/lab", NULL, NULL, 301, "Location", "/files/lab/");
	check(MFS_METHOD_GET, "/files/nobody/", NULL, NULL, 404, NULL, NULL);
	check(MFS_METHOD_GET, "/files/datasets/", NULL, NULL, 200, NULL, NULL);
	check(MFS_METHOD_GET, "/files/datasets/local/", NULL, NULL, 200, NULL, NULL);
	check(MFS_METHOD_GET, "/files/datasets/lab/", NULL, NULL, 404, NULL, NULL);
	check(MFS_METHOD_POST, "/files/lab/llama/main/config.json", NULL, NULL, 405, NULL, NULL);
	check(MFS_METHOD_GET, "/files/datasets/local/tales_text_document/main/", NULL, NULL, 200,
	      NULL, NULL);
	end_gateway();
}
END_TEST

/* What a token may not read looks as if it were not there, by every route. */
START_TEST(what_a_token_may_not_read_is_not_there)
{
	static const struct headers alice[] = {{"Authorization", "Bearer hf_alice"}, {0}};
	static const struct headers bob[] = {{"Authorization", "Bearer hf_bob12"}, {0}};
	static const char *const targets[] = {
		"/lab/llama/resolve/main/config.json",
		"/api/models/lab/llama",
		"/api/models/lab/llama/tree/main",
		"/lab/llama__hf-fp16/resolve/main/config.json",
		"/api/models/lab/llama/refs",
		"/api/models/lab/llama/commits/main",
		"/files/lab/llama/",
		"/files/lab/llama/main/",
		"/files/lab/llama/main/config.json",
	};
	char path[PATH_MAX];
	struct mfs_reply a;

	unit_write(unit_tmpdir(), "t", "alice hf_alice lab/*\nbob hf_bob12 metrics\n", 42);
	snprintf(path, sizeof(path), "%s/t", unit_tmpdir());
	chmod(path, 0600);
	begin_gateway(path);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(targets); i++) {
		check(MFS_METHOD_GET, targets[i], alice, NULL, 200, NULL, NULL);
		check(MFS_METHOD_GET, targets[i], bob, NULL, 404, NULL, NULL);
		check(MFS_METHOD_GET, targets[i], NULL, NULL, 401, NULL, NULL);
	}
	check(MFS_METHOD_GET, "/lab/llama/resolve/main/config.json", NULL, NULL, 401,
	      "X-Error-Code", "RepoNotFound");
	check(MFS_METHOD_GET, "/metrics", alice, NULL, 401, NULL, NULL);
	check(MFS_METHOD_GET, "/healthz", NULL, NULL, 200, NULL, NULL);
	for (int i = 0; i < 3; i++) {
		static const char *const lists[] = {"/api/models", "/files/", "/"};

		ask(MFS_METHOD_GET, lists[i], alice, NULL, &a);
		ck_assert_ptr_nonnull(strstr(a.text.data, "lab/llama"));
		mfs_reply_release(&a);
		ask(MFS_METHOD_GET, lists[i], NULL, NULL, &a);
		ck_assert_ptr_null(strstr(a.text.data, "lab/llama"));
		mfs_reply_release(&a);
	}
	end_gateway();
}
END_TEST

static unsigned until_none;

static void *little_memory(size_t size)
{
	return until_none && !--until_none ? NULL : malloc(size);
}

/* Whatever there is no memory for, a reply is whole or an error. */
START_TEST(no_memory)
{
	static const char *const targets[] = {
		"/api/models", "/api/models/lab/llama?blobs=1", "/api/models/lab/llama/refs",
		"/api/models/lab/llama/commits/main?expand[]=formatted",
		"/api/models/lab/llama/tree/main?expand=1"};
	unsigned failures;

	begin_gateway(NULL);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(targets); i++) {
		struct mfs_reply whole, a;

		ask(MFS_METHOD_GET, targets[i], NULL, NULL, &whole);
		failures = 0;
		for (unsigned n = 1;; n++) {
			bool same, met;

			until_none = n;
			json_set_alloc_funcs(little_memory, free);
			try(MFS_METHOD_GET, targets[i], NULL, NULL, &a);
			json_set_alloc_funcs(malloc, free);
			met = !until_none;
			same = a.status == 200 && a.text.len == whole.text.len &&
			       !memcmp(a.text.data, whole.text.data, a.text.len);
			ck_assert_msg(same || a.failed, "%s, %u: '%.*s'", targets[i], n,
				      (int)a.text.len, a.text.data);
			failures += a.failed;
			mfs_reply_release(&a);
			if (!met)
				break;
		}
		ck_assert_uint_gt(failures, 5);
		mfs_reply_release(&whole);
	}
	until_none = 0;
	end_gateway();
}
END_TEST

/* A storage that fails is no absence, and clients do not learn where it lies. */
START_TEST(failing_storage)
{
	char path[PATH_MAX], text[] = "'/a/b c/d.pt' is cut; see /x/y/z: (/p/q), r/s";
	char urls[] = "http://u@h:1/a/b.pt: 404; 's3://k/c d/e' (https://h/f), a://";
	struct mfs_reply a;

	mfs_hide_directories(text);
	ck_assert_str_eq(text, "'d.pt' is cut; see z: (q), r/s");
	mfs_hide_directories(urls);
	ck_assert_str_eq(urls, "b.pt: 404; 'e' (f), a://");
	snprintf(path, sizeof(path), "%s/runs", unit_tmpdir());
	mkdir(path, 0755);
	begin_gateway(NULL);
	gateway.stats = mfs_gateway_stats_new();
	unit_ok(mfs_repos_add(gateway.repos, "runs/*", path, &options, &err), &err);
	check(MFS_METHOD_GET, "/runs/a/resolve/main/x", NULL, NULL, 404, "X-Error-Code",
	      "RepoNotFound");
	check(MFS_METHOD_GET, "/files/runs/a/", NULL, NULL, 404, NULL, NULL);
	rmdir(path);
	check(MFS_METHOD_GET, "/runs/a/resolve/main/x", NULL, NULL, 500, NULL, NULL);
	check(MFS_METHOD_GET, "/files/runs/a/", NULL, NULL, 500, NULL, NULL);
	check(MFS_METHOD_GET, "/files/", NULL, NULL, 500, NULL, NULL);
	ask(MFS_METHOD_GET, "/", NULL, NULL, &a); /* the page is there to say what is wrong */
	ck_assert_uint_eq(a.status, 200);
	mfs_buf_add(&a.text, "", 1);
	ck_assert_ptr_nonnull(strstr(a.text.data, "lab/llama"));
	ck_assert_ptr_nonnull(strstr(a.text.data, "There may be more: No such file"));
	mfs_reply_release(&a);
	mfs_stats_free(gateway.stats);
	ask(MFS_METHOD_GET, "/api/models", NULL, NULL, &a);
	ck_assert_uint_eq(a.status, 500);
	ck_assert_ptr_null(strstr(a.text.data, unit_tmpdir()));
	mfs_reply_release(&a);
	end_gateway();
}
END_TEST

/* What is no model is no repository, whatever else it is. */
START_TEST(no_model)
{
	char path[PATH_MAX];
	struct mfs_reply a;

	snprintf(path, sizeof(path), "%s/lora", unit_tmpdir());
	mkdir(path, 0755);
	unit_write(path, "adapter_config.json", "{}", 2);
	begin_gateway(NULL);
	unit_ok(mfs_repos_add(gateway.repos, "runs/*", unit_tmpdir(), &options, &err), &err);
	check(MFS_METHOD_GET, "/runs/lora/resolve/main/x", NULL, NULL, 404, "X-Error-Code",
	      "RepoNotFound");
	ask(MFS_METHOD_GET, "/runs/lora/resolve/main/x", NULL, NULL, &a);
	ck_assert_ptr_null(strstr(a.text.data, unit_tmpdir()));
	mfs_reply_release(&a);
	end_gateway();
}
END_TEST

START_TEST(replies_are_counted_by_kind)
{
	struct mfs_stats *s = mfs_gateway_stats_new();
	struct mfs_gateway_sums sums;

	mfs_gateway_count(s, "hub", 200, true, 10, 1000);
	mfs_gateway_count(s, "files", 206, true, 5, 1000);
	mfs_gateway_count(s, "files", 206, false, 2, 1000);
	mfs_gateway_count(s, NULL, 400, true, 1, 1000);
	mfs_gateway_count(s, "hub", 599, true, 0, 1000);
	sums = mfs_gateway_sums(s);
	ck_assert_uint_eq(sums.bytes, 18);
	ck_assert_uint_eq(sums.replies[2], 2);
	ck_assert_uint_eq(sums.replies[4], 1);
	ck_assert_uint_eq(sums.cut, 1);
	mfs_stats_free(s);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("gateway");
	TCase *c = unit_case(s, "gateway", names_of_repositories_are_the_hubs);

	tcase_add_test(c, refused_sources);
	tcase_add_test(c, names_of_datasets);
	tcase_add_test(c, gateways_agree_on_commits);
	tcase_add_test(c, commits_of_options);
	tcase_add_test(c, commits_of_option_files);
	tcase_add_test(c, changed_directory);
	tcase_add_test(c, changed_reference);
	tcase_add_test(c, new_iteration);
	tcase_add_test(c, a_known_commit_opens_no_other_iteration);
	tcase_add_test(c, unknown_commits);
	tcase_add_test(c, passing_failure);
	tcase_add_test(c, what_is_not_there_is_told_by_kind);
	tcase_add_test(c, a_directory_of_runs_is_repositories);
	tcase_add_test(c, kinds_of_runs);
	tcase_add_test(c, rules_allow_and_except);
	tcase_add_test(c, bad_rules);
	tcase_add_test(c, tokens_file);
	tcase_add_test(c, a_configuration_has_limits_and_repositories);
	tcase_add_test(c, bad_configs);
	tcase_add_test(c, digest_of_all_options);
	tcase_add_test(c, options_are_in_the_digest);
	tcase_add_test(c, option_files_are_read_once);
	tcase_add_test(c, a_reply_outlives_its_configuration);
	tcase_add_test(c, the_hubs_routes_answer);
	tcase_add_test(c, each_directory_is_listed_once_before_its_files);
	tcase_add_test(c, plain_files_come_by_range);
	tcase_add_test(c, what_a_token_may_not_read_is_not_there);
	tcase_add_test(c, failing_storage);
	tcase_add_test(c, no_memory);
	tcase_add_test(c, no_model);
	tcase_add_test(c, replies_are_counted_by_kind);
	return s;
}
