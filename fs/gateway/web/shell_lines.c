#include "fs/gateway/web/shell_lines.h"

#include <string.h>

#include "formats/base/array.h"
#include "fs/gateway/call/gateway_address.h"
#include "fs/gateway/web/html.h"

struct line {
	const char *program, *text;
};

static const struct line of_models[] = {
	{"vLLM", "HF_ENDPOINT=@A vllm serve @N"},
	{"transformers", "HF_ENDPOINT=@A python -c 'from transformers import AutoModelForCausalLM; "
			 "model = AutoModelForCausalLM.from_pretrained(\"@N\")'"},
	{"hf", "HF_ENDPOINT=@A hf download @N"},
	{"curl", "curl -O @T@A/files/@N/main/config.json"},
};
static const struct line of_datasets[] = {
	{"datasets", "HF_ENDPOINT=@A python -c 'from datasets import load_dataset; "
		     "rows = load_dataset(\"@N\")'"},
	{"hf", "HF_ENDPOINT=@A hf download --repo-type dataset @N"},
	{"curl", "curl @T@A/files/datasets/@N/main/"},
};

/* By the beginning of a view's name; the first one counts. */
static const struct {
	const char *view, *text;
} of_views[] = {
	{"gguf", "HF_ENDPOINT=@A hf download @N --local-dir . # llama.cpp reads the file"},
	{"vllm", "HF_ENDPOINT=@A hf download @N --local-dir shards "
		 "# vllm serve shards --load-format sharded_state"},
	{"megatron/", "HF_ENDPOINT=@A hf download @N --local-dir ckpt # --load ckpt"},
	{"hf", "HF_ENDPOINT=@A vllm serve @N"},
	{"raw", "HF_ENDPOINT=@A hf download @N"},
};

const char *mfs_line_of_view(const char *view)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(of_views); i++)
		if (!strncmp(view, of_views[i].view, strlen(of_views[i].view)))
			return of_views[i].text;
	return NULL;
}

/* The address that the client has used. If the client has sent none, the page reads HOST. */
static void add_address(struct mfs_call *c, struct mfs_buf *b)
{
	if (mfs_call_host(c))
		mfs_call_add_address(c, b);
	else
		mfs_buf_adds(b, "http://HOST:PORT");
}

void mfs_page_add_line(struct mfs_call *c, const char *line, const char *name)
{
	struct mfs_buf text = {0};

	for (const char *at = line; *at; at++) {
		if (*at != '@') {
			mfs_buf_add(&text, at, 1);
			continue;
		}
		at++;
		if (*at == 'A')
			add_address(c, &text);
		else if (*at == 'N')
			mfs_buf_adds(&text, name);
		else if (c->grant->rules)
			mfs_buf_adds(&text, "-H \"Authorization: Bearer $HF_TOKEN\" ");
	}
	mfs_buf_adds(&c->reply->text, "<pre>");
	if (text.failed)
		c->reply->failed = true;
	else
		mfs_html_text(&c->reply->text, text.data);
	mfs_buf_adds(&c->reply->text, "</pre>\n");
	mfs_buf_release(&text);
}

void mfs_page_add_lines(struct mfs_call *c, enum mfs_repo_kind kind, const char *name,
			const struct mfs_facts *f)
{
	const bool model = kind == MFS_REPO_MODEL;
	const struct line *lines = model ? of_models : of_datasets;
	const size_t count = model ? MFS_ARRAY_SIZE(of_models) : MFS_ARRAY_SIZE(of_datasets);
	struct mfs_buf *b = &c->reply->text;

	mfs_buf_adds(b, "<h2>Use it</h2>\n");
	if (c->grant->rules)
		mfs_buf_adds(b, "<h3>once in a shell, with your token</h3>\n"
				"<pre>export HF_TOKEN=your-token</pre>\n");
	for (size_t i = 0; i < count; i++) {
		mfs_buf_printf(b, "<h3>%s</h3>\n", lines[i].program);
		mfs_page_add_line(c, lines[i].text, name);
	}
	if (model && f && !f->has_tokenizer)
		mfs_buf_adds(b,
			     "<p class=warn>There is no tokenizer next to the weights: vLLM needs "
			     "<code>--skip-tokenizer-init</code> or <code>--tokenizer DIR</code>; "
			     "the operator of the gateway can name one (<code>ref=</code>).\n");
}
