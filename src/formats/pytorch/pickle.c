#include "formats/pytorch/pickle.h"

#include "core/error.h"
#include "core/memory.h"
#include "formats/number.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors and memory ---- */

void *aril__pickle_wrong(pickle *p, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    p->status = aril__fail(ARIL_ERR_FORMAT, "%s: its pickle is malformed at byte %zu: %s", p->name,
                           p->at, text);
    return NULL;
}

void *aril__pickle_refuse(pickle *p, const char *fmt, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    p->status = aril__fail(ARIL_ERR_FORMAT, "%s: %s", p->name, text);
    return NULL;
}

enum { CHUNK = 1 << 16 };

typedef struct pickle_chunk {
    struct pickle_chunk *next;
    size_t used, size;
    max_align_t at[];
} pickle_chunk;

void *aril__pickle_alloc(pickle *p, size_t size)
{
    size = (size + sizeof(max_align_t) - 1) & ~(sizeof(max_align_t) - 1);
    pickle_chunk *c = p->chunks;
    if (!c || c->size - c->used < size) {
        size_t room = size > CHUNK / 4 ? size : CHUNK;
        if (size > p->limit || p->used > p->limit - size)
            return aril__pickle_wrong(p, "it builds more than its size justifies");
        c = aril__calloc(sizeof *c + room);
        if (!c) {
            p->status = aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", p->name);
            return NULL;
        }
        c->size = room;
        p->used += room;
        if (p->chunks && size > CHUNK / 4) { /* what is left of the current one stays in use */
            c->next = p->chunks->next;
            p->chunks->next = c;
        } else {
            c->next = p->chunks;
            p->chunks = c;
        }
    }
    void *at = (char *)c->at + c->used;
    c->used += size;
    return at;
}

pickle_value *aril__pickle_new(pickle *p, pickle_kind kind)
{
    pickle_value *v = aril__pickle_alloc(p, sizeof *v);
    if (v) v->kind = kind;
    return v;
}

pickle_value *aril__pickle_text(pickle *p, pickle_kind kind, const char *at, size_t n)
{
    pickle_value *v = aril__pickle_new(p, kind);
    if (v) {
        v->u.text.at = at;
        v->u.text.n = n;
    }
    return v;
}

bool aril__pickle_append(pickle *p, pickle_value *list, pickle_value *v)
{
    if (list->u.items.n == list->u.items.cap) {
        size_t cap = list->u.items.cap ? 2 * list->u.items.cap : 4;
        pickle_value **at = aril__pickle_alloc(p, cap * sizeof(pickle_value *));
        if (!at) return false;
        if (list->u.items.n) memcpy(at, list->u.items.at, list->u.items.n * sizeof(pickle_value *));
        list->u.items.at = at;
        list->u.items.cap = cap;
    }
    list->u.items.at[list->u.items.n++] = v;
    return true;
}

void aril__pickle_free(pickle *p)
{
    for (pickle_chunk *next; p->chunks; p->chunks = next) {
        next = p->chunks->next;
        free(p->chunks);
    }
    free(p->stack);
    free(p->memo);
    free(p->mark);
    p->stack = p->memo = NULL;
    p->mark = NULL;
}

/* ---- the stack, its marks, the memo ---- */

static bool reserve(pickle *p, void *at, size_t need, size_t *cap, size_t size)
{
    if (need <= *cap) return true;
    size_t more = need > 2 * *cap ? need + 64 : 2 * *cap;
    void *grown = aril__realloc(*(void **)at, more * size);
    if (!grown) {
        p->status = aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", p->name);
        return false;
    }
    memset((char *)grown + *cap * size, 0, (more - *cap) * size);
    *(void **)at = grown;
    *cap = more;
    return true;
}

static bool push(pickle *p, pickle_value *v)
{
    if (!v || !reserve(p, &p->stack, p->n_stack + 1, &p->cap_stack, sizeof *p->stack)) return false;
    p->stack[p->n_stack++] = v;
    return true;
}

/* How much is on the stack above the latest mark. */
static size_t above_mark(const pickle *p)
{
    return p->n_stack - (p->n_mark ? p->mark[p->n_mark - 1] : 0);
}

