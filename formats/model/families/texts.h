/* Private to formats/model/families: the files of configs/models, as the program holds them. make
 * writes their definition (build/families.c). */
#ifndef MFS_MODEL_FAMILIES_TEXTS_H
#define MFS_MODEL_FAMILIES_TEXTS_H

struct mfs_family_text {
	const char *file; /* "configs/models/llama.conf" */
	const char *text;
};

/* Ended by one without a file. */
extern const struct mfs_family_text mfs_family_texts[];

#endif
