/* "Did you mean": the name nearest to a misspelt word. */
#ifndef MFS_BASE_NEAREST_H
#define MFS_BASE_NEAREST_H

#define MFS_NEAREST_HINT 96

/* Begins as {.word = the misspelt word}; then mfs_nearest_try() is called for every known name. */
struct mfs_nearest {
	const char *word;
	const char *name; /* the nearest name so far; NULL: none is near */
	unsigned distance;
};

/* Tries a name, which is borrowed. A missing, extra or wrong letter counts 1, and so do two
 * exchanged letters. A name is near if it differs in at most a third of the word's letters; in a
 * short word, in one. */
void mfs_nearest_try(struct mfs_nearest *n, const char *name);

/* Writes "; did you mean 'NAME'?" with prefix ("--", "-o ") before the name; "" if no name is near.
 * Returns text. */
const char *mfs_nearest_hint(const struct mfs_nearest *n, const char *prefix,
			     char text[MFS_NEAREST_HINT]);

#endif
