#define _GNU_SOURCE
#include <openssl/evp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/base/str.h"
#include "formats/ckpt/ckpt.h"
#include "formats/model/model.h"
#include "fs/cli/cmdline.h"
#include "fs/cli/commands.h"
#include "fs/verify/command.h"
#include "formats/ckpt/read/integrity.h"
#include "fs/cli/json.h"
#include "fs/cli/progress.h"
#include "fs/source/root.h"
#include "fs/cli/text.h"
#include "fs/sums/sums_check.h"
#include "fs/verify/verify_data.h"

#define READ_BYTES   (8u << 20)
#define AHEAD_BYTES  (32u << 20)
#define LET_GO_BYTES (64u << 20)
#define MAX_PROBLEMS 20 /* printed for a file; more are only counted */

struct verify {
	bool deep, sums; /* sums: stdout has only lines of sha256sum */
	json_t *files;	 /* --json: objects of files, in place of text; NULL: text */
	json_t *datasets, *source_problems; /* the same */
	struct mfs_sums_source check;	    /* file NULL: the model is compared with no sums */
	struct mfs_sums *want;		    /* what it says; NULL: none */
	char view[MFS_PLACE_NAME];	    /* the view that is verified; "": none, or datasets */
	uint32_t tensors, records,
		manifest; /* that were looked at; sums that are right, of sources */
	uint32_t checked; /* tensors that have the sums of --check */
	struct mfs_progress progress;
	uint64_t done; /* bytes that were read or skipped */
	void *buf;
	EVP_MD_CTX *digest;
	uint64_t problems;
};

/* Problems of one file. */
struct finding {
	const char *file;
	uint32_t count;
	uint64_t seen[MAX_PROBLEMS]; /* hashes of printed sentences */
	json_t *sentences;	     /* printed ones, for --json; NULL: text. Borrowed */
};

static bool speaks(const struct verify *v)
{
	return !v->sums && !v->files;
}

/* A damaged source may fail many reads with the same sentence. It is printed once. */
static bool is_new(struct finding *f, const char *sentence)
{
	uint64_t hash = 0xcbf29ce484222325ull;

	while (*sentence)
		hash = (hash ^ (uint8_t)*sentence++) * 0x100000001b3ull;
	for (uint32_t i = 0; i < f->count && i < MAX_PROBLEMS; i++)
		if (f->seen[i] == hash)
			return false;
	if (f->count < MAX_PROBLEMS)
		f->seen[f->count] = hash;
	return true;
}

static void report(struct verify *v, struct finding *f, const struct mfs_error *err)
{
	if (!is_new(f, err->msg))
		return;
	v->problems++;
	if (f->count++ >= MAX_PROBLEMS)
		return;
	mfs_progress_clear(&v->progress);
	mfs_command_failed("%s: %s", f->file, err->msg);
	if (f->sentences)
		json_array_append_new(f->sentences, mfs_json_string(err->msg));
}

static void check_plan(struct verify *v, const struct mfs_view_file *file, struct finding *f)
{
	uint32_t part = 0, before;
	struct mfs_error err;

	do {
		before = part;
		if (!mfs_vfile_check(file->data, &part, &err))
			return;
		report(v, f, &err);
		/* If no part follows, the rest of the file cannot be checked. */
	} while (part > before);
}

static void read_bytes(struct verify *v, const struct mfs_view_file *file, struct finding *f)
{
	uint64_t size = mfs_vfile_size(file->data);
	struct mfs_error err;
	size_t len;
	int rc;

	for (uint64_t off = 0; off < size; off += READ_BYTES) {
		size_t want = mfs_min_u64(READ_BYTES, size - off);

		mfs_vfile_willneed(file->data, off + want, AHEAD_BYTES);
		len = 0;
		rc = mfs_vfile_pread(file->data, off, v->buf, want, &len, &err);
		if (!rc && len != want)
			rc = mfs_fail(&err, -EIO, "ends at byte %llu of %llu",
				      (unsigned long long)(off + len), (unsigned long long)size);
		if (rc)
			report(v, f, &err);
		else
			EVP_DigestUpdate(v->digest, v->buf, len);
		mfs_vfile_served(file->data, len);
		v->done += want;
		mfs_progress_update(&v->progress, file->name, v->done);
	}
}

