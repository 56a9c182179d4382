/*
 * Chat templates: the Jinja templates that tokenizers have (chat_template), rendered as
 * transformers' apply_chat_template() renders them, by a stated subset of Jinja
 * (docs/formats/chat-template.md). What is outside of it is refused by name, and never
 * approximated.
 *
 * A template is parsed once and shared by threads. A hostile one ends: work, memory and depth have
 * limits.
 *
 * Sources: jinja2 3.1 (lexer.py, parser.py, compiler.py, filters.py, sandbox.py);
 * transformers/utils/chat_template_utils.py.
 */
#ifndef MFS_TEMPLATE_TEMPLATE_H
#define MFS_TEMPLATE_TEMPLATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "formats/base/buf.h"
#include "formats/base/error.h"

#define MFS_TEMPLATE_LARGEST (1u << 20) /* bytes of a template */

struct mfs_template;

/* text: UTF-8, copied. -EINVAL: it is no template; -ENOTSUP: a part of Jinja that is not known,
 * which the sentence names, or more text or parts than a template has. */
int mfs_template_parse(const char *text, size_t len, struct mfs_template **ret,
		       struct mfs_error *err);
void mfs_template_free(struct mfs_template *t); /* NULL: nothing */

/* Whether it has {% generation %} blocks, which mark the assistant's words. */
bool mfs_template_marks_answers(const struct mfs_template *t);

/* Bytes of a text. */
struct mfs_template_span {
	size_t from, to;
};

struct mfs_template_text {
	struct mfs_buf text;
	/* What generation blocks have written, in the order in which they began; free(spans). */
	struct mfs_template_span *spans;
	size_t span_count;
};

void mfs_template_text_release(struct mfs_template_text *t);

/*
 * Renders a template. variables: an object, by name; as for transformers it has messages, tools
 * and documents (null where there are none), add_generation_prompt, and the special tokens, such
 * as bos_token. now: what strftime_now() tells, in UTC. needed: names, NULL ends them; what writes
 * one that has no value fails, where Jinja writes nothing. needed may be NULL.
 *
 * -EINVAL: the template fails (raise_exception, or what Jinja has an exception for); -ENOTSUP: it
 * uses something that is not known, or more work or memory than a conversation needs; -ENODATA: a
 * needed name has no value.
 */
int mfs_template_render(const struct mfs_template *t, json_t *variables, time_t now,
			const char *const *needed, struct mfs_template_text *ret,
			struct mfs_error *err);

#endif
