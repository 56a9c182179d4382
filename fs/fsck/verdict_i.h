/* Private to the verdict: what is known of names. Each list ends with NULL. */
#ifndef MFS_FS_FSCK_VERDICT_I_H
#define MFS_FS_FSCK_VERDICT_I_H

/* A name, or a pattern: a '*' stands for any letters; alone, for any class; "**" for anything. A
 * module that ends in ".*" has all below it. */
struct mfs_known_name {
	const char *module, *name;
};

extern const char *const mfs_dangerous_modules[];
extern const char *const mfs_known_packages[];
extern const char *const mfs_telling_words[];
extern const char *const mfs_telling_ends[];
/* Part of what torch, NumPy, pandas and Megatron save. */
extern const struct mfs_known_name mfs_harmless_names[];
/* Modules of Python 2 and the packages that the unpickler takes in their place. */
extern const struct mfs_known_name mfs_names_of_python2[];

#endif