static pickle_value *pop(pickle *p)
{
    if (!above_mark(p)) return aril__pickle_wrong(p, "the stack is empty");
    return p->stack[--p->n_stack];
}

static pickle_value *top(pickle *p)
{
    if (!above_mark(p)) return aril__pickle_wrong(p, "the stack is empty");
    return p->stack[p->n_stack - 1];
}

static bool push_mark(pickle *p)
{
    if (!reserve(p, &p->mark, p->n_mark + 1, &p->cap_mark, sizeof *p->mark)) return false;
    p->mark[p->n_mark++] = p->n_stack;
    return true;
}

/* Removes the latest mark: *items are the n values above it, valid until the next push. */
static bool pop_mark(pickle *p, pickle_value ***items, size_t *n)
{
    if (!p->n_mark) return aril__pickle_wrong(p, "a mark is missing"), false;
    *n = above_mark(p);
    p->n_stack = p->mark[--p->n_mark];
    *items = p->stack + p->n_stack;
    return true;
}

static bool put(pickle *p, uint64_t index)
{
    pickle_value *v = top(p);
    /* Python numbers its memo without gaps, and each entry takes bytes of the pickle. */
    if (v && index > p->size)
        aril__pickle_wrong(p, "its memo has the number %llu", (unsigned long long)index);
    if (!v || index > p->size ||
        !reserve(p, &p->memo, (size_t)index + 1, &p->cap_memo, sizeof *p->memo))
        return false;
    p->memo[index] = v;
    if (index >= p->n_memo) p->n_memo = (size_t)index + 1;
    return true;
}

static bool get(pickle *p, uint64_t index)
{
    if (index >= p->n_memo || !p->memo[index])
        return aril__pickle_wrong(p, "its memo has no number %llu", (unsigned long long)index),
               false;
    return push(p, p->memo[index]);
}

/* ---- operands ---- */

static const unsigned char *take(pickle *p, uint64_t n)
{
    if (n > p->size - p->at) return aril__pickle_wrong(p, "it is truncated");
    const unsigned char *at = p->data + p->at;
    p->at += (size_t)n;
    return at;
}

static bool number(pickle *p, int bytes, uint64_t *value)
{
    const unsigned char *at = take(p, (uint64_t)bytes);
    *value = 0;
    for (int i = 0; at && i < bytes; i++) *value |= (uint64_t)at[i] << 8 * i;
    return at != NULL;
}

/* A line without its end. */
static const char *line(pickle *p, size_t *n)
{
    const unsigned char *at = p->data + p->at, *end = memchr(at, '\n', p->size - p->at);
    if (!end) return aril__pickle_wrong(p, "a line does not end");
    *n = (size_t)(end - at);
    p->at += *n + 1;
    return (const char *)at;
}

static bool text(pickle *p, pickle_kind kind, int length_bytes)
{
    uint64_t n;
    if (!number(p, length_bytes, &n)) return false;
    const unsigned char *at = take(p, n);
    return at && push(p, aril__pickle_text(p, kind, (const char *)at, (size_t)n));
}

static bool push_int(pickle *p, int64_t i)
{
    pickle_value *v = aril__pickle_new(p, PICKLE_INT);
    if (v) v->u.i = i;
    return push(p, v);
}

static bool push_bool(pickle *p, bool b)
{
    pickle_value *v = aril__pickle_new(p, PICKLE_BOOL);
    if (v) v->u.i = b;
    return push(p, v);
}

static bool push_float(pickle *p, double f)
{
    pickle_value *v = aril__pickle_new(p, PICKLE_FLOAT);
    if (v) v->u.f = f;
    return push(p, v);
}

/* An integer of n bytes in two's complement. */
static bool push_long(pickle *p, uint64_t n)
{
    const unsigned char *at = take(p, n);
    if (!at) return false;
    if (n > 8) return push(p, aril__pickle_text(p, PICKLE_BIG, (const char *)at, (size_t)n));
    uint64_t value = n && at[n - 1] & 0x80 ? UINT64_MAX : 0;
    for (uint64_t i = 0; i < n; i++)
        value = (value & ~((uint64_t)0xff << 8 * i)) | (uint64_t)at[i] << 8 * i;
    return push_int(p, (int64_t)value);
}

