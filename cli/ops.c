#include "commands.h"
#include "prototypes.h"

#include <aril/aril.h>

#include <string.h>

/* "src/ops/reduce/reduce.c" -> "reduce" */
static void family_of(const aril_op_info *op, char *buf, size_t size)
{
    const char *slash = strrchr(op->file, '/');
    snprintf(buf, size, "%s", slash ? slash + 1 : op->file);
    char *dot = strrchr(buf, '.');
    if (dot) *dot = '\0';
}

/* The folder of src/ops that it stands in, "reduce". */
static void folder_of(const aril_op_info *op, char *buf, size_t size)
{
    const char *end = strrchr(op->file, '/'), *start = end;
    while (start && start > op->file && start[-1] != '/') start--;
    snprintf(buf, size, "%.*s", start ? (int)(end - start) : 0, start ? start : "");
}

static void inputs_of(const aril_op_info *op, char *buf, size_t size)
{
    if (op->max_inputs < 0)
        snprintf(buf, size, "%d or more", op->min_inputs);
    else if (op->max_inputs == op->min_inputs)
        snprintf(buf, size, "%d", op->min_inputs);
    else
        snprintf(buf, size, "%d to %d", op->min_inputs, op->max_inputs);
}

static const prototype *function_named(const char *name)
{
    const prototype *p = prototypes;
    while (p->name && strcmp(p->name, name) != 0) p++;
    return p->name ? p : NULL;
}

/* The functions of an op, at most `most`: aril_NAME and its variants, otherwise those that run
 * it. */
static int functions_of(const aril_op_info *op, const prototype **out, int limit)
{
    static const char *const forms[] = { "", "_", "_with", "_scalar", "_scalar_" };
    int n = 0;
    for (size_t i = 0; i < sizeof forms / sizeof *forms && n < limit; i++) {
        char name[128];
        snprintf(name, sizeof name, "aril_%s%s", op->name, forms[i]);
        if ((out[n] = function_named(name))) n++;
    }
    if (n > 0) return n;
    for (const op_function *f = op_functions; f->op && n < limit; f++)
        if (strcmp(f->op, op->name) == 0 && (out[n] = function_named(f->function))) n++;
    return n;
}

enum { FUNCTIONS = 16 };

static void print_functions(const aril_op_info *op)
{
    const prototype *f[FUNCTIONS];
    int n = functions_of(op, f, FUNCTIONS);
    if (n == 0) printf("  C         no function of its own: other ops and gradients use it\n");
    for (int i = 0; i < n; i++) {
        if (i == 0 || strcmp(f[i]->header, f[i - 1]->header) != 0)
            printf("  %s         #include <%s>\n", i == 0 ? "C" : " ", f[i]->header);
        printf("            %s\n", f[i]->text);
    }
}

/* The rows that serve an op on NVIDIA GPUs, from src/backend/cuda/rows.list: "cudnn, cuda_conv". */
static const char *cuda_rows(const aril_op_info *op, char *buf, size_t size)
{
    size_t length = strlen(op->name), n = 0;
    const char *line = cuda_rows_text;
    while (line && (strncmp(line, op->name, length) != 0 || line[length] != ' ')) {
        line = strchr(line, '\n');
        if (line) line++;
    }
    if (!line) return op->view ? "a view" : "other ops";
    for (line += length + 1; *line && *line != '\n' && n + 3 < size; line++) {
        buf[n++] = *line == ' ' ? ',' : *line;
        if (*line == ' ') buf[n++] = ' ';
    }
    buf[n] = '\0';
    return buf;
}

static void print_one(int i)
{
    aril_op_info info = aril_op_at(i), *op = &info;
    char inputs[32], layout[1024], rows[256];
    inputs_of(op, inputs, sizeof inputs);
    printf("%s: %s\n  inputs    %s\n  results   %d%s\n  gradient  %s\n", op->name, op->doc, inputs,
           op->outputs, op->view ? ", a view" : "", op->gradient);
    print_functions(op);
    if (op->formula) printf("  formula   %s\n", op->formula);
    bool read = !op->formula || strstr(op->formula, "p0"); /* all formulas share one layout */
    if (read && *aril_op_layout(i, layout, sizeof layout)) printf("  attrs     %s\n", layout);
    if (op->autocast) printf("  autocast  %s\n", op->autocast);
    if (op->onnx) printf("  ONNX      %s\n", op->onnx);
    printf("  CUDA      %s\n", cuda_rows(op, rows, sizeof rows));
    const char *file = op->file;
    while (strncmp(file, "../", 3) == 0) file += 3; /* relative to the build folder */
    printf("  defined   %s\n", file);
}

