/*
 * config.json and generation_config.json of an HF view, and the reference: an HF directory that a
 * person names (-o ref=HF_DIR).
 *
 * config.json has every key that changes what a reader computes, so that no reader's defaults
 * matter. The keys come from the family's tables (model/families/family.h). With a reference, the
 * values that the checkpoint determines must agree with it, and the other values are taken from it.
 * A Megatron checkpoint does not know the factor of Llama 3's rotary scaling
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

/* Reads dir/config.json. Of a vision-language model it is that of the language model (language.h).
 * -ENODATA: there is none; -EINVAL: it is no JSON object. */
int mfs_hf_ref_open(const char *dir, struct mfs_hf_ref **ret, struct mfs_error *err);
/* Like mfs_hf_ref_open(), from memory. name is for messages; it is copied. */
int mfs_hf_ref_parse(const char *bytes, size_t len, const char *name, struct mfs_hf_ref **ret,
		     struct mfs_error *err);
void mfs_hf_ref_free(struct mfs_hf_ref *ref);

/* True if dir is the HF directory that ckpt was opened from. dir may be NULL. */
bool mfs_hf_ref_is_of(const char *dir, const struct mfs_ckpt *ckpt);
/* Like mfs_hf_ref_is_of(), and ckpt is all of it, not the language model alone: their configs agree
 * then. */
bool mfs_hf_ref_is_source(const char *dir, const struct mfs_ckpt *ckpt);

/* Makes its config say whether the head is tied, for a directory whose weights contradict its
 * config. */
int mfs_hf_ref_set_tied(struct mfs_hf_ref *ref, bool tied, struct mfs_error *err);
/* Its config.json as text. The caller frees *ret. */
int mfs_hf_ref_json(const struct mfs_hf_ref *ref, char **ret, size_t *ret_len,
		    struct mfs_error *err);

/* Who may read its file. Everybody may if it was parsed from memory. */
const struct mfs_access_fold *mfs_hf_ref_access(const struct mfs_hf_ref *ref);
/* vocab_size of the reference; 0 if it does not say. */
uint64_t mfs_hf_ref_vocab(const struct mfs_hf_ref *ref);
/* True if its config names Python files (auto_map). These must be shown as well. */
bool mfs_hf_ref_has_code(const struct mfs_hf_ref *ref);

/*
 * Lists the files that a view shows unchanged: the regular files of dir itself (links are
 * followed). Left out are weights, indices of weights, config.json, hidden files, and files that
 * would make a reader take the directory for another format; *.py too unless code is set. Names are
 * sorted and lie in arena. A dir that does not exist has no files.
 */
int mfs_hf_files(const char *dir, bool code, struct mfs_arena *arena, const char *const **ret,
		 uint32_t *ret_count, struct mfs_error *err);

/*
 * config.json of a model. The caller frees *ret. ref may be NULL. tokens: the token ids of the
 * tokenizer that is shown, or NULL. Differences that a person should know become warnings of the
 * model. -EINVAL: the reference disagrees; the message gives the key and both values.
 */
int mfs_hf_config_json(struct mfs_model *model, const struct mfs_hf_ref *ref,
		       const struct mfs_hf_tokens *tokens, char **ret, size_t *ret_len,
		       struct mfs_error *err);

/* Makes a config.json say that the weights are of another type, and not quantised. *config is
 * replaced; it stays the caller's. */
int mfs_hf_config_set_dtype(char **config, size_t *len, enum mfs_dtype dtype,
			    struct mfs_error *err);

/* Like mfs_hf_config_set_dtype(), for weights of float8_e4m3fn (fp8.h). block: rows and columns of
 * a block; NULL: a matrix has one scale. kept: modules whose weights are no 8-bit floats. */
int mfs_hf_config_set_fp8(char **config, size_t *len, const uint64_t *block,
			  const char *const *kept, uint32_t kept_count, struct mfs_error *err);

/* A generation_config.json for this config.json, where no other file gives one. */
int mfs_hf_generation_json(const char *config, size_t config_len, char **ret, size_t *ret_len,
			   struct mfs_error *err);

#endif
