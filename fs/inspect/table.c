#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/buf.h"
#include "formats/ckpt/ckpt.h"
#include "formats/model/model.h"
#include "fs/inspect/inspect.h"
#include "fs/inspect/inspect_data.h"
#include "fs/cli/text.h"

#define BULLET_COLUMNS 2
#define LABEL_COLUMNS  14
#define SHOWN_WARNINGS 12

/* Prints a row with the text in b, and releases b. */
static void row_of(struct mfs_frame *frame, const char *label, enum mfs_colour colour,
		   struct mfs_buf *b)
{
	mfs_frame_row(frame, label, colour, "%s", b->failed || !b->len ? "?" : b->data);
	mfs_buf_release(b);
}

static void format_row(struct mfs_frame *frame, const struct mfs_inspection *in)
{
	char size[MFS_HUMAN];
	uint32_t count = mfs_fileset_count(mfs_ckpt_files(in->ckpt));

	mfs_frame_row(frame, "format", MFS_PLAIN, "%s, %u file%s, %s", mfs_iteration_format(in->it),
		      count, count == 1 ? "" : "s", mfs_human_bytes(in->source_bytes, size));
}

static void parameters_row(struct mfs_frame *frame, const struct mfs_inspection *in)
{
	const struct mfs_model *m = in->view ? in->view->model : NULL;
	uint64_t n = m ? m->parameters : in->element_count;
	char human[MFS_HUMAN], exact[MFS_HUMAN], size[MFS_HUMAN];

	if (!m)
		mfs_frame_row(frame, "parameters", MFS_PLAIN, "%s (%s)", mfs_human_count(n, human),
			      mfs_grouped(n, exact));
	else
		mfs_frame_row(frame, "parameters", MFS_PLAIN, "%s (%s), %u tensors, %s",
			      mfs_human_count(n, human), mfs_grouped(n, exact), m->target_count,
			      mfs_human_bytes(m->bytes, size));
}

/* Prints the dtype, or each dtype with its share if there are several. */
static void dtype_row(struct mfs_frame *frame, const struct mfs_inspection *in)
{
	struct mfs_buf b = {0};
	char human[MFS_HUMAN];

	for (unsigned t = 0; t < MFS_INSPECT_DTYPES; t++) {
		if (!in->elements[t])
			continue;
		mfs_buf_printf(&b, "%s%s", b.len ? ", " : "", mfs_dtype_torch(t));
		if (in->elements[t] != in->element_count)
			mfs_buf_printf(&b, " (%s)", mfs_human_count(in->elements[t], human));
	}
	row_of(frame, "dtype", MFS_PLAIN, &b);
}

static void shape_row(struct mfs_frame *frame, const struct mfs_megatron_args *a)
{
	struct mfs_buf b = {0};

	mfs_buf_printf(&b, "%lld layers, hidden %lld, ffn %lld, %lld heads",
		       (long long)a->num_layers, (long long)a->hidden_size,
		       (long long)a->ffn_hidden_size, (long long)a->num_attention_heads);
	if (a->num_query_groups != a->num_attention_heads)
		mfs_buf_printf(&b, " in %lld query groups", (long long)a->num_query_groups);
	if (a->hybrid_form)
		mfs_buf_printf(&b, ", HybridModel of %lld", 2 * (long long)a->num_layers);
	row_of(frame, "shape", MFS_PLAIN, &b);
}

static void experts_row(struct mfs_frame *frame, const struct mfs_megatron_args *a)
{
	struct mfs_buf b = {0};

	if (a->num_experts == MFS_ABSENT)
		return;
	mfs_buf_printf(&b, "%lld, top %lld", (long long)a->num_experts,
		       (long long)a->moe_router_topk);
	if (a->moe_ffn_hidden_size > 0)
		mfs_buf_printf(&b, ", width %lld", (long long)a->moe_ffn_hidden_size);
	if (a->moe_shared_expert_intermediate_size > 0)
		mfs_buf_printf(&b, ", shared width %lld",
			       (long long)a->moe_shared_expert_intermediate_size);
	if (a->first_dense_layers > 0)
		mfs_buf_printf(&b, ", first %lld layer%s dense", (long long)a->first_dense_layers,
			       a->first_dense_layers == 1 ? "" : "s");
	row_of(frame, "experts", MFS_PLAIN, &b);
}

