/*
 * damage DIR CHANGES [VIEW]: a checkpoint is copied, each of its files cut at each 1/64 of its length, then
 * CHANGES single bytes are changed at random (a fixed seed; half of them anywhere, half where the
 * indexes are). After each, the view (hf) is opened and read whole. It must give the right bytes or an
 * error with a sentence: never other bytes, a crash, a hang, or memory beyond a small multiple of the
 * checkpoint. A changed byte that shows up as itself, in a tensor or a file passed through, is right.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "formats/io/guard.h"
#include "formats/plan/vfile.h"
#include "fs/root.h"

#define MAX_FILES 64
#define CUTS	  64
#define PIECE	  (1 << 20)

#if defined(__SANITIZE_ADDRESS__)
#define SECONDS_PER_TRIAL 60
#define LIMIT_MEMORY	  0 /* ASan's shadow has no place under a limit; its own option bounds */
#else
#define SECONDS_PER_TRIAL 20
#define LIMIT_MEMORY	  1
#endif

struct source_file {
	char path[512];
	uint8_t *bytes;
	size_t len;
};

struct shown_file {
	char name[256];
	uint8_t *bytes;
	size_t len;
};

static struct source_file sources[MAX_FILES];
static struct shown_file shown[MAX_FILES];
static unsigned source_count, shown_count;
static uint64_t total;
static char copy_dir[256];

static void die(const char *what)
{
	perror(what);
	exit(EXIT_FAILURE);
}

/* ---- the copy ---- */

static size_t prefix_len;

static int copy_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	struct source_file *f = &sources[source_count];
	FILE *in, *out;

	(void)ftw;
	snprintf(f->path, sizeof(f->path), "%s%s", copy_dir, path + prefix_len);
	if (type == FTW_D)
		return mkdir(f->path, 0755) && errno != EEXIST ? -1 : 0;
	if (source_count == MAX_FILES - 1)
		return -1;
	f->len = (size_t)st->st_size;
	f->bytes = malloc(f->len + 1);
	in = fopen(path, "rb");
	out = fopen(f->path, "wb");
	if (!in || !out || fread(f->bytes, 1, f->len, in) != f->len ||
	    fwrite(f->bytes, 1, f->len, out) != f->len || fclose(out))
		return -1;
	fclose(in);
	total += f->len;
	source_count++;
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static void copy_checkpoint(const char *dir)
{
	const char *base = access("/dev/shm", W_OK) ? getenv("TMPDIR") : "/dev/shm";

	snprintf(copy_dir, sizeof(copy_dir), "%s/mcorefs-damage-XXXXXX", base ? base : "/tmp");
	if (!mkdtemp(copy_dir))
		die(copy_dir);
	prefix_len = strlen(dir);
	if (nftw(dir, copy_one, 16, FTW_PHYS))
		die(dir);
}

static void restore(const struct source_file *f)
{
	int fd = open(f->path, O_WRONLY | O_TRUNC | O_CLOEXEC);

	if (fd < 0 || write(fd, f->bytes, f->len) != (ssize_t)f->len || close(fd))
		die(f->path);
}

static void change_byte(const struct source_file *f, size_t at, uint8_t value)
{
	int fd = open(f->path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || pwrite(fd, &value, 1, (off_t)at) != 1 || close(fd))
		die(f->path);
}

/* ---- reading the view ---- */

/* What a trial found, in memory shared with the parent, which outlives a crash. */
struct outcome {
	unsigned trial;
	unsigned errors, same, shows_change;
	char text[1024];
};

static struct outcome *outcome;
static const char *view_name = "hf";

/* One difference that is the changed byte itself, seen through the view. A damaged tokenizer is passed
 * through, and what config.json takes from it follows. */
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

/* ---- trials ---- */

struct trial {
	const struct source_file *file;
	size_t at;
	bool is_cut;
	uint8_t value;
};

static uint64_t random_state;

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* Of two changes one lies anywhere, one in the first 64 KiB or the last 2 KiB of any file. */
static struct trial random_change(unsigned number)
{
	struct trial t = {0};
	uint64_t at;

	random_state = 0x9e3779b97f4a7c15ull * (number + 1);
	for (int i = 0; i < 8; i++)
		next_random();
	at = next_random() % total;
	for (t.file = sources; at >= t.file->len; t.file++)
		at -= t.file->len;
	if (number % 2) {
		do
			t.file = &sources[next_random() % source_count];
		while (!t.file->len);
		at = next_random() % (t.file->len < 65536 ? t.file->len : 65536);
		if (next_random() % 4 == 0)
			at = t.file->len - 1 -
			     next_random() % (t.file->len < 2048 ? t.file->len : 2048);
	}
	t.at = (size_t)at;
	t.value = (uint8_t)(t.file->bytes[at] + 1 + next_random() % 255);
	return t;
}

