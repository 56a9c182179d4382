#include "fs/fsck/verdict.h"

#include <stdbool.h>
#include <string.h>

/* "os", and with it "os.path". In an honest checkpoint none of them stands. */
static const char *const dangerous_modules[] = {
	"_aix_support",
	"_ctypes",
	"_io",
	"_operator",
	"_osx_support",
	"_pickle",
	"_posixsubprocess",
	"_pyrepl",
	"_thread",
	"aiohttp",
	"asyncio",
	"bdb",
	"builtins",
	"cProfile",
	"cffi",
	"cloudpickle",
	"code",
	"codecs",
	"codeop",
	"commands",
	"concurrent",
	"ctypes",
	"dill",
	"distutils",
	"doctest",
	"ensurepip",
	"fcntl",
	"ftplib",
	"functools",
	"gc",
	"getpass",
	"glob",
	"http",
	"httplib",
	"idlelib",
	"imaplib",
	"imp",
	"importlib",
	"inspect",
	"io",
	"joblib",
	"lib2to3",
	"linecache",
	"logging",
	"marshal",
	"mmap",
	"multiprocessing",
	"nt",
	"ntpath",
	"operator",
	"os",
	"pdb",
	"pickle",
	"pip",
	"pkgutil",
	"platform",
	"poplib",
	"posix",
	"posixpath",
	"profile",
	"pty",
	"pydoc",
	"requests",
	"runpy",
	"setuptools",
	"shelve",
	"shutil",
	"signal",
	"site",
	"smtplib",
	"socket",
	"sqlite3",
	"ssl",
	"subprocess",
	"sys",
	"tarfile",
	"telnetlib",
	"tempfile",
	"test",
	"threading",
	"timeit",
	"trace",
	"types",
	"urllib",
	"urllib2",
	"uuid",
	"venv",
	"webbrowser",
	"xmlrpc",
	"zipfile",
	"zipimport",
	"numpy.distutils",
	"numpy.f2py",
	"numpy.testing",
	"torch._dynamo",
	"torch._inductor",
	"torch.distributed.rpc",
	"torch.fx",
	"torch.hub",
	"torch.jit",
	"torch.package",
	"torch.utils",
};

static const struct known {
	const char *module, *name; /* a '*' stands for any letters; alone, for any class */
} harmless[] = {
	{"_codecs", "encode"}, /* bytes of Python 2 and protocol 2 */
	{"argparse", "Namespace"},
	{"builtins", "bytearray"},
	{"builtins", "complex"},
	{"builtins", "frozenset"},
	{"builtins", "object"},
	{"builtins", "range"},
	{"builtins", "set"},
	{"builtins", "slice"},
	{"collections", "OrderedDict"},
	{"collections", "defaultdict"},
	{"copyreg", "_reconstructor"},
	{"numpy", "dtype"},
	{"numpy", "ndarray"},
	{"numpy._core.multiarray", "_reconstruct"},
	{"numpy._core.multiarray", "scalar"},
	{"numpy.core.multiarray", "_reconstruct"},
	{"numpy.core.multiarray", "scalar"},
	{"pathlib", "PosixPath"},
	{"pathlib", "PurePosixPath"},
	{"torch", "BFloat16Storage"},
	{"torch", "BoolStorage"},
	{"torch", "ByteStorage"},
	{"torch", "CharStorage"},
	{"torch", "DoubleStorage"},
	{"torch", "FloatStorage"},
	{"torch", "HalfStorage"},
	{"torch", "IntStorage"},
	{"torch", "LongStorage"},
	{"torch", "ShortStorage"},
	{"torch", "Size"},
	{"torch", "Tensor"},
	{"torch", "bfloat16"},
	{"torch", "bool"},
	{"torch", "complex*"},
	{"torch", "device"},
	{"torch", "float*"},
	{"torch", "int*"},
	{"torch", "uint*"},
	{"torch._tensor", "_rebuild_from_type_v2"},
	{"torch._utils", "_rebuild_parameter"},
	{"torch._utils", "_rebuild_tensor*"},
	{"torch.distributed.checkpoint.metadata", "*"},
	{"torch.distributed.checkpoint.planner", "*"},
	{"torch.distributed.checkpoint.filesystem", "_StorageInfo"},
	{"torch.nn.parameter", "Parameter"},
	{"torch.serialization", "_get_layout"},
	{"torch.storage", "*Storage"},
	{"megatron.core.enums", "*"},
	{"megatron.core.rerun_state_machine", "*"},
	{"megatron.core.transformer.enums", "*"},
	{"megatron.core.dist_checkpointing.mapping", "*"},
	{"megatron.core.dist_checkpointing.strategies.torch", "MCoreSavePlan"},
	{"megatron.model.enums", "*"},
	{"signal", "Signals"},
};

static bool is(const char *text, const char *s, size_t len)
{
	return strlen(text) == len && !memcmp(text, s, len);
}

/* Letters, digits and underscores: a dot would be an attribute, and so another thing. */
static bool is_identifier(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_",
			    s[i]) ||
		    !s[i])
			return false;
	return len;
}

/* "_StorageInfo", by its capital. What a module has imported itself ("os", "reduce") is none. */
static bool is_class(const char *s, size_t len)
{
	size_t i = 0;

	while (i < len && s[i] == '_')
		i++;
	return i < len && s[i] >= 'A' && s[i] <= 'Z' && is_identifier(s, len);
}

static bool matches(const char *pattern, const char *s, size_t len)
{
	const char *star = strchr(pattern, '*');
	const size_t before = star ? (size_t)(star - pattern) : 0,
		     after = star ? strlen(star + 1) : 0;

	if (!star)
		return is(pattern, s, len);
	if (!pattern[1])
		return is_class(s, len);
	return is_identifier(s, len) && len >= before + after && !memcmp(pattern, s, before) &&
	       !memcmp(star + 1, s + len - after, after);
}

static bool is_harmless(const char *module, size_t module_len, const char *name, size_t name_len)
{
	for (size_t i = 0; i < sizeof(harmless) / sizeof(*harmless); i++)
		if (is(harmless[i].module, module, module_len) &&
		    matches(harmless[i].name, name, name_len))
			return true;
	return false;
}

static bool is_inside(const char *parent, const char *s, size_t len)
{
	const size_t parent_len = strlen(parent);

	return len >= parent_len && !memcmp(parent, s, parent_len) &&
	       (len == parent_len || s[parent_len] == '.');
}

/* Python 2's name of builtins, which the unpickler translates. */
static void translate(const char **module, size_t *len)
{
	if (is("__builtin__", *module, *len)) {
		*module = "builtins";
		*len = strlen(*module);
	}
}

enum mfs_verdict mfs_verdict(const char *module, size_t module_len, const char *name,
			     size_t name_len)
{
	if (!module)
		return MFS_DANGEROUS;
	translate(&module, &module_len);
	if (is_harmless(module, module_len, name, name_len))
		return MFS_HARMLESS;
	/* An attribute of something: torch and "os.system" is os.system. */
	if (!is_identifier(name, name_len))
		return MFS_DANGEROUS;
	for (size_t i = 0; i < sizeof(dangerous_modules) / sizeof(*dangerous_modules); i++)
		if (is_inside(dangerous_modules[i], module, module_len))
			return MFS_DANGEROUS;
	/* Functions that read pickles: torch.load, numpy.load, pandas.read_pickle. */
	if (is("load", name, name_len) || is("loads", name, name_len) ||
	    is("read_pickle", name, name_len))
		return MFS_DANGEROUS;
	return MFS_UNKNOWN;
}
