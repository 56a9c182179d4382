/* Numbers as Python's int() and float() take them: spaces around them, a sign, and lone
 * underscores between digits, as in 2_000. */
#ifndef MFT_TRAINER_CONFIG_NUMBER_H
#define MFT_TRAINER_CONFIG_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

enum mft_number_status {
	MFT_NUMBER_OK,
	MFT_NUMBER_NOT,	      /* it is no number */
	MFT_NUMBER_TOO_LARGE, /* no 64 bits hold it; as a real, it is infinite in fp32 */
	MFT_NUMBER_NOT_ONE,   /* inf or nan: Python's float() takes it, and no run can */
};

enum mft_number_status mft_number_int(const char *word, int64_t *ret);
/* OK: it is finite in fp32, in which devices compute. */
enum mft_number_status mft_number_real(const char *word, double *ret);

/* "an integer", "a finite number": what was expected where a word is none of it. */
const char *mft_number_expected(enum mft_number_status found, bool whole);

#endif
