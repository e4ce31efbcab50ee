/* Values that are no tensors: texts, sequences, maps and optionals of programs. */
#include "graph/value.h"
#include "onnx_text.h"
#include "support/compare.h"

#include <stdio.h>

static aril_tensor *floats(aril_shape shape, const float *at)
{
    return aril_from(at, shape, ARIL_F32, aril_cpu());
}

static aril_value *number(double v)
{
    return aril_value_of(aril_full(ARIL_SHAPE(), v, ARIL_F32, aril_cpu()));
}

static void check_error(const char *text)
{
    CHECK_MSG(aril_error() && strstr(aril_error(), text), "%s", aril_error());
    aril_clear_error();
}

TEST(values_hold_what_they_were_made_of)
{
    size_t before = aril__interned();
    aril_value *kept;
    {
        ARIL_SCOPE;
        aril_value *a =
            aril_value_text(ARIL_SHAPE(2, 2), (const char *[]){ "cat", "", "cat", "dog" });
        CHECK(aril_value_kind_of(a) == ARIL_VALUE_TEXT && aril_value_count(a) == 4);
        CHECK(aril_value_string(a, 0) == aril_value_string(a, 2)); /* interned */
        CHECK(strcmp(aril_value_string(a, 3), "dog") == 0 && *aril_value_string(a, 1) == '\0');
        CHECK(aril_value_shape(a).ndim == 2);
        CHECK_INT((int)(aril__interned() - before), 3);
        aril_value *x = number(3);
        aril_value *keys = aril_value_text(ARIL_SHAPE(2), (const char *[]){ "cat", "dog" });
        aril_value *map = aril_value_map(keys, ARIL_VALUES(x, a));
        CHECK(aril_value_find(map, "dog") == a && !aril_value_find(map, "cow"));
        CHECK(!aril_value_find_number(map, 1) && aril_ok());
        aril_tensor *numbers = aril_cast(aril_arange(5, 7, 1, ARIL_F32, aril_cpu()), ARIL_I64);
        aril_value *by_number = aril_value_map(aril_value_of(numbers), ARIL_VALUES(a, x));
        CHECK(aril_value_find_number(by_number, 6) == x && !aril_value_find(by_number, "cat"));
        aril_value *some = aril_value_optional(x), *none = aril_value_optional(NULL);
        CHECK_NEAR(aril_item(aril_value_tensor(some)), 3, 0);
        kept = aril_value_keep(aril_value_sequence(ARIL_VALUES(map, some, none, keys)));
        CHECK_MSG(kept && aril_ok(), "%s", aril_error());
    }
    CHECK_INT((int)aril_value_count(kept), 4);
    CHECK_INT((int)aril_value_count(aril_value_at(kept, 2)), 0);
    CHECK(strcmp(aril_value_string(aril_value_keys(aril_value_at(kept, 0)), 0), "cat") == 0);
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    aril_value_print(kept, to);
    fclose(to);
    CHECK_MSG(strcmp(text, "[{\"cat\": 3, \"dog\": [\"cat\", \"\", \"cat\", \"dog\"]}, optional 3, "
                           "nothing, [\"cat\", \"dog\"]]\n") == 0,
              "%s", text);
    free(text);
    aril_value_release(kept);
    CHECK_INT((int)aril__interned(), (int)before);
}

TEST(deep_values_are_freed)
{
    ARIL_SCOPE;
    aril_value *v = number(1);
    for (int i = 0; i < 100000; i++) {
        ARIL_SCOPE;
        aril_value *outer = aril_value_keep(aril_value_sequence(ARIL_VALUES(v)));
        if (i) aril_value_release(v);
        v = outer;
    }
    aril_value_release(v);
    CHECK(aril_ok());
}

