/*
 * File handles as an NFS server keeps them.
 *
 *     handles save FILE PATH...   writes the handle of each path into FILE
 *     handles check FILE MOUNT    opens each handle below MOUNT; a line for each: errno, or inode
 *                                 number, type, and a sum of the bytes or of the names in it
 *     handles parent FILE MOUNT   opens ".." of each directory, by its handle: its inode number
 *     handles flood COUNT MOUNT   opens handles that nobody has given: how many there are by errno
 *
 * open_by_handle_at(2) is root's.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST 64 /* bytes of a handle */

union room {
	struct file_handle h;
	char bytes[sizeof(struct file_handle) + MOST];
};

static void add(uint64_t *sum, const void *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		*sum = (*sum ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3ull;
}

static int sum_file(int fd, uint64_t *sum)
{
	static char buf[1 << 20];
	ssize_t n;

	while ((n = read(fd, buf, sizeof(buf))) > 0)
		add(sum, buf, (size_t)n);
	/* The kernel forgets no file that has pages. */
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	return n < 0 ? -1 : 0;
}

static int sum_directory(int fd, uint64_t *sum)
{
	DIR *dir = fdopendir(dup(fd));
	struct dirent *d;

	if (!dir)
		return -1;
	while ((d = readdir(dir))) {
		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
			continue;
		add(sum, d->d_name, strlen(d->d_name) + 1);
		add(sum, &d->d_ino, sizeof(d->d_ino));
	}
	closedir(dir);
	return 0;
}

static void print(int fd)
{
	uint64_t sum = 0xcbf29ce484222325ull;
	struct stat st;
	int rc = fstat(fd, &st);

	if (!rc)
		rc = S_ISDIR(st.st_mode) ? sum_directory(fd, &sum) : sum_file(fd, &sum);
	if (rc)
		printf("%s\n", strerrorname_np(errno));
	else
		printf("%" PRIu64 " %c %016" PRIx64 "\n", (uint64_t)st.st_ino,
		       S_ISDIR(st.st_mode) ? 'd' : 'f', sum);
}

static void print_parent(int fd)
{
	struct stat st;

	if (fstatat(fd, "..", &st, 0))
		printf("%s\n", strerrorname_np(errno));
	else
		printf("%" PRIu64 "\n", (uint64_t)st.st_ino);
}

static int save(const char *file, char **paths)
{
	FILE *out = fopen(file, "w");
	union room room;
	int mount_id;

	if (!out)
		return 1;
	for (; *paths; paths++) {
		memset(&room, 0, sizeof(room));
		room.h.handle_bytes = MOST;
		if (name_to_handle_at(AT_FDCWD, *paths, &room.h, &mount_id, 0)) {
			fprintf(stderr, "%s: %s\n", *paths, strerror(errno));
			return 1;
		}
		fwrite(&room, sizeof(room), 1, out);
	}
	return fclose(out) ? 1 : 0;
}

static int each(const char *file, const char *mount, void (*say)(int fd))
{
	int dir = open(mount, O_RDONLY | O_DIRECTORY), fd;
	FILE *in = fopen(file, "r");
	union room room;

	if (!in || dir < 0)
		return 1;
	while (fread(&room, sizeof(room), 1, in) == 1) {
		fd = open_by_handle_at(dir, &room.h, O_RDONLY);
		if (fd < 0) {
			printf("%s\n", strerrorname_np(errno));
			continue;
		}
		say(fd);
		close(fd);
	}
	fclose(in);
	return 0;
}

/* Ids at random, and each id of the first 4096. */
static int flood(int count, const char *mount)
{
	int dir = open(mount, O_RDONLY | O_DIRECTORY), opened = 0, stale = 0, fd;
	uint64_t state = 88172645463325252ull, id;
	union room room;

	if (dir < 0)
		return 1;
	for (int i = 0; i < count; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		id = i < count / 2 && i < 4096 ? (uint64_t)i : state;
		memset(&room, 0, sizeof(room));
		room.h.handle_bytes = 12;
		room.h.handle_type = 0x81; /* FILEID_INO64_GEN of FUSE: an id and a generation */
		/* the kernel keeps the id's upper half first */
		((uint32_t *)room.h.f_handle)[0] = (uint32_t)(id >> 32);
		((uint32_t *)room.h.f_handle)[1] = (uint32_t)id;
		fd = open_by_handle_at(dir, &room.h, O_RDONLY);
		opened += fd >= 0;
		stale += fd < 0 && errno == ESTALE;
		if (fd >= 0)
			close(fd);
	}
	printf("%d opened, %d ESTALE, %d other\n", opened, stale, count - opened - stale);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc >= 4 && !strcmp(argv[1], "save"))
		return save(argv[2], argv + 3);
	if (argc == 4 && !strcmp(argv[1], "check"))
		return each(argv[2], argv[3], print);
	if (argc == 4 && !strcmp(argv[1], "parent"))
		return each(argv[2], argv[3], print_parent);
	if (argc == 4 && !strcmp(argv[1], "flood"))
		return flood(atoi(argv[2]), argv[3]);
	fprintf(stderr, "usage: handles save FILE PATH... | check|parent FILE MOUNT | flood COUNT "
			"MOUNT\n");
	return 2;
}