/* Decimal digits; "L" may end them. More than 64 bits stay text. */
static bool push_decimal(pickle *p)
{
    size_t n;
    const char *at = line(p, &n);
    if (!at) return false;
    if (n == 2 && at[0] == '0' && (at[1] == '0' || at[1] == '1')) return push_bool(p, at[1] == '1');
    if (n && at[n - 1] == 'L') n--;
    size_t i = n && (*at == '-' || *at == '+');
    if (i == n) return aril__pickle_wrong(p, "an integer has no digits"), false;
    uint64_t value = 0;
    bool wide = false;
    for (; i < n; i++) {
        if (at[i] < '0' || at[i] > '9')
            return aril__pickle_wrong(p, "an integer is malformed"), false;
        wide |= __builtin_mul_overflow(value, UINT64_C(10), &value) ||
                __builtin_add_overflow(value, (uint64_t)(at[i] - '0'), &value);
    }
    if (wide || value > INT64_MAX) return push(p, aril__pickle_text(p, PICKLE_BIG, at, n));
    return push_int(p, *at == '-' ? -(int64_t)value : (int64_t)value);
}

static bool push_float_text(pickle *p)
{
    size_t n;
    double f;
    const char *at = line(p, &n);
    if (!at) return false;
    if (!aril__parse_number(at, n, &f)) return aril__pickle_wrong(p, "a float is malformed"), false;
    return push_float(p, f);
}

static bool push_binary_float(pickle *p)
{
    const unsigned char *at = take(p, 8);
    uint64_t bits = 0;
    double f;
    for (int i = 0; at && i < 8; i++) bits = bits << 8 | at[i];
    memcpy(&f, &bits, sizeof f);
    return at && push_float(p, f);
}

/* ---- text of protocol 0 ---- */

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* n hexadecimal digits; -1 if they are not there. */
static int64_t hex_digits(const char *at, size_t left, size_t n)
{
    int64_t value = 0;
    if (left < n) return -1;
    for (size_t i = 0; i < n; i++) {
        if (hex(at[i]) < 0) return -1;
        value = value * 16 + hex(at[i]);
    }
    return value;
}

static size_t put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) return *to = (char)c, 1;
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = { 0, 0xc0, 0xe0, 0xf0 };
    to[0] = (char)(lead[more] | c >> 6 * more);
    for (int i = 1; i <= more; i++) to[i] = (char)(0x80 | (c >> 6 * (more - i) & 0x3f));
    return (size_t)more + 1;
}

/* A quoted string of Python 2: 'text\n'. */
static bool push_quoted(pickle *p)
{
    size_t n;
    const char *at = line(p, &n);
    if (!at) return false;
    if (n < 2 || (*at != '\'' && *at != '"') || at[n - 1] != *at)
        return aril__pickle_wrong(p, "a string has no quotes"), false;
    char *to = aril__pickle_alloc(p, n);
    size_t used = 0;
    static const char letters[] = "n\nt\tr\r\\\\'\'\"\"a\ab\bf\fv\v";
    if (!to) return false;
    for (size_t i = 1; i + 1 < n; i++) {
        if (at[i] != '\\') {
            to[used++] = at[i];
            continue;
        }
        const char *found = NULL;
        if (++i + 1 >= n) return aril__pickle_wrong(p, "a string ends in a backslash"), false;
        for (const char *l = letters; *l && !found; l += 2)
            if (*l == at[i]) found = l + 1;
        int64_t code = at[i] == 'x' ? hex_digits(at + i + 1, n - i - 2, 2) : -1;
        if (found) {
            to[used++] = *found;
        } else if (code >= 0) {
            to[used++] = (char)code;
            i += 2;
        } else {
            return aril__pickle_wrong(p, "a string has an escape that is not known"), false;
        }
    }
    return push(p, aril__pickle_text(p, PICKLE_TEXT, to, used));
}

