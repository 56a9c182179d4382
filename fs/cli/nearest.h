/* "Did you mean": the name that a misspelt word is nearest to. */
#ifndef MFS_FS_CLI_NEAREST_H
#define MFS_FS_CLI_NEAREST_H

#define MFS_NEAREST_HINT 96

/* {.word = what was written}, then every name there is is tried. */
struct mfs_nearest {
	const char *word;
	const char *name; /* the nearest one so far; NULL: none is near */
	unsigned distance;
};

/* Letters that are missing, too many, wrong, or two that changed places count 1 each; a name is
 * near if a third of the word's letters at most (of short words, one) has to change. name is
 * borrowed. */
void mfs_nearest_try(struct mfs_nearest *n, const char *name);

/* "; did you mean 'NAME'?" with prefix ("--", "-o ") in front of the name, or "" where none is
 * near. Returns text. */
const char *mfs_nearest_hint(const struct mfs_nearest *n, const char *prefix,
			     char text[MFS_NEAREST_HINT]);

#endif