static void hex_digest(EVP_MD_CTX *digest, char *hex)
{
	uint8_t sum[EVP_MAX_MD_SIZE];
	unsigned len = 0;

	EVP_DigestFinal_ex(digest, sum, &len);
	mfs_str_hex(sum, len, hex);
}

static void describe_file(struct verify *v, const struct mfs_view_file *file, const char *hex,
			  const struct finding *f)
{
	json_t *o = json_object();

	json_object_set_new(o, "name", mfs_json_string(file->name));
	json_object_set_new(o, "size", mfs_json_number(mfs_vfile_size(file->data)));
	json_object_set_new(o, "ok", json_boolean(!f->count));
	json_object_set_new(o, "sha256", mfs_json_string(v->deep && !f->count ? hex : NULL));
	json_object_set_new(o, "problem_count", mfs_json_number(f->count));
	json_object_set(o, "problems", f->sentences);
	json_array_append_new(v->files, o);
}

static void print_file(const struct verify *v, const struct mfs_view_file *file, const char *hex,
		       const struct finding *f)
{
	char size[MFS_HUMAN], shown[MFS_SHOWN];

	if (v->sums) {
		/* The sum of a part of a file must not look like the sum of the file. */
		if (!f->count)
			printf("%s  %s\n", hex, mfs_shown(file->name, shown));
		return;
	}
	printf("%-8s %9s  %s", f->count ? "DAMAGED" : "ok",
	       mfs_human_bytes(mfs_vfile_size(file->data), size), mfs_shown(file->name, shown));
	if (f->count)
		printf("  (%u problem%s)", f->count, f->count > 1 ? "s" : "");
	putchar('\n');
	if (v->deep && !f->count)
		printf("%20s %s\n", "sha256", hex);
}

static void verify_file(struct verify *v, const struct mfs_view_file *file)
{
	char hex[2 * EVP_MAX_MD_SIZE + 1] = "";
	struct finding f = {.file = file->name, .sentences = v->files ? json_array() : NULL};

	check_plan(v, file, &f);
	/* Checking records maps pages, and a large checkpoint has tens of thousands of records. So
	 * the pages are dropped. */
	mfs_vfile_served(file->data, LET_GO_BYTES);
	if (v->deep) {
		EVP_DigestInit_ex(v->digest, EVP_sha256(), NULL);
		read_bytes(v, file, &f);
		hex_digest(v->digest, hex);
		mfs_progress_clear(&v->progress);
	}
	if (v->files)
		describe_file(v, file, hex, &f);
	else
		print_file(v, file, hex, &f);
	json_decref(f.sentences);
	mfs_print_flush();
}

struct manifest {
	struct verify *verify;
	struct finding finding;
};

static void bad_sum(void *arg, const struct mfs_error *err)
{
	struct manifest *m = arg;

	report(m->verify, &m->finding, err);
}

/* Checks the sums that the run has written with its files (integrity.json). */
static void verify_manifest(struct verify *v, const char *dir)
{
	struct manifest m = {.verify = v,
			     .finding = {.file = "source", .sentences = v->source_problems}};
	struct mfs_error err;
	uint32_t checked = 0;
	int rc = mfs_integrity_check(dir, bad_sum, &m, &checked, &err);

	if (rc == -ENOENT)
		return;
	if (rc)
		report(v, &m.finding, &err);
	if (rc || m.finding.count)
		return;
	v->manifest = checked;
	if (speaks(v))
		printf("%-8s %9s  integrity.json: the sums of %u source files are right\n", "ok",
		       "", checked);
}

