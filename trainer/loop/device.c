#include "trainer/loop/device.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/ref/cpu.h"

/* PROGRAM's directory and its neighbours. False: there is no such file. */
static bool find_beside(const char *relative, char *ret, size_t size)
{
	char program[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", program, sizeof(program) - 1);
	char *slash;

	if (len < 0)
		return false;
	program[len] = '\0';
	slash = strrchr(program, '/');
	if (!slash)
		return false;
	*slash = '\0';
	if ((size_t)snprintf(ret, size, "%s/%s", program, relative) >= size)
		return false;
	return access(ret, R_OK) == 0;
}

static bool find_cuda(char *ret, size_t size)
{
	const char *said = getenv("MCOREFS_CUDA");

	if (said)
		return (size_t)snprintf(ret, size, "%s", said) < size;
	return find_beside(MFS_CUDA_FILE, ret, size) ||
	       find_beside("../" MFS_CUDA_FILE, ret, size) ||
	       find_beside("../lib/mcorefs/" MFS_CUDA_FILE, ret, size);
}

static int open_on(const struct mfk_backend *backend, const struct mfs_train_config *config,
		   struct mfk_device **ret, char *why)
{
	return backend->device->open((int)config->device, (unsigned)config->threads, ret, why);
}

static int open_cuda(const struct mfs_train_config *config, const struct mfk_backend **ret,
		     struct mfk_device **ret_device, char *why)
{
	char path[PATH_MAX];
	int rc;

	if (!find_cuda(path, sizeof(path))) {
		snprintf(why, MFK_WHY, "%s is not beside the program: it was built without CUDA",
			 MFS_CUDA_FILE);
		return -ENODEV;
	}
	rc = mfk_cuda_load(path, ret, why);
	return rc ? rc : open_on(*ret, config, ret_device, why);
}

int mfs_device_choose(const struct mfs_train_config *config, const struct mfk_backend **ret,
		      struct mfk_device **ret_device, struct mfs_error *err)
{
	const bool cpu = config->backend && !strcmp(config->backend, "cpu");
	const bool cuda = config->backend && !strcmp(config->backend, "cuda");
	const struct mfk_backend *backend = &mfk_cpu;
	char why[MFK_WHY];
	int rc = -ENODEV;

	if (!cpu)
		rc = open_cuda(config, &backend, ret_device, why);
	if (cuda && rc)
		return mfs_fail(err, -ENODEV, "--backend cuda: %s", why);
	if (rc) {
		backend = &mfk_cpu;
		rc = open_on(backend, config, ret_device, why);
	}
	if (rc)
		return mfs_fail(err, rc, "cpu: %s", why);
	*ret = backend;
	return 0;
}