TEST(wrong_values_are_refused)
{
    ARIL_SCOPE;
    aril_value *x = number(1);
    aril_value *keys = aril_value_text(ARIL_SHAPE(2), (const char *[]){ "a", "a" });
    CHECK(!aril_value_map(keys, ARIL_VALUES(x, x)));
    check_error("are equal");
    CHECK(!aril_value_map(keys, ARIL_VALUES(x)));
    check_error("expected 1 keys");
    CHECK(!aril_value_map(x, ARIL_VALUES(x)));
    check_error("keys");
    CHECK(!aril_value_text(ARIL_SHAPE(2), (const char *[]){ "a", NULL }));
    check_error("string 1 is NULL");
    CHECK(!aril_value_sequence(ARIL_VALUES(x, NULL)));
    check_error("NULL");
    CHECK(!aril_value_at(keys, 0));
    check_error("a text");
    CHECK(!aril_value_at(aril_value_sequence(ARIL_VALUES(x)), 1));
    check_error("no item 1");
    CHECK(!aril_value_string(x, 0));
    check_error("a tensor");
    CHECK(aril_tensor_status(aril_value_tensor(keys)) < 0);
    check_error("not a tensor");
    CHECK(!aril_value_of(NULL));
    aril_clear_error();
}

static void twice(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_mul_scalar(in[0], 2);
    out[1] = aril_add(in[0], in[1]);
}

TEST(programs_of_functions_take_tensors)
{
    ARIL_SCOPE;
    aril_program *p = aril_jit(twice, NULL, (aril_jit_opts){ .name = "twice" });
    aril_value *x = aril_value_of(aril_full(ARIL_SHAPE(2), 3, ARIL_F32, aril_cpu())), *out[2];
    for (int i = 0; i < 2; i++) {
        CHECK_INT(aril_program_run_values(p, ARIL_VALUES(x, aril_value_optional(x)), out), ARIL_OK);
        CHECK_NEAR(aril_item(aril_select(aril_value_tensor(out[0]), 0, 1)), 6, 0);
        CHECK_NEAR(aril_item(aril_select(aril_value_tensor(out[1]), 0, 1)), 6, 0);
    }
    CHECK_INT(aril_program_traces(p), 1);
    CHECK(aril_program_run_values(p, ARIL_VALUES(x, aril_value_sequence(ARIL_VALUES(x))), out) < 0);
    check_error("a sequence");
    CHECK(!out[0] && !out[1]);
    aril_program_free(p);
}

#define ML                                                                                         \
    "ir_version: 8 opset_import { version: 17 } opset_import { domain: \"ai.onnx.ml\" version: 1 " \
    "} "
#define MAPS(name, key)                                                                 \
    "{ name: \"" name "\" type { sequence_type { elem_type { map_type { key_type: " key \
    " value_type { tensor_type { elem_type: 1 } } } } } } } "

TEST(scores_become_maps)
{
    ARIL_SCOPE;
    aril_program *p = load_text(
        ML,
        "node { op_type: \"ZipMap\" domain: \"ai.onnx.ml\" input: \"x\" output: \"y\" attribute "
        "{ name: \"classlabels_strings\" type: STRINGS strings: \"cat\" strings: \"dog\" } } "
        "input " ANY("x") "output " MAPS("y", "8"));
    CHECK_MSG(p && aril_ok(), "%s", aril_error());
    aril_value *x = aril_value_of(floats(ARIL_SHAPE(3, 2), (float[]){ 1, 2, 3, 4, 5, 6 })), *y;
    CHECK_INT(aril_program_run_values(p, ARIL_VALUES(x), &y), ARIL_OK);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    CHECK_INT((int)aril_value_count(y), 3);
    for (int i = 0; i < 3; i++) {
        aril_value *row = aril_value_at(y, i);
        CHECK(aril_value_kind_of(row) == ARIL_VALUE_MAP);
        CHECK_NEAR(aril_item(aril_value_tensor(aril_value_find(row, "cat"))), 2 * i + 1, 0);
        CHECK_NEAR(aril_item(aril_value_tensor(aril_value_find(row, "dog"))), 2 * i + 2, 0);
    }
    aril_tensor *t;
    CHECK(aril_program_run(p, ARIL_LIST(aril_value_tensor(x)), &t) < 0);
    check_error("not a tensor");
    aril_value *wide = aril_value_of(aril_zeros(ARIL_SHAPE(1, 3), ARIL_F32, aril_cpu()));
    CHECK(aril_program_run_values(p, ARIL_VALUES(wide), &y) < 0);
    check_error("2 classes");
    aril_program_free(p);
}

