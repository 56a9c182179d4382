#include "trainer/generate/answers.h"

int mft_answer_text(const struct mfs_tokenizer *tokenizer, const struct mft_response *r,
		    struct mfs_buf *ret, struct mfs_error *err)
{
	const size_t count = r->count - (r->finish == MFT_FINISH_STOP);
	struct mfs_decoder *decoder = NULL;
	int rc = mfs_decoder_new(tokenizer, true, &decoder, err);

	if (!rc)
		rc = mfs_decode(decoder, r->tokens, count, ret, err);
	if (!rc)
		rc = mfs_decode_end(decoder, ret, err);
	mfs_decoder_free(decoder);
	return rc ? rc : ret->failed ? mfs_fail_nomem(err) : 0;
}

static void add_numbers(struct mfs_buf *ret, const struct mft_response *r, bool log_probs)
{
	mfs_buf_adds(ret, "\"token_ids\": [");
	for (uint32_t i = 0; i < r->count; i++)
		mfs_buf_printf(ret, "%s%u", i ? ", " : "", r->tokens[i]);
	mfs_buf_adds(ret, "], ");
	if (!log_probs)
		return;
	mfs_buf_adds(ret, "\"log_probs\": [");
	for (uint32_t i = 0; i < r->count; i++)
		mfs_buf_printf(ret, "%s%.9g", i ? ", " : "", (double)r->log_probs[i]);
	mfs_buf_adds(ret, "], ");
}

int mft_answer_line(const struct mft_prompt_list *prompts, size_t i,
		    const struct mfs_tokenizer *tokenizer, const struct mft_response *r,
		    bool log_probs, struct mfs_buf *ret, struct mfs_error *err)
{
	struct mfs_buf text = {0};
	int rc = tokenizer ? mft_answer_text(tokenizer, r, &text, err) : 0;

	mfs_buf_adds(ret, "{");
	if (prompts->texts[i]) {
		mfs_buf_adds(ret, "\"prompt\": ");
		mfs_buf_add_json(ret, prompts->texts[i]);
		mfs_buf_adds(ret, ", ");
	}
	if (tokenizer) {
		mfs_buf_adds(ret, "\"text\": ");
		mfs_buf_add_json_bytes(ret, text.len ? text.data : "", text.len);
		mfs_buf_adds(ret, ", ");
	}
	add_numbers(ret, r, log_probs);
	mfs_buf_printf(ret, "\"finish_reason\": \"%s\"}\n", mft_finish_name(r->finish));
	mfs_buf_release(&text);
	return rc ? rc : ret->failed ? mfs_fail_nomem(err) : 0;
}