/* Appends the layers of stages: "2 layers per stage", or "stages of 3, 1 layers" if they differ. */
static void add_stages(struct mfs_buf *b, const struct mfs_ckpt_layout *l)
{
	bool even = true;

	if (!l->stage_layers || l->pp * l->vpp < 2)
		return;
	for (uint32_t i = 1; i < l->pp * l->vpp; i++)
		even = even && l->stage_layers[i] == l->stage_layers[0];
	if (even) {
		mfs_buf_printf(b, ", %u layer%s per %s", l->stage_layers[0],
			       l->stage_layers[0] == 1 ? "" : "s", l->vpp > 1 ? "chunk" : "stage");
		return;
	}
	for (uint32_t p = 0; p < l->pp; p++) {
		mfs_buf_adds(b, p ? ", " : ", stages of ");
		for (uint32_t v = 0; v < l->vpp; v++)
			mfs_buf_printf(b, "%s%u", v ? "+" : "", l->stage_layers[v * l->pp + p]);
	}
	mfs_buf_adds(b, " layers");
}

/* ETP has no meaning without experts. */
static void layout_row(struct mfs_frame *frame, const struct mfs_ckpt_layout *l, bool experts)
{
	struct mfs_buf b = {0};

	mfs_buf_printf(&b, "TP %u, PP %u", l->tp, l->pp);
	if (l->vpp > 1)
		mfs_buf_printf(&b, ", VPP %u", l->vpp);
	if (l->ep > 1)
		mfs_buf_printf(&b, ", EP %u", l->ep);
	if (experts && l->etp > 1)
		mfs_buf_printf(&b, ", ETP %u", l->etp);
	add_stages(&b, l);
	row_of(frame, "layout", MFS_PLAIN, &b);
}

static void vocab_row(struct mfs_frame *frame, const struct mfs_vocab *v, bool hf)
{
	const char *const from[] = {
		[MFS_VOCAB_PADDED] = "nothing says which are padding",
		[MFS_VOCAB_ARGS] = "by the checkpoint's arguments",
		[MFS_VOCAB_OPTION] = "by -o vocab_size",
		[MFS_VOCAB_REF] = hf ? "by config.json" : "by the reference's config.json",
		[MFS_VOCAB_TOKENIZED] = "by the tokenizer",
	};
	char rows[MFS_HUMAN], padded[MFS_HUMAN];

	if (v->source == MFS_VOCAB_PADDED)
		mfs_frame_row(frame, "vocabulary", MFS_YELLOW, "all %s rows: %s",
			      mfs_grouped(v->padded, padded), from[v->source]);
	else if (v->rows == v->padded)
		mfs_frame_row(frame, "vocabulary", MFS_PLAIN, "%s, %s", mfs_grouped(v->rows, rows),
			      from[v->source]);
	else
		mfs_frame_row(frame, "vocabulary", MFS_PLAIN, "%s of %s stored rows, %s",
			      mfs_grouped(v->rows, rows), mfs_grouped(v->padded, padded),
			      from[v->source]);
}

static void model_rows(struct mfs_frame *frame, const struct mfs_inspection *in)
{
	const struct mfs_model *m = in->view->model;

	vocab_row(frame, &m->vocab, mfs_ckpt_format(in->ckpt)->is_hf);
	mfs_frame_row(frame, "head", MFS_PLAIN, "%s",
		      mfs_ckpt_args(in->ckpt)->tied ? "tied to the embedding" : "not tied");
	if (in->tokenizer)
		mfs_frame_row(frame, "tokenizer", MFS_PLAIN, "%s", in->tokenizer);
	else
		mfs_frame_row(frame, "tokenizer", MFS_YELLOW, "none in the checkpoint");
}

/* The heading has the directory already, so the message is shown without it. */
static const char *without_path(const char *msg, const char *dir)
{
	size_t len = strlen(dir);

	return !strncmp(msg, dir, len) && !strncmp(msg + len, ": ", 2) ? msg + len + 2 : msg;
}

static void checkpoint_rows(struct mfs_frame *frame, const struct mfs_inspection *in)
{
	const struct mfs_megatron_args *args = mfs_ckpt_args(in->ckpt);

	format_row(frame, in);
	if (in->view)
		mfs_frame_row(frame, "family", MFS_BOLD, "%s (%s)",
			      mfs_model_family(in->view->model),
			      mfs_model_architecture(in->view->model));
	else
		mfs_frame_row(frame, "family", MFS_RED, "cannot be shown: %s",
			      without_path(in->view_error.msg, mfs_ckpt_dir(in->ckpt)));
	parameters_row(frame, in);
	dtype_row(frame, in);
	shape_row(frame, args);
	experts_row(frame, args);
	if (!mfs_ckpt_format(in->ckpt)->is_hf)
		layout_row(frame, mfs_ckpt_layout(in->ckpt), args->num_experts != MFS_ABSENT);
	if (in->view)
		model_rows(frame, in);
}

/* The reason why there is no latest is often shown already at the iteration that the tracker
 * names. */
static bool printed_above(const struct mfs_root_snapshot *s)
{
	for (uint32_t i = 0; i < s->count; i++) {
		const char *reason = mfs_iteration_reason(s->iterations[i]);

		if (reason && strstr(s->latest_reason, reason))
			return true;
	}
	return false;
}

