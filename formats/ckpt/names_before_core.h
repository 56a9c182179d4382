/*
 * Names of Megatron-LM before core, which its legacy GPT model kept until 2026:
 * "language_model.encoder.layers.3.self_attention.query_key_value.weight". The dicts of such a
 * model are nested; a key here is the way through them, joined by dots.
 *
 * Sources: megatron/model/ language_model.py, transformer.py and gpt_model.py at v1.0, v2.0 and
 * v2.5, megatron/legacy/model at core_v0.12 (state_dict_for_save_checkpoint, load_state_dict).
 */
#ifndef MFS_CKPT_NAMES_BEFORE_CORE_H
#define MFS_CKPT_NAMES_BEFORE_CORE_H

#include <stdbool.h>
#include <stddef.h>

/* Writes core's name (of the local layer spec) of such a key. False: key is not one of these, and
 * text is unchanged. A name of an unknown module keeps that module's name. */
bool mfs_name_before_core(const char *key, char *text, size_t size);

#endif