static void verify_record(struct verify *v, struct mfs_ckpt *ckpt,
			  const struct mfs_global_tensor *t, uint32_t storage, struct finding *f,
			  uint32_t *checked)
{
	struct mfs_error err;
	bool has_sum;

	if (mfs_ckpt_check_bytes(ckpt, t, storage, &has_sum, &err))
		report(v, f, &err);
	else
		*checked += has_sum;
}

/* Checks the CRC-32 that torch writes for each record of an archive. */
static int verify_records(struct verify *v, struct mfs_ckpt *ckpt)
{
	bool *seen = calloc(mfs_ckpt_storage_count(ckpt) + 1, sizeof(*seen));
	struct finding f = {.file = "source", .sentences = v->source_problems};
	uint32_t checked = 0;

	if (!seen)
		return mfs_command_failed("out of memory");
	for (uint32_t i = 0; i < mfs_ckpt_count_all(ckpt); i++) {
		const struct mfs_global_tensor *t = mfs_ckpt_at(ckpt, i);
		const struct mfs_chunk *chunks = mfs_ckpt_chunks(ckpt, t);

		for (uint32_t k = 0; k < t->chunk_count; k++)
			if (chunks[k].storage != MFS_ZEROS && !seen[chunks[k].storage]) {
				seen[chunks[k].storage] = true;
				verify_record(v, ckpt, t, chunks[k].storage, &f, &checked);
			}
	}
	free(seen);
	v->records = f.count ? 0 : checked;
	if (speaks(v) && v->records)
		printf("%-8s %9s  the CRC-32 of %u source records are right\n", "ok", "", checked);
	return 0;
}

/* ---- the sums that the model's maker gives ---- */

static int check_tensors(struct verify *v, struct mfs_tensors *t, const char *name)
{
	struct manifest m = {.verify = v,
			     .finding = {.file = name, .sentences = v->source_problems}};
	struct mfs_error err;

	if (mfs_sums_check(t, v->want, v->check.file, bad_sum, &m, &v->checked, &err))
		return mfs_command_failed("%s", err.msg);
	if (speaks(v) && !m.finding.count)
		printf("%-8s %9s  the SHA-256 of %u tensors are those of %s%s\n", "ok", "",
		       v->checked, v->check.file, v->check.key ? ", which is signed" : "");
	return MFS_EXIT_OK;
}

static int check_model(struct verify *v, const struct mfs_cmdline *c, struct mfs_iteration *it,
		       const struct mfs_view *view, const char *name)
{
	struct mfs_tensors tensors;
	struct mfs_error err;
	int exit_code;

	if (view->cast)
		return mfs_command_failed("%s casts the weights, and sums are of weights as they "
					  "are stored: verify a view that does not cast",
					  name);
	if (mfs_tensors_list(it, &c->options.view, mfs_sums_have_optimizer(v->want), &tensors,
			     &err))
		return mfs_command_failed("%s", err.msg);
	exit_code = check_tensors(v, &tensors, name);
	mfs_tensors_release(&tensors);
	return exit_code;
}

/* ---- views ---- */

static uint64_t total_bytes(const struct mfs_view *view)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < view->count; i++)
		total += mfs_vfile_size(view->files[i].data);
	return total;
}

static void print_conclusion(const struct verify *v, const struct mfs_view *view, const char *name,
			     uint64_t total)
{
	char size[MFS_HUMAN], shown[MFS_SHOWN];

	printf("%s: %u files, ", mfs_shown(name, shown), view->count);
	if (view->tensor_count)
		printf("%u tensors, ", view->tensor_count);
	printf("%s: %s\n", mfs_human_bytes(total, size),
	       v->deep ? "complete, and every byte was read"
		       : "complete (--deep reads the bytes too)");
}

