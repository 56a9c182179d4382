/* Input: a chat template. It is rendered with a conversation; whatever it does, it ends. */
#include "tests/fuzz/fuzz.h"

#include <jansson.h>
#include <time.h>

#include "formats/template/template.h"

static const char conversation[] =
	"{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\","
	"\"content\": \" Caf\xc3\xa9 \"}, {\"role\": \"assistant\", \"content\": \"a\\n\"}],"
	"\"tools\": [{\"name\": \"f\", \"n\": 1.5}], \"bos_token\": \"<s>\"}";

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct mfs_template_text text;
	struct mfs_template *t;
	json_t *variables;
	int rc = mfs_template_parse((const char *)bytes, len, &t, err);

	if (rc)
		return rc;
	variables = json_loads(conversation, 0, NULL);
	rc = mfs_template_render(t, variables, 0, NULL, &text, err);
	if (!rc) {
		for (size_t i = 0; i < text.span_count; i++)
			fuzz_require(text.spans[i].from <= text.spans[i].to &&
				     text.spans[i].to <= text.text.len);
		mfs_template_text_release(&text);
	}
	json_decref(variables);
	mfs_template_free(t);
	return rc;
}

FUZZ_TARGET
