/* The op table itself: every row is complete. */
#include "aril/aril.h"
#include "ops/table/apply.h"
#include "ops/table/rows.h"
#include "support/ops.h"
#include "support/samples.h"
#include "support/test.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define FAIL(...) test_fail(__FILE__, __LINE__, __VA_ARGS__)

TEST(every_op_has_a_gradient_rule_or_says_that_it_has_none)
{
    for (int i = 0; i < aril__n_ops; i++) {
        const aril__op *op = aril__ops[i];
        bool nondiff = op->flags & NONDIFF, rule = op->vjp || op->decompose;
        if (!nondiff && !rule) FAIL("%s: no vjp, no decompose, and not marked NONDIFF", op->name);
    }
}

TEST(every_op_has_samples)
{
    static test_sample samples[TEST_SAMPLES];
    for (int i = 0; i < aril__n_ops; i++) {
        const aril__op *op = aril__ops[i];
        int n = test_samples(op, samples);
        if (n == 0 && !(op->formula && strcmp(op->formula->text, "NOGRAD") == 0))
            FAIL("%s: no samples", op->name);
        for (int k = 0; k < n; k++) {
            int n_in = samples[k].n_in;
            if (n_in < op->min_in || (op->max_in != ARIL__ANY && n_in > op->max_in))
                FAIL("%s: a sample of %d inputs", samples[k].name, n_in);
            if (op->attr_size && !samples[k].attrs)
                FAIL("%s: a sample without attributes", samples[k].name);
        }
    }
}

TEST(every_op_has_a_documentation_line)
{
    for (int i = 0; i < aril__n_ops; i++) {
        const aril__op *op = aril__ops[i];
        if (!op->doc || !*op->doc)
            FAIL("%s: no documentation", op->name);
        else if (strchr(op->doc, '\n') || strlen(op->doc) > 120)
            FAIL("%s: its documentation is more than one line", op->name);
    }
}

TEST(names_and_numbers_find_their_op)
{
    for (int i = 0; i < aril__n_ops; i++) {
        const aril__op *op = aril__ops[i];
        if (aril__op_numbered(aril__op_number(op)) != op)
            FAIL("%s: its number %d finds another op", op->name, aril__op_number(op));
        if (aril__op_find(op->name) != op) FAIL("%s: two ops have that name", op->name);
        for (const char *p = op->name; *p; p++)
            if (!islower((unsigned char)*p) && !isdigit((unsigned char)*p) && *p != '_')
                FAIL("%s: names are of small letters, digits and _", op->name);
    }
    CHECK(aril__op_find("no_such_op") == NULL);
}

TEST(rows_are_consistent)
{
    for (int i = 0; i < aril__n_ops; i++) {
        const aril__op *op = aril__ops[i];
        if (!op->infer) FAIL("%s: no shape rule", op->name);
        if ((op->n_out < 1 && !op->writes) || op->n_out > ARIL__MAX_OUT)
            FAIL("%s: %d results", op->name, op->n_out);
        if (op->writes && !(op->flags & NONDIFF))
            FAIL("%s: changes inputs in place, of which a gradient knows nothing", op->name);
        if (op->each && (op->min_in != op->fixed + op->each || op->max_in != ARIL__ANY ||
                         op->shape_only || op->index_in))
            FAIL("%s: a list is of one item or more, of tensors with values", op->name);
        if (op->min_in > op->max_in)
            FAIL("%s: at least %d inputs, at most %d", op->name, op->min_in, op->max_in);
        bool view = ARIL__IS_VIEW(op->out[0]);
        if (view && op->ref) FAIL("%s: a view with a kernel", op->name);
        if (!view && !op->ref && !op->formula && !op->decompose)
            FAIL("%s: no reference kernel", op->name);
        for (int k = 0; k < op->n_out; k++) {
            int of = ARIL__IS_WRITE(op->out[k]) ? op->out[k] - 32 : op->out[k] - 1;
            if (op->out[k] != FRESH && of >= op->max_in)
                FAIL("%s: result %d is made of input %d, which it has not", op->name, k, of);
        }
        if ((op->attr_size != 0) != (op->n_attrs != 0))
            FAIL("%s: attributes without a description, or the other way round", op->name);
        for (int k = 0; k < op->n_attrs; k++) {
            const aril__attr *a = &op->attrs[k];
            if (!a->name || a->count < 1 || a->offset + 8u * a->count > op->attr_size)
                FAIL("%s: attribute %d is malformed", op->name, k);
        }
    }
}

/* Attributes are compared and hashed as bytes, so they must have no padding. */
TEST(attribute_structs_have_no_padding)
{
    for (int i = 0; i < aril__n_ops; i++) {
        const aril__op *op = aril__ops[i];
        unsigned sum = 0;
        for (int k = 0; k < op->n_attrs; k++) sum += 8u * op->attrs[k].count;
        if (sum != op->attr_size)
            FAIL("%s: %u bytes of attributes in %d", op->name, sum, op->attr_size);
    }
}

/* A row says that it is a gradient: lists of ops leave it out. */
TEST(gradient_ops_are_marked)
{
    for (int i = 0; i < aril__n_ops; i++) {
        const aril__op *op = aril__ops[i];
        bool grad = op->flags & GRADIENT || (op->formula && op->formula->is_grad);
        if (aril_op_at(i).backward != grad) FAIL("%s: the list of ops says otherwise", op->name);
        if (strstr(op->name, "grad") && !grad) FAIL("%s: no flag GRADIENT", op->name);
    }
}

TEST(layouts_of_attributes_are_listed)
{
    char text[100];
    for (int i = 0; i < aril_op_count(); i++)
        if (strcmp(aril_op_at(i).name, "sum") == 0)
            CHECK_STR(aril_op_layout(i, text, sizeof text), "mask I64 1; keep I64 1; ");
    CHECK_STR(aril_op_layout(-1, text, sizeof text), "");
    CHECK(strstr(aril_error(), "op_layout: index -1 is out of range"));
    aril_clear_error();
}

TEST(onnx_names_look_like_names)
{
    for (int i = 0; i < aril__n_ops; i++) {
        const char *name = aril__ops[i]->onnx;
        if (name && !isupper((unsigned char)*name))
            FAIL("%s: ONNX name '%s'", aril__ops[i]->name, name);
    }
}

/* ---- rows ---- */

static aril_status never_run(aril_run *r)
{
    return aril__fail(ARIL_ERR_STATE, "%s: must not run", r->op->name);
}

TEST(rows_named_in_the_environment_are_left_out)
{
    static const aril_row rows[] = {
        { .op = "cat", .name = "left_out", .dtypes = DT_ALL, .strided = true, .run = never_run },
        { .op = "cat", .name = "other_lib_2", .dtypes = DT_ALL, .strided = true, .run = never_run },
        { .op = "cat", .name = "stays", .dtypes = 1, .strided = true, .run = never_run },
    };
    const aril_row *of[8];
    int before = aril__rows_of(ARIL__CPU, &aril__op_cat, 0, of, NULL);
    setenv("ARIL_WITHOUT_ROWS", "left_out,other_lib*", 1);
    CHECK_INT(aril__rows_register_behind(ARIL__CPU, rows, 3), ARIL_OK);
    unsetenv("ARIL_WITHOUT_ROWS");
    CHECK_INT(aril__rows_of(ARIL__CPU, &aril__op_cat, 8, of, NULL), before + 1);
    CHECK(of[before] == &rows[2]);
}