/* A line in Python's raw-unicode-escape: Latin-1 with \uXXXX and \UXXXXXXXX. */
static bool push_unicode_line(pickle *p)
{
    size_t n;
    const char *at = line(p, &n);
    char *to = at ? aril__pickle_alloc(p, 2 * n + 4) : NULL;
    size_t used = 0;
    if (!to) return false;
    for (size_t i = 0; i < n; i++) {
        size_t digits = at[i] != '\\' || i + 1 >= n ? 0
                        : at[i + 1] == 'u'          ? 4
                        : at[i + 1] == 'U'          ? 8
                                                    : 0;
        int64_t code = digits ? hex_digits(at + i + 2, n - i - 2, digits) : (unsigned char)at[i];
        if (code < 0 || code > 0x10ffff)
            return aril__pickle_wrong(p, "a string is malformed"), false;
        used += put_utf8(to + used, (uint32_t)code);
        i += digits ? digits + 1 : 0;
    }
    return push(p, aril__pickle_text(p, PICKLE_TEXT, to, used));
}

/* ---- containers ---- */

static bool push_tuple(pickle *p, pickle_value **items, size_t n)
{
    pickle_value *v = aril__pickle_new(p, PICKLE_TUPLE);
    if (!v) return false;
    v->u.items.at = n ? aril__pickle_alloc(p, n * sizeof(pickle_value *)) : NULL;
    if (n && !v->u.items.at) return false;
    if (n) memcpy(v->u.items.at, items, n * sizeof(pickle_value *));
    v->u.items.n = v->u.items.cap = n;
    return push(p, v);
}

static bool push_short_tuple(pickle *p, size_t n)
{
    if (above_mark(p) < n) return aril__pickle_wrong(p, "the stack is empty"), false;
    p->n_stack -= n;
    return push_tuple(p, p->stack + p->n_stack, n);
}

/* A list, tuple, set or dict of what is above the latest mark. */
static bool push_marked(pickle *p, pickle_kind kind)
{
    pickle_value **items;
    size_t n;
    if (!pop_mark(p, &items, &n)) return false;
    if (kind == PICKLE_DICT && n % 2) return aril__pickle_wrong(p, "a dict lacks a value"), false;
    if (!push_tuple(p, items, n)) return false;
    p->stack[p->n_stack - 1]->kind = kind;
    return true;
}

static bool add_items(pickle *p, pickle_value *to, pickle_kind kind, pickle_value **items, size_t n)
{
    if (!to) return false;
    bool fits = to->kind == kind || (kind == PICKLE_LIST && to->kind == PICKLE_SET);
    if (!fits) return aril__pickle_wrong(p, "items are added to a value that takes none"), false;
    if (kind == PICKLE_DICT && n % 2) return aril__pickle_wrong(p, "a dict lacks a value"), false;
    for (size_t i = 0; i < n; i++)
        if (!aril__pickle_append(p, to, items[i])) return false;
    return true;
}

static bool add_marked(pickle *p, pickle_kind kind)
{
    pickle_value **items;
    size_t n;
    return pop_mark(p, &items, &n) && add_items(p, top(p), kind, items, n);
}

static bool add_one(pickle *p, pickle_kind kind, size_t n)
{
    if (above_mark(p) < n) return aril__pickle_wrong(p, "the stack is empty"), false;
    p->n_stack -= n;
    return add_items(p, top(p), kind, p->stack + p->n_stack, n);
}

/* ---- classes and calls ---- */

static bool push_class(pickle *p, const char *module, size_t n_module, const char *name,
                       size_t n_name)
{
    const pickle_class *found = aril__pickle_find_class(p, module, n_module, name, n_name);
    pickle_value *v = found ? aril__pickle_new(p, PICKLE_CLASS) : NULL;
    if (v) v->u.type = found;
    return push(p, v);
}

static bool push_global(pickle *p)
{
    size_t n_module, n_name;
    const char *module = line(p, &n_module), *name = module ? line(p, &n_name) : NULL;
    return name && push_class(p, module, n_module, name, n_name);
}

static bool push_stack_global(pickle *p)
{
    pickle_value *name = pop(p), *module = name ? pop(p) : NULL;
    if (!module) return false;
    if (name->kind != PICKLE_TEXT || module->kind != PICKLE_TEXT)
        return aril__pickle_wrong(p, "a class is named by something other than text"), false;
    return push_class(p, module->u.text.at, module->u.text.n, name->u.text.at, name->u.text.n);
}

