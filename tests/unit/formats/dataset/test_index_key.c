/*
 * Names of Megatron's cached indices: formats/dataset/index/index_key.h, python_json.h.
 *
 * Digests were printed by megatron-core 0.16.1 and 0.10.0 (unique_description_hash of their own
 * classes); those of 0.4 and 0.6 were computed with Python's json and hashlib from the keys that
 * their sources list.
 */
#include "tests/unit/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/dataset/gpt/blend_args.h"
#include "formats/dataset/gpt/gpt_dataset.h"
#include "formats/dataset/index/index_key.h"
#include "formats/base/python_float.h"
#include "formats/dataset/index/python_json.h"

static struct mfs_error err;

/* ---- floats ---- */

/* What Python prints for doubles that are hard to print: the powers of two where the nearest of the
 * shortest decimals reads back as another double, the ends of the exponents' rules, of the normal
 * and of all doubles, weights and splits as they occur, random bits. Each reads back as the double
 * that it was printed for. */
static const char reprs[] =
	"7.120236347223045e-307 7.291122019556398e-304 8.209073602596753e-289 "
	"5.641232424577593e-278 5.858190679279809e-244 7.678447687145631e-239 "
	"6.142758149716505e-238 6.290184345309701e-235 5.940911144672375e-213 "
	"6.083493012144512e-210 5.225680706521042e-200 5.351097043477547e-197 "
	"5.426657103235053e-166 5.966672584960166e-154 4.887898181599368e-150 "
	"6.256509672447191e-148 5.075883674631299e-116 6.653062250012736e-111 "
	"7.854549544476363e-90 7.174648137343064e-43 6.310887241768095e-30 6.617444900424222e-24 "
	"5.684341886080802e-14 5.960464477539063e-08 6.189700196426902e+26 5.316911983139664e+36 "
	"5.444517870735016e+39 5.986310706507379e+51 6.129982163463556e+54 6.070840288205404e+82 "
	"6.518515124270356e+91 7.167183174968974e+103 6.156563468186638e+113 "
	"6.455624695217272e+119 8.263199609878108e+121 6.243497100631985e+144 "
	"5.623642243178996e+160 5.758609657015292e+163 5.896816288783659e+166 "
	"6.183260036827614e+172 6.483618076376552e+178 5.386379163185535e+213 "
	"5.334411546303884e+241 6.150157786156811e+259 5.282945311356653e+269 "
	"6.386688990511104e+293 5e-324 2.2250738585072014e-308 2.225073858507201e-308 "
	"1.7976931348623157e+308 1e+22 1e+23 9007199254740992.0 9999999999999998.0 1e+16 "
	"1000000000000000.0 1.2345678901234568e+16 1.2345678901234568e+17 0.0001 1e-05 9.999e-05 "
	"0.00012 1.5e-07 1.0 0.1 0.2 0.3 0.30000000000000004 0.969 0.999 0.9990000000000001 "
	"0.3333333333333333 0.6666666666666666 0.9800098000980009 100.0 1e+100 123.0 0.5 4.35 "
	"0.0001234 9.5367431640625e-07 8.41e+21 1.1805916207174113e+21 9.109e-31 5e-323 "
	"6.02214076e+23 0.4564423389188436 0.5435576610811563 0.3209606252696645 "
	"0.3803972334100382 0.29864214132029715 0.3064931561315655 0.009638580753099264 "
	"0.15472870996954255 0.31348210077365063 0.21565745237214207 0.3149380021265713 "
	"0.03957469294682277 0.16397778680402827 0.08619726151228971 0.19008865042310963 "
	"0.20063913020291912 0.004584475984259097 0.05394034742798146 0.06955838971091671 "
	"0.22806271963333916 0.19057599281190496 0.03972276376915673 0.19839627765514287 "
	"0.03453684146850619 0.1536733914899753 0.031533276033076735 5.4568938071354485e-05 "
	"0.026791731483174475 0.006439830849236266 0.006625065631672864 0.030204979615293205 "
	"0.026822569806886375 0.008894817727235195 0.029561073958902704 0.016578668494608307 "
	"0.020840203415871797 0.006296038436628129 0.02893073110502478 0.021234097644268975 "
	"0.029717455262439643 0.02747849054749779 0.009186399282215667 0.011104947275182976 "
	"0.005102393747044983 0.004479670854024176 0.0020027498360756127 0.009265421328846448 "
	"0.01854288859819846 0.0001040155294104698 0.020843393941900143 0.010388791248325714 "
	"0.00952979625698357 0.025165706983851597 0.014780727360046582 0.009709201318100035 "
	"0.0147952760951559 0.021665370013974193 0.0017525192600339058 0.029979875394627414 "
	"0.0007030120441589607 0.023052785776378436 0.025976243600686982 0.0005554945154418385 "
	"0.024219369067049065 0.011258506692164374 0.017786822047837766 0.00027911909298377116 "
	"0.0014366463170459 0.005562451169337575 0.02936743636399319 0.006042147301682791 "
	"0.02323545649370974 0.028582671652129105 0.028963561968433065 0.010588174001651135 "
	"0.010908276939637335 0.0161321938787363 0.023846264130603225 0.0033221341420255697 "
	"0.023009835433258928 0.02451109338865081 0.026431689173980602 0.001126254429499581 "
	"0.029079052814205798 0.0028033660045485333 0.010476221282855974 0.01878016786365347 "
	"0.02822700415836567 0.01045220881301099 0.028414872201473877 1e-30 1e-29 1e-28 1e-27 "
	"1e-26 1e-25 1e-24 1e-23 1e-22 1e-21 1e-20 1e-19 1e-18 1e-17 1e-16 1e-15 1e-14 1e-13 1e-12 "
	"1e-11 1e-10 1e-09 1e-08 1e-07 1e-06 0.001 0.01 10.0 1000.0 10000.0 100000.0 1000000.0 "
	"10000000.0 100000000.0 1000000000.0 10000000000.0 100000000000.0 1000000000000.0 "
	"10000000000000.0 100000000000000.0 1e+17 1e+18 1e+19 1e+20 1e+21 1.0000000000000001e+23 "
	"1e+24 1e+25 1e+26 1e+27 1e+28 1e+29 1e+30 6.836042556553597e-252 9.151257342279843e+114 "
	"6.433807282662092e-120 3.2095468423147553e+184 3.146251209117628e+78 "
	"4.383273923201527e+136 5.764832181926254e-118 2.1067070274125734e-10 "
	"1.0605046575293674e+136 9.378382038189752e-259 2.323418179810819e+62 "
	"3.044107633773927e+261 4.84597890913172e-289 4.254868248065182e+148 "
	"1.0953039164342867e-96 2.129715599332605e-154 2.4598730341391256e+93 "
	"7.072167502737144e-219 4.4785021504743e+295 4.0044540620938655e+85 "
	"1.9675135885070697e+186 1.2603948545962808e-102 5.102568634186293e-181 "
	"1.1140082878091038e+297 6.367374551905589e+39 8.135549111394588e-227 "
	"5.592711830004695e+244 1.5747552121601455e-53 1.3915223035145992e-204 "
	"1.0250869010794846e-78 2.0144744371418388e-272 2.5361702583739384e-49 "
	"1.30857434995225e-221 3.10668190987594e+260 3.5806411007752036e+74 "
	"2.7202199878161883e-204 102318534520455.42 1.0029910821452482e+284 5.492188166901644e+116 "
	"8.598149050592012e-113 1.0284752746281045e-139 7.483318089770742e-19 "
	"1.130173399288837e+248 2.9247166103140914e-239 7.504468295770737e+198 "
	"7.583829473921843e+19 4.693869329791758e-198 6.719573687338677e+269 "
	"1.186586955081993e+227 1.2617756518713045e-197 2.0346401857931275e-05 4665721947.382311 "
	"9.569988452295087e+29 114.21239424968287 9.440223272976477e-270 1.9530630413764973e+182 "
	"2.311050393405416e-89 1.7897456897182504e+54 1.6869368976874785e-287 "
	"3.320284764709303e-120 7.846393974857836e+36 1.2140141743472384e+104 "
	"9.99200906440904e+206 2.290535510898002e-145 6.5372182908141714e+296 "
	"3.038840982866683e+133 9.882582827111728e+281 5.3777331620739135e-99 "
	"1.5668252247224953e-198 1.6893931982353577e+217 3.051487038983454e-16 "
	"1.1868786370975162e+169 9.900934237529376e-108 6.32782255750131e-140 "
	"1.3675475812053879e-130 3.4300056775658976 2.3645526245631635e+107 7.896400271146908e-89 "
	"7.96624197872667e-140 1.3120621181338313e-95 1.089438930101941e+270 7.874004704430718e-57 "
	"4.7687262428181386e+260 2.500027207893239e-202 3.689815678749189e+226 "
	"2.2832815216551445e-31 4.260335070072674e-84 1.5419571012231016e-102 "
	"3.3764123472926256e-221 2.386236854954807e+296 3.386284364931172e-186 ";
