# mcorefs. `make help` lists the targets; everything that is made goes into build/ (or O=DIR).

O       ?= build
PREFIX  ?= /usr/local
# mount(8) looks for its helpers in /sbin alone. A user who installs elsewhere may have no right to write there; if he has,
# he names it.
override PREFIX := $(abspath $(patsubst ~/%,$(HOME)/%,$(PREFIX)))
SBINDIR ?= $(if $(filter /usr /usr/local,$(PREFIX)),/sbin,$(PREFIX)/sbin)
LIBDIR  ?= $(PREFIX)/lib

# All processors, unless -j or a jobserver says otherwise. make's variables do not tell while it reads this, before
# version 4.4; its command line and its environment do. Goals given with "clean" run one after the other.
SAID_JOBS := $(shell { tr '\0' '\n' </proc/$$PPID/cmdline | sed 1d; printf '%s\n' $$MAKEFLAGS; } 2>/dev/null | \
	grep -E '^(-[A-Za-z]*j[0-9]*|[a-z]*j|--jobs.*|--jobserver.*)$$')
ifeq ($(SAID_JOBS)$(filter clean,$(MAKECMDGOALS)),)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 1)
endif

CFLAGS ?= -O2 -g
# With sanitizers: line numbers are what their reports need, and -O1 takes two thirds of the time to compile.
SAN_CFLAGS ?= $(if $(filter file,$(origin CFLAGS)),-O1 -g1,$(CFLAGS))
WERROR ?= -Werror
BASE_CFLAGS := -std=gnu11 -Wall -Wextra $(WERROR) -ffp-contract=off -fopenmp-simd -I.
# Names are cut on purpose; how far gcc sees that differs between its versions, and clang has no such warning.
GCC_CFLAGS  := $(shell $(CC) -Werror -Wno-format-truncation -fsyntax-only -x c /dev/null 2>/dev/null && \
	echo -Wno-format-truncation)
HARDENING   := -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fstack-protector-strong
BASE_LIBS   := -pthread -lm
# Hundreds of programs of tests are linked: lld and gold take a third of the time.
TEST_LINKER := $(if $(shell command -v ld.lld),-fuse-ld=lld,$(if $(shell command -v ld.gold),-fuse-ld=gold))

define newline


endef

