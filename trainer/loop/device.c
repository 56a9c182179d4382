#define _GNU_SOURCE
#include "trainer/loop/device.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "kernels/ref/cpu.h"
#include "trainer/config/recipe_words.h"
#include "trainer/config/value.h"

#define EIGHT_BITS 89u /* the least compute capability with products of 8 bits */

/* PROGRAM's directory and its neighbours. False: there is no such file. */
static bool find_next_to_program(const char *relative, char *ret, size_t size)
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

/* variable: whose value is a path, if it is there. */
static bool find_plugin(const char *file, const char *variable, char *ret, size_t size)
{
	static const char *const folders[] = {"", "../", "../lib/mcorefs/"};
	const char *given = getenv(variable);
	char relative[NAME_MAX];

	if (given)
		return (size_t)snprintf(ret, size, "%s", given) < size;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(folders); i++) {
		snprintf(relative, sizeof(relative), "%s%s", folders[i], file);
		if (find_next_to_program(relative, ret, size))
			return true;
	}
	return false;
}

static unsigned threads_of(const struct mft_train_config *config, const struct mft_launch *launch)
{
	const long online = sysconf(_SC_NPROCESSORS_ONLN);
	const long share = online / (long)(launch->local_size ? launch->local_size : 1);
	cpu_set_t set;

	if (config->threads || launch->local_size <= 1)
		return (unsigned)config->threads;
	/* A launcher that binds processes has divided the processors. */
	if (!sched_getaffinity(0, sizeof(set), &set) && CPU_COUNT(&set) < online)
		return (unsigned)CPU_COUNT(&set);
	return share > 1 ? (unsigned)share : 1;
}

/* Processes of a host have a GPU each. A launcher may have left each of them one alone. */
static int gpu_of(const struct mft_train_config *config, const struct mft_launch *launch)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");

	if (mft_flag_is_given(config->values, "device"))
		return (int)config->device;
	return visible && *visible && !strchr(visible, ',') ? 0 : (int)launch->local_rank;
}

/* *found: there are GPUs here, whether this process can have its own or not. */
static int open_cuda(const struct mft_train_config *config, const struct mft_launch *launch,
		     const struct mfk_backend **ret, struct mfk_device **ret_device, bool *found,
		     char *why)
{
	char path[PATH_MAX];
	int rc;

	if (!find_plugin(MFT_CUDA_FILE, "MCOREFS_CUDA", path, sizeof(path))) {
		snprintf(why, MFK_WHY, "%s is not next to the program: it was built without CUDA",
			 MFT_CUDA_FILE);
		return -ENODEV;
	}
	rc = mfk_cuda_load(path, ret, why);
	if (rc)
		return rc;
	*found = true;
	return (*ret)->device->open(gpu_of(config, launch), 0, ret_device, why);
}

/* Groups of CPU processes need a plugin, too. */
static int open_cpu(const struct mft_train_config *config, const struct mft_launch *launch,
		    struct mfk_device **ret, char *why)
{
	char path[PATH_MAX];
	int rc = 0;

	if (launch->size > 1 && !find_plugin(MFT_MPI_FILE, "MCOREFS_MPI", path, sizeof(path))) {
		snprintf(why, MFK_WHY, "%s is not next to the program: it was built without MPI",
			 MFT_MPI_FILE);
		return -ENODEV;
	}
	if (launch->size > 1)
		rc = mfk_mpi_load(path, why);
	return rc ? rc : mfk_cpu.device->open(0, threads_of(config, launch), ret, why);
}

/* GPUs before Ada have no products of 8 bits. A capability of 0 is that of no GPU. */
int mft_device_check(const struct mft_train_config *config, const struct mfk_device_info *info,
		     struct mfs_error *err)
{
	if (!mft_has_eight_bits(config) || !info->capability || info->capability >= EIGHT_BITS)
		return 0;
	return mfs_fail(err, -ENODEV,
			"--fp8-format: %s has compute capability %u.%u, products of 8 bits need "
			"at least %u.%u",
			info->name, info->capability / 10, info->capability % 10, EIGHT_BITS / 10,
			EIGHT_BITS % 10);
}

int mft_device_choose(const struct mft_train_config *config, const struct mft_launch *launch,
		      const struct mfk_backend **ret, struct mfk_device **ret_device,
		      struct mfs_error *err)
{
	const bool cpu = config->backend && !strcmp(config->backend, "cpu");
	const bool cuda = config->backend && !strcmp(config->backend, "cuda");
	const struct mfk_backend *backend = &mfk_cpu;
	bool found = false;
	char why[MFK_WHY];
	int rc = -ENODEV;

	if (!cpu)
		rc = open_cuda(config, launch, &backend, ret_device, &found, why);
	/* The others of several processes have theirs. */
	if (rc && (cuda || (found && launch->size > 1)))
		return mfs_fail(err, -ENODEV, "--backend cuda: %s", why);
	if (rc) {
		backend = &mfk_cpu;
		rc = open_cpu(config, launch, ret_device, why);
	}
	if (rc)
		return mfs_fail(err, rc, "cpu: %s", why);
	*ret = backend;
	return 0;
}
