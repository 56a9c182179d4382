/* Runs a fuzz target over stored inputs: replay CORPUS_DIR REJECT_DIR, or replay FILE... */
#define _GNU_SOURCE
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

static unsigned passed, failed;

static uint8_t *slurp(const char *path, size_t *ret_len)
{
	FILE *f = fopen(path, "rb");
	uint8_t *bytes;
	long len;

	if (!f || fseek(f, 0, SEEK_END) || (len = ftell(f)) < 0) {
		perror(path);
		exit(EXIT_FAILURE);
	}
	rewind(f);
	/* Exactly len bytes, so that ASan sees a read of one more. */
	bytes = malloc((size_t)len ? (size_t)len : 1);
	if (!bytes || fread(bytes, 1, (size_t)len, f) != (size_t)len) {
		perror(path);
		exit(EXIT_FAILURE);
	}
	fclose(f);
	*ret_len = (size_t)len;
	return bytes;
}

enum expected { ANY, ACCEPTED, REFUSED };

static void replay(const char *path, enum expected expected)
{
	struct mfs_error err = {0};
	size_t len;
	uint8_t *bytes = slurp(path, &len);
	int rc;

	fprintf(stderr, "%s\n", path);
	rc = fuzz_run(bytes, len, &err);
	free(bytes);
	fprintf(stderr, "    %s\n", rc ? err.msg : "accepted");
	if ((rc && expected == ACCEPTED) || (!rc && expected == REFUSED)) {
		printf("%s: should have been %s: %s\n", path, rc ? "accepted" : "refused", err.msg);
		failed++;
	} else {
		passed++;
	}
}

static void replay_dir(const char *dir, enum expected expected)
{
	struct dirent **names;
	int count = scandir(dir, &names, NULL, alphasort);
	char path[4096];

	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]->d_name);
		if (names[i]->d_name[0] != '.')
			replay(path, expected == ANY && !strncmp(names[i]->d_name, "ok-", 3)
					     ? ACCEPTED
					     : expected);
		free(names[i]);
	}
	if (count >= 0)
		free(names);
}

int main(int argc, char **argv)
{
	struct stat st;

	for (int i = 1; i < argc; i++) {
		if (stat(argv[i], &st) == 0 && S_ISDIR(st.st_mode))
			replay_dir(argv[i], i == 2 ? REFUSED : ANY);
		else
			replay(argv[i], ANY);
	}
	printf("%u passed, %u failed, 0 skipped\n", passed, failed);
	return failed || !passed ? EXIT_FAILURE : EXIT_SUCCESS;
}