#define REPRS 320

START_TEST(floats_as_python_prints_them)
{
	unsigned count = 0;

	for (const char *p = reprs; *p; p += strspn(p, " ")) {
		char text[64] = "", printed[MFS_PYTHON_REPR_SIZE];
		const size_t len = strcspn(p, " ");

		ck_assert_uint_lt(len, sizeof(text));
		memcpy(text, p, len);
		p += len;
		mfs_python_repr(strtod(text, NULL), printed);
		ck_assert_str_eq(printed, text);
		mfs_python_repr(-strtod(text, NULL), printed);
		ck_assert_int_eq(printed[0], '-');
		ck_assert_str_eq(printed + 1, text);
		count++;
	}
	ck_assert_uint_eq(count, REPRS);
}
END_TEST

START_TEST(no_numbers)
{
	static const struct {
		double value;
		const char *text;
	} cases[] = {{0.0, "0.0"},
		     {-0.0, "-0.0"},
		     {(double)INFINITY, "Infinity"},
		     {-(double)INFINITY, "-Infinity"},
		     {(double)NAN, "NaN"}};
	char text[MFS_PYTHON_REPR_SIZE];

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		mfs_python_repr(cases[i].value, text);
		ck_assert_str_eq(text, cases[i].text);
	}
}
END_TEST

