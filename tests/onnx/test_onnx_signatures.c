/* What operators take: inputs, outputs and attributes of the wrong number, kind or word are refused
 * when a model is loaded. */
#include "onnx/onnx_text.h"
#include "onnx/rules.h"

#include <math.h>
#include <stdio.h>

/* Loading a node fails, and the message contains the text. */
static void refuses(const char *head, const char *node, const char *text)
{
    char graph[2000];
    snprintf(graph, sizeof graph, "node { %s } input %s input %s output %s", node, ANY("x"),
             ANY("z"), ANY("y"));
    aril_program *p = load_text(head, graph);
    if (p) test_fail(__FILE__, __LINE__, "loaded: %s", node);
    if (!strstr(aril_error(), text))
        test_fail(__FILE__, __LINE__, "\"%s\" does not contain \"%s\"", aril_error(), text);
    aril_clear_error();
    aril_program_free(p);
}

static void takes(const char *head, const char *node)
{
    char graph[2000];
    snprintf(graph, sizeof graph, "node { %s } input %s input %s output %s", node, ANY("x"),
             ANY("z"), ANY("y"));
    aril_program *p = load_text(head, graph);
    if (!p) test_fail(__FILE__, __LINE__, "%s: %s", node, aril_error());
    aril_clear_error();
    aril_program_free(p);
}

#define ON(op, inputs)    "op_type: \"" op "\" input: [" inputs "] output: \"y\" "
#define ML(op, inputs)    "domain: \"ai.onnx.ml\" " ON(op, inputs)
#define WITH(name, value) "attribute { name: \"" name "\" " value " } "
#define X                 "\"x\""
#define XZ                "\"x\", \"z\""
#define XXX               "\"x\", \"x\", \"x\""

TEST(every_operator_has_a_signature)
{
    for (int t = 0; aril__onnx_rules(t); t++)
        for (const onnx_rule *r = aril__onnx_rules(t); r->name; r++) {
            onnx_model m = { .path = (char *)"test" };
            aril__message *message = aril__message_new(&aril__onnx_NodeProto);
            onnx_node n = { .message = message, .rule = r, .version = r->from };
            if (aril__onnx_check_node(&m, &n) < 0 && strstr(aril_error(), "no signature"))
                test_fail(__FILE__, __LINE__, "%s.%s", r->domain, r->name);
            aril_clear_error();
            aril__message_free(message);
        }
}

TEST(inputs_that_are_missing_or_too_many)
{
    refuses(OPSET(13), ON("Exp", XZ), "node Exp: 2 inputs, version 13 takes at most 1");
    refuses(OPSET(13), ON("Add", XXX), "3 inputs, version 13 takes at most 2");
    refuses(OPSET(13), ON("Relu", "\"\""), "node Relu: input 0 is missing");
    refuses(OPSET(13), "op_type: \"Relu\" output: \"y\"", "input 0 is missing");
    refuses(OPSET(13), ON("Add", X), "input 1 is missing");
    refuses(OPSET(13), ON("Where", "\"x\", \"\", \"z\""), "input 1 is missing");
    refuses(OPSET(13), "op_type: \"Sum\" output: \"y\"", "input 0 is missing");
    refuses(OPSET(13), ON("Sum", "\"x\", \"\", \"z\""), "input 1 is missing");
    refuses(OPSET(20), ON("ImageDecoder", "\"\""), "node ImageDecoder: input 0 is missing");
    refuses(OPSET(26), ON("BitCast", "\"\"") WITH("to", "i: 1 type: INT"), "input 0 is missing");
    refuses(OPSET(13), "op_type: \"Relu\" input: \"x\" output: [\"y\", \"w\"]",
            "2 outputs, version 13 has at most 1");
    /* An empty name at the end is no input. */
    takes(OPSET(13), ON("Exp", "\"x\", \"\""));
    takes(OPSET(13), ON("Clip", "\"x\", \"\", \"z\""));
    /* The minimum became an input in version 11. */
    refuses(OPSET(10), ON("Clip", XZ), "2 inputs, version 10 takes at most 1");
}

TEST(a_function_called_without_an_input)
{
    ARIL_SCOPE;
    aril_tensor *y;
    aril_program *p = load_text(
        "ir_version: 10 opset_import { version: 18 } opset_import { domain: \"my\" version: 1 } "
        "functions { name: \"F\" domain: \"my\" opset_import { version: 18 } input: \"a\" "
        "input: \"b\" output: \"c\" node { op_type: \"Add\" input: [\"a\", \"b\"] output: \"c\" } "
        "} ",
        "node { op_type: \"F\" domain: \"my\" input: [\"x\", \"\"] output: \"y\" } input " ANY(
            "x") "output " ANY("y"));
    CHECK(p != NULL);
    CHECK(aril_program_run(p, ARIL_LIST(aril_ones(ARIL_SHAPE(2), ARIL_F32, aril_cpu())), &y) < 0);
    CHECK_MSG(strstr(aril_error(), "node Add: input 1 is missing"), "%s", aril_error());
    aril_clear_error();
    aril_program_free(p);
}