static int print_list(bool all)
{
    int shown = 0;
    for (int i = 0; i < aril_op_count(); i++) {
        aril_op_info op = aril_op_at(i);
        if (op.backward && !all) continue;
        printf("%-24s %s\n", op.name, op.doc);
        shown++;
    }
    printf("%d ops", shown);
    if (!all) printf(", and %d that compute gradients (--all)", aril_op_count() - shown);
    puts("");
    return EXIT_DONE;
}

static void print_cell(const char *text)
{
    for (; text && *text; text++) printf(*text == '|' ? "\\|" : "%c", *text);
}

static int print_markdown(void)
{
    char last[64] = "", last_folder[64] = "", family[64], folder[64], rows[256];
    int public_ops = 0;
    for (int i = 0; i < aril_op_count(); i++) public_ops += !aril_op_at(i).backward;
    printf(
        "# The op table\n\nGenerated from the source by `aril ops --markdown`. %d ops, and %d "
        "more that compute their gradients.\n\n"
        "The column *gradient* says how an op is differentiated: by the *formula* of its row, by "
        "a *rule*\nin other ops, *decomposed* into other ops, or not at all (*none*). `aril ops "
        "NAME` "
        "shows the other forms of a function.\nAn op without a function serves other ops and "
        "gradients.\n\n"
        "The column *CUDA* names the rows that serve it on NVIDIA GPUs, in the order in which they "
        "are tried: `cudnn` and\n`cublaslt` are libraries, `cuda_...` Aril's own kernels. *CPU*: "
        "it falls back to the CPU. The other ops are views,\nor are computed by other ops.\n",
        public_ops, aril_op_count() - public_ops);
    for (int i = 0; i < aril_op_count(); i++) {
        aril_op_info op = aril_op_at(i);
        if (op.backward) continue;
        family_of(&op, family, sizeof family);
        folder_of(&op, folder, sizeof folder);
        if (strcmp(folder, last_folder) != 0) printf("\n## %s\n", folder);
        snprintf(last_folder, sizeof last_folder, "%s", folder);
        if (strcmp(family, last) != 0) {
            printf("\n### %s\n\n| op | what it gives | C | header | gradient | ONNX | CUDA |\n"
                   "|---|---|---|---|---|---|---|\n",
                   family);
            snprintf(last, sizeof last, "%s", family);
        }
        const prototype *f = NULL;
        functions_of(&op, &f, 1);
        printf("| `%s` | ", op.name);
        print_cell(op.doc);
        if (f)
            printf(" | `%s` | `%s`", f->text, f->header);
        else
            printf(" | |");
        printf(" | %s | %s | %s |\n", op.gradient, op.onnx ? op.onnx : "",
               cuda_rows(&op, rows, sizeof rows));
    }
    return EXIT_DONE;
}

static const char *nearest(const char *name)
{
    enum { MAX_OPS = 1024 };
    const char *names[MAX_OPS];
    int n = aril_op_count() < MAX_OPS ? aril_op_count() : MAX_OPS;
    for (int i = 0; i < n; i++) names[i] = aril_op_at(i).name;
    return aril_nearest(name, names, n);
}

/* The op with that name, or the one run by a function such as conv2d, aril_conv2d or exp_; -1. */
static int find_op(const char *name)
{
    const char *bare = strncmp(name, "aril_", 5) == 0 ? name + 5 : name;
    for (int i = 0; i < aril_op_count(); i++)
        if (strcmp(aril_op_at(i).name, bare) == 0) return i;
    for (int i = 0; i < aril_op_count(); i++) {
        const prototype *f[FUNCTIONS];
        aril_op_info op = aril_op_at(i);
        int n = functions_of(&op, f, FUNCTIONS);
        for (int k = 0; k < n; k++)
            if (strcmp(f[k]->name + 5, bare) == 0) return i;
    }
    return -1;
}

typedef struct options {
    bool all, markdown;
} options;

static int run(void *values, int n, char **argument)
{
    const options *o = values;
    if (o->markdown) return print_markdown();
    if (n == 0) return print_list(o->all);
    for (int k = 0; k < n; k++) {
        int found = find_op(argument[k]);
        if (found < 0) {
            const char *near = nearest(argument[k]);
            fprintf(stderr, "aril ops: no op '%s'", argument[k]);
            if (near)
                fprintf(stderr, "; did you mean %s?\n", near);
            else
                fputs("; `aril ops` lists them\n", stderr);
            return EXIT_USAGE;
        }
        print_one(found);
    }
    return EXIT_DONE;
}

static const option table[] = {
    { .name = "all",
      .at = offsetof(options, all),
      .help = "include the ops that compute gradients" },
    { .name = "markdown",
      .at = offsetof(options, markdown),
      .help = "print a Markdown table, as in docs/ops.md" },
    { 0 },
};

const command command_ops = { .name = "ops",
                              .summary = "list the operations, or describe some of them",
                              .arguments = "[NAME...]",
                              .options = table,
                              .size = sizeof(options),
                              .max = -1,
                              .run = run };