/* it: the iteration that the view is made of. NULL: it is made of a dataset. */
static int verify_view(struct verify *v, const struct mfs_cmdline *c, struct mfs_iteration *it,
		       const struct mfs_view *view, const char *name)
{
	uint64_t total = total_bytes(view);

	v->buf = malloc(READ_BYTES);
	v->digest = EVP_MD_CTX_new();
	v->tensors = view->tensor_count;
	snprintf(v->view, sizeof(v->view), "%s", name);
	if (!v->buf || !v->digest)
		return mfs_command_failed("out of memory");
	mfs_progress_init(&v->progress, stderr, 0, total);
	for (uint32_t i = 0; i < view->count; i++)
		verify_file(v, &view->files[i]);
	if (v->deep && view->ckpt && verify_records(v, view->ckpt))
		return MFS_EXIT_FAILED;
	if (v->deep && view->ckpt)
		verify_manifest(v, mfs_ckpt_dir(view->ckpt));
	if (v->want && check_model(v, c, it, view, name))
		return MFS_EXIT_FAILED;
	if (v->problems)
		return mfs_command_failed("%s: %llu problem%s found", name,
					  (unsigned long long)v->problems,
					  v->problems > 1 ? "s" : "");
	if (speaks(v))
		print_conclusion(v, view, name, total);
	return MFS_EXIT_OK;
}

static int verify_named(struct verify *v, const struct mfs_cmdline *c, struct mfs_root *root)
{
	const char *named = c->arguments[1];
	struct mfs_view *view = NULL;
	char name[MFS_PLACE_NAME];
	struct mfs_place place;
	struct mfs_error err;

	if (!named && !mfs_root_has_model(root) && !v->want)
		return mfs_verify_data(mfs_root_data(root), v->deep, v->datasets);
	if (mfs_root_find(root, named, &place, &err))
		return mfs_command_failed("%s", err.msg);
	if (v->want && !place.iteration)
		return mfs_command_failed("--check is for models, and this is a dataset");
	if (!place.iteration && !place.dataset)
		return mfs_verify_data(mfs_root_data(root), v->deep, v->datasets);
	if (place.dataset && !*place.view)
		return mfs_verify_dataset(place.dataset, v->deep, v->datasets);
	if (mfs_root_view(root, named, &view, &place, &err))
		return mfs_command_failed("%s", err.msg);
	return verify_view(v, c, place.iteration, view, mfs_place_name(root, &place, name));
}

static int verify_source(struct verify *v, const struct mfs_cmdline *c)
{
	struct mfs_root *root = NULL;
	struct mfs_error err;
	int exit_code;

	if (mfs_root_open(c->arguments[0], &c->options.view, &root, &err))
		return mfs_command_failed("%s", err.msg);
	exit_code = verify_named(v, c, root);
	EVP_MD_CTX_free(v->digest);
	free(v->buf);
	mfs_root_free(root);
	return exit_code;
}

/* The sums are looked at first: a wrong signature costs no reading of weights. */
static int verify(struct verify *v, const struct mfs_cmdline *c)
{
	struct mfs_sums want;
	struct mfs_error err;
	int exit_code;

	if (!v->check.file)
		return verify_source(v, c);
	if (mfs_sums_read(&v->check, &want, &err))
		return mfs_command_failed("%s", err.msg);
	v->want = &want;
	exit_code = verify_source(v, c);
	v->want = NULL;
	mfs_sums_release(&want);
	return exit_code;
}

static uint64_t count_problems(const struct verify *v)
{
	uint64_t count = v->problems;

	for (size_t i = 0; i < json_array_size(v->datasets); i++)
		count += (uint64_t)json_integer_value(
			json_object_get(json_array_get(v->datasets, i), "problem_count"));
	return count;
}