static bool call(pickle *p)
{
    pickle_value *args = pop(p), *callee = args ? pop(p) : NULL;
    if (!callee) return false;
    if (args->kind != PICKLE_TUPLE) return aril__pickle_wrong(p, "arguments are no tuple"), false;
    return push(p, aril__pickle_call(p, callee, args));
}

static bool call_with_keywords(pickle *p)
{
    pickle_value *keywords = pop(p);
    if (!keywords) return false;
    if (keywords->kind != PICKLE_DICT || keywords->u.items.n)
        return aril__pickle_wrong(p, "a class is called with keywords"), false;
    return call(p);
}

/* INST and OBJ of protocols 0 and 1: a class with the arguments above the mark. */
static bool call_marked(pickle *p, bool on_stack)
{
    if (!on_stack && !push_global(p)) return false;
    pickle_value *callee = on_stack ? NULL : pop(p), **items;
    size_t n;
    if ((!on_stack && !callee) || !pop_mark(p, &items, &n)) return false;
    if (on_stack && !n) return aril__pickle_wrong(p, "a class is missing"), false;
    if (on_stack) callee = items[0];
    if (!push_tuple(p, items + on_stack, n - on_stack)) return false;
    pickle_value *args = pop(p);
    return args && push(p, aril__pickle_call(p, callee, args));
}

static bool build(pickle *p)
{
    pickle_value *state = pop(p), *v = state ? top(p) : NULL;
    return v && aril__pickle_build(p, v, state);
}

static bool persistent(pickle *p, bool on_stack)
{
    pickle_value *id = NULL;
    if (on_stack) {
        id = pop(p);
    } else {
        size_t n;
        const char *at = line(p, &n);
        if (at) id = aril__pickle_text(p, PICKLE_TEXT, at, n);
    }
    if (!id) return false;
    if (!p->persistent)
        return aril__pickle_wrong(p,
                                  "it refers to data outside, which a plain pickle does not have"),
               false;
    return push(p, p->persistent(p, id));
}

/* ---- opcodes ---- */

static bool memo_by_line(pickle *p, bool store)
{
    size_t n;
    double f;
    const char *at = line(p, &n);
    if (!at) return false;
    if (!aril__parse_number(at, n, &f) || !(f >= 0 && f < 1e15))
        return aril__pickle_wrong(p, "a number of the memo is malformed"), false;
    return store ? put(p, (uint64_t)f) : get(p, (uint64_t)f);
}

static bool memo_by_number(pickle *p, int bytes, bool store)
{
    uint64_t index;
    if (!number(p, bytes, &index)) return false;
    return store ? put(p, index) : get(p, index);
}

static bool push_unsigned(pickle *p, int bytes)
{
    uint64_t value;
    return number(p, bytes, &value) && push_int(p, (int64_t)value);
}

static bool skip_frame(pickle *p)
{
    uint64_t n;
    if (!number(p, 8, &n)) return false;
    if (n > p->size - p->at) return aril__pickle_wrong(p, "it is truncated"), false;
    return true;
}

static bool push_sized_long(pickle *p, int bytes)
{
    uint64_t n;
    return number(p, bytes, &n) && push_long(p, n);
}

static bool pop_to_mark(pickle *p)
{
    pickle_value **items;
    size_t n;
    return pop_mark(p, &items, &n);
}

