#include "weights_file.h"

#include "commands.h"

#include <aril/aril.h>

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Whether there is a file or a folder, or the index of a checkpoint that a path is the name of. */
static bool is_there(const char *path)
{
    char index[4096];
    struct stat st;
    int n = snprintf(index, sizeof index, "%s.index", path);
    return stat(path, &st) == 0 || (n > 0 && (size_t)n < sizeof index && stat(index, &st) == 0);
}

bool weights_is_file(const char *path)
{
    if (!is_there(path)) return false;
    aril_weights *w = aril_weights_open(path, (aril_weights_opts){ 0 });
    bool trained = false;
    aril_metadata m = aril_weights_metadata(w);
    for (int i = 0; i < m.n; i++) trained |= strcmp(m.key[i], "aril.model") == 0;
    aril_weights_close(w);
    return w && !trained;
}

static bool ends_with(const char *text, const char *suffix)
{
    size_t n = strlen(text), k = strlen(suffix);
    return n > k && strcmp(text + n - k, suffix) == 0;
}

bool weights_is_output(const char *path)
{
    static const char *const endings[] = { ".safetensors", ".pt",  ".pth", ".bin",  ".th",
                                           ".ckpt",        ".npz", ".h5",  ".hdf5", NULL };
    for (const char *const *e = endings; *e; e++)
        if (ends_with(path, *e)) return true;
    return false;
}

static aril_weights *open_weights(const char *path, const weights_options *o)
{
    return aril_weights_open(path,
                             (aril_weights_opts){ .root = o->all ? "" : o->root, .verify = true });
}

/* ---- show ---- */

