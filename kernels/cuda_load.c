/* The CUDA backend is a plugin, so that a machine without CUDA needs no CUDA library. */
#include "kernels/kernels.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

__attribute__((format(printf, 3, 4))) static int refuse(int rc, char *why, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, MFK_WHY, format, args);
	va_end(args);
	return rc;
}

/* Asks the driver itself: the plugin's libraries take a second to load, and would say less. */
static int find_gpu(char *why)
{
	/* cuda.h: CUresult, an enum, is 0 for success. */
	int (*init)(unsigned flags), (*count_devices)(int *count);
	int count = 0, rc;
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!driver)
		return refuse(-ENODEV, why, "there is no NVIDIA driver here: %.200s", dlerror());
	*(void **)&init = dlsym(driver, "cuInit");
	*(void **)&count_devices = dlsym(driver, "cuDeviceGetCount");
	if (!init || !count_devices)
		return refuse(-ENODEV, why, "libcuda.so.1 is no NVIDIA driver: it has no cuInit");
	rc = init(0);
	if (!rc)
		rc = count_devices(&count);
	if (rc && rc != 100) /* CUDA_ERROR_NO_DEVICE */
		return refuse(-ENODEV, why, "the NVIDIA driver does not start: error %d", rc);
	if (!count)
		return refuse(-ENODEV, why, "the NVIDIA driver finds no GPU");
	return 0;
}

int mfk_cuda_load(const char *path, const struct mfk_backend **ret, char *why)
{
	const struct mfk_backend *backend;
	void *plugin;
	int rc;

	if (access(path, F_OK))
		return refuse(-ENOENT, why, "%.180s: %s", path, strerror(errno));
	rc = find_gpu(why);
	if (rc)
		return rc;
	plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!plugin)
		return refuse(-ENODEV, why, "%.240s", dlerror());
	backend = dlsym(plugin, "mfk_cuda_backend");
	if (!backend)
		return refuse(-ENODEV, why, "%.180s is no plugin of mcorefs: it has no backend",
			      path);
	*ret = backend;
	return 0;
}
