/* What a pickle imports, and what is thought of it: formats/torch/pickle_globals.h and
 * fs/fsck/verdict.h. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/torch/pickle_globals.h"
#include "fs/fsck/verdict.h"

static char printed[1000];

static void found(void *arg, const char *module, size_t module_len, const char *name,
		  size_t name_len)
{
	const size_t at = strlen(printed);

	(void)arg;
	if (module)
		snprintf(printed + at, sizeof(printed) - at, "%.*s.%.*s ", (int)module_len, module,
			 (int)name_len, name);
	else
		snprintf(printed + at, sizeof(printed) - at, "? ");
}

#define STREAM(text) text, sizeof(text) - 1
static const struct {
	const char *bytes;
	size_t len;
	const char *imports;
	int rc;
} streams[] = {
	{STREAM("cos\nsystem\n(S'id'\ntR."), "os.system ", 0},
	{STREAM("(ios\nsystem\n."), "os.system ", 0},
	{STREAM("(cos\nsystem\no."), "os.system ", 0},
	{STREAM("\x80\x04\x8c\x02os\x8c\x06system\x93."), "os.system ", 0},
	/* Names of the memo, in the other order. */
	{STREAM("\x80\x04\x8c\x06system\x94\x8c\x02os\x94"
		"0h\x01h\x00\x93."),
	 "os.system ", 0},
	/* MEMOIZE takes the number of slots that are set, as CPython does, not the next one. */
	{STREAM("\x80\x04\x8c\x06systemq\x05\x8c\x02os\x94"
		"00h\x01h\x05\x93."),
	 "os.system ", 0},
	/* A slot that is put again. */
	{STREAM("\x80\x04\x8c\x01xq\x00\x8c\x02osq\x00"
		"00h\x00\x8c\x06system\x93."),
	 "os.system ", 0},
	{STREAM("\x80\x04\x8c\x02os2\x93."), "os.os ", 0},
	/* What is put together, escaped or taken from copyreg's registry: nobody knows. */
	{STREAM("\x80\x04\x8c\x02os\x8c\x03sys)R\x93."), "? ", 0},
	{STREAM("S'o\\x73'\n\x8c\x06system\x93."), "? ", 0},
	{STREAM("Vo\\u0073\n\x8c\x06system\x93."), "? ", 0},
	{STREAM("\x82\x01."), "? ", 0},
	{STREAM("\x83\x01\x01."), "? ", 0},
	{STREAM("\x84\x01\x01\x01\x01."), "? ", 0},
	/* A registry's number ends an unpickler that does not know it: no end, no import. */
	{STREAM("\x82\x01\xff"), "", -EINVAL},
	{STREAM("\x82\x01K"), "", -ENODATA},
	/* Numbers, lists and None are no names. */
	{STREAM("K\x01K\x02\x93."), "", -EINVAL},
	{STREAM("\x80\x04\x8c\x02os)\x93."), "", -EINVAL},
	{STREAM("\x80\x04\x8c\x02osN\x93."), "", -EINVAL},
	{STREAM("(\x8c\x02ost\x8c\x06system\x93."), "", -EINVAL},
	/* torch returns a storage by its name and imports nothing. */
	{STREAM("c\x01x\nFloatStorage\n0cos\nsystem\n."), "\x01x.FloatStorage os.system ", 0},
	{STREAM("ca b\nQUInt2x4Storage\n0cos\nsystem\n."), "a b.QUInt2x4Storage os.system ", 0},
	{STREAM("\x80\x04\x8c\x01\x7f\x8c\x0b"
		"ByteStorage\x93."),
	 "\x7f.ByteStorage ", 0},
	{STREAM("c\x01x\nFloatStorages\n0cos\nsystem\n."), "", -EINVAL},
	{STREAM("c\x01x\nStorage\n0cos\nsystem\n."), "", -EINVAL},
	{STREAM("ca b\nx\n."), "", -EINVAL},
	{STREAM("ca\n<lambda>\n."), "", -EINVAL},
	/* What lies before a fault was executed. */
	{STREAM("cos\nsystem\n)R"), "os.system ", -ENODATA},
	{STREAM("cos\nsystem\n)R\xff"), "os.system ", -EINVAL},
	{STREAM("N.cos\nsystem\n."), "", 0},
	{STREAM("X\xff\xff\xff\x7f"), "", -ENODATA},
	{STREAM("c\x1b[2J\nx\n."), "", -EINVAL},
	{STREAM("c\xc3(\nx\n."), "", -EINVAL},
	{STREAM("N\x86."), "", -EINVAL},
	{STREAM("N(\x86."), "", -EINVAL},
	{STREAM("t."), "", -EINVAL},
	{STREAM("."), "", -EINVAL},
	{STREAM("(."), "", -EINVAL},
	{STREAM("h\x00."), "", -EINVAL},
	/* What CPython takes, and nobody writes: it must not hide what follows. */
	{STREAM("Nr\xff\xff\xff\x7f."), "", 0},
	{STREAM("Np100000\n0cos\nsystem\n."), "os.system ", 0},
	{STREAM("\x80\x04\x8c\x02osr\xff\xff\xff\x7f"
		"0j\xff\xff\xff\x7f\x8c\x06system\x93."),
	 "os.system ", 0},
	{STREAM("\x80\x04\x8c\x06systemr\xff\xff\xff\x7f"
		"\x8c\x02os\x94"
		"00h\x01j\xff\xff\xff\x7f\x93."),
	 "os.system ", 0},
	{STREAM("Np0000000001\n0cos\nsystem\n."), "", -ENOTSUP},
	{STREAM("Np+1\n0cos\nsystem\n."), "", -ENOTSUP},
	{STREAM("Npx\n0cos\nsystem\n."), "", -EINVAL},
	{STREAM("Np\n0cos\nsystem\n."), "", -EINVAL},
};

