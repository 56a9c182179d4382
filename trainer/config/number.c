#include "trainer/config/number.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST 400 /* letters: the largest double has 309 digits before its point */

/* The word without the spaces around it and without underscores, of which each must stand between
 * two digits. False: it is too long, or an underscore stands elsewhere. */
static bool plain(const char *word, char text[LONGEST + 1])
{
	const char *end = word + strlen(word);
	size_t len = 0;

	while (isspace((unsigned char)*word))
		word++;
	while (end > word && isspace((unsigned char)end[-1]))
		end--;
	for (const char *c = word; c < end; c++) {
		if (*c == '_' &&
		    (c == word || !isdigit((unsigned char)c[-1]) || !isdigit((unsigned char)c[1])))
			return false;
		if (*c == '_')
			continue;
		if (len == LONGEST)
			return false;
		text[len++] = *c;
	}
	text[len] = '\0';
	return true;
}

enum mft_number_status mft_number_int(const char *word, int64_t *ret)
{
	char text[LONGEST + 1], *end;

	if (!plain(word, text) || !isdigit((unsigned char)text[*text == '-' || *text == '+']))
		return MFT_NUMBER_NOT;
	errno = 0;
	*ret = strtoll(text, &end, 10);
	if (*end)
		return MFT_NUMBER_NOT;
	return errno ? MFT_NUMBER_TOO_LARGE : MFT_NUMBER_OK;
}

/* Not of strtod() alone: it takes hexadecimal digits and nan(...), and float() does not. */
enum mft_number_status mft_number_real(const char *word, double *ret)
{
	char text[LONGEST + 1], *end;

	if (!plain(word, text) || !*text || isspace((unsigned char)*text) || strpbrk(text, "xX("))
		return MFT_NUMBER_NOT;
	*ret = strtod(text, &end);
	if (*end)
		return MFT_NUMBER_NOT;
	if (!isdigit((unsigned char)text[strcspn(text, "0123456789iInN")]))
		return MFT_NUMBER_NOT_ONE;
	return fabs(*ret) > FLT_MAX ? MFT_NUMBER_TOO_LARGE : MFT_NUMBER_OK;
}

const char *mft_number_expected(enum mft_number_status found, bool whole)
{
	if (found == MFT_NUMBER_TOO_LARGE)
		return whole ? "an integer of 64 bits" : "a number of at most 3.4e38";
	if (found == MFT_NUMBER_NOT_ONE)
		return "a finite number";
	return whole ? "an integer" : "a number";
}
