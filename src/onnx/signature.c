/* What operators take: every node is checked once, when it is read, so that rules find the inputs
 * and attributes that their operator requires. */
#include "onnx/rules.h"

#include <stdarg.h>
#include <stdio.h>

typedef struct signature {
    const char *domain, *name;
    int from;
    const char *in, *out; /* a letter for each */
    const char *attributes;
} signature;

#define SIG(domain, name, from, in, out, attributes) { domain, name, from, in, out, attributes },
static const signature signatures[] = {
#include "onnx/signatures.def"
};
#undef SIG
enum { SIGNATURES = sizeof signatures / sizeof *signatures };

#define TYPES(name, from, in, out, ...) { name, from, in, out, { __VA_ARGS__ } },
static const onnx_type_row type_rows[] = {
#include "onnx/types.def"
};
#undef TYPES
enum { TYPE_ROWS = sizeof type_rows / sizeof *type_rows };

const onnx_type_row *aril__onnx_type_row(const char *name, int version)
{
    size_t low = 0, high = TYPE_ROWS;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(type_rows[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    const onnx_type_row *found = NULL;
    for (; low < TYPE_ROWS && strcmp(type_rows[low].name, name) == 0; low++)
        if (!found || type_rows[low].from <= version) found = &type_rows[low];
    return found;
}

char aril__onnx_type_letter(const char *letters, int i)
{
    int n = (int)strlen(letters);
    return n ? letters[i < n ? i : n - 1] : '.';
}

static int order(const signature *s, const char *domain, const char *name)
{
    int by_domain = strcmp(s->domain, domain);
    return by_domain ? by_domain : strcmp(s->name, name);
}

/* The signature of a version; an older version than the first has that of the first. */
static const signature *find(const char *domain, const char *name, int version)
{
    size_t low = 0, high = SIGNATURES;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (order(&signatures[middle], domain, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == SIGNATURES || order(&signatures[low], domain, name) != 0) return NULL;
    const signature *s = &signatures[low];
    while (s + 1 < signatures + SIGNATURES && order(s + 1, domain, name) == 0 &&
           s[1].from <= version)
        s++;
    return s;
}

static aril__cold aril_status wrong(const onnx_model *m, const onnx_node *n, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static aril_status wrong(const onnx_model *m, const onnx_node *n, const char *fmt, ...)
{
    char text[400], place[64];
    const char *name = aril__message_text(n->message, "name");
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return aril__fail(ARIL_ERR_FORMAT, "%s: at %s: node %s%s%s: %s", m->path,
                      aril__message_place(n->message, place, sizeof place), name, *name ? " " : "",
                      n->rule->name, text);
}

/* ---- attributes ---- */

/* By the letter of a kind: ONNX's number of the type, the field that holds the value. */
static const struct {
    char letter;
    int type;
    const char *field, *text;
} kinds[] = {
    { 'f', 1, "f", "a float" },
    { 'i', 2, "i", "an integer" },
    { 's', 3, "s", "a string" },
    { 't', 4, "t", "a tensor" },
    { 'g', 5, "g", "a graph" },
    { 'F', 6, "floats", "a list of floats" },
    { 'I', 7, "ints", "a list of integers" },
    { 'S', 8, "strings", "a list of strings" },
    { 'T', 9, "tensors", "a list of tensors" },
    { 'G', 10, "graphs", "a list of graphs" },
    { 'p', 11, "sparse_tensor", "a sparse tensor" },
    { 'P', 12, "sparse_tensors", "a list of sparse tensors" },
    { 'y', 13, "tp", "a type" },
    { 'Y', 14, "type_protos", "a list of types" },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* One attribute of a signature: "name:kind", "name:kind!" or "name:kind=WORD|WORD". */
typedef struct expected {
    const char *name;
    int length; /* of the name */
    char kind;
    bool required;
    const char *words; /* NULL: any text */
    const char *end;
} expected;

static bool next_expected(const char **at, expected *e)
{
    if (!**at) return false;
    const char *colon = strchr(*at, ':');
    e->name = *at;
    e->length = (int)(colon - *at);
    e->kind = colon[1];
    e->required = colon[2] == '!';
    e->end = colon + 2 + strcspn(colon + 2, " ");
    const char *words = colon + 2 + e->required;
    e->words = *words == '=' ? words + 1 : NULL;
    *at = e->end + (*e->end == ' ');
    return true;
}

static bool is_word(const expected *e, aril__slice text)
{
    for (const char *at = e->words;; at++) {
        size_t n = 0;
        while (at + n < e->end && at[n] != '|') n++;
        if (n == text.n && (!n || memcmp(at, text.at, n) == 0)) return true;
        at += n;
        if (at >= e->end) return false;
    }
}

static aril_status check_word(const onnx_model *m, const onnx_node *n, const expected *e,
                              aril__slice text)
{
    if (is_word(e, text)) return ARIL_OK;
    int shown = text.n < 40 ? (int)text.n : 40;
    return wrong(m, n, "attribute %.*s is \"%.*s\", expected one of %.*s", e->length, e->name,
                 shown, text.n ? (const char *)text.at : "", (int)(e->end - e->words), e->words);
}

static aril_status check_value(const onnx_model *m, const onnx_node *n, const expected *e,
                               const aril__message *value)
{
    int64_t type = aril__message_int(value, "type"); /* 0: not declared */
    int own = 0, held = -1;
    for (int k = 0; k < KINDS; k++) {
        if (kinds[k].letter == e->kind) own = k;
        if (kinds[k].type == type) held = k;
    }
    for (int k = 0; k < KINDS; k++)
        if (k != own && aril__message_has(value, kinds[k].field)) held = k;
    if (held >= 0 ? held != own : type != 0)
        return wrong(m, n, "attribute %.*s is %s, expected %s", e->length, e->name,
                     held >= 0 ? kinds[held].text : "of an unknown type", kinds[own].text);
    if (!e->words) return ARIL_OK;
    if (e->kind == 's') return check_word(m, n, e, aril__message_bytes(value, "s"));
    aril_status s = ARIL_OK;
    for (size_t i = 0; i < aril__message_count(value, "strings") && s == ARIL_OK; i++)
        s = check_word(m, n, e, aril__message_bytes_at(value, "strings", i));
    return s;
}

static aril_status check_attributes(const onnx_model *m, const onnx_node *n, const signature *s)
{
    uint64_t seen = 0;
    expected e;
    for (size_t i = 0; i < n->n_attributes; i++) {
        const onnx_attribute *a = &n->attribute[i];
        const char *at = s->attributes;
        int index = 0;
        bool found = false;
        for (; !found && next_expected(&at, &e); index += !found)
            found =
                strlen(a->name) == (size_t)e.length && !memcmp(a->name, e.name, strlen(a->name));
        if (!found && strncmp(a->name, "__", 2) == 0) continue; /* a note of another program */
        if (!found)
            return wrong(m, n, "there is no attribute %.100s in version %d", a->name, n->version);
        if (seen & UINT64_C(1) << index)
            return wrong(m, n, "two attributes have the name %s", a->name);
        seen |= UINT64_C(1) << index;
        aril_status status = check_value(m, n, &e, a->value);
        if (status < 0) return status;
    }
    const char *at = s->attributes;
    for (int index = 0; next_expected(&at, &e); index++)
        if (e.required && !(seen & UINT64_C(1) << index))
            return wrong(m, n, "the attribute %.*s is missing", e.length, e.name);
    return ARIL_OK;
}

/* ---- inputs and outputs ---- */

bool aril__onnx_requires(const char *letters, int i)
{
    for (int k = 0; k < i && *letters && *letters != '*' && *letters != '+'; k++) letters++;
    return *letters && *letters != 'o';
}

/* How many a signature takes at most; -1: any number. */
static int most_of(const char *letters)
{
    return strpbrk(letters, "*+") ? -1 : (int)strlen(letters);
}

/* The number of names, without empty ones at the end. */
static int count_names(const onnx_node *n, const char *field)
{
    size_t count = aril__message_count(n->message, field);
    while (count && !*aril__message_text_at(n->message, field, count - 1)) count--;
    return (int)count;
}

static aril_status check_ports(const onnx_model *m, const onnx_node *n, const signature *s)
{
    int n_in = count_names(n, "input"), n_out = count_names(n, "output");
    int most_in = most_of(s->in), most_out = most_of(s->out);
    if (most_in >= 0 && n_in > most_in)
        return wrong(m, n, "%d inputs, version %d takes at most %d", n_in, n->version, most_in);
    if (most_out >= 0 && n_out > most_out)
        return wrong(m, n, "%d outputs, version %d has at most %d", n_out, n->version, most_out);
    for (int i = 0; i < n_in; i++)
        if (aril__onnx_requires(s->in, i) &&
            !*aril__message_text_at(n->message, "input", (size_t)i))
            return wrong(m, n, "input %d is missing", i);
    for (int i = n_in; i < (int)strlen(s->in); i++)
        if (s->in[i] != 'o' && s->in[i] != '*') return wrong(m, n, "input %d is missing", i);
    return ARIL_OK;
}

aril_status aril__onnx_check_node(const onnx_model *m, onnx_node *n)
{
    const signature *s = find(n->rule->domain, n->rule->name, n->version);
    if (!s) return wrong(m, n, "the operator has no signature");
    n->takes = s->in;
    if (!*n->rule->domain) n->types = aril__onnx_type_row(n->rule->name, n->version);
    aril_status status = check_ports(m, n, s);
    return status < 0 ? status : check_attributes(m, n, s);
}

bool aril__onnx_takes_attribute(const char *name, int version, const char *attribute)
{
    const signature *s = find("", name, version);
    const char *at = s ? s->attributes : "";
    expected e;
    while (next_expected(&at, &e))
        if (strlen(attribute) == (size_t)e.length && !memcmp(attribute, e.name, strlen(attribute)))
            return true;
    return strncmp(attribute, "__", 2) == 0;
}

bool aril__onnx_most_ports(const char *name, int version, int *in, int *out)
{
    const signature *s = find("", name, version);
    if (!s || s->from > version) return false;
    *in = most_of(s->in);
    *out = most_of(s->out);
    return true;
}
