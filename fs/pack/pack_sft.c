#include "fs/pack/pack_sft.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/path.h"
#include "formats/base/str.h"
#include "formats/io/commit.h"
#include "formats/sft/documents.h"
#include "formats/sft/packs_write.h"
#include "formats/sft/row_file.h"
#include "fs/cli/commands.h"
#include "fs/cli/text.h"

struct sft_pack {
	const struct mfs_pack_sft_options *o;
	struct mfs_talk *talk;
	struct mfs_documents documents;
	uint64_t samples, rows;
};

/* ---- conversations ---- */

/* As the trainer cuts them (trainer/data/sft): the last token is a label alone. */
static int add_document(void *arg, const struct mfs_turns *turns, struct mfs_error *err)
{
	struct sft_pack *x = arg;

	return mfs_documents_add(&x->documents, turns, (uint32_t)x->o->length + 1, 0, err);
}

static int add_row(void *arg, json_t *row, struct mfs_error *err)
{
	struct sft_pack *x = arg;
	const struct mfs_talk_hooks hooks = {x, add_document};

	if (mfs_row_is_packed(row))
		return mfs_fail(err, -EINVAL, "it has seq_start_id: it is packed already");
	return mfs_talk_row(x->talk, row, &hooks, err);
}

static int read_rows(struct sft_pack *x, struct mfs_error *err)
{
	const struct mfs_row_hooks hooks = {.arg = x, .row = add_row};
	int64_t now;
	int rc = mfs_talk_now(&now, err);

	if (!rc)
		rc = mfs_talk_open(x->o->tokenizer, x->o->format, x->o->answers_only, (time_t)now,
				   &x->talk, err);
	if (!rc)
		rc = mfs_row_file_read(x->o->from, 0, UINT64_MAX, &hooks, &x->rows, err);
	if (!rc && !x->documents.count)
		rc = mfs_fail(err, -ENODATA, "%s has no conversations", x->o->from);
	if (!rc)
		rc = mfs_documents_pack(&x->documents, (uint32_t)x->o->length,
					(uint32_t)x->o->multiple, &x->samples, err);
	return rc;
}

/* ---- the file ---- */

static int write_packs(void *arg, int fd)
{
	const struct sft_pack *x = arg;
	const struct mfs_packs packs = {.documents = &x->documents,
					.samples = x->samples,
					.multiple = (uint32_t)x->o->multiple,
					.pad = (int32_t)x->o->pad};

	return mfs_packs_write(
		&packs, mfs_str_ends(x->o->to, ".parquet") || mfs_str_ends(x->o->to, ".pq"), fd);
}

static int write_file(struct sft_pack *x, struct mfs_error *err)
{
	char *dir = mfs_path_parent(x->o->to);
	int fd, rc;

	if (!dir)
		return mfs_fail_nomem(err);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	rc = fd < 0 ? mfs_fail_errno(err, "cannot open directory '%s'", dir)
		    : mfs_commit_written(fd, mfs_path_base(x->o->to), write_packs, x, err);
	if (fd >= 0)
		close(fd);
	free(dir);
	return rc;
}

static void say_done(const struct sft_pack *x)
{
	uint64_t places = 0;
	char text[3][MFS_HUMAN];

	for (uint64_t i = 0; i < x->documents.count; i++)
		places += mfs_packed_places(x->documents.at[i].count, (uint32_t)x->o->multiple);
	printf("packed %s conversations of %s rows into %s samples of %llu tokens, of which "
	       "%.1f%% are padding, into %s\n",
	       mfs_grouped(x->documents.count, text[0]), mfs_grouped(x->rows, text[1]),
	       mfs_grouped(x->samples, text[2]), (unsigned long long)x->o->length,
	       100 - 100 * (double)places / ((double)x->samples * (double)x->o->length), x->o->to);
}

int mfs_pack_sft(int argc, char **argv)
{
	struct mfs_pack_sft_options o;
	struct sft_pack x = {.o = &o};
	struct mfs_error err;
	int exit_code, rc;

	if (!mfs_pack_parse_sft_options(argc, argv, &o, &exit_code))
		return exit_code;
	if (!o.force && !access(o.to, F_OK))
		return mfs_command_failed("'%s' exists (--force replaces it)", o.to);
	rc = read_rows(&x, &err);
	if (!rc)
		rc = write_file(&x, &err);
	if (!rc)
		say_done(&x);
	mfs_talk_free(x.talk);
	mfs_documents_release(&x.documents);
	return mfs_print_end(rc ? mfs_command_failed("%s", err.msg) : MFS_EXIT_OK, MFS_EXIT_FAILED);
}
