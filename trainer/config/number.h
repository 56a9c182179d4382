/* Numbers as Python's int() and float() take them: spaces around them, a sign, and lone
 * underscores between digits, as in 2_000. */
#ifndef MFS_TRAINER_CONFIG_NUMBER_H
#define MFS_TRAINER_CONFIG_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

enum mfs_number {
	MFS_NUMBER_OK,
	MFS_NUMBER_NOT,	      /* it is no number */
	MFS_NUMBER_TOO_LARGE, /* no 64 bits hold it; as a real, it is infinite in fp32 */
	MFS_NUMBER_NOT_ONE,   /* inf or nan: Python's float() takes it, and no run can */
};

enum mfs_number mfs_number_int(const char *word, int64_t *ret);
/* OK: it is finite in fp32, in which devices compute. */
enum mfs_number mfs_number_real(const char *word, double *ret);

/* "an integer", "a finite number": what was expected where a word is none of it. */
const char *mfs_number_expected(enum mfs_number found, bool whole);

#endif