static struct trial get_trial(unsigned number)
{
	unsigned cuts = source_count * CUTS;

	if (number < cuts) {
		const struct source_file *f = &sources[number / CUTS];

		return (struct trial){
			.file = f, .at = f->len * (number % CUTS) / CUTS, .is_cut = true};
	}
	return random_change(number - cuts);
}

static bool bad_error(const struct mfs_error *err, int rc)
{
	if (!err->msg[0] || err->code != rc)
		snprintf(outcome->text, sizeof(outcome->text), "error %d without a sentence", rc);
	else if (rc == -ENOMEM)
		snprintf(outcome->text, sizeof(outcome->text), "memory beyond the limit");
	else
		return false;
	return true;
}

/* True if the trial went as it should. */
static bool run_trial(const struct trial *t)
{
	struct change change = {.is_cut = t->is_cut,
				.in_tokenizer = strstr(t->file->path, "/tokenizer/") != NULL};
	struct mfs_error err = {0};
	int rc;

	if (t->is_cut) {
		if (truncate(t->file->path, (off_t)t->at))
			die(t->file->path);
	} else {
		change.old = t->file->bytes[t->at];
		change.new = t->value;
		change_byte(t->file, t->at, t->value);
	}
	rc = read_view(compare, &change, &err);
	if (t->is_cut)
		restore(t->file);
	else
		change_byte(t->file, t->at, change.old);
	if (rc < 0 && bad_error(&err, rc))
		return false;
	if (rc < 0)
		outcome->errors++;
	else if (change.seen)
		outcome->shows_change++;
	else
		outcome->same++;
	return rc <= 0;
}

static void limit_memory(void)
{
	struct rlimit limit = {total * 4 + (32u << 20), total * 4 + (32u << 20)};

	if (LIMIT_MEMORY && setrlimit(RLIMIT_DATA, &limit))
		die("setrlimit");
}

/* Runs trials from outcome->trial on until one fails (exit status 1) or all are done (0). */
static void run_trials(unsigned count)
{
	limit_memory();
	for (; outcome->trial < count; outcome->trial++) {
		struct trial t = get_trial(outcome->trial);

		alarm(SECONDS_PER_TRIAL);
		if (!run_trial(&t))
			_exit(1);
	}
	_exit(0);
}

static void report(unsigned number, int status)
{
	struct trial t = get_trial(number);

	printf("%s ", t.file->path + strlen(copy_dir) + 1);
	if (t.is_cut)
		printf("cut to %zu of %zu bytes: ", t.at, t.file->len);
	else
		printf("byte %zu changed from 0x%02x to 0x%02x: ", t.at, t.file->bytes[t.at],
		       t.value);
	if (WIFSIGNALED(status))
		printf("%s\n",
		       WTERMSIG(status) == SIGALRM ? "no end" : strsignal(WTERMSIG(status)));
	else
		printf("%s\n", outcome->text[0] ? outcome->text : "ended by itself");
}

int main(int argc, char **argv)
{
	struct mfs_error err = {0};
	unsigned count, failed = 0;
	struct change none = {0};
	int status;

	if (argc != 3 && argc != 4) {
		fprintf(stderr, "usage: damage DIR CHANGES [VIEW]\n");
		return EXIT_FAILURE;
	}
	if (argc == 4)
		view_name = argv[3];
	outcome = mmap(NULL, sizeof(*outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	if (outcome == MAP_FAILED || mfs_guard_install())
		die("damage");
	copy_checkpoint(argv[1]);
	if (read_view(keep, &none, &err)) {
		printf("%s cannot be read undamaged: %s\n", argv[1], err.msg);
		failed = 1;
	}
	count = failed ? 0 : source_count * CUTS + (unsigned)atoi(argv[2]);
	while (outcome->trial < count) {
		pid_t pid;

		outcome->text[0] = '\0';
		fflush(stdout);
		pid = fork();
		if (pid < 0)
			die("fork");
		if (!pid)
			run_trials(count);
		waitpid(pid, &status, 0);
		if (!status)
			break;
		report(outcome->trial, status);
		failed++;
		restore(get_trial(outcome->trial).file);
		outcome->trial++;
	}
	nftw(copy_dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	printf("measured: damage to %s: %u trials: %u errors with a sentence, %u right, %u show the "
	       "changed byte itself, %u failed\n",
	       argv[1], count, outcome->errors, outcome->same, outcome->shows_change, failed);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
