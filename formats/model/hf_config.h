/*
 * config.json and generation_config.json of a HuggingFace directory, and the directory that a
 * person may name as a reference (-o ref=HF_DIR).
 *
 * config.json is complete: every key that changes what a reader computes is written, whatever the
 * reader's defaults are. Keys come from the family's tables (model/families/family.h). With a
 * reference, what the checkpoint knows must agree with it, and the rest is taken from it. A
 * Megatron checkpoint does not know the factor of Llama 3's rotary scaling
 * (MFS_ROPE_SCALING_FACTOR): that of the reference counts.
 */
#ifndef MFS_MODEL_HF_CONFIG_H
#define MFS_MODEL_HF_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/hf/hf_tokenizer.h"
#include "formats/io/access.h"
#include "formats/model/model.h"

#define MFS_HF_CONFIG_MAX (1u << 20) /* bytes of a reference's config.json */
#define MFS_HF_FILES_MAX  4096	     /* files passed through from one directory */

struct mfs_hf_ref;

/* dir/config.json. -ENODATA: there is none; -EINVAL: no JSON object. */
int mfs_hf_ref_open(const char *dir, struct mfs_hf_ref **ret, struct mfs_error *err);
/* The same from memory; name is for messages and is copied. */
int mfs_hf_ref_parse(const char *bytes, size_t len, const char *name, struct mfs_hf_ref **ret,
		     struct mfs_error *err);
void mfs_hf_ref_free(struct mfs_hf_ref *ref);

/* True if dir is the HF directory that ckpt is: what its config.json says, its arguments say. dir
 * may be NULL. */
bool mfs_hf_ref_is_source(const char *dir, const struct mfs_ckpt *ckpt);

/* From now on it says that the head is not tied: for a directory whose weights know better than its
 * config. */
int mfs_hf_ref_untie(struct mfs_hf_ref *ref, struct mfs_error *err);
/* Its config.json as text, key by key; *ret is freed by the caller. */
int mfs_hf_ref_json(const struct mfs_hf_ref *ref, char **ret, size_t *ret_len,
		    struct mfs_error *err);

/* Who may read its file; everybody, if it was parsed from memory. */
const struct mfs_access_fold *mfs_hf_ref_access(const struct mfs_hf_ref *ref);
/* vocab_size of the reference; 0 if it does not say. */
uint64_t mfs_hf_ref_vocab(const struct mfs_hf_ref *ref);
/* True if its config names Python code of its own (auto_map), which must then be passed through. */
bool mfs_hf_ref_has_code(const struct mfs_hf_ref *ref);

/*
 * Files that are shown as they are: regular files at the top of dir (links are followed) but
 * weights, indices of weights, config.json, and files that would make a reader take the directory
 * for another format; *.py only if code is set. Names are sorted and allocated in arena. A
 * directory that does not exist has none.
 */
int mfs_hf_files(const char *dir, bool code, struct mfs_arena *arena, const char *const **ret,
		 uint32_t *ret_count, struct mfs_error *err);

/*
 * config.json of a model; *ret is freed by the caller. ref may be NULL. tokens: of the tokenizer
 * that is shown, or NULL. Differences that a person should know of become warnings of the model.
 * -EINVAL: the reference disagrees (key, its value, the checkpoint's).
 */
int mfs_hf_config_json(struct mfs_model *model, const struct mfs_hf_ref *ref,
		       const struct mfs_hf_tokens *tokens, char **ret, size_t *ret_len,
		       struct mfs_error *err);

/* generation_config.json that goes with such a config.json, for where there is no other. */
int mfs_hf_generation_json(const char *config, size_t config_len, char **ret, size_t *ret_len,
			   struct mfs_error *err);

#endif