/* A quarter of the opcodes push a value that stands in the pickle. */
static bool push_literal(pickle *p, unsigned char op, bool *known)
{
    uint64_t value;
    *known = true;
    switch (op) {
    case 'N': return push(p, aril__pickle_new(p, PICKLE_NONE));
    case 0x88: return push_bool(p, true);
    case 0x89: return push_bool(p, false);
    case 'I':
    case 'L': return push_decimal(p);
    case 'J': return number(p, 4, &value) && push_int(p, (int32_t)(uint32_t)value);
    case 'K': return push_unsigned(p, 1);
    case 'M': return push_unsigned(p, 2);
    case 0x8a: return push_sized_long(p, 1);
    case 0x8b: return push_sized_long(p, 4);
    case 'F': return push_float_text(p);
    case 'G': return push_binary_float(p);
    case 'S': return push_quoted(p);
    case 'V': return push_unicode_line(p);
    case 'T': return text(p, PICKLE_TEXT, 4);
    case 'U': return text(p, PICKLE_TEXT, 1);
    case 'X': return text(p, PICKLE_TEXT, 4);
    case 0x8c: return text(p, PICKLE_TEXT, 1);
    case 0x8d: return text(p, PICKLE_TEXT, 8);
    case 'B': return text(p, PICKLE_BYTES, 4);
    case 'C': return text(p, PICKLE_BYTES, 1);
    case 0x8e:
    case 0x96: return text(p, PICKLE_BYTES, 8);
    case ']': return push(p, aril__pickle_new(p, PICKLE_LIST));
    case '}': return push(p, aril__pickle_new(p, PICKLE_DICT));
    case ')': return push(p, aril__pickle_new(p, PICKLE_TUPLE));
    case 0x8f: return push(p, aril__pickle_new(p, PICKLE_SET));
    default: *known = false; return false;
    }
}

static bool step(pickle *p, unsigned char op)
{
    bool known;
    bool done = push_literal(p, op, &known);
    if (known) return done;
    switch (op) {
    case 0x80: /* PROTO */
        if (p->at < p->size && p->data[p->at] > 5)
            return aril__pickle_wrong(p, "protocol %d is not known", p->data[p->at]), false;
        return take(p, 1) != NULL;
    case 0x95: return skip_frame(p);
    case '(': return push_mark(p);
    case '0': return above_mark(p) || !p->n_mark ? pop(p) != NULL : pop_to_mark(p);
    case '1': return pop_to_mark(p);
    case '2': return push(p, top(p));
    case 'p': return memo_by_line(p, true);
    case 'q': return memo_by_number(p, 1, true);
    case 'r': return memo_by_number(p, 4, true);
    case 0x94: return put(p, p->n_memo);
    case 'g': return memo_by_line(p, false);
    case 'h': return memo_by_number(p, 1, false);
    case 'j': return memo_by_number(p, 4, false);
    case 't': return push_marked(p, PICKLE_TUPLE);
    case 'l': return push_marked(p, PICKLE_LIST);
    case 'd': return push_marked(p, PICKLE_DICT);
    case 0x91: return push_marked(p, PICKLE_SET);
    case 0x85: return push_short_tuple(p, 1);
    case 0x86: return push_short_tuple(p, 2);
    case 0x87: return push_short_tuple(p, 3);
    case 'a': return add_one(p, PICKLE_LIST, 1);
    case 's': return add_one(p, PICKLE_DICT, 2);
    case 'e': return add_marked(p, PICKLE_LIST);
    case 'u': return add_marked(p, PICKLE_DICT);
    case 0x90: return add_marked(p, PICKLE_SET);
    case 'c': return push_global(p);
    case 0x93: return push_stack_global(p);
    case 'R':
    case 0x81: return call(p);
    case 0x92: return call_with_keywords(p);
    case 'i': return call_marked(p, false);
    case 'o': return call_marked(p, true);
    case 'b': return build(p);
    case 'P': return persistent(p, false);
    case 'Q': return persistent(p, true);
    default: return aril__pickle_wrong(p, "opcode 0x%02x is not known or not allowed", op), false;
    }
}

pickle_value *aril__pickle_load(pickle *p)
{
    p->n_stack = p->n_mark = p->n_memo = 0;
    if (p->memo) memset(p->memo, 0, p->cap_memo * sizeof *p->memo);
    while (p->at < p->size) {
        unsigned char op = p->data[p->at++];
        if (op == '.') {
            pickle_value *v = pop(p);
            if (v && (p->n_stack || p->n_mark))
                return aril__pickle_wrong(p, "values are left at its end");
            return v;
        }
        if (!step(p, op)) {
            if (p->status == ARIL_OK) p->status = aril__latest_status();
            return NULL;
        }
    }
    return aril__pickle_wrong(p, "it is truncated");
}