TEST(maps_become_rows)
{
    ARIL_SCOPE;
    aril_program *p = load_text(
        ML, "node { op_type: \"DictVectorizer\" domain: \"ai.onnx.ml\" input: \"x\" output: \"y\" "
            "attribute { name: \"int64_vocabulary\" type: INTS ints: 7 ints: 5 ints: 9 } } "
            "input { name: \"x\" type { map_type { key_type: 7 value_type { tensor_type { "
            "elem_type: 1 } } } } } output " ANY("y"));
    CHECK_MSG(p && aril_ok(), "%s", aril_error());
    aril_value *keys =
        aril_value_of(aril_from((int64_t[]){ 5, 9 }, ARIL_SHAPE(2), ARIL_I64, aril_cpu()));
    aril_value *map = aril_value_map(keys, ARIL_VALUES(number(2.5), number(4))), *y;
    CHECK_INT(aril_program_run_values(p, ARIL_VALUES(map), &y), ARIL_OK);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    char *why = test_difference(aril_value_tensor(y),
                                floats(ARIL_SHAPE(1, 3), (float[]){ 0, 2.5f, 4 }), 0, 0);
    CHECK_MSG(!why, "%s", why);
    CHECK(aril_program_run_values(p, ARIL_VALUES(keys), &y) < 0);
    check_error("a map");
    aril_program_free(p);
}

TEST(sequences_and_texts_of_models)
{
    ARIL_SCOPE;
    aril_program *p = load_text(
        OPSET(17),
        "node { op_type: \"SequenceInsert\" input: \"s\" input: \"x\" output: \"t\" } "
        "node { op_type: \"Identity\" input: \"a\" output: \"b\" } "
        "input { name: \"s\" type { sequence_type { elem_type { tensor_type { elem_type: "
        "1 } } } } } input " ANY("x") "input " TYPED(
            "a",
            8) "output { name: \"t\" type { sequence_type { elem_type { tensor_type { elem_type: "
               "1 } } } } } output " TYPED("b", 8));
    CHECK_MSG(p && aril_ok(), "%s", aril_error());
    aril_value *x = aril_value_of(aril_full(ARIL_SHAPE(2), 1, ARIL_F32, aril_cpu()));
    aril_value *a = aril_value_text(ARIL_SHAPE(2), (const char *[]){ "one", "two" }), *out[2];
    aril_value *s = aril_value_sequence((aril_values){ 0 });
    for (int i = 1; i < 4; i++) {
        CHECK_INT(aril_program_run_values(p, ARIL_VALUES(s, x, a), out), ARIL_OK);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        s = out[0]; /* what a run returned is an input of the next one */
        CHECK_INT((int)aril_value_count(s), i);
        CHECK(aril_value_string(out[1], 1) == aril_value_string(a, 1));
    }
    CHECK_NEAR(aril_item(aril_sum(aril_value_tensor(aril_value_at(s, 2)), ARIL_ALL)), 2, 0);
    CHECK(aril_program_run_values(p, ARIL_VALUES(s, x), out) < 0);
    check_error("got 2 inputs");
    aril_program_free(p);
}

/* ---- Tokenizer ---- */

static const char *tokenized(const char *attributes, int64_t n, const char *const *strings)
{
    static char text[1000];
    char graph[1000];
    ARIL_SCOPE;
    snprintf(graph, sizeof graph,
             "node { op_type: 'Tokenizer' domain: 'com.microsoft' input: 'x' output: 'y' %s "
             "attribute { name: 'pad_value' type: STRING s: '#' } } input %s output %s",
             attributes, TYPED("x", 8), TYPED("y", 8));
    aril_program *p =
        load_text(OPSET(17) "opset_import { domain: 'com.microsoft' version: 1 } ", graph);
    if (!p) test_fail(__FILE__, __LINE__, "%s", aril_error());
    aril_value *x = aril_value_text(ARIL_SHAPE(n), strings), *y = NULL;
    memset(text, 0, sizeof text);
    if (aril_program_run_values(p, ARIL_VALUES(x), &y) == ARIL_OK) {
        FILE *f = fmemopen(text, sizeof text - 1, "w");
        aril_value_print(y, f);
        fclose(f);
        text[strcspn(text, "\n")] = '\0';
    } else {
        snprintf(text, sizeof text, "%s", aril_error());
        aril_clear_error();
    }
    aril_program_free(p);
    return text;
}

