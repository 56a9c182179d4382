/* Views that are not there yet. */
#include <errno.h>

#include "formats/dataset/hf_dataset.h"
#include "formats/dataset/rows_vocab.h"
#include "fs/data_i.h"

#define VIEW(name)                                                                                 \
	__attribute__((weak)) int mfs_data_view_##name(                                            \
		struct mfs_dataset *d, struct mfs_view **ret, struct mfs_error *err)               \
	{                                                                                          \
		(void)d, (void)ret;                                                                \
		return mfs_fail(err, -ENOTSUP, #name " is not there yet");                         \
	}
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

VIEW(hf)
VIEW(parquet)
VIEW(npy)
VIEW(jsonl)
VIEW(megatron)
SPECS(samples)
SPECS(cache)

__attribute__((weak)) bool mfs_hf_dataset_looks_like_one(const char *path)
{
	(void)path;
	return false;
}
__attribute__((weak)) int mfs_hf_dataset_splits(const char *path, struct mfs_arena *arena,
						const char *const **ret, uint32_t *ret_count,
						struct mfs_error *err)
{
	(void)path, (void)arena, (void)ret, (void)ret_count;
	return mfs_fail(err, -ENOTSUP, "not yet");
}
__attribute__((weak)) int mfs_hf_dataset_open(const char *path, const char *split,
					      const struct mfs_hf_dataset_options *opt,
					      struct mfs_rows **ret, struct mfs_error *err)
{
	(void)path, (void)split, (void)opt, (void)ret;
	return mfs_fail(err, -ENOTSUP, "not yet");
}
__attribute__((weak)) int mfs_rows_vocab(const struct mfs_rows *of, uint64_t vocab_size,
					 struct mfs_rows **ret, struct mfs_error *err)
{
	(void)of, (void)vocab_size, (void)ret;
	return mfs_fail(err, -ENOTSUP, "not yet");
}