static void iteration_rows(struct mfs_frame *frame, const struct mfs_inspection *in)
{
	const struct mfs_root_snapshot *s = in->snapshot;
	char when[MFS_HUMAN];

	mfs_frame_heading(frame, "iterations");
	for (uint32_t i = 0; i < s->count; i++) {
		const struct mfs_iteration *it = s->iterations[i];
		const char *reason = mfs_iteration_reason(it);

		if (reason)
			mfs_frame_row(frame, mfs_iteration_name(it), MFS_RED, "not shown: %s",
				      reason);
		else
			mfs_frame_row(frame, mfs_iteration_name(it), MFS_GREEN,
				      "complete  %s  %s%s",
				      mfs_human_time(mfs_iteration_mtime(it), when),
				      mfs_iteration_format(it), it == s->latest ? "  latest" : "");
	}
	if (!s->latest)
		mfs_frame_row(frame, "latest", MFS_RED, "none: %s",
			      printed_above(s) ? "it is incomplete" : s->latest_reason);
}

static void list_rows(struct mfs_frame *frame, enum mfs_colour colour, const char *const *list,
		      uint32_t count)
{
	frame->label_width = BULLET_COLUMNS;
	for (uint32_t i = 0; i < count && i < SHOWN_WARNINGS; i++)
		mfs_frame_row(frame, "•", colour, "%s", list[i]);
	if (count > SHOWN_WARNINGS)
		mfs_frame_row(frame, "", colour, "and %u more (--json lists them)",
			      count - SHOWN_WARNINGS);
	frame->label_width = LABEL_COLUMNS;
}

static void warning_rows(struct mfs_frame *frame, const struct mfs_inspection *in)
{
	const char *const *of_ckpt = NULL;
	uint32_t count = in->ckpt ? mfs_ckpt_warnings(in->ckpt, &of_ckpt) : 0;
	const struct mfs_model *m = in->view ? in->view->model : NULL;

	if (!count && !(m && m->warning_count))
		return;
	mfs_frame_heading(frame, "worth knowing");
	list_rows(frame, MFS_YELLOW, of_ckpt, count);
	if (m)
		list_rows(frame, MFS_YELLOW, m->warnings, m->warning_count);
}

static void hint_rows(struct mfs_frame *frame, const struct mfs_inspection *in)
{
	uint32_t count = mfs_inspect_hints(in);

	if (!count)
		return;
	mfs_frame_heading(frame, "what would help");
	list_rows(frame, MFS_CYAN, in->hints, count);
}

static void print_tensors(const struct mfs_model *m)
{
	char name[512], shape[128];

	for (uint32_t i = 0; i < m->target_count; i++) {
		const struct mfs_target *t = &m->targets[i].base;

		mfs_target_name(t, name, sizeof(name));
		printf("%-4s  %-20s  %s\n", mfs_dtype_name(t->dtype),
		       mfs_shape_text(t->shape, t->ndim, shape, sizeof(shape)), name);
	}
}

/* The end of a path that is too long for a heading. */
static const char *tail_of(const char *path, size_t columns, char *text, size_t size)
{
	size_t width = mfs_text_width(path), skip = 0;

	if (width <= columns)
		return path;
	while (path[skip] && mfs_text_width(path + skip) > columns - 1)
		skip++;
	snprintf(text, size, "…%s", path + skip);
	return text;
}

void mfs_inspect_table(const struct mfs_inspection *in)
{
	struct mfs_frame frame = {
		.to = stdout,
		.width = mfs_columns(stdout),
		.label_width = LABEL_COLUMNS,
		.colours = mfs_colours(stdout),
	};
	char title[1024];

	mfs_frame_heading(
		&frame, tail_of(mfs_root_source(in->root), frame.width - 8, title, sizeof(title)));
	if (in->it && in->it != in->snapshot->latest)
		mfs_frame_row(&frame, "described", MFS_YELLOW, "%s, the newest that is complete",
			      mfs_iteration_name(in->it));
	if (in->ckpt)
		checkpoint_rows(&frame, in);
	else if (!mfs_root_has_model(in->root))
		mfs_frame_row(&frame, "datasets", MFS_PLAIN, "%u",
			      mfs_data_count(mfs_root_data(in->root)));
	else
		mfs_frame_row(&frame, "model", MFS_RED, "%s",
			      in->ckpt_error.code ? in->ckpt_error.msg
						  : "no iteration is complete");
	if (mfs_root_has_iterations(in->root))
		iteration_rows(&frame, in);
	warning_rows(&frame, in);
	hint_rows(&frame, in);
	mfs_inspect_data_rows(&frame, mfs_root_data(in->root));
	mfs_frame_end(&frame);
	if (in->tensors && in->view)
		print_tensors(in->view->model);
}
