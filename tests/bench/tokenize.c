/*
 * tokenize TOKENIZER ids [special]: texts from standard input, each after its length as 4 bytes;
 * for each the number of its ids, the ids, and the text of these after its length; an error is the
 * number 0xffffffff. tests/interop/test_tokenizer_json.py compares these.
 *
 * tokenize TOKENIZER time FILE: encodes the file's lines and prints what that took, in seconds of
 * the processor, and how many ids there are.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "formats/base/buf.h"
#include "formats/io/slurp.h"
#include "formats/tokenizer/read/tokenizer_open.h"
#include "formats/tokenizer/tokenizer.h"

static struct mfs_error err;

static int fail(void)
{
	fprintf(stderr, "tokenize: %s\n", err.msg);
	return 1;
}

static void put(const void *bytes, size_t len)
{
	if (fwrite(bytes, 1, len, stdout) != len)
		exit(1);
}

static void put_number(size_t n)
{
	const uint32_t small = (uint32_t)n;

	put(&small, 4);
}

static void put_ids(const struct mfs_tokenizer *tok, struct mfs_encoder *enc, const char *text,
		    size_t len, bool special)
{
	struct mfs_token_ids ids = {0};
	struct mfs_decoder *dec = NULL;
	struct mfs_buf back = {0};

	if (mfs_encode(enc, text, len, special, &ids, &err)) {
		put_number(UINT32_MAX);
		free(ids.at);
		return;
	}
	put_number(ids.count);
	put(ids.at, ids.count * 4);
	if (mfs_decoder_new(tok, false, &dec, &err))
		exit(1);
	for (size_t i = 0; i < ids.count; i++)
		if (mfs_decode(dec, ids.at + i, 1, &back, &err))
			exit(fail());
	if (mfs_decode_end(dec, &back, &err))
		exit(fail());
	put_number(back.len);
	put(back.data, back.len);
	mfs_decoder_free(dec);
	mfs_buf_release(&back);
	free(ids.at);
}

static int give_ids(const struct mfs_tokenizer *tok, struct mfs_encoder *enc, bool special)
{
	uint32_t len;
	char *text;

	while (fread(&len, 1, 4, stdin) == 4) {
		text = malloc((size_t)len + 1);
		if (!text || fread(text, 1, len, stdin) != len)
			return 1;
		put_ids(tok, enc, text, len, special);
		free(text);
	}
	return fflush(stdout) ? 1 : 0;
}

static int take_time(struct mfs_encoder *enc, const char *path)
{
	struct mfs_token_ids ids = {0};
	const char *at, *end;
	clock_t begin;
	void *text;
	size_t len, count = 0;

	if (mfs_slurp(path, 1u << 30, &text, &len, &err))
		return fail();
	begin = clock();
	for (at = text; at < (const char *)text + len; at = end) {
		end = memchr(at, '\n', (size_t)((const char *)text + len - at));
		end = end ? end + 1 : (const char *)text + len;
		ids.count = 0;
		if (mfs_encode(enc, at, (size_t)(end - at), false, &ids, &err))
			return fail();
		count += ids.count;
	}
	printf("%.3f s, %zu ids\n", (double)(clock() - begin) / CLOCKS_PER_SEC, count);
	free(ids.at);
	free(text);
	return 0;
}

int main(int argc, char **argv)
{
	struct mfs_tokenizer *tok;
	struct mfs_encoder *enc;
	int rc;

	if (argc < 3) {
		fputs("usage: tokenize TOKENIZER ids [special] | time FILE\n", stderr);
		return 2;
	}
	if (mfs_tokenizer_open(argv[1], &tok, &err) || mfs_encoder_new(tok, &enc, &err))
		return fail();
	rc = !strcmp(argv[2], "time") && argc > 3 ? take_time(enc, argv[3])
						  : give_ids(tok, enc, argc > 3);
	mfs_encoder_free(enc);
	mfs_tokenizer_free(tok);
	return rc;
}