/* ---- keys ---- */

static json_t *tokenizer(const char *text)
{
	json_t *t = json_loads(text, 0, NULL);

	ck_assert_ptr_nonnull(t);
	return t;
}

static json_t *null_tokenizer(void)
{
	return tokenizer(
		"{\"class\": "
		"\"megatron.core.tokenizers.text.libraries.null_tokenizer.NullTokenizer\", "
		"\"vocab_size\": 50000, \"eod_id\": 49999, \"pad_id\": -1}");
}

/* Values of every kind, and characters that JSON text has several ways to write. */
static json_t *odd_tokenizer(void)
{
	return tokenizer(
		"{\"class\": \"a.B\", \"tokenizer_path\": [\"/t\\u00f6k/\\ud83d\\ude00.model\", "
		"null], "
		"\"x\": [], \"y\": {}, \"z\": {\"p\": 0.1, \"q\": [1e-07, true, "
		"{\"r\": \"\\u007f\\t\\\"\\\\\\/\xe2\x80\xa8\"}]}}");
}

static struct mfs_index_run run_of(const char *split, json_t *t)
{
	return (struct mfs_index_run){.seed = 1234,
				      .seq_length = 4096,
				      .split = split,
				      .tokenizer = t,
				      .rules = mfs_dataset_rules_default()};
}

/* One dataset's key must have this digest; releases the tokenizer. */
static void check_gpt(const struct mfs_index_run *run, const char *path, uint64_t samples,
		      enum mfs_split split, const char *digest)
{
	const struct mfs_index_member dataset = {path, samples};
	struct mfs_index_key key;

	unit_ok(mfs_index_key_gpt(run, &dataset, split, &key, &err), &err);
	ck_assert_msg(!strcmp(key.digest, digest), "%s instead of %s of\n%s", key.digest, digest,
		      key.text);
	ck_assert_uint_eq(key.len, strlen(key.text));
	mfs_index_key_release(&key);
	json_decref(run->tokenizer);
}