TEST(attributes_of_another_kind)
{
    refuses(OPSET(13), ON("LeakyRelu", X) WITH("alpha", "i: 1 type: INT"),
            "attribute alpha is an integer, expected a float");
    refuses(OPSET(13), ON("Concat", XZ) WITH("axis", "ints: 1 type: INTS"),
            "attribute axis is a list of integers, expected an integer");
    refuses(OPSET(13), ON("Concat", XZ) WITH("axis", "s: \"a\" type: STRING"),
            "attribute axis is a string, expected an integer");
    refuses(OPSET(13), ON("Concat", XZ) WITH("axis", "f: 1.5 type: FLOAT"),
            "attribute axis is a float, expected an integer");
    /* The declared type and the value contradict each other. */
    refuses(OPSET(13), ON("Concat", XZ) WITH("axis", "f: 1.5 type: INT"), "axis is a float");
    refuses(OPSET(13), ON("If", X) WITH("then_branch", "i: 1 type: INT"),
            "then_branch is an integer, expected a graph");
    /* Old files do not declare types, and 0 may be left out. */
    takes(OPSET(13), ON("Concat", XZ) WITH("axis", "i: 1"));
    takes(OPSET(13), ON("Concat", XZ) WITH("axis", "type: INT"));
    refuses(OPSET(13), ON("Concat", XZ) WITH("axis", "ints: 1"), "axis is a list of integers");
    refuses(
        "ir_version: 10 opset_import { version: 18 } opset_import { domain: \"my\" version: 1 } "
        "functions { name: \"F\" domain: \"my\" opset_import { version: 18 } input: \"a\" "
        "output: \"c\" attribute: \"how\" node { op_type: \"Elu\" input: \"a\" output: \"c\" "
        "attribute { name: \"alpha\" ref_attr_name: \"how\" type: FLOAT } } } ",
        "domain: \"my\" " ON("F", X) WITH("how", "s: \"hey\" type: STRING"),
        "node Elu: attribute alpha is a string, expected a float");
}

TEST(attributes_that_are_missing_or_unknown)
{
    refuses(OPSET(18), ON("Concat", XZ), "node Concat: the attribute axis is missing");
    takes(OPSET(1), ON("Concat", XZ)); /* was 1 */
    refuses(OPSET(18), ON("Cast", X), "the attribute to is missing");
    refuses(OPSET(18), ON("If", X) WITH("then_branch", "g { } type: GRAPH"),
            "the attribute else_branch is missing");
    refuses(OPSET(18), ON("Relu", X) WITH("alpha", "f: 1 type: FLOAT"),
            "there is no attribute alpha in version 18");
    refuses(OPSET(13), ON("Squeeze", X) WITH("axes", "ints: 0 type: INTS"),
            "there is no attribute axes in version 13");
    takes(OPSET(11), ON("Squeeze", X) WITH("axes", "ints: 0 type: INTS"));
    takes(OPSET(13), ON("Relu", X) WITH("__note", "f: 1 type: FLOAT"));
    refuses(OPSET(13),
            ON("LeakyRelu", X) WITH("alpha", "f: 1 type: FLOAT") WITH("alpha", "f: 2 type: FLOAT"),
            "two attributes have the name alpha");
}

TEST(words_that_are_none_of_those_of_an_attribute)
{
    static const char *const ml = "ir_version: 8 opset_import { version: 18 } opset_import { "
                                  "domain: \"ai.onnx.ml\" version: 3 } ";
#define WORD(name) WITH(name, "s: \"no_word\" type: STRING")
    static const char *const nodes[] = {
        ON("NegativeLogLikelihoodLoss", XZ) WORD("reduction"),
        ON("SoftmaxCrossEntropyLoss", XZ) WORD("reduction"),
        ON("ScatterElements", XXX) WORD("reduction"),
        ON("ScatterND", XXX) WORD("reduction"),
        ON("Resize", "\"x\", \"\", \"z\"") WORD("mode"),
        ON("Resize", "\"x\", \"\", \"z\"") WORD("coordinate_transformation_mode"),
        ON("Resize", "\"x\", \"\", \"z\"") WORD("nearest_mode"),
        ON("Resize", "\"x\", \"\", \"z\"") WORD("keep_aspect_ratio_policy"),
        ON("GridSample", XZ) WORD("mode"),
        ON("GridSample", XZ) WORD("padding_mode"),
        ON("RoiAlign", XXX) WORD("mode"),
        ON("RoiAlign", XXX) WORD("coordinate_transformation_mode"),
        ON("LSTM", XXX) WORD("direction"),
        ON("GRU", XXX) WORD("direction"),
        ON("RNN", XXX) WORD("direction"),
        ON("BitShift", XZ) WORD("direction"),
        ON("DepthToSpace", X) WITH("blocksize", "i: 2 type: INT") WORD("mode"),
        ON("Conv", XZ) WORD("auto_pad"),
        ON("MaxPool", X) WITH("kernel_shape", "ints: 2 type: INTS") WORD("auto_pad"),
        ON("StringNormalizer", X) WORD("case_change_action"),
        ON("Pad", XZ) WORD("mode"),
        ML("Normalizer", X) WORD("norm"),
        ML("LinearRegressor", X) WORD("post_transform"),
        ML("SVMRegressor", X) WORD("kernel_type"),
        ML("TreeEnsembleRegressor", X) WORD("aggregate_function"),
        ML("TreeEnsembleRegressor", X) WITH("nodes_modes", "strings: \"no_word\" type: STRINGS"),
    };
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++)
        refuses(ml, nodes[i], "is \"no_word\", expected one of ");
    refuses(OPSET(20), ON("Gelu", X) WORD("approximate"),
            "attribute approximate is \"no_word\", expected one of none|tanh");
    /* Neither a part of a word nor more than one. */
    refuses(OPSET(20), ON("Gelu", X) WITH("approximate", "s: \"tan\" type: STRING"), "\"tan\"");
    refuses(OPSET(20), ON("Gelu", X) WITH("approximate", "s: \"none|tanh\" type: STRING"), "none|");
    takes(OPSET(20), ON("Gelu", X) WITH("approximate", "s: \"tanh\" type: STRING"));
    takes(OPSET(20), ON("Conv", XZ) WITH("auto_pad", "s: \"\" type: STRING"));
}