#define SETTINGS(mark, least)                            \
    "attribute { name: 'mark' type: INT i: " #mark " } " \
    "attribute { name: 'mincharnum' type: INT i: " #least " } "
#define EXPRESSION(e) "attribute { name: 'tokenexp' type: STRING s: '" e "' } "
#define SEPARATORS(l) "attribute { name: 'separators' type: STRINGS strings: [" l "] } "

/* As onnxruntime computes them. */
TEST(tokens_of_strings)
{
    static const char *const x[] = { "ab c,d  e", "", "xyz \xc3\xa9 q" };
    CHECK_STR(tokenized(SETTINGS(0, 1) EXPRESSION("[a-z]+"), 3, x),
              "[\"ab\", \"c\", \"d\", \"e\", \"#\", \"#\", \"#\", \"#\", \"xyz\", \"q\", \"#\", "
              "\"#\"]");
    CHECK_STR(tokenized(SETTINGS(1, 2) EXPRESSION("[a-z]+"), 3, x),
              "[\"\x02\", \"ab\", \"\x03\", \"\x02\", \"\x03\", \"#\", \"\x02\", \"xyz\", "
              "\"\x03\"]");
    CHECK_STR(tokenized(SETTINGS(0, 1) EXPRESSION("."), 1, x + 2),
              "[\"x\", \"y\", \"z\", \" \", \"\xc3\xa9\", \" \", \"q\"]");
    CHECK_STR(tokenized(SETTINGS(0, 1) SEPARATORS("' '"), 3, x),
              "[\"ab\", \"c,d\", \"e\", \"#\", \"#\", \"#\", \"xyz\", \"\xc3\xa9\", \"q\"]");
    CHECK_STR(tokenized(SETTINGS(0, 1) SEPARATORS("'[ ,]+', 'b'"), 1, x),
              "[\"a\", \"c\", \"d\", \"e\"]");
    CHECK_STR(tokenized(SETTINGS(0, 1) SEPARATORS("''"), 1, x + 2),
              "[\"x\", \"y\", \"z\", \" \", \"\xc3\xa9\", \" \", \"q\"]");
    CHECK_STR(tokenized(SETTINGS(1, 1) SEPARATORS("' '"), 1, x + 1), "[]");
    CHECK(strstr(tokenized(SETTINGS(0, 1), 1, x), "either tokenexp or separators"));
    CHECK(
        strstr(tokenized(SETTINGS(0, 1) EXPRESSION("[a"), 1, x), "the pattern is not understood"));
}

TEST(a_type_cannot_be_that_of_a_sequence)
{
    ARIL_SCOPE;
    aril_program *p = load_text(
        OPSET(19),
        "node { op_type: \"CastLike\" input: \"x\" input: \"like\" output: \"y\" } input " ANY(
            "x") "input { name: \"like\" type { sequence_type { elem_type { tensor_type { "
                 "elem_type: 1 } } } } } output " ANY("y"));
    CHECK_MSG(p && aril_ok(), "%s", aril_error());
    aril_value *x = aril_value_of(aril_ones(ARIL_SHAPE(3), ARIL_F32, aril_cpu())), *y;
    for (int i = 0; i < 2; i++) {
        aril_value *like = aril_value_sequence(i ? ARIL_VALUES(x) : (aril_values){ 0 });
        CHECK(aril_program_run_values(p, ARIL_VALUES(x, like), &y) < 0);
        CHECK(!y);
        check_error("input 1 is not a tensor");
    }
    aril_program_free(p);
}