static int print_json(const struct verify *v, const char *source, int exit_code)
{
	json_t *o = json_object(), *sources = json_object();

	json_object_set_new(o, "source", mfs_json_string(source));
	json_object_set_new(o, "ok", json_boolean(!exit_code));
	json_object_set_new(o, "error", mfs_json_string(exit_code ? mfs_command_failure() : NULL));
	json_object_set_new(o, "deep", json_boolean(v->deep));
	json_object_set_new(o, "view", mfs_json_string(*v->view ? v->view : NULL));
	json_object_set_new(o, "tensors", mfs_json_number(v->tensors));
	json_object_set_new(o, "problem_count", mfs_json_number(count_problems(v)));
	json_object_set(o, "files", v->files);
	json_object_set_new(sources, "problems", json_incref(v->source_problems));
	json_object_set_new(sources, "crc32_right", mfs_json_number(v->records));
	json_object_set_new(sources, "integrity_right", mfs_json_number(v->manifest));
	json_object_set_new(sources, "tensors_right", mfs_json_number(v->checked));
	json_object_set_new(o, "sources", sources);
	json_object_set(o, "datasets", v->datasets);
	if (mfs_json_print(o))
		return mfs_command_failed("out of memory");
	return exit_code;
}

static int verify_json(struct verify *v, const struct mfs_cmdline *c)
{
	int exit_code;

	if (v->sums)
		return mfs_usage_error("verify: --json and --sums contradict each other");
	v->files = json_array();
	v->datasets = json_array();
	v->source_problems = json_array();
	exit_code = print_json(v, c->arguments[0], verify(v, c));
	json_decref(v->files);
	json_decref(v->datasets);
	json_decref(v->source_problems);
	return exit_code;
}

static int run(struct verify *v, const struct mfs_cmdline *c, bool json)
{
	if (v->check.key && !v->check.file)
		return mfs_usage_error("verify: --key needs --check FILE");
	if (v->check.signature && !v->check.key)
		return mfs_usage_error("verify: --signature needs --key PEM");
	return json ? verify_json(v, c) : verify(v, c);
}

int mfs_cmd_verify(int argc, char **argv)
{
	struct verify v = {0};
	bool json = false;
	struct mfs_cmdline c = {
		.usage = "verify SOURCE [VIEW] [--deep [--sums]] [--check FILE [--key PEM "
			 "[--signature FILE]]] [--json] [-o OPTIONS]",
		.help = "Finds the source of every tensor of VIEW (default: hf, of the latest\n"
			"iteration) and checks that shapes, types and sizes agree. Lists all\n"
			"problems; the exit status is 1 if there was any. Of datasets (data,\n"
			"data/NAME, or a SOURCE of them) it checks every length, pointer and\n"
			"document; with --deep every token, and with -o vocab_size=N their\n"
			"range.\n",
		.help_views = true,
		.help_end =
			"  --deep   read every byte, too: SHA-256 of each file, CRC-32 of the\n"
			"           sources' records, and integrity.json if the run left one\n"
			"  --sums   with --deep: lines for sha256sum -c and nothing else\n"
			"  --check FILE      compare each tensor of the model with FILE, which\n"
			"                    mcorefs sum has written; all of them must be there,\n"
			"                    and no others\n"
			"  --key PEM         FILE must be signed by the owner of this public key\n"
			"  --signature FILE  the signature (default: that of --check with .sig)\n"
			"  --json   one JSON object: files, their sums and their problems\n",
		.min = 1,
		.max = 2,
		.switches = {{"deep", &v.deep}, {"sums", &v.sums}, {"json", &json}},
		.valued = {{"check", MFS_VALUE_TEXT, &v.check.file},
			   {"key", MFS_VALUE_TEXT, &v.check.key},
			   {"signature", MFS_VALUE_TEXT, &v.check.signature}},
	};
	int exit_code;

	if (mfs_cmdline_parse(&c, argc, argv, &exit_code)) {
		v.deep = v.deep || v.sums;
		exit_code = run(&v, &c, json);
	}
	return mfs_cmdline_end(&c, exit_code);
}