/* "[64,3,7,7]" */
static const char *brackets(aril_shape shape, char *buf, size_t size)
{
    size_t n = (size_t)snprintf(buf, size, "[");
    for (int i = 0; i < shape.ndim && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s%" PRId64, i ? "," : "", shape.dim[i]);
    if (n < size) snprintf(buf + n, size - n, "]");
    return buf;
}

/* "1,234,567" */
static const char *with_commas(int64_t n, char *buf, size_t size)
{
    char digits[32];
    int count = snprintf(digits, sizeof digits, "%" PRId64, n);
    size_t used = 0;
    for (int i = 0; i < count && used + 2 < size; i++) {
        if (i > 0 && (count - i) % 3 == 0) buf[used++] = ',';
        buf[used++] = digits[i];
    }
    buf[used] = '\0';
    return buf;
}

static int64_t elements(aril_shape s)
{
    int64_t n = 1;
    for (int i = 0; i < s.ndim; i++) n *= s.dim[i];
    return n;
}

/* The length of the first `depth` parts of a name. */
static size_t prefix_of(const char *name, int64_t depth)
{
    const char *at = name;
    for (int64_t d = 0; d < depth; d++) {
        const char *dot = strchr(at, '.');
        if (!dot) return strlen(name);
        at = dot + 1;
    }
    return depth ? (size_t)(at - name) - 1 : strlen(name);
}

/* One line: tensors that follow each other and begin with the same parts. */
typedef struct line {
    int first, n; /* tensors */
    size_t length;
    int64_t elements;
} line;

static line next_line(const aril_weights *w, int first, int64_t depth)
{
    const char *name = aril_weights_name(w, first);
    line l = { .first = first, .length = prefix_of(name, depth) };
    for (int i = first; i < aril_weights_count(w); i++) {
        const char *other = aril_weights_name(w, i);
        if (i > first &&
            (!depth || prefix_of(other, depth) != l.length || strncmp(name, other, l.length) != 0))
            break;
        l.n++;
        l.elements += elements(aril_weights_shape(w, i));
    }
    return l;
}

static void print_line(const aril_weights *w, const line *l, int width, int dtype)
{
    char name[512], shape[128], count[48];
    snprintf(name, sizeof name, "%.*s", (int)(l->length < 500 ? l->length : 500),
             aril_weights_name(w, l->first));
    fputs("  ", stdout);
    print_padded(name, width);
    with_commas(l->elements, count, sizeof count);
    if (l->n > 1) {
        snprintf(shape, sizeof shape, "%d tensors", l->n);
        printf("  %-*s %-20s %14s\n", dtype, "", shape, count);
        return;
    }
    brackets(aril_weights_shape(w, l->first), shape, sizeof shape);
    const char *problem = aril_weights_problem(w, l->first);
    int shared = aril_weights_shared(w, l->first);
    printf("  %-*s %-20s %14s", dtype,
           problem ? "-" : aril_dtype_name(aril_weights_dtype(w, l->first)), shape, count);
    if (problem) {
        fputs("  cannot be read: ", stdout);
        print_text(stdout, problem);
    } else if (shared != l->first) {
        fputs("  shares memory with ", stdout);
        print_text(stdout, aril_weights_name(w, shared));
    }
    puts("");
}

/* The totals of each dtype; memory that tensors share counts once. */
static void print_totals(const aril_weights *w)
{
    enum { DTYPES = 64 };
    int64_t of[DTYPES] = { 0 }, all = 0;
    double bytes = 0;
    char text[48];
    int n = aril_weights_count(w), unreadable = 0;
    for (int i = 0; i < n; i++) {
        aril_dtype d = aril_weights_dtype(w, i);
        int64_t count = elements(aril_weights_shape(w, i));
        if (aril_weights_problem(w, i)) {
            unreadable++;
            continue;
        }
        all += count;
        if ((int)d < DTYPES) of[d] += count;
        if (aril_weights_shared(w, i) == i) bytes += (double)count * aril_dtype_bits(d) / 8;
    }
    printf("\n%d %s, %s elements", n, n == 1 ? "tensor" : "tensors",
           with_commas(all, text, sizeof text));
    const char *before = " (";
    for (int d = 0; d < DTYPES; d++) {
        if (!of[d]) continue;
        printf("%s%s of %s", before, with_commas(of[d], text, sizeof text),
               aril_dtype_name((aril_dtype)d));
        before = ", ";
    }
    printf("%s, %s", *before == ',' ? ")" : "", bytes_text(bytes, text, sizeof text));
    if (unreadable) printf("; %d cannot be read", unreadable);
    puts("");
}

int weights_show(const char *path, const weights_options *o)
{
    aril_weights *w = open_weights(path, o);
    if (!w) return report("show");
    print_text(stdout, path);
    printf(": %s", aril_weights_kind(w));
    if (*aril_weights_root(w)) {
        fputs(", the part ", stdout);
        print_text(stdout, aril_weights_root(w));
        fputs(o->root ? "" : " (--all shows everything)", stdout);
    }
    puts("");
    aril_metadata m = aril_weights_metadata(w);
    for (int i = 0; i < m.n; i++) {
        char value[128];
        snprintf(value, sizeof value, "%.100s%s", m.value[i],
                 strlen(m.value[i]) > 100 ? "..." : "");
        fputs("  ", stdout);
        print_text(stdout, m.key[i]);
        fputs(" = ", stdout);
        print_text(stdout, value);
        puts("");
    }
    puts("");
    int n = aril_weights_count(w), width = 8, dtype = 5;
    for (line l = { 0 }; l.first < n; l.first += l.n) {
        char name[512];
        l = next_line(w, l.first, o->depth);
        snprintf(name, sizeof name, "%.*s", (int)(l.length < 500 ? l.length : 500),
                 aril_weights_name(w, l.first));
        int here = printed_width(name);
        if (here > width) width = here; /* names are whole: --rename needs them */
        int length = (int)strlen(aril_dtype_name(aril_weights_dtype(w, l.first)));
        if (length > dtype) dtype = length;
    }
    for (line l = { 0 }; l.first < n; l.first += l.n) {
        l = next_line(w, l.first, o->depth);
        print_line(w, &l, width, dtype);
    }
    print_totals(w);
    aril_weights_close(w);
    return EXIT_DONE;
}

/* ---- convert ---- */

/* Parses "FROM=TO,FROM=TO" in place into rules, which the caller frees; NULL after a message. */
static aril_rename *read_rules(char *text)
{
    size_t n = 2;
    for (const char *c = text; *c; c++) n += *c == ',';
    aril_rename *rules = calloc(n, sizeof *rules);
    size_t count = 0;
    for (char *at = text; rules && at && *at;) {
        char *next = strchr(at, ','), *equal = strchr(at, '=');
        if (next) *next++ = '\0';
        if (!equal || equal == at) {
            fprintf(stderr, "aril convert: --rename expects FROM=TO, got '%s'\n", at);
            free(rules);
            return NULL;
        }
        *equal = '\0';
        rules[count++] = (aril_rename){ at, equal + 1 };
        at = next;
    }
    return rules;
}

/* Reads "500MB", "5GB" or a number of bytes; -1 if it is none. */
static int64_t read_size(const char *text)
{
    static const struct {
        const char *unit;
        double factor;
    } units[] = { { "", 1 }, { "KB", 1e3 }, { "MB", 1e6 }, { "GB", 1e9 } };
    char *end;
    double n = strtod(text, &end);
    while (*end == ' ') end++;
    for (int i = 0; i < 4; i++)
        if (strcasecmp(end, units[i].unit) == 0 && n > 0 && n * units[i].factor < 9e18)
            return (int64_t)(n * units[i].factor);
    return -1;
}

/* The tensors to write, with names of their own. */
typedef struct converted {
    aril_named named;
    aril_tensor **at;
    char **name;
    int *changed; /* by each rule: the names that it changed */
} converted;

static void free_converted(converted *c)
{
    for (int i = 0; i < c->named.n; i++) free(c->name[i]);
    free(c->at);
    free(c->name);
    free(c->changed);
}

static aril_status add(converted *c, aril_tensor *t, const char *name, const aril_dtype *dtype)
{
    if (dtype && aril_dtype_is_float(aril_dtype_of(t))) t = aril_cast(t, *dtype);
    if (aril_tensor_status(t) != ARIL_OK) return aril_tensor_status(t);
    c->at[c->named.n] = t;
    c->name[c->named.n] = strdup(name);
    if (!c->name[c->named.n]) return aril_fail(ARIL_ERR_MEMORY, "out of memory");
    c->named.n++;
    return ARIL_OK;
}

/* aril_renamed by one rule after the other, which counts the names that each changes. */
static const char *rename_counted(const char *name, const aril_rename *rules, int *changed,
                                  char *buf, size_t size)
{
    char before[4096];
    if (strlen(name) >= sizeof before) return aril_renamed(name, rules, buf, size); /* an error */
    for (int r = 0; name && rules[r].from; r++) {
        aril_rename one[] = { rules[r], { 0 } };
        snprintf(before, sizeof before, "%s", name);
        name = aril_renamed(before, one, buf, size);
        changed[r] += !name || strcmp(name, before) != 0;
    }
    return name;
}

static aril_status collect(aril_weights *w, const aril_rename *rules, const aril_dtype *dtype,
                           converted *c)
{
    int n = aril_weights_count(w);
    int n_rules = 0;
    while (rules && rules[n_rules].from) n_rules++;
    c->at = calloc((size_t)n + 1, sizeof *c->at);
    c->name = calloc((size_t)n + 1, sizeof *c->name);
    c->changed = calloc((size_t)n_rules + 1, sizeof *c->changed);
    if (!c->at || !c->name || !c->changed) return aril_fail(ARIL_ERR_MEMORY, "out of memory");
    aril_status s = ARIL_OK;
    for (int i = 0; i < n && s == ARIL_OK; i++) {
        char buf[4096];
        const char *name = aril_weights_name(w, i);
        if (rules) name = rename_counted(name, rules, c->changed, buf, sizeof buf);
        if (!name && !aril_ok()) return aril_error_code();
        if (name) s = add(c, aril_weights_tensor(w, i), name, dtype);
    }
    c->named.at = c->at;
    c->named.name = (const char *const *)c->name;
    if (s == ARIL_OK && n > 0 && c->named.n == 0)
        return aril_fail(ARIL_ERR_ARG, "--rename leaves out all %d tensors", n);
    return s;
}

/* A rule that changed nothing is probably misspelt. */
static void note_idle_rules(const converted *c, const aril_rename *rules)
{
    for (int r = 0; rules && rules[r].from; r++) {
        if (c->changed[r]) continue;
        fputs("aril convert: the rule '", stderr);
        print_text(stderr, rules[r].from);
        fputs("=", stderr);
        print_text(stderr, rules[r].to);
        fputs("' of --rename changes no name\n", stderr);
    }
}

/* Reads --dtype. False after an error. */
static bool read_dtype(const char *name, aril_dtype *dtype)
{
    if (aril_dtype_from_name(name, dtype) != ARIL_OK) return blame("--dtype");
    if (aril_dtype_is_float(*dtype)) return true;
    aril_fail(ARIL_ERR_DTYPE,
              "--dtype expects floats, such as f16 or bf16, got %s: weights would be rounded to "
              "integers",
              name);
    return false;
}

static int convert(const char *from, const char *to, const weights_options *o,
                   const aril_rename *rules, int64_t part)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_dtype dtype = ARIL_F32;
    if (o->dtype && !read_dtype(o->dtype, &dtype)) return report("convert");
    aril_weights *w = open_weights(from, o);
    converted c = { 0 };
    aril_status s = w ? collect(w, rules, o->dtype ? &dtype : NULL, &c) : aril_error_code();
    aril_metadata m = aril_weights_metadata(w);
    aril_weights_save_opts opts = { .max_part = part, .metadata = m.n ? &m : NULL };
    if (s == ARIL_OK) s = aril_weights_save(to, &c.named, opts);
    if (s == ARIL_OK) s = aril_weights_check(w);
    if (s == ARIL_OK) note_idle_rules(&c, rules);
    free_converted(&c);
    aril_weights_close(w);
    return s == ARIL_OK ? EXIT_DONE : report("convert");
}

int weights_convert(const char *from, const char *to, const weights_options *o)
{
    int64_t part = o->part ? read_size(o->part) : 0;
    if (part < 0) {
        fprintf(stderr, "aril convert: --part expects a size such as 5GB, got '%s'\n", o->part);
        return EXIT_USAGE;
    }
    char *text = o->rename ? strdup(o->rename) : NULL;
    aril_rename *rules = text ? read_rules(text) : NULL;
    int status = o->rename && !rules ? EXIT_USAGE : convert(from, to, o, rules, part);
    free(rules);
    free(text);
    return status;
}
