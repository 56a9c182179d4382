/*
 * failing_fs DIR MOUNTPOINT NAME OFFSET: shows DIR read-only; the page at byte OFFSET of the file
 * whose path ends in NAME cannot be read, as on a bad disk.
 */
#define _GNU_SOURCE
#define FUSE_USE_VERSION 314
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096

static const char *dir, *bad_name;
static off_t bad_page;

static const char *real_path(const char *path, char *text)
{
	snprintf(text, PATH_MAX, "%s%s", dir, path);
	return text;
}

static int fs_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
	char text[PATH_MAX];

	(void)fi;
	return lstat(real_path(path, text), st) ? -errno : 0;
}

static int fs_readdir(const char *path, void *buf, fuse_fill_dir_t fill, off_t off,
		      struct fuse_file_info *fi, enum fuse_readdir_flags flags)
{
	char text[PATH_MAX];
	struct dirent *d;
	DIR *list;

	(void)off;
	(void)fi;
	(void)flags;
	list = opendir(real_path(path, text));
	if (!list)
		return -errno;
	while ((d = readdir(list)))
		fill(buf, d->d_name, NULL, 0, 0);
	closedir(list);
	return 0;
}

static int fs_open(const char *path, struct fuse_file_info *fi)
{
	char text[PATH_MAX];
	int fd = open(real_path(path, text), O_RDONLY);

	if (fd < 0)
		return -errno;
	fi->fh = (uint64_t)fd;
	fi->keep_cache = 1;
	return 0;
}

static bool is_bad(const char *path, off_t off, size_t size)
{
	size_t len = strlen(path), n = strlen(bad_name);

	return len >= n && !strcmp(path + len - n, bad_name) && off < bad_page + PAGE &&
	       off + (off_t)size > bad_page;
}

static int fs_read(const char *path, char *buf, size_t size, off_t off, struct fuse_file_info *fi)
{
	ssize_t n = is_bad(path, off, size) ? -1 : pread((int)fi->fh, buf, size, off);

	return n < 0 ? -EIO : (int)n;
}

static int fs_release(const char *path, struct fuse_file_info *fi)
{
	(void)path;
	close((int)fi->fh);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct fuse_operations ops = {
		.getattr = fs_getattr,
		.readdir = fs_readdir,
		.open = fs_open,
		.read = fs_read,
		.release = fs_release,
	};

	if (argc != 5) {
		fprintf(stderr, "usage: failing_fs DIR MOUNTPOINT NAME OFFSET\n");
		return 2;
	}
	dir = argv[1];
	bad_name = argv[3];
	bad_page = atoll(argv[4]) / PAGE * PAGE;
	return fuse_main(5, ((char *[]){argv[0], argv[2], "-f", "-o", "ro,subtype=failing", NULL}),
			 &ops, NULL);
}
