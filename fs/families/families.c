/* The families of HuggingFace models that this program knows. */
#include "fs/families/command.h"

#include <stdio.h>

#include "formats/base/buf.h"
#include "formats/model/families/family.h"
#include "fs/cli/cmdline.h"
#include "fs/cli/commands.h"
#include "fs/cli/json.h"
#include "fs/cli/text.h"

#define LABEL_WIDTH 13

static const char unproved[] = "no: nothing that can run this model on both sides was found";

/* ---- for a person ---- */

static void print_set(struct mfs_frame *frame, const char *label, mfs_features set)
{
	struct mfs_buf text = {0};

	for (unsigned i = 0; i < MFS_FEATURE_COUNT; i++)
		if (mfs_has_feature(set, i))
			mfs_buf_printf(&text, "%s%s", text.len ? ", " : "", mfs_feature_word(i));
	if (text.len)
		mfs_frame_row(frame, label, MFS_PLAIN, "%s", text.data);
	mfs_buf_release(&text);
}

static void print_family(struct mfs_frame *frame, const struct mfs_family *f)
{
	mfs_frame_heading(frame, f->name);
	mfs_frame_row(frame, "class", MFS_PLAIN, "%s", f->architecture);
	mfs_frame_row(frame, "model_type", MFS_PLAIN, "%s", f->model_type);
	if (f->also)
		mfs_frame_row(frame, "also", MFS_PLAIN, "%s", f->also);
	if (f->about)
		mfs_frame_row(frame, "models", MFS_PLAIN, "%s", f->about);
	if (f->impossible) {
		mfs_frame_row(frame, "impossible", MFS_YELLOW, "%s", f->impossible);
		return;
	}
	if (f->language)
		mfs_frame_row(frame, "part=language", MFS_PLAIN, "as %s", f->language->part.shown);
	print_set(frame, "must have", f->required);
	print_set(frame, "may have", f->optional);
	mfs_frame_row(frame, "proved", f->proved ? MFS_PLAIN : MFS_YELLOW, "%s",
		      f->proved ? f->proved : unproved);
	if (f->vllm)
		mfs_frame_row(frame, "vllm/tpN", MFS_PLAIN, "as vLLM %s", f->vllm);
	if (f->sglang)
		mfs_frame_row(frame, "sglang/tpN", MFS_PLAIN, "as SGLang %s", f->sglang);
	if (f->gguf)
		mfs_frame_row(frame, "gguf", MFS_PLAIN, "as llama.cpp's %s", f->gguf);
	if (!f->built_in)
		mfs_frame_row(frame, "file", MFS_PLAIN, "%s", f->file);
}

static void print_all(void)
{
	struct mfs_frame frame = {.to = stdout,
				  .width = mfs_columns(stdout),
				  .label_width = LABEL_WIDTH,
				  .colours = mfs_colours(stdout)};

	for (const struct mfs_family *const *f = mfs_families(); *f; f++)
		print_family(&frame, *f);
	mfs_frame_end(&frame);
}

/* ---- for programs ---- */

static json_t *set_json(mfs_features set)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < MFS_FEATURE_COUNT; i++)
		if (mfs_has_feature(set, i))
			json_array_append_new(list, mfs_json_string(mfs_feature_word(i)));
	return list;
}

/* Each row: the HF tensor, and Megatron's. */
static json_t *tensors_json(const struct mfs_family *f)
{
	json_t *object = json_object();

	for (const struct mfs_family_tensor *row = f->tensors; row->hf; row++) {
		const bool layer = row->scope == MFS_SCOPE_LAYER || row->scope == MFS_SCOPE_MTP;
		struct mfs_buf name = {0};

		mfs_buf_printf(&name, "%s%s", layer ? f->layer_prefix : "", row->hf);
		if (!name.failed)
			json_object_set_new(object, name.data, mfs_json_string(row->name));
		mfs_buf_release(&name);
	}
	return object;
}

static json_t *family_json(const struct mfs_family *f)
{
	json_t *o = json_object();

	json_object_set_new(o, "name", mfs_json_string(f->name));
	json_object_set_new(o, "architecture", mfs_json_string(f->architecture));
	json_object_set_new(o, "model_type", mfs_json_string(f->model_type));
	json_object_set_new(o, "also", mfs_json_string(f->also));
	json_object_set_new(o, "about", mfs_json_string(f->about));
	json_object_set_new(o, "file", mfs_json_string(f->file));
	json_object_set_new(o, "built_in", json_boolean(f->built_in));
	json_object_set_new(o, "requires", set_json(f->required));
	json_object_set_new(o, "allows", set_json(f->optional));
	json_object_set_new(o, "proved", mfs_json_string(f->proved));
	json_object_set_new(o, "vllm", mfs_json_string(f->vllm));
	json_object_set_new(o, "sglang", mfs_json_string(f->sglang));
	json_object_set_new(o, "gguf", mfs_json_string(f->gguf));
	json_object_set_new(o, "language",
			    mfs_json_string(f->language ? f->language->part.shown : NULL));
	json_object_set_new(o, "impossible", mfs_json_string(f->impossible));
	json_object_set_new(o, "tensors", tensors_json(f));
	return o;
}

static int print_json(void)
{
	json_t *o = json_object(), *list = json_array();

	for (const struct mfs_family *const *f = mfs_families(); *f; f++)
		json_array_append_new(list, family_json(*f));
	json_object_set_new(o, "families", list);
	return mfs_json_print(o);
}

int mfs_cmd_families(int argc, char **argv)
{
	bool json = false;
	struct mfs_cmdline c = {
		.usage = "families [--json] [-o family=FILE]",
		.help = "Lists the families of HuggingFace models: class, features, and how each\n"
			"was proved. docs/FAMILIES.md says how to write one.\n",
		.help_end = "  --json          for programs, with the names of all tensors\n"
			    "  -o family=FILE  one more, which a file describes\n",
		.switches = {{"json", &json}},
	};
	int code;

	if (!mfs_cmdline_parse(&c, argc, argv, &code))
		return code;
	code = MFS_EXIT_OK;
	if (!*mfs_families())
		code = mfs_command_failed("%s", mfs_family_names());
	else if (!json)
		print_all();
	else if (print_json())
		code = mfs_command_failed("out of memory");
	return mfs_cmdline_end(&c, code);
}