START_TEST(imports_are_found_without_being_made)
{
	struct mfs_error err;
	size_t end;

	*printed = '\0';
	ck_assert_int_eq(
		mfs_pickle_globals(streams[_i].bytes, streams[_i].len, found, NULL, &end, &err),
		streams[_i].rc);
	ck_assert_str_eq(printed, streams[_i].imports);
	ck_assert_uint_le(end, streams[_i].len);
	if (!streams[_i].rc)
		ck_assert_int_eq(streams[_i].bytes[end - 1], '.');
}
END_TEST

static const struct {
	const char *module, *name;
	enum mfs_verdict verdict;
} names[] = {
	{"collections", "OrderedDict", MFS_HARMLESS},
	{"torch._utils", "_rebuild_tensor_v2", MFS_HARMLESS},
	{"torch", "bfloat16", MFS_HARMLESS},
	{"torch", "float8_e4m3fn", MFS_HARMLESS},
	{"torch.storage", "UntypedStorage", MFS_HARMLESS},
	{"argparse", "Namespace", MFS_HARMLESS},
	{"signal", "Signals", MFS_HARMLESS},
	{"signal", "raise_signal", MFS_DANGEROUS},
	{"builtins", "set", MFS_HARMLESS},
	{"__builtin__", "set", MFS_HARMLESS},
	{"__builtin__", "eval", MFS_DANGEROUS},
	{"builtins", "getattr", MFS_DANGEROUS},
	{"os", "system", MFS_DANGEROUS},
	{"os.path", "exists", MFS_DANGEROUS},
	{"ossaudio", "x", MFS_UNKNOWN},
	/* Names of Python 2, which the unpickler translates. */
	{"cPickle", "loads", MFS_DANGEROUS},
	{"thread", "start_new_thread", MFS_DANGEROUS},
	{"commands", "getoutput", MFS_DANGEROUS},
	{"copy_reg", "_reconstructor", MFS_HARMLESS},
	{"__builtin__", "unicode", MFS_HARMLESS},
	{"exceptions", "ValueError", MFS_HARMLESS},
	/* What reads pickles on, what evaluates, what makes or cuts files. */
	{"torch.storage", "_load_from_bytes", MFS_DANGEROUS},
	{"torch.storage", "TypedStorage", MFS_HARMLESS},
	{"sympy.core.sympify", "sympify", MFS_DANGEROUS},
	{"sympy.parsing.sympy_parser", "eval_expr", MFS_DANGEROUS},
	{"sympy", "Abs", MFS_DANGEROUS},
	{"gzip", "open", MFS_DANGEROUS},
	{"bz2", "BZ2File", MFS_DANGEROUS},
	{"lzma", "LZMAFile", MFS_DANGEROUS},
	{"wave", "open", MFS_DANGEROUS},
	{"dbm.dumb", "open", MFS_DANGEROUS},
	{"mailbox", "Maildir", MFS_DANGEROUS},
	{"numpy", "save", MFS_DANGEROUS},
	{"numpy", "savetxt", MFS_DANGEROUS},
	{"numpy", "memmap", MFS_DANGEROUS},
	{"numpy.core", "_ufunc_reconstruct", MFS_DANGEROUS},
	{"torch._C", "PyTorchFileWriter", MFS_DANGEROUS},
	{"torch.distributed", "FileStore", MFS_DANGEROUS},
	{"filelock", "FileLock", MFS_DANGEROUS},
	{"mycode", "load_all", MFS_DANGEROUS},
	{"mycode", "_unpickle", MFS_DANGEROUS},
	{"mycode", "LogWriter", MFS_DANGEROUS},
	{"mycode", "rebuild", MFS_UNKNOWN},
	{"mycode", "payload", MFS_UNKNOWN},
	{"mycode", "GaussianProcess", MFS_UNKNOWN},
	{"sklearn._loss._loss", "__pyx_unpickle_CyHalfBinomialLoss", MFS_UNKNOWN},
	{"sklearn.linear_model._ridge", "Ridge", MFS_UNKNOWN},
	{"torch.nn.modules.linear", "Linear", MFS_UNKNOWN},
	{"torch.nn.functional", "relu", MFS_HARMLESS},
	{"datetime", "datetime", MFS_HARMLESS},
	{"builtins", "list", MFS_HARMLESS},
	{"io", "BytesIO", MFS_HARMLESS},
	{"transformer_engine.common.recipe", "DelayedScaling", MFS_HARMLESS},
	{"transformer_engine.pytorch.tensor.float8_tensor", "_make_float8_tensor_in_reduce_ex",
	 MFS_HARMLESS},
	{"transformer_engine.pytorch.tensor.float8_tensor", "load", MFS_DANGEROUS},
	{"numpy.random._pickle", "__randomstate_ctor", MFS_HARMLESS},
	{"scipy.sparse._csr", "csr_matrix", MFS_HARMLESS},
	{"scipy.sparsest", "csr_matrix", MFS_DANGEROUS},
	{"\x01x", "FloatStorage", MFS_DANGEROUS},
	{"a b", "FloatStorage", MFS_DANGEROUS},
	{"", "FloatStorage", MFS_DANGEROUS},
	{"mycode.train", "Config", MFS_UNKNOWN},
	/* Attributes of something harmless. */
	{"torch", "os.system", MFS_DANGEROUS},
	{"torch", "float32.x", MFS_DANGEROUS},
	{"megatron.core.enums", "sys.modules", MFS_DANGEROUS},
	/* Classes of a module are harmless, but not what it has imported from elsewhere. */
	{"torch.distributed.checkpoint.metadata", "_StorageInfo", MFS_HARMLESS},
	{"torch.distributed.checkpoint.planner", "SavePlan", MFS_HARMLESS},
	{"torch.distributed.checkpoint.planner", "reduce", MFS_DANGEROUS},
	{"torch.distributed.checkpoint.metadata", "os", MFS_DANGEROUS},
	{"megatron.core.enums", "__builtins__", MFS_DANGEROUS},
	{"torch.serialization", "load", MFS_DANGEROUS},
	{"torch", "load", MFS_DANGEROUS},
	{"pandas", "read_pickle", MFS_DANGEROUS},
	{"numpy.f2py.crackfortran", "getlincoef", MFS_DANGEROUS},
	{"torch", "", MFS_DANGEROUS},
};

START_TEST(names_have_verdicts)
{
	ck_assert_int_eq(mfs_verdict(names[_i].module, strlen(names[_i].module), names[_i].name,
				     strlen(names[_i].name)),
			 names[_i].verdict);
	ck_assert_int_eq(mfs_verdict(NULL, 0, NULL, 0), MFS_DANGEROUS);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("pickle_globals");
	TCase *c = tcase_create("globals");

	suite_add_tcase(s, c);
	tcase_add_loop_test(c, imports_are_found_without_being_made, 0, MFS_ARRAY_SIZE(streams));
	tcase_add_loop_test(c, names_have_verdicts, 0, MFS_ARRAY_SIZE(names));
	return s;
}