START_TEST(a_known_dataset)
{
	static const char text[] =
		"{\n"
		"    \"class\": \"GPTDataset\",\n"
		"    \"dataset_path\": \"/data/c4_text_document\",\n"
		"    \"num_samples\": 1005,\n"
		"    \"index_split\": \"train\",\n"
		"    \"random_seed\": 1234,\n"
		"    \"sequence_length\": 4096,\n"
		"    \"split\": \"99,1,0\",\n"
		"    \"split_matrix\": [\n"
		"        [\n"
		"            0,\n"
		"            0.99\n"
		"        ],\n"
		"        [\n"
		"            0.99,\n"
		"            1.0\n"
		"        ],\n"
		"        null\n"
		"    ],\n"
		"    \"tokenizer\": {\n"
		"        \"class\": \"megatron.core.tokenizers.text.libraries.null_tokenizer."
		"NullTokenizer\",\n"
		"        \"vocab_size\": 50000,\n"
		"        \"eod_id\": 49999,\n"
		"        \"pad_id\": -1\n"
		"    }\n"
		"}";
	const struct mfs_index_run run = run_of("99,1,0", null_tokenizer());
	const struct mfs_index_member dataset = {"/data/c4_text_document", 1005};
	char name[MFS_INDEX_NAME_SIZE];
	struct mfs_index_key key;

	unit_ok(mfs_index_key_gpt(&run, &dataset, MFS_TRAIN, &key, &err), &err);
	ck_assert_str_eq(key.text, text);
	ck_assert_str_eq(key.digest, "4de31a1047681b12cd6d77463a80e030");
	mfs_index_name(key.digest, "GPTDataset", MFS_TRAIN, "sample_index.npy", &run.rules, name);
	ck_assert_str_eq(name,
			 "4de31a1047681b12cd6d77463a80e030-GPTDataset-train-sample_index.npy");
	mfs_index_key_release(&key);
	json_decref(run.tokenizer);
}
END_TEST

START_TEST(one_epoch_and_no_seed)
{
	struct mfs_index_run run = run_of("969, 30, 1", null_tokenizer());

	run.seed = 0;
	run.seq_length = 128;
	check_gpt(&run, "/data/c4_text_document", MFS_GPT_ONE_EPOCH, MFS_TEST,
		  "61fabcad38703f0a015fd4e1fdcb2e2f");
}
END_TEST

START_TEST(a_path_for_each_split)
{
	struct mfs_index_run run = run_of(NULL, null_tokenizer());

	run.seed = UINT32_MAX;
	run.seq_length = 1;
	check_gpt(&run, "/data/x", 0, MFS_VALID, "f6b03160be1bba11f41aae47e5f6e562");
}
END_TEST

START_TEST(characters_of_all_kinds)
{
	struct mfs_index_run run = run_of("0,1,0", odd_tokenizer());

	check_gpt(&run, "/d\xc3\xa4ten/\xe4\xb8\xad\xe6\x96\x87/\xf0\x9f\x98\x80 \"x\"\\", 7,
		  MFS_TRAIN, "81d9ba8577eb6123b972a13a82898f01");
	run = run_of("1,1,1", odd_tokenizer());
	/* No UTF-8: a lone byte, a start without its end, a surrogate, beyond U+10FFFF, overlong,
	 * cut. */
	check_gpt(&run, "/d/\xff\xc3\xa9\xc3\xed\xa0\x80\xf4\x90\x80\x80\xc0\x80\xe2\x82", 7,
		  MFS_TRAIN, "4c0272c3b19d6c432ca8fe2599f21553");
}
END_TEST

/* ---- blends ---- */

static const struct mfs_index_member members[] = {
	{"/data/a", 11}, {"/data/b", MFS_GPT_ONE_EPOCH}, {"/data/c", (uint64_t)1 << 40}};

