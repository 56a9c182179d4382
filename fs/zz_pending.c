/* Views that are not there yet. */
#include <errno.h>

#include "fs/data_i.h"

#define SPECS(name)                                                                                \
	__attribute__((weak)) int mfs_data_view_##name(struct mfs_dataset *d, const char *spec,    \
						       struct mfs_view **ret,                      \
						       struct mfs_error *err)                      \
	{                                                                                          \
		(void)d, (void)ret, (void)spec;                                                    \
		return mfs_fail(err, -ENOTSUP, #name " is not there yet");                         \
	}                                                                                          \
	__attribute__((weak)) int mfs_data_check_##name(struct mfs_dataset *d, const char *spec,   \
							struct mfs_error *err)                     \
	{                                                                                          \
		(void)d, (void)spec;                                                               \
		return mfs_fail(err, -ENOENT, #name " is not there yet");                          \
	}                                                                                          \
	__attribute__((weak)) int mfs_data_list_##name(                                            \
		struct mfs_dataset *d, struct mfs_arena *arena, const char *const **ret,           \
		uint32_t *ret_count, struct mfs_error *err)                                        \
	{                                                                                          \
		static const char *const none[1];                                                  \
		(void)d, (void)arena, (void)err;                                                   \
		*ret = none;                                                                       \
		*ret_count = 0;                                                                    \
		return 0;                                                                          \
	}

SPECS(cache)
