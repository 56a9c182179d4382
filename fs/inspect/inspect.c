#include "fs/inspect/inspect.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/ckpt/ckpt.h"
#include "formats/model/model.h"
#include "fs/cli/cmdline.h"
#include "fs/cli/commands.h"
#include "fs/inspect/command.h"
#include "fs/view/views.h"

static void choose_iteration(struct mfs_inspection *in)
{
	const struct mfs_root_snapshot *s = in->snapshot;

	in->it = s->latest;
	for (uint32_t i = s->count; i-- && !in->it;)
		if (!mfs_iteration_reason(s->iterations[i]))
			in->it = s->iterations[i];
}

static void count_source(struct mfs_inspection *in)
{
	const struct mfs_fileset *files = mfs_ckpt_files(in->ckpt);

	for (uint32_t i = 0; i < mfs_fileset_count(files); i++)
		in->source_bytes += mfs_fileset_size(files, i);
}

static void count_elements(struct mfs_inspection *in, enum mfs_dtype dtype, const uint64_t *shape,
			   unsigned ndim)
{
	uint64_t count = 0;

	if (mfs_shape_count(shape, ndim, &count)) {
		in->elements[dtype] += count;
		in->element_count += count;
	}
}

static void count_tensors(struct mfs_inspection *in)
{
	const struct mfs_model *model = in->view ? in->view->model : NULL;

	if (model) {
		for (uint32_t i = 0; i < model->target_count; i++)
			count_elements(in, model->targets[i].base.dtype,
				       model->targets[i].base.shape, model->targets[i].base.ndim);
		return;
	}
	for (uint32_t i = 0; in->ckpt && i < mfs_ckpt_count(in->ckpt); i++) {
		const struct mfs_global_tensor *t = mfs_ckpt_at(in->ckpt, i);

		count_elements(in, t->dtype, t->shape, t->ndim);
	}
}

static void find_tokenizer(struct mfs_inspection *in)
{
	static const char *const names[] = {"tokenizer.json", "tokenizer.model", "vocab.json",
					    "tekken.json"};

	for (uint32_t i = 0; in->view && i < in->view->count; i++)
		for (size_t k = 0; k < MFS_ARRAY_SIZE(names) && !in->tokenizer; k++)
			if (!strcmp(in->view->files[i].name, names[k]))
				in->tokenizer = in->view->files[i].name;
}

static void add_hints(struct mfs_inspection *in)
{
	const char **hint = in->hints;

	if (in->view_error.code == -ENOTSUP)
		*hint++ = "-o arch=FAMILY, if the arguments leave the family open or name another "
			  "one";
	if (in->view && !in->tokenizer)
		*hint++ = "-o ref=HF_DIR adds the tokenizer and checks the configuration against a "
			  "HuggingFace directory";
}

static void collect(struct mfs_inspection *in)
{
	in->snapshot = mfs_root_snapshot(in->root);
	choose_iteration(in);
	if (in->it && !mfs_iteration_ckpt(in->it, &in->ckpt, &in->ckpt_error)) {
		count_source(in);
		mfs_views_open(mfs_iteration_views(in->it), MFS_VIEW_DEFAULT, &in->view,
			       &in->view_error);
	}
	if (!in->it && mfs_root_has_model(in->root) && !mfs_root_has_iterations(in->root))
		mfs_error_set(&in->ckpt_error, -ENODATA, "%s", in->snapshot->latest_reason);
	count_tensors(in);
	find_tokenizer(in);
	add_hints(in);
	in->good = mfs_root_has_model(in->root) ? in->view && in->it == in->snapshot->latest : true;
}

const char *mfs_inspect_vocab_source(const struct mfs_inspection *in)
{
	static const char *const names[] = {
		[MFS_VOCAB_PADDED] = "padded",	     [MFS_VOCAB_ARGS] = "args",
		[MFS_VOCAB_OPTION] = "option",	     [MFS_VOCAB_REF] = "ref",
		[MFS_VOCAB_TOKENIZED] = "tokenizer",
	};

	return names[in->view->model->vocab.source];
}

uint32_t mfs_inspect_hints(const struct mfs_inspection *in)
{
	uint32_t n = 0;

	while (n < MFS_INSPECT_HINTS && in->hints[n])
		n++;
	return n;
}

static int inspect(const struct mfs_cmdline *c, bool json, bool tensors)
{
	struct mfs_inspection in = {.tensors = tensors};
	int exit_code = MFS_EXIT_OK;
	struct mfs_error err;

	if (mfs_root_open(c->arguments[0], &c->options.view, &in.root, &err)) {
		exit_code = mfs_command_failed("%s", err.msg);
		if (json && mfs_inspect_json_failed(c->arguments[0], err.msg))
			return mfs_command_failed("out of memory");
		return exit_code;
	}
	collect(&in);
	if (!json)
		mfs_inspect_table(&in);
	else if (mfs_inspect_json(&in))
		exit_code = mfs_command_failed("out of memory");
	if (!in.good)
		exit_code = MFS_EXIT_FAILED;
	mfs_root_free(in.root);
	return exit_code;
}

int mfs_cmd_inspect(int argc, char **argv)
{
	bool json = false, tensors = false;
	struct mfs_cmdline c = {
		.usage = "inspect SOURCE [--json] [--tensors] [-o OPTIONS]",
		.help = "Shows what a checkpoint is (model, layout of its files, iterations, what\n"
			"is missing) and what datasets hold. The exit status is 0 if the latest\n"
			"iteration is complete and can be shown as a HuggingFace model.\n"
			"\n"
			"  --json      one JSON object\n"
			"  --tensors   list every tensor of the model\n",
		.min = 1,
		.max = 1,
		.switches = {{"json", &json}, {"tensors", &tensors}},
	};
	int exit_code;

	if (mfs_cmdline_parse(&c, argc, argv, &exit_code))
		exit_code = inspect(&c, json, tensors);
	return mfs_cmdline_end(&c, exit_code);
}