static void check_blend(const char *version, size_t count, const struct mfs_index_weights *weights,
			const char *digest)
{
	struct mfs_index_run run = run_of("98,1,1", null_tokenizer());
	struct mfs_index_key key;

	if (version)
		unit_ok(mfs_dataset_rules_of(version, &run.rules, &err), &err);
	unit_ok(mfs_index_key_blend(&run, members, count, weights, MFS_VALID, &key, &err), &err);
	ck_assert_msg(!strcmp(key.digest, digest), "%s instead of %s of\n%s", key.digest, digest,
		      key.text);
	mfs_index_key_release(&key);
	json_decref(run.tokenizer);
}

static struct mfs_index_weights given_weights(double *w)
{
	w[0] = 0.3;
	w[1] = 0.5;
	w[2] = 1.7;
	unit_ok(mfs_blend_normalize(w, 3, &err), &err);
	unit_ok(mfs_blend_normalize(w, 3, &err), &err);
	return (struct mfs_index_weights){.weights = w, .size = 1000};
}

START_TEST(blends_have_the_keys_that_megatron_hashed)
{
	static const uint64_t lengths[] = {5, 6, 7};
	const struct mfs_index_weights all = {.lengths = lengths};
	double w[3];
	const struct mfs_index_weights weights = given_weights(w);

	check_blend(NULL, 3, &weights, "e53d6a89cb4f30c89353b86f557ab72d");
	check_blend(NULL, 3, &all, "9207f6d462336b6ecc179067725eb17b");
	check_blend("0.12.3", 3, &weights, "e53d6a89cb4f30c89353b86f557ab72d");
	check_blend("0.10.0", 3, &weights, "9da918ab510c104a098b701afb064a46");
	check_blend("0.10.0", 3, &all, "d7e08d43c15204d82011594630101e6c");
	check_blend("0.6.0", 3, &weights, "3c6ff77130d190fdf9636a1734a1ed0a");
}
END_TEST

START_TEST(the_first_core)
{
	struct mfs_index_run run = run_of("98,1,1", NULL);
	struct mfs_index_member same[2] = {members[0], members[0]};
	double w[3];
	const struct mfs_index_weights weights = given_weights(w);
	char name[MFS_INDEX_NAME_SIZE];
	struct mfs_index_key key;

	unit_ok(mfs_dataset_rules_of("0.4.0", &run.rules, &err), &err);
	check_gpt(&run, "/data/a", 11, MFS_VALID, "e52b88a7e73cbeb1f535f02fe6af91fb");
	unit_ok(mfs_index_key_blend(&run, same, 2, &weights, MFS_VALID, &key, &err), &err);
	ck_assert_str_eq(key.digest, "e583c9a3079175f4ea9306042751eac0");
	mfs_index_name(key.digest, "BlendedDataset", MFS_VALID, "description.txt", &run.rules,
		       name);
	ck_assert_str_eq(name, "e583c9a3079175f4ea9306042751eac0-BlendedDataset-description.txt");
	mfs_index_key_release(&key);
}
END_TEST

/* ---- what cannot be ---- */

START_TEST(no_key)
{
	struct mfs_index_run run = run_of("98,1,1", NULL);
	struct mfs_index_key key;

	unit_fails(mfs_index_key_gpt(&run, &members[0], MFS_TRAIN, &key, &err), &err, -EINVAL,
		   "tokenizer");
	run.tokenizer = null_tokenizer();
	run.split = "none";
	unit_fails(mfs_index_key_gpt(&run, &members[0], MFS_TRAIN, &key, &err), &err, -EINVAL,
		   "--split");
	unit_ok(mfs_dataset_rules_of("2.6", &run.rules, &err), &err);
	unit_fails(mfs_index_key_gpt(&run, &members[0], MFS_TRAIN, &key, &err), &err, -ENOTSUP,
		   "core 0.4");
	json_decref(run.tokenizer);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("index_key");
	TCase *c = unit_case(s, "floats", floats_as_python_prints_them);

	tcase_add_test(c, no_numbers);
	c = unit_case(s, "datasets", a_known_dataset);
	tcase_add_test(c, one_epoch_and_no_seed);
	tcase_add_test(c, a_path_for_each_split);
	tcase_add_test(c, characters_of_all_kinds);
	c = unit_case(s, "blends", blends_have_the_keys_that_megatron_hashed);
	tcase_add_test(c, the_first_core);
	tcase_add_test(c, no_key);
	return s;
}
