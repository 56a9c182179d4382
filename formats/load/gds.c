/*
 * GPUDirect Storage: a disk writes into a GPU's memory by itself. The library is opened when a file
 * is first to be read past the page cache into a GPU, and only where the kernel has nvidia-fs:
 * without it the library would copy by way of the host, as we do, with buffers of its own and a log
 * in the working directory. Names, numbers and layouts are those of cufile.h.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/load/box_load_i.h"

typedef void *handle;

/* CUfileError_t */
struct status {
	int code, cuda_code;
};

/* CUfileDrvProps_t, with room for what later releases may append */
struct properties {
	unsigned major, minor; /* of nvidia-fs; 0: compatibility mode */
	size_t poll_threshold, max_direct;
	unsigned file_systems; /* bits */
	unsigned control;
	unsigned features, sizes[16];
};

/* CUfileDescr_t */
struct description {
	int kind;
	union {
		int fd;
		void *of_windows;
	} file;
	const void *fs_ops;
};

enum { KIND_FD = 1 };

/* X(member, the library's name, result, parameters) */
#define FUNCTIONS(X)                                                                               \
	X(driver_open, "cuFileDriverOpen", struct status, (void))                                  \
	X(get_properties, "cuFileDriverGetProperties", struct status, (struct properties * ret))   \
	X(handle_register, "cuFileHandleRegister", struct status,                                  \
	  (handle * ret, struct description * file))                                               \
	X(handle_deregister, "cuFileHandleDeregister", void, (handle file))                        \
	X(read, "cuFileRead", ssize_t,                                                             \
	  (handle file, void *to, size_t size, off_t off, off_t to_off))

#define MEMBER(NAME, SYMBOL, RESULT, PARAMETERS) RESULT(*NAME) PARAMETERS;

static struct {
	const char *why_not; /* it cannot be used; NULL: it can, if is_open */
	bool is_open;
	unsigned file_systems;
	FUNCTIONS(MEMBER)
} library;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

const char *mfs_gds_proc = "/proc", *mfs_gds_sys = "/sys";

/* What statfs(2) calls a file system, and which bits of properties say that it, or a disk beneath
 * it, takes part: CUfileDriverStatusFlags. */
#define LUSTRE	0x0bd00bd0
#define GPFS	0x47504653
#define BEEGFS	0x19830326
#define NVME	(1u << 4)
#define FABRICS (1u << 5)

static const struct {
	unsigned long magic;
	unsigned bits; /* any of them */
	bool on_disk;
} file_systems[] = {
	{EXT4_SUPER_MAGIC, NVME | FABRICS, true},
	{XFS_SUPER_MAGIC, NVME | FABRICS, true},
	{LUSTRE, 1u << 0, false},
	{NFS_SUPER_MAGIC, 1u << 2, false},
	{GPFS, 1u << 3, false},
	{BEEGFS, 1u << 9, false},
};

/* What the place of a disk in /sys contains, and the bits that it needs, all of them. A disk with
 * several paths may be of either kind. */
static const struct {
	const char *part;
	unsigned bits;
} disks[] = {
	{"/nvme-subsystem/", NVME | FABRICS},
	{"/nvme-fabrics/", FABRICS},
	{"/nvme/", NVME},
};

/* ---- the library ---- */

static bool has_module(void)
{
	char path[PATH_MAX];
	DIR *dir;

	snprintf(path, sizeof(path), "%s/driver/nvidia-fs", mfs_gds_proc);
	dir = opendir(path);
	if (dir)
		closedir(dir);
	return dir != NULL;
}

static const char *find_functions(void)
{
	void *found = dlopen("libcufile.so.0", RTLD_NOW | RTLD_LOCAL);
	bool all = true;

	if (!found)
		return "libcufile.so.0 is not there, not used";
#define FIND(NAME, SYMBOL, RESULT, PARAMETERS)                                                     \
	*(void **)&library.NAME = dlsym(found, SYMBOL);                                            \
	all = all && library.NAME;
	FUNCTIONS(FIND)
	return all ? NULL : "libcufile.so.0 is too old, not used";
}

static const char *open_library(void)
{
	struct properties p = {0};
	const char *why = has_module() ? find_functions() : "nvidia-fs is not loaded, not used";

	if (why)
		return why;
	if (library.driver_open().code || library.get_properties(&p).code)
		return "libcufile.so.0 cannot be started, not used";
	if (!p.major)
		return "compatibility mode, not used";
	library.file_systems = p.file_systems;
	library.is_open = true;
	return NULL;
}

/* For others, and for what is made of several disks, the library would copy by way of the host
 * without a word, whatever the driver is. */
static bool disk_takes_part(int fd)
{
	char link[PATH_MAX], place[PATH_MAX];
	struct stat st;
	ssize_t len;

	if (fstat(fd, &st))
		return false;
	snprintf(link, sizeof(link), "%s/dev/block/%u:%u", mfs_gds_sys, major(st.st_dev),
		 minor(st.st_dev));
	len = readlink(link, place, sizeof(place) - 1);
	if (len < 0)
		return false;
	place[len] = '\0';
	for (size_t i = 0; i < MFS_ARRAY_SIZE(disks); i++)
		if (strstr(place, disks[i].part))
			return (library.file_systems & disks[i].bits) == disks[i].bits;
	return false;
}

static const char *why_not_of_file(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs))
		return "the file system is not known, not used";
	for (size_t i = 0; i < MFS_ARRAY_SIZE(file_systems); i++) {
		if ((unsigned long)fs.f_type != file_systems[i].magic ||
		    !(library.file_systems & file_systems[i].bits))
			continue;
		return !file_systems[i].on_disk || disk_takes_part(fd)
			       ? NULL
			       : "the disk does not take part, not used";
	}
	return "the driver does not support the file system, not used";
}

static const char *why_not(int fd)
{
	pthread_mutex_lock(&lock);
	if (!library.is_open && !library.why_not)
		library.why_not = open_library();
	pthread_mutex_unlock(&lock);
	return library.why_not ? library.why_not : why_not_of_file(fd);
}

/* ---- files ---- */

const char *mfs_gds_open(int direct_fd, void **ret)
{
	struct description d = {.kind = KIND_FD, .file.fd = direct_fd};
	const char *why = why_not(direct_fd);

	if (why)
		return why;
	return library.handle_register(ret, &d).code ? "a file was refused, not used" : NULL;
}

void mfs_gds_close(void *file)
{
	library.handle_deregister(file);
}

int mfs_gds_read(void *file, uint8_t *to, uint64_t off, uint64_t len)
{
	uint64_t done = 0;

	while (done < len) {
		const ssize_t n =
			library.read(file, to, len - done, (off_t)(off + done), (off_t)done);

		if (n <= 0)
			return -EIO;
		done += (uint64_t)n;
	}
	return 0;
}
