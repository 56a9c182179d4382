/* Which tokens of a conversation count: all, or those of an assistant. */
#include "formats/sft/conversation_i.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/str.h"

static void mark(struct mfs_turns *turns, size_t from, size_t to, bool counts)
{
	memset(turns->counts + from, counts, to - from);
}

/* ---- the generation blocks of a template ---- */

/* Where each token's bytes end in the text. A token that ends within a character has no bytes yet:
 * it touches the character that comes next. */
static int find_places(struct mfs_talk *t, const struct mfs_buf *text, size_t *ends,
		       struct mfs_error *err)
{
	struct mfs_decoder *decoder;
	struct mfs_buf out = {0};
	int rc = mfs_decoder_new(t->tokenizer, false, &decoder, err);

	if (rc)
		return rc;
	for (size_t i = 0; i < t->turns.count && !rc; i++) {
		rc = mfs_decode(decoder, &t->turns.ids[i], 1, &out, err);
		ends[i] = out.len;
	}
	if (!rc)
		rc = mfs_decode_end(decoder, &out, err);
	if (!rc && (out.failed || out.len != text->len || memcmp(out.data, text->data, out.len)))
		rc = mfs_fail(err, -ENOTSUP,
			      "which tokens are an assistant's cannot be told: the tokenizer does "
			      "not give the text back");
	mfs_decoder_free(decoder);
	mfs_buf_release(&out);
	return rc;
}

/* Generation blocks of a template: tokens that have a byte of one, as transformers takes them. */
static int mark_spans(struct mfs_talk *t, const struct mfs_template_text *text,
		      struct mfs_error *err)
{
	size_t *ends = calloc(t->turns.count, sizeof(*ends)), begin, end;
	int rc = ends ? find_places(t, &text->text, ends, err) : mfs_fail_nomem(err);

	mark(&t->turns, 0, t->turns.count, false);
	for (size_t k = 0; k < text->span_count && !rc; k++)
		for (size_t i = 0; i < t->turns.count; i++) {
			begin = i ? ends[i - 1] : 0;
			end = ends[i] > begin ? ends[i] : begin + 1;
			if (begin < text->spans[k].to && text->spans[k].from < end)
				t->turns.counts[i] = 1;
		}
	free(ends);
	return rc;
}

/* ---- the beginnings of a conversation ---- */

/* Whether the ids of a part are those that the whole begins with. */
static int check_beginning(const struct mfs_talk *t, struct mfs_error *err)
{
	if (t->part.count > t->turns.count ||
	    (t->part.count &&
	     memcmp(t->part.at, t->turns.ids, t->part.count * sizeof(*t->part.at))))
		return mfs_fail(err, -ENOTSUP,
				"which tokens are an assistant's cannot be told: the beginning of "
				"the conversation has other tokens by itself than in the whole");
	return 0;
}

/* The first messages of a conversation, as ids. */
static int encode_beginning(struct mfs_talk *t, json_t *row, json_t *messages, bool prompt,
			    struct mfs_error *err)
{
	struct mfs_template_text text;
	int rc = mfs_talk_render(t, row, messages, prompt, &text, err);

	if (rc)
		return rc;
	rc = mfs_talk_encode(t, text.text.data, text.text.len, err);
	mfs_template_text_release(&text);
	return rc ? rc : check_beginning(t, err);
}

/* An assistant's turn is what its message adds to the text that would ask for it. */
static int mark_answers(struct mfs_talk *t, json_t *row, json_t *messages, struct mfs_error *err)
{
	json_t *first = json_array();
	size_t from = 0;
	int rc = 0;

	mark(&t->turns, 0, t->turns.count, false);
	for (size_t i = 0; i < json_array_size(messages) && !rc; i++) {
		json_t *m = json_array_get(messages, i);
		const bool answer =
			mfs_str_is(json_string_value(json_object_get(m, "role")), "assistant");

		if (answer)
			rc = encode_beginning(t, row, first, true, err);
		from = t->part.count;
		json_array_append(first, m);
		if (!rc && answer)
			rc = encode_beginning(t, row, first, false, err);
		if (!rc && answer && t->part.count > from)
			mark(&t->turns, from, t->part.count, true);
	}
	json_decref(first);
	return rc;
}

/* ---- messages alone ---- */

/* Megatron's own formats: a turn's tokens are those of its message alone. */
static int mark_turns(struct mfs_talk *t, json_t *row, json_t *messages, struct mfs_error *err)
{
	size_t at = 0;
	int rc = 0;

	for (size_t i = 0; i < json_array_size(messages) && !rc; i++) {
		json_t *m = json_array_get(messages, i), *alone = json_array();
		struct mfs_template_text text = {0};
		const bool answer =
			mfs_str_is(json_string_value(json_object_get(m, "role")), "assistant");

		json_array_append(alone, m);
		rc = mfs_talk_render(t, row, alone, false, &text, err);
		if (!rc)
			rc = mfs_talk_encode(t, text.text.data, text.text.len, err);
		if (!rc &&
		    (t->part.count > t->turns.count - at ||
		     memcmp(t->part.at, t->turns.ids + at, t->part.count * sizeof(*t->part.at))))
			rc = mfs_fail(
				err, -EINVAL,
				"the tokens of message %zu alone are not those that it has in "
				"the conversation",
				i + 1);
		if (!rc) {
			mark(&t->turns, at, at + t->part.count, answer);
			if (answer)
				mark(&t->turns, at,
				     at + (t->format->prefix < t->part.count ? t->format->prefix
									     : t->part.count),
				     false);
			at += t->part.count;
		}
		mfs_template_text_release(&text);
		json_decref(alone);
	}
	return rc || at == t->turns.count
		       ? rc
		       : mfs_fail(err, -EINVAL, "messages have other tokens alone than together");
}

int mfs_talk_mark(struct mfs_talk *t, json_t *row, json_t *messages,
		  const struct mfs_template_text *text, struct mfs_error *err)
{
	if (t->format->template)
		return mark_turns(t, row, messages, err);
	if (t->answers_only && mfs_template_marks_answers(t->template))
		return mark_spans(t, text, err);
	if (t->answers_only)
		return mark_answers(t, row, messages, err);
	mark(&t->turns, 0, t->turns.count, true);
	return 0;
}