# $(call code,PATTERN): the product's files, at any depth.
code = $(wildcard $(foreach top,formats fs kernels trainer,$(foreach depth,* */* */*/*,$(top)/$(depth)$(1))))

# Everything but the two main.c is a library: the programs and every test link it. kernels/cuda and
# kernels/mpi are plugins; fs/lib/wheel stands in for what a machine may lack.
CUDA_SOURCES  := $(wildcard kernels/cuda/*.c kernels/cuda/*/*.cu kernels/cuda/*/*.c)
# The families of HF models that the program holds: $(O)/families.c is made of them.
FAMILIES      := $(wildcard configs/models/*.conf)
LIB_SOURCES   := $(filter-out fs/main.c trainer/main.c fs/lib/wheel/% kernels/cuda/% kernels/mpi/%,$(call code,.c))
# What fuzz targets are made of: the readers that they call are nowhere else.
READER_SOURCES := $(filter $(addsuffix .c,formats/% fs/view/% trainer/config/% trainer/optimizers/% trainer/base/nvtx_ranges trainer/parallel/% trainer/simulate/machine% fs/cli/option% fs/fsck/scan% fs/fsck/verdict% \
	fs/gateway/gateway_config fs/gateway/access/authorization fs/gateway/access/proxies fs/gateway/access/token_rules fs/gateway/access/secret_list fs/gateway/access/sessions fs/gateway/call/accept fs/gateway/hub/asked fs/gateway/web/html fs/http/range fs/http/url \
	fs/sums/sums),\
	$(filter-out formats/dataset/files/% formats/megatron/read/%,$(LIB_SOURCES)))
# Run the checks of a backend's operations on a GPU, and of its groups in several processes.
CHECK_PROGRAMS := tests/kernels/check_cuda tests/kernels/check_comm
UNIT_SHARED   := tests/unit/unit.c $(filter-out $(CHECK_PROGRAMS:%=%.c),$(wildcard tests/kernels/*.c))
# Unit tests of several processes: scripts in tests/train start them.
PROCESS_TESTS := $(patsubst %.c,%,$(wildcard tests/train/*.c))
# A unit test lies where the folder lies that it proves; its program is $(O)/VARIANT/tests/unit/test_NAME wherever that is.
UNIT_SOURCES  := $(wildcard $(foreach depth,* */*,tests/unit/$(depth)/test_*.c))
program_names = $(sort $(patsubst %.c,%,$(notdir $(1))))
UNIT_TESTS    := $(call program_names,$(UNIT_SOURCES))
THREAD_TESTS  := $(call program_names,$(shell grep -ls pthread_create $(UNIT_SOURCES)))
FUZZ_TARGETS  := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
TEST_PROGRAMS := $(patsubst %.c,%,$(wildcard tests/damage/*.c tests/mount/*.c tests/bench/*.c tests/runner/*.c))
# What a unit test proves it proves under ASan. Plain, as the program is, those run too that are about numbers or about
# what optimised code does, and those that leave something out under ASan.
PLAIN_TESTS   := $(call program_names,$(shell grep -lsE '__SANITIZE|"(tests/)?kernels/' $(UNIT_SOURCES))) \
	$(addprefix test_,blas blend cast compare context cuda_bands fp8 model optim optim_flat parquet_image rows sums trainer_net \
	trainer_pipeline update)

# make SAN=address,undefined or SAN=thread builds only that variant, into its own folder.
VARIANT := $(if $(findstring address,$(SAN)),asan,$(if $(findstring thread,$(SAN)),tsan,obj))

PROGRAMS := mcorefs mcorefs-train

# The library for programs of others (fs/lib/mcorefs.h). LIBRARY_ABI changes when a promise of that header is broken.
RELEASE     := $(shell sed -n 's/.*MFS_VERSION *"\(.*\)".*/\1/p' formats/base/version.h)
LIBRARY_ABI := 0
LIBRARY     := $(O)/libmcorefs.so.$(LIBRARY_ABI)

# Where nvcc is, the CUDA backend is built too.
CUDA_HOME ?= /usr/local/cuda
NVCC      ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard $(CUDA_HOME)/bin/nvcc))
# For the GPUs that are here; without one for those of data centres. Others translate the code when they first load it.
# (Where no GPU is nvidia-smi says so in words, on its standard output.)
GPUS      := $(if $(NVCC),$(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | grep -xE '[0-9]+' | sort -u))
CUDA_ARCH ?= $(or $(GPUS),80 90)
CUDA      := $(if $(and $(NVCC),$(CUDA_SOURCES)),$(O)/libmcorefs-cuda.so)
# Where no GPU is, tests run no kernel: they ask whether all of them compile, which takes half of the time without
# optimisation. Nobody installs what comes of it.
CUDA_TESTED := $(if $(GPUS),$(CUDA),$(CUDA:$(O)/%=$(O)/cuda-check/%))

# Where Open MPI is, what CPU processes talk through is built too.
MPI       := $(if $(shell pkg-config --exists ompi-c 2>/dev/null && echo yes),$(O)/libmcorefs-mpi.so)
PLUGINS   := $(CUDA) $(MPI)
# The trainer's flags are a table, which makes its completions.
COMPLETIONS := $(O)/completions/mcorefs-train.bash $(O)/completions/_mcorefs-train

all: $(if $(SAN),$(PROGRAMS:%=$(O)/$(VARIANT)/%),$(PROGRAMS:%=$(O)/%) $(LIBRARY) $(PLUGINS) $(COMPLETIONS)) ## build build/mcorefs, build/mcorefs-train and build/libmcorefs.so.0 (the default)

# $(O)/config*.mk hold the packages' flags. The script that makes them looks for what is missing, and installs it for
# the targets that say so; then make starts over with them.
NO_CONFIG    := help clean format coverage
INSTALLING   := demo check interop fuzz fuzz-smoke bench deps
TESTING      := deps check unit train damage giants fuzz fuzz-smoke lint bench tests compile_commands.json tidy
DEPS_MODE    := $(if $(filter $(INSTALLING),$(MAKECMDGOALS)),install,require)
GOALS        := $(or $(MAKECMDGOALS),all)

ifneq ($(filter-out $(NO_CONFIG),$(GOALS)),)
include $(O)/config.mk
ifneq ($(filter $(TESTING),$(GOALS))$(findstring $(O)/,$(GOALS)),)
include $(O)/config-test.mk
endif
endif

$(O)/config.mk: tests/deps.sh
	@tests/deps.sh $(DEPS_MODE) build
	@mkdir -p $(@D)
	@tests/deps.sh flags DEPS fuse3 liburing jansson libcrypto libmicrohttpd libxxhash zlib openblas yaml-0.1 libcurl expat libpcre2-8 libutf8proc libzstd >$@.tmp && mv $@.tmp $@

$(O)/config-test.mk: tests/deps.sh | $(O)/config.mk
	@tests/deps.sh $(DEPS_MODE) test
	@tests/deps.sh $(DEPS_MODE) fuzz || echo 'fuzz targets are replayed without libFuzzer' >&2
	@tests/deps.sh $(DEPS_MODE) mpi || echo 'runs of several processes are not tested' >&2
	@tests/deps.sh flags CHECK check >$@.tmp
	@tests/deps.sh require fuzz 2>/dev/null && echo 'HAVE_LIBFUZZER := yes' >>$@.tmp || true
	@mv $@.tmp $@

Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-6s %s\n' $(1) $(2))

# A file is a C string, line by line.
$(O)/families.c: $(FAMILIES) configs/models Makefile
	$(call say,MAKE,$@)
	$(Q)mkdir -p $(@D)
	$(Q){ echo '#include "formats/model/families/texts.h"'; echo 'const struct mfs_family_text mfs_family_texts[] = {'; \
		for f in $(FAMILIES); do echo "{\"$$f\","; sed 's/[\\"]/\\&/g; s/.*/"&\\n"/' $$f; echo '},'; done; \
		echo '{0}};'; } >$@.tmp && mv $@.tmp $@

# What the gateway's pages show as it is.
$(O)/web_texts.c: fs/gateway/web/style.css docs/GATEWAY.md Makefile
	$(call say,MAKE,$@)
	$(Q)mkdir -p $(@D)
	$(Q){ echo '#include "fs/gateway/web/page.h"'; \
		for pair in style=fs/gateway/web/style.css documentation=docs/GATEWAY.md; do echo "const char mfs_web_$${pair%%=*}[] ="; \
		sed 's/[\\"?]/\\&/g; s/.*/"&\\n"/' $${pair#*=}; echo ';'; done; } >$@.tmp && mv $@.tmp $@

# A row of the tables of flags is a name in C, too: DEST(NUM_LAYERS, "num_layers").
$(O)/flag_dests.h: $(wildcard trainer/config/flags_*.c) trainer/config/loss_list.h Makefile
	$(call say,MAKE,$@)
	$(Q)mkdir -p $(@D)
	$(Q)sed -nE 's/^\t(\{[A-Z]+, *"|FLAG\([A-Z]+, [^,]+, )([A-Za-z0-9_]+)[",].*/\2/p' $(filter trainer/%,$^) | \
		awk '{ print "DEST(" toupper($$1) ", \"" $$1 "\")" }' >$@.tmp && mv $@.tmp $@

# Kernels may fuse multiply and add. Their loops say which of them are vectors (omp simd).
REF_FLAGS := -ffp-contract=fast -fno-math-errno -fno-trapping-math -Wno-pass-failed

# Ranges for profilers need CUDA's headers, and nothing else of it.
NVTX_FLAGS := $(if $(wildcard $(CUDA_HOME)/include/nvtx3/nvToolsExt.h),-isystem $(CUDA_HOME)/include)

# $(1): folder under build, $(2): compiler, $(3): flags, $(4): the name of those that a person may set. Objects mirror the source
# tree.
define variant
$(O)/$(1)/%.o: %.c $(O)/config.mk Makefile
	$$(call say,CC,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$(2) $(BASE_CFLAGS) $(3) $$(DEPS_CFLAGS) $$(CHECK_CFLAGS) $$(FOLDER_CFLAGS) $$($(4)) -MMD -MP -c -o $$@ $$<

$(O)/$(1)/trainer/config/dests.o $(O)/$(1)/trainer/config/settle/%.o $(O)/$(1)/trainer/optimizers/%.o: FOLDER_CFLAGS := -I$(O)
$(patsubst %.c,$(O)/$(1)/%.o,$(wildcard trainer/config/dests.c trainer/config/settle/*.c trainer/optimizers/*.c)): | $(O)/flag_dests.h
$(O)/$(1)/kernels/ref/%.o: FOLDER_CFLAGS := $(REF_FLAGS)
$(O)/$(1)/trainer/base/nvtx_ranges.o: FOLDER_CFLAGS := $(NVTX_FLAGS)
# What computes for a minute is worth its compilation.
$(O)/$(1)/kernels/ref/%.o $(O)/$(1)/tests/kernels/%.o: SAN_CFLAGS := $(SAN_CFLAGS:-O1=-O2)

$(O)/$(1)/families.o: $(O)/families.c formats/model/families/texts.h
	$$(call say,CC,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$(2) $(BASE_CFLAGS) $(3) $$($(4)) -c -o $$@ $$<

$(O)/$(1)/web_texts.o: $(O)/web_texts.c fs/gateway/web/page.h
	$$(call say,CC,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$(2) $(BASE_CFLAGS) $(3) $$($(4)) -c -o $$@ $$<

$(O)/$(1)/libmcorefs.a: $(patsubst %.c,$(O)/$(1)/%.o,$(if $(filter fuzz,$(1)),$(READER_SOURCES),$(LIB_SOURCES))) $(O)/$(1)/families.o \
		$(if $(filter fuzz,$(1)),,$(O)/$(1)/web_texts.o)
	$$(call say,AR,$$@)
	$$(Q)rm -f $$@ && ar rcs $$@ $$^

$(O)/$(1)/mcorefs: $(O)/$(1)/fs/main.o $(O)/$(1)/libmcorefs.a
	$$(call say,LINK,$$@)
	$$(Q)$(2) $(3) $$($(4)) $$(LDFLAGS) -o $$@ $$^ -Wl,--as-needed $$(DEPS_LIBS) $(BASE_LIBS)

$(O)/$(1)/mcorefs-train: $(O)/$(1)/trainer/main.o $(O)/$(1)/libmcorefs.a
	$$(call say,LINK,$$@)
	$$(Q)$(2) $(3) $$($(4)) $$(LDFLAGS) -o $$@ $$^ -Wl,--as-needed $$(DEPS_LIBS) $(BASE_LIBS)

$(O)/$(1)/libunit.a: $(UNIT_SHARED:%.c=$(O)/$(1)/%.o)
	$$(Q)ar rcs $$@ $$^

$(foreach s,$(UNIT_SOURCES),$(O)/$(1)/tests/unit/$(basename $(notdir $(s))): $(O)/$(1)/$(s:.c=.o)$(newline))
$(PROCESS_TESTS:%=$(O)/$(1)/%): %: %.o
$(UNIT_TESTS:%=$(O)/$(1)/tests/unit/%) $(PROCESS_TESTS:%=$(O)/$(1)/%): $(O)/$(1)/libunit.a $(O)/$(1)/libmcorefs.a
	$$(call say,LINK,$$@)
	$$(Q)$(2) $(3) $$($(4)) $$(TEST_LINKER) $$(LDFLAGS) -o $$@ $$(filter %.o,$$^) $$(filter %.a,$$^) -Wl,--as-needed $$(CHECK_LIBS) $$(DEPS_LIBS) $(BASE_LIBS)

$(TEST_PROGRAMS:%=$(O)/$(1)/%): %: %.o $(O)/$(1)/libmcorefs.a
	$$(call say,LINK,$$@)
	$$(Q)$(2) $(3) $$($(4)) $$(TEST_LINKER) $$(LDFLAGS) -o $$@ $$^ -Wl,--as-needed $$(DEPS_LIBS) $(BASE_LIBS)

$(CHECK_PROGRAMS:%=$(O)/$(1)/%): %: %.o $(O)/$(1)/libunit.a $(O)/$(1)/libmcorefs.a
	$$(call say,LINK,$$@)
	$$(Q)$(2) $(3) $$($(4)) $$(TEST_LINKER) $$(LDFLAGS) -o $$@ $$^ -Wl,--as-needed $$(DEPS_LIBS) $(BASE_LIBS)

$(1)_DEPENDS := $(patsubst %.c,$(O)/$(1)/%.d,$(LIB_SOURCES) fs/main.c trainer/main.c $(UNIT_SHARED) \
	$(UNIT_SOURCES) $(PROCESS_TESTS:%=%.c) $(TEST_PROGRAMS:%=%.c) $(CHECK_PROGRAMS:%=%.c) $(FUZZ_TARGETS:%=tests/fuzz/%.c))
# They are made with the objects: without this line make looks for another way to make each, most of a second each time.
$$($(1)_DEPENDS): ;
-include $$(wildcard $$($(1)_DEPENDS))
endef

SANITIZE := -fno-omit-frame-pointer -fno-sanitize-recover=all
# One flag each: a comma would end call's argument, and cut off all that follows it (tests/make.sh).
ADDRESS  := -fsanitize=address -fsanitize=undefined
CLANG    ?= clang
# At -O1 gcc sees uses of variables without a value where there are none; at -O2, without sanitizers, it looks for them.
SAN_WARNINGS := -Wno-maybe-uninitialized
# The objects of the programs are the library's, too. Its few thread-local variables lie where a signal handler can read
# them.
PIC := -fPIC -fvisibility=hidden -ftls-model=initial-exec
$(eval $(call variant,obj,$$(CC),$(GCC_CFLAGS) $(HARDENING) $(PIC),CFLAGS))
$(eval $(call variant,asan,$$(CC),$(GCC_CFLAGS) $(SAN_WARNINGS) $(ADDRESS) $(SANITIZE),SAN_CFLAGS))
$(eval $(call variant,tsan,$$(CC),$(GCC_CFLAGS) $(SAN_WARNINGS) -fsanitize=thread $(SANITIZE),SAN_CFLAGS))
$(eval $(call variant,fuzz,$$(CLANG),-fsanitize=fuzzer-no-link $(ADDRESS) $(SANITIZE),SAN_CFLAGS))

$(PROGRAMS:%=$(O)/%): $(O)/%: $(O)/obj/%
	$(Q)cp -f $< $@

# What mcorefs.h declares, and of the rest what that calls: neither libfuse nor libmicrohttpd. It stays where it was opened
# once: threads and a signal handler are in it.
LIBRARY_OBJECTS := $(patsubst %.c,$(O)/obj/%.o,$(wildcard fs/lib/*.c))
LIBRARY_LINK     = $(CC) $(HARDENING) $(CFLAGS) $(LDFLAGS) -shared -Wl,-soname,libmcorefs.so.$(LIBRARY_ABI) -Wl,-z,defs,-z,nodelete,-z,relro,-z,now -Wl,--gc-sections -Wl,--exclude-libs,ALL

$(LIBRARY): $(LIBRARY_OBJECTS) $(O)/obj/libmcorefs.a Makefile
	$(call say,LINK,$@)
	$(Q)$(LIBRARY_LINK) -o $@ $(filter-out Makefile,$^) -Wl,--as-needed $(DEPS_LIBS) $(BASE_LIBS)
	$(Q)ln -sf $(@F) $(O)/libmcorefs.so

# The Python package needs no compiler and nothing but glibc: what Debian has as archives is linked into its library, and
# libcurl is opened when a URL is read.
WHEEL_SOURCES := $(wildcard fs/lib/wheel/*.c)
PYTHON        ?= python3

$(O)/wheel/libmcorefs.so.$(LIBRARY_ABI): $(LIBRARY_OBJECTS) $(O)/obj/libmcorefs.a $(WHEEL_SOURCES) Makefile
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(LIBRARY_LINK) -s $(BASE_CFLAGS) $(PIC) $(DEPS_CFLAGS) -o $@ $(WHEEL_SOURCES) $(LIBRARY_OBJECTS) $(O)/obj/libmcorefs.a \
		-Wl,-Bstatic -luring -ljansson -lcrypto -lxxhash -lz -lyaml -lexpat -lpcre2-8 -lutf8proc -lzstd -Wl,-Bdynamic -Wl,--as-needed $(BASE_LIBS) -ldl

wheel: $(O)/wheel/libmcorefs.so.$(LIBRARY_ABI) ## the Python package mcorefs, with the library in it: build/mcorefs-*.whl
	$(Q)$(PYTHON) fs/lib/wheel/make_wheel.py $< $(O)

# The CUDA backend: one shared object that mcorefs-train opens where there is a GPU.
NVCC_FLAGS := -std=c++17 -O3 -lineinfo -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra -I. --expt-relaxed-constexpr \
	$(foreach a,$(CUDA_ARCH),-gencode arch=compute_$(a),code=sm_$(a)) \
	-gencode arch=compute_$(lastword $(CUDA_ARCH)),code=compute_$(lastword $(CUDA_ARCH))
CUDA_OBJECTS := $(CUDA_SOURCES:%=$(O)/cuda/%.o)
# -O0 of both compilers of device code.
CUDA_CHECK_FLAGS := $(NVCC_FLAGS) -Xcicc -O0 -Xptxas -O0

# wgmma is of sm_90a alone, whose code runs on every sm_90. Without optimisation these take as long, and ptxas says at
# length how slow they will be.
comma := ,
HOPPER := $(filter %hopper.cu %hopper_bf16.cu %hopper_fp16.cu,$(CUDA_SOURCES))
HOPPER_FLAGS := $(if $(filter 90,$(CUDA_ARCH)),$(subst \
	arch=compute_90$(comma)code=sm_90,arch=compute_90a$(comma)code=sm_90a,$(NVCC_FLAGS)) -DMFK_SM90A,$(NVCC_FLAGS))

# $(1): folder under build, $(2): the name of nvcc's flags.
define cuda_variant
$(HOPPER:%=$(O)/$(1)/%.o): $(2) := $(HOPPER_FLAGS)

$(O)/$(1)/%.cu.o: %.cu Makefile
	$$(call say,NVCC,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$(NVCC) $$($(2)) -MMD -MP -c -o $$@ $$<

$(O)/$(1)/%.c.o: %.c Makefile
	$$(call say,CC,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$(CC) $(BASE_CFLAGS) $(CFLAGS) -fPIC -fvisibility=hidden -I$(CUDA_HOME)/include -MMD -MP -c -o $$@ $$<

$(3)/libmcorefs-cuda.so: $(CUDA_SOURCES:%=$(O)/$(1)/%.o)
	$$(call say,LINK,$$@)
	$$(Q)$(NVCC) -shared -o $$@ $$^ -cudart static -Xlinker --exclude-libs=ALL -Xlinker -rpath=$(CUDA_HOME)/lib64 -lcublasLt -ldl
-include $(CUDA_SOURCES:%=$(O)/$(1)/%.d)
endef
$(eval $(call cuda_variant,cuda,NVCC_FLAGS,$(O)))
$(eval $(call cuda_variant,cuda-check,CUDA_CHECK_FLAGS,$(O)/cuda-check))

$(COMPLETIONS): $(O)/mcorefs-train
	$(call say,MAKE,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$< --completions $(if $(filter %.bash,$@),bash,zsh) >$@.tmp && mv $@.tmp $@

# The second one is a test's: a call has so little that everything goes in pieces.
MPI_PIECES := $(O)/libmcorefs-mpi-pieces.so
$(MPI_PIECES): CFLAGS += -DPIECE=1000
$(O)/libmcorefs-mpi.so $(MPI_PIECES): kernels/mpi/mpi.c kernels/mpi/mpi.h kernels/kernels.h Makefile
	$(call say,LINK,$@)
	$(Q)$(CC) $(BASE_CFLAGS) $(CFLAGS) -fPIC -fvisibility=hidden -shared -o $@ $< $$(pkg-config --cflags --libs ompi-c)

# CUDA's and NCCL's calls of groups, on what stands in for both where there is no GPU. Only headers are needed.
FAKE_GPU := $(if $(wildcard $(CUDA_HOME)/include/cuda_runtime_api.h),$(O)/asan/libfake-gpu.so)
FAKE_SOURCES := tests/gpu/fake_gpu.c kernels/cuda/base/comm.c kernels/cuda/base/nccl.c kernels/cuda/base/device.c kernels/cuda/base/cuda_dtypes.c

$(O)/asan/libfake-gpu.so: $(FAKE_SOURCES) $(wildcard kernels/*.h kernels/cuda/base/*.h) Makefile
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(BASE_CFLAGS) $(GCC_CFLAGS) $(ADDRESS) $(SANITIZE) $(SAN_CFLAGS) -fPIC -fvisibility=hidden -shared -I$(CUDA_HOME)/include -o $@ $(FAKE_SOURCES) -pthread -lrt

# CUDA's driver and cuFile as far as loads call them, on the host's memory, under their own names.
FAKE_LIBRARIES := $(foreach v,obj asan tsan,$(O)/$(v)/libfake-driver.so $(O)/$(v)/libfake-cufile.so)
%/libfake-driver.so: SONAME := libcuda.so.1
%/libfake-cufile.so: SONAME := libcufile.so.0
$(FAKE_LIBRARIES): $(O)/%.so: Makefile
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(BASE_CFLAGS) $(GCC_CFLAGS) $(CFLAGS) -fPIC -fvisibility=hidden -shared -Wl,-soname,$(SONAME) -o $@ $(filter %.c,$^) -pthread
$(filter %/libfake-driver.so,$(FAKE_LIBRARIES)): tests/gpu/fake_driver.c tests/gpu/fake_driver.h
$(filter %/libfake-cufile.so,$(FAKE_LIBRARIES)): tests/gpu/fake_cufile.c tests/gpu/fake_cufile.h
$(foreach v,obj asan tsan,$(eval $(O)/$(v)/tests/unit/test_library: | $(filter $(O)/$(v)/%,$(FAKE_LIBRARIES))))

# A tool that NVTX loads, as a profiler has one (tests/train/nvtx.sh).
NVTX_TOOL := $(if $(NVTX_FLAGS),$(O)/libnvtx-tool.so)
$(O)/libnvtx-tool.so: tests/gpu/nvtx_tool.c Makefile
	$(call say,LINK,$@)
	$(Q)$(CC) $(BASE_CFLAGS) $(GCC_CFLAGS) $(CFLAGS) -fPIC -fvisibility=hidden -shared -o $@ $<

# Attention alone: it is linked with the backend's objects, and looks at what they choose.
$(O)/bench_attention: tests/gpu/bench_attention.c $(CUDA_OBJECTS)
	$(call say,LINK,$@)
	$(Q)$(NVCC) -O2 -Xcompiler -Wall,-Wextra -I. -o $@ $^ -cudart static -Xlinker -rpath=$(CUDA_HOME)/lib64 -lcublasLt -ldl -lpthread -lm

# The source of CUDA kernels as C++, under ASan and UBSan, where there is a compiler for it.
EMULATORS := $(if $(shell command -v $(CXX) 2>/dev/null),$(patsubst tests/kernels/%.cpp,$(O)/asan/%,$(wildcard tests/kernels/emulate_*.cpp)))

$(EMULATORS): $(O)/asan/%: tests/kernels/%.cpp Makefile
	$(call say,CXX,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CXX) -std=c++17 -O2 -g1 $(ADDRESS) $(SANITIZE) -Wall -Wextra $(WERROR) -Wno-unknown-pragmas -I. -MMD -MP -o $@ $<
-include $(EMULATORS:%=%.d)

# A fuzz target is linked twice: with libFuzzer, and with a main that replays files under gcc's ASan.
$(FUZZ_TARGETS:%=$(O)/fuzz/%): $(O)/fuzz/%: $(O)/fuzz/tests/fuzz/%.o $(O)/fuzz/libmcorefs.a
	$(call say,LINK,$@)
	$(Q)$(CLANG) -fsanitize=fuzzer $(ADDRESS) $(TEST_LINKER) -o $@ $^ -Wl,--as-needed $(DEPS_LIBS) $(BASE_LIBS)

$(FUZZ_TARGETS:%=$(O)/asan/replay/%): $(O)/asan/replay/%: $(O)/asan/tests/fuzz/%.o \
		$(O)/asan/tests/fuzz/replay.o $(O)/asan/libmcorefs.a
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ADDRESS) $(TEST_LINKER) -o $@ $^ -Wl,--as-needed $(DEPS_LIBS) $(BASE_LIBS)

# What runs a case and says what it took.
RUNNER        := $(O)/obj/tests/runner/case
UNIT_PROGRAMS := $(sort $(PLAIN_TESTS:%=$(O)/obj/tests/unit/%)) $(UNIT_TESTS:%=$(O)/asan/tests/unit/%) \
	$(THREAD_TESTS:%=$(O)/tsan/tests/unit/%)
# A build folder may hold unit tests of an earlier time, which nothing builds again.
RUN           := UNIT_PROGRAMS='$(UNIT_PROGRAMS)' tests/run.sh
REPLAY_PROGRAMS := $(FUZZ_TARGETS:%=$(O)/asan/replay/%)
FUZZ_PROGRAMS   := $(if $(HAVE_LIBFUZZER),$(FUZZ_TARGETS:%=$(O)/fuzz/%))
COMM_PROGRAMS   := $(if $(MPI),$(MPI_PIECES) $(O)/obj/tests/kernels/check_comm $(O)/asan/tests/kernels/check_comm $(FAKE_GPU) $(NVTX_TOOL) \
	$(PROCESS_TESTS:%=$(O)/obj/%) $(PROCESS_TESTS:%=$(O)/asan/%))
OTHER_PROGRAMS  := $(COMM_PROGRAMS) $(TEST_PROGRAMS:%=$(O)/obj/%) $(patsubst %,$(O)/asan/%,$(filter tests/damage/%,$(TEST_PROGRAMS)))

deps: $(O)/config.mk $(O)/config-test.mk ## install what building and testing need (apt-get; root or sudo)

demo: $(PROGRAMS:%=$(O)/%) ## mount a sample checkpoint, look at it, read it through the mount
	@tests/demo.sh

tests: $(PROGRAMS:%=$(O)/%) $(LIBRARY) $(MPI) $(CUDA_TESTED) $(foreach v,asan tsan,$(PROGRAMS:%=$(O)/$(v)/%)) $(UNIT_PROGRAMS) $(REPLAY_PROGRAMS) $(FUZZ_PROGRAMS) $(OTHER_PROGRAMS) $(EMULATORS) ## build all tests without running them

check: tests ## every test that needs no Python peer; ends with: N passed, N failed, N skipped
	@$(RUN) make mount-san unit train mount damage fuzz-corpus fuzz-smoke giants

unit: $(UNIT_PROGRAMS) $(EMULATORS) $(RUNNER) ## unit tests alone: under ASan and UBSan, threads under TSan, numbers plain
	@$(RUN) unit

damage: $(OTHER_PROGRAMS) ## fixtures cut and changed at random: right bytes or a named error
	@tests/run.sh damage

train: $(PROGRAMS:%=$(O)/%) $(MPI) $(COMM_PROGRAMS) $(RUNNER) ## real runs, resumed on the CPU
	@tests/run.sh train

mount: $(O)/mcorefs $(LIBRARY) $(OTHER_PROGRAMS) ## tests on a real mount
	@tests/run.sh mount

giants: $(O)/mcorefs $(RUNNER) ## sparse 671 B and 405 B checkpoints: memory, counts, times
	@tests/run.sh giants

fuzz: tests ## each fuzz target for FUZZ_SECONDS (600), one after the other
	@FUZZ_SECONDS=$(or $(FUZZ_SECONDS),600) tests/run.sh fuzz

fuzz-smoke: tests ## each fuzz target for 3 s, with the seed of the day
	@tests/run.sh fuzz-smoke

interop: $(PROGRAMS:%=$(O)/%) $(MPI) wheel $(O)/obj/tests/bench/tokenize $(O)/obj/tests/bench/policy_losses ## open mounts with transformers, vLLM, MLX (a Python venv outside of the tree)
	@tests/interop/run.sh

bench: $(PROGRAMS:%=$(O)/%) $(CUDA) $(OTHER_PROGRAMS) ## ratios against a native copy (BENCH_GIB, default 2)
	@tests/bench/bench.sh

# Several of these as goals run one after the other, each with all processors.
ALONE := $(filter demo check unit train damage mount giants fuzz fuzz-smoke interop bench install,$(MAKECMDGOALS))
BEFORE :=
$(foreach g,$(ALONE),$(if $(BEFORE),$(eval $(g): | $(BEFORE)))$(eval BEFORE := $(g)))

CODE := $(call code,.[ch]) $(wildcard tests/*/*.[ch]) $(UNIT_SOURCES)
# CUDA's sources, and the C++ that emulates them, have the format, the widths and the forbidden words of C.
CUDA_CODE := $(call code,.cu) $(call code,.cuh) $(wildcard tests/*/*.cpp)
# Headers of the CUDA backend compile where CUDA is.
LINT_CODE = $(if $(NVCC),$(CODE),$(filter-out kernels/cuda/%.h,$(CODE)))

lint: $(O)/config-test.mk $(O)/mcorefs ## format, widths, headers that compile alone, who may include and call what
	@CC="$(CC)" CFLAGS="$(BASE_CFLAGS) -I$(O) $(DEPS_CFLAGS) $(CHECK_CFLAGS) $(if $(NVCC),-isystem $(CUDA_HOME)/include)" OBJECTS=$(O)/obj CUDA_CODE="$(CUDA_CODE)" tests/lint.sh $(LINT_CODE)

format: ## run clang-format over the C sources
	clang-format -i $(CODE) $(CUDA_CODE)

# What editors and clang-tidy read: how each file is compiled, headers like a file that includes them.
compile_commands.json: $(O)/config-test.mk $(O)/flag_dests.h Makefile ## how each C file is compiled, for clangd and clang-tidy
	$(call say,MAKE,$@)
	$(Q){ echo '['; for f in $(filter %.c,$(CODE)); do \
		case $$f in kernels/cuda/* | tests/gpu/*) more='-I$(CUDA_HOME)/include' ;; kernels/mpi/*) more=$$(pkg-config --cflags ompi-c 2>/dev/null) ;; kernels/ref/*) more='$(REF_FLAGS)' ;; \
			trainer/config/*|trainer/optimizers/*) more='-I$(O)' ;; *) more= ;; esac; \
		printf '{"directory": "%s", "file": "%s", "command": "cc %s %s -c %s"},\n' "$$PWD" $$f \
			'$(BASE_CFLAGS) $(DEPS_CFLAGS) $(CHECK_CFLAGS)' "$$more" $$f; done | sed '$$s/,$$//'; echo ']'; } >$@.tmp && mv $@.tmp $@

# What needs headers that are not here.
UNTIDY = $(if $(wildcard $(CUDA_HOME)/include/cuda_runtime_api.h),,kernels/cuda/% tests/gpu/%) $(if $(MPI),,kernels/mpi/%)

tidy: compile_commands.json ## the checks of .clang-tidy, over the whole tree (TIDY=FILES: of these alone)
	@printf '%s\n' $(or $(TIDY),$(filter-out $(UNTIDY),$(filter %.c,$(CODE)))) | xargs -P $$(nproc) -n 8 clang-tidy --quiet

# Lines that unit tests reach, in a build folder of their own: without optimisation, with gcc's counters.
coverage: ## which lines the unit tests reach (gcov; COVERAGE=TESTS: some of them), into build/coverage
	@$(MAKE) --no-print-directory -s O=$(O)/coverage NVCC= CFLAGS='-O0 -g --coverage' $(if $(COVERAGE),$(COVERAGE:%=$(O)/coverage/obj/tests/unit/%),$(UNIT_TESTS:%=$(O)/coverage/obj/tests/unit/%))
	@tests/coverage.sh $(O)/coverage $(COVERAGE)

# What is copied and changed, below share/doc; these units alone are used as they are.
EXAMPLES := $(wildcard $(foreach d,library mount systemd autofs slurm kubernetes container train machines grafana,configs/$(d)/*))
UNITS    := mcorefs@.service mcorefs-gateway.service
# What manual pages and units name as docs/NAME.md, and what those pages name.
PAGES    := README.md $(wildcard docs/*.md docs/formats/*.md)

# The helper must find the program although mount(8) leaves it a PATH of system directories alone: its path is written
# into it. mount -t fuse.mcorefs, the name that the kernel shows, asks for a helper of that name.
# The library carries its release in the name of its file, as the linker's and the loader's names of it lead there.
LIBRARY_FILE := libmcorefs.so.$(RELEASE)
LIBRARY_PLACES := $(LIBDIR)/$(LIBRARY_FILE) $(LIBDIR)/libmcorefs.so.$(LIBRARY_ABI) $(LIBDIR)/libmcorefs.so $(LIBDIR)/pkgconfig/mcorefs.pc $(PREFIX)/include/mcorefs.h

install: $(PROGRAMS:%=$(O)/%) $(LIBRARY) $(PLUGINS) $(COMPLETIONS) ## install under PREFIX (/usr/local); the mount helper in SBINDIR (/sbin, or PREFIX/sbin of another PREFIX)
	install -D -m 755 $(O)/mcorefs $(DESTDIR)$(PREFIX)/bin/mcorefs
	install -D -m 755 $(O)/mcorefs-train $(DESTDIR)$(PREFIX)/bin/mcorefs-train
	$(foreach p,$(PLUGINS),install -D -m 755 $(p) $(DESTDIR)$(PREFIX)/lib/mcorefs/$(notdir $(p))$(newline))
	install -D -m 644 $(LIBRARY) $(DESTDIR)$(LIBDIR)/$(LIBRARY_FILE)
	ln -sf $(LIBRARY_FILE) $(DESTDIR)$(LIBDIR)/libmcorefs.so.$(LIBRARY_ABI)
	ln -sf libmcorefs.so.$(LIBRARY_ABI) $(DESTDIR)$(LIBDIR)/libmcorefs.so
	install -D -m 644 fs/lib/mcorefs.h $(DESTDIR)$(PREFIX)/include/mcorefs.h
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig
	printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$(LIBDIR)' 'includedir=$${prefix}/include' '' 'Name: mcorefs' \
		'Description: tensors of Megatron-LM checkpoints, as HuggingFace files and at other layouts' 'Version: $(RELEASE)' \
		'Libs: -L$${libdir} -lmcorefs' 'Cflags: -I$${includedir}' >$(DESTDIR)$(LIBDIR)/pkgconfig/mcorefs.pc
	chmod 644 $(DESTDIR)$(LIBDIR)/pkgconfig/mcorefs.pc
	$(if $(DESTDIR),,$(if $(filter /usr /usr/local,$(PREFIX)),-PATH=$$PATH:/sbin:/usr/sbin ldconfig))
	install -d $(DESTDIR)$(SBINDIR)
	rm -f $(DESTDIR)$(SBINDIR)/mount.mcorefs
	sed 's|^program=$$|program=$(PREFIX)/bin/mcorefs|' mount-helpers/mount.mcorefs >$(DESTDIR)$(SBINDIR)/mount.mcorefs
	chmod 755 $(DESTDIR)$(SBINDIR)/mount.mcorefs
	ln -sf mount.mcorefs $(DESTDIR)$(SBINDIR)/mount.fuse.mcorefs
	$(foreach m,$(wildcard mount-helpers/man/*.[1-8]),install -D -m 644 $(m) \
		$(DESTDIR)$(PREFIX)/share/man/man$(subst .,,$(suffix $(m)))/$(notdir $(m))$(newline))
	$(foreach f,$(wildcard mount-helpers/completions/*.bash) $(filter %.bash,$(COMPLETIONS)),install -D -m 644 $(f) \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions/$(basename $(notdir $(f)))$(newline))
	$(foreach f,$(wildcard mount-helpers/completions/_*) $(filter-out %.bash,$(COMPLETIONS)),install -D -m 644 $(f) \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions/$(notdir $(f))$(newline))
	$(foreach u,$(UNITS),install -D -m 644 configs/systemd/$(u) $(DESTDIR)$(PREFIX)/lib/systemd/system/$(u)$(newline))
	$(foreach p,$(PAGES),install -D -m 644 $(p) $(DESTDIR)$(PREFIX)/share/doc/mcorefs/$(p)$(newline))
	$(foreach f,$(EXAMPLES),install -D -m $(if $(filter %.sh,$(f)),755,644) $(f) $(DESTDIR)$(PREFIX)/share/doc/mcorefs/examples/$(f:configs/%=%)$(newline))
	$(if $(filter-out /sbin /usr/sbin,$(SBINDIR)),@echo 'mount -t mcorefs looks in /sbin alone: make install SBINDIR=/sbin ... puts its helper there')

# Packages of a build without CUDA, which is no part of Debian.
deb: $(PROGRAMS:%=$(O)/%) $(LIBRARY) $(COMPLETIONS) ## mcorefs, mcorefs-train and the library as packages, into build/deb (needs dpkg-dev)
	@command -v dpkg-shlibdeps >/dev/null || { echo 'make deb needs dpkg-shlibdeps: apt-get install dpkg-dev' >&2; exit 1; }
	$(Q)rm -rf $(O)/deb && $(MAKE) --no-print-directory -s install $(addprefix -o ,$(O)/config.mk $(PROGRAMS:%=$(O)/%) $(LIBRARY)) O=$(O) PREFIX=/usr SBINDIR=/usr/sbin LIBDIR=/usr/lib/$$(dpkg-architecture -qDEB_HOST_MULTIARCH) DESTDIR=$(abspath $(O))/deb/stage NVCC=
	@mount-helpers/deb.sh $(O)/deb/stage $(O)/deb && rm -rf $(O)/deb/stage
	$(if $(Q),@echo 'mcorefs-train in it is for CPUs: the CUDA backend comes with "make install" where nvcc is')

uninstall: ## remove what install put there
	rm -f $(DESTDIR)$(PREFIX)/bin/mcorefs $(DESTDIR)$(PREFIX)/bin/mcorefs-train $(addprefix $(DESTDIR)$(PREFIX)/lib/mcorefs/,libmcorefs-cuda.so libmcorefs-mpi.so) \
		$(DESTDIR)$(SBINDIR)/mount.mcorefs $(DESTDIR)$(SBINDIR)/mount.fuse.mcorefs $(addprefix $(DESTDIR),$(LIBRARY_PLACES)) $(UNITS:%=$(DESTDIR)$(PREFIX)/lib/systemd/system/%) $(PAGES:%=$(DESTDIR)$(PREFIX)/share/doc/mcorefs/%) \
		$(EXAMPLES:configs/%=$(DESTDIR)$(PREFIX)/share/doc/mcorefs/examples/%) \
		$(patsubst %,$(DESTDIR)$(PREFIX)/share/man/man*/%,$(notdir $(wildcard mount-helpers/man/*.[1-8]))) \
		$(addprefix $(DESTDIR)$(PREFIX)/share/bash-completion/completions/,mcorefs mcorefs-train) \
		$(addprefix $(DESTDIR)$(PREFIX)/share/zsh/site-functions/,_mcorefs _mcorefs-train)

clean: ## remove build/
	rm -rf $(O)

help: ## this list
	@sed -n 's/^\([a-z_.-]*\):[^#]*## \(.*\)/\1\t\2/p' Makefile | expand -t 14

.PHONY: all deps deb wheel demo tests check unit train damage mount giants fuzz fuzz-smoke interop bench lint format tidy coverage \
	install uninstall clean help
.DELETE_ON_ERROR:
.SECONDARY:
