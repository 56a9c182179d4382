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

const char *mfs_gds_proc = "/proc";

/* What statfs(2) calls a file system, and which bits of properties say that it, or a disk beneath
 * it, takes part: CUfileDriverStatusFlags. */
#define LUSTRE 0x0bd00bd0
#define GPFS   0x47504653
#define BEEGFS 0x19830326
#define DISKS  (1u << 4 | 1u << 5 | 1u << 6 | 1u << 7 | 1u << 8) /* NVMe, NVMe-oF, SCSI, ... */

static const struct {
	unsigned long magic;
	unsigned bits;
} file_systems[] = {
	{EXT4_SUPER_MAGIC, DISKS},  {XFS_SUPER_MAGIC, DISKS}, {LUSTRE, 1u << 0},
	{NFS_SUPER_MAGIC, 1u << 2}, {GPFS, 1u << 3},	      {BEEGFS, 1u << 9},
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

static const char *why_not(int fd)
{
	struct statfs fs;

	pthread_mutex_lock(&lock);
	if (!library.is_open && !library.why_not)
		library.why_not = open_library();
	pthread_mutex_unlock(&lock);
	if (library.why_not)
		return library.why_not;
	if (fstatfs(fd, &fs))
		return "the file system is not known, not used";
	for (size_t i = 0; i < MFS_ARRAY_SIZE(file_systems); i++)
		if ((unsigned long)fs.f_type == file_systems[i].magic &&
		    library.file_systems & file_systems[i].bits)
			return NULL;
	return "the driver does not support the file system, not used";
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
