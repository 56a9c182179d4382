/*
 * damage DIR CHANGES [VIEW]: damage to a checkpoint (trials.h), of which a view (hf) is opened and
 * read whole. A changed byte that shows up as itself, in a tensor or a file passed through, is
 * right.
 */
#define _GNU_SOURCE
#include "tests/damage/trials.h"

#include "formats/plan/vfile.h"
#include "fs/source/root.h"

#define PIECE (1 << 20)

struct shown_file {
	char name[256];
	uint8_t *bytes;
	size_t len;
};

static struct shown_file shown[MAX_FILES];
static unsigned shown_count;
static const char *view_name = "hf";

/* One difference that is the changed byte itself, seen through the view. A damaged tokenizer is
 * passed through, and what config.json takes from it follows. */
struct change {
	bool is_cut, in_tokenizer;
	uint8_t old, new;
	unsigned seen;
};

static int compare(const struct mfs_view_file *f, uint64_t off, const uint8_t *bytes, size_t len,
		   struct change *change)
{
	const struct shown_file *want = NULL;

	if (change->in_tokenizer && !strstr(f->name, ".safetensors"))
		return 0;
	for (unsigned i = 0; i < shown_count; i++)
		if (!strcmp(shown[i].name, f->name))
			want = &shown[i];
	if (!want || want->len != mfs_vfile_size(f->data)) {
		snprintf(outcome->text, sizeof(outcome->text), "%s is new or has another size",
			 f->name);
		return -1;
	}
	if (!memcmp(want->bytes + off, bytes, len))
		return 0;
	for (size_t i = 0; i < len; i++) {
		uint8_t was = want->bytes[off + i];

		if (bytes[i] == was)
			continue;
		if (change->is_cut || was != change->old || bytes[i] != change->new ||
		    change->seen++) {
			snprintf(outcome->text, sizeof(outcome->text),
				 "%s differs at byte %llu: 0x%02x instead of 0x%02x", f->name,
				 (unsigned long long)(off + i), bytes[i], was);
			return -1;
		}
	}
	return 0;
}

/* Calls each() with every byte of every file. 0, 1 after each() has refused, or the error. */
static int read_view(int (*each)(const struct mfs_view_file *f, uint64_t off, const uint8_t *bytes,
				 size_t len, struct change *change),
		     struct change *change, struct mfs_error *err)
{
	static uint8_t piece[PIECE];
	const struct mfs_view_options opt = {0};
	struct mfs_root *root;
	struct mfs_view *view;
	int rc = mfs_root_open(copy_dir, &opt, &root, err);

	if (rc)
		return rc;
	rc = mfs_root_view(root, view_name, &view, NULL, err);
	for (uint32_t i = 0; !rc && i < view->count; i++) {
		const struct mfs_view_file *f = &view->files[i];
		size_t len = 0;

		for (uint64_t off = 0; !rc && off < mfs_vfile_size(f->data); off += len) {
			rc = mfs_vfile_pread(f->data, off, piece, PIECE, &len, err);
			if (!rc && !len) {
				snprintf(outcome->text, sizeof(outcome->text), "%s ends early",
					 f->name);
				rc = 1;
			}
			if (!rc && each(f, off, piece, len, change))
				rc = 1;
		}
	}
	mfs_root_free(root);
	return rc;
}

static int keep(const struct mfs_view_file *f, uint64_t off, const uint8_t *bytes, size_t len,
		struct change *change)
{
	struct shown_file *s = &shown[shown_count ? shown_count - 1 : 0];

	(void)change;
	if (!shown_count || strcmp(s->name, f->name)) {
		s = &shown[shown_count++];
		snprintf(s->name, sizeof(s->name), "%s", f->name);
		s->len = mfs_vfile_size(f->data);
		s->bytes = malloc(s->len + 1);
	}
	memcpy(s->bytes + off, bytes, len);
	return 0;
}

static int read_checkpoint(const struct trial *t, bool *ret_shows, struct mfs_error *err)
{
	struct change change = {0};
	int rc;

	if (!t)
		return read_view(keep, &change, err);
	change.is_cut = t->is_cut;
	change.in_tokenizer = strstr(t->file->path, "/tokenizer/") != NULL;
	if (!t->is_cut) {
		change.old = t->file->bytes[t->at];
		change.new = t->value;
	}
	rc = read_view(compare, &change, err);
	*ret_shows = change.seen;
	return rc;
}

int main(int argc, char **argv)
{
	if (argc != 3 && argc != 4) {
		fprintf(stderr, "usage: damage DIR CHANGES [VIEW]\n");
		return EXIT_FAILURE;
	}
	if (argc == 4)
		view_name = argv[3];
	make_copy_dir();
	copy_tree(argv[1]);
	return run_damage(argv[1], (unsigned)atoi(argv[2]), read_checkpoint);
}
