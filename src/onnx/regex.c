/* Regular expressions: parsed into a tree, compiled into instructions, and run as a set of states
 * over the characters of a text (Thompson's construction). */
#include "onnx/regex.h"

#include "core/memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_PATTERN = 100000, /* bytes */
    MAX_DEPTH = 200,      /* of groups */
    MAX_REPEAT = 1000,    /* as in RE2 */
    MAX_CODE = 20000,     /* instructions */
    MAX_CHAR = 0x10ffff,
};

enum flag { IGNORE_CASE = 1, DOT_ALL = 2, MULTI_LINE = 4 };

enum kind { EMPTY, SET, CAT, ALT, REPEAT, ASSERT };
enum assertion { TEXT_BEGIN, TEXT_END, LINE_BEGIN, LINE_END, WORD_BORDER, NO_WORD_BORDER };

typedef struct node {
    uint8_t kind, assertion;
    int min, max;         /* REPEAT; max -1: any number */
    uint32_t first, next; /* children in a list; 0: none */
    uint32_t set, count;  /* SET: ranges */
} node;

typedef struct range {
    uint32_t from, to;
} range;

enum code { OP_SET, OP_SPLIT, OP_ASSERT, OP_MATCH };

typedef struct instruction {
    uint8_t op, assertion;
    uint32_t next, other; /* SPLIT: both */
    uint32_t set, count;
} instruction;

struct aril__regex {
    node *nodes;
    range *ranges;
    instruction *code;
    uint32_t n_nodes, cap_nodes, n_ranges, cap_ranges, n_code, steps;
    uint32_t *list[2], *stack, *seen; /* states now and next; those that are to be followed */
    uint32_t n_list[2], mark;
};

typedef struct parser {
    aril__regex *r;
    const unsigned char *at, *end;
    const char *error;
    bool failed, quoted;
    int depth, flags;
} parser;

static uint32_t fail(parser *p, const char *error)
{
    if (!p->failed) p->error = error;
    p->failed = true;
    return 0;
}

/* ---- characters ---- */

/* The character at `at`, before `end`; a byte that is not UTF-8 stands for U+FFFD. */
static uint32_t decode(const unsigned char *at, const unsigned char *end, int *size)
{
    int n = *at < 0x80 ? 1 : *at >> 5 == 6 ? 2 : *at >> 4 == 14 ? 3 : *at >> 3 == 30 ? 4 : 0;
    *size = 1;
    if (n < 1 || end - at < n) return 0xfffd;
    uint32_t c = n == 1 ? *at : *at & (0x7fu >> n);
    for (int i = 1; i < n; i++) {
        if (at[i] >> 6 != 2) return 0xfffd;
        c = c << 6 | (at[i] & 0x3fu);
    }
    *size = n;
    return c;
}

static uint32_t take(parser *p)
{
    int size;
    uint32_t c = decode(p->at, p->end, &size);
    p->at += size;
    return c;
}

static bool accept(parser *p, char c)
{
    if (p->at == p->end || *p->at != (unsigned char)c) return false;
    p->at++;
    return true;
}

static bool begins(const parser *p, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(p->end - p->at) >= n && memcmp(p->at, text, n) == 0;
}

/* ---- the tree ---- */

static uint32_t new_node(parser *p, enum kind kind)
{
    aril__regex *r = p->r;
    if (p->failed) return 0;
    if (r->n_nodes == r->cap_nodes) {
        uint32_t cap = 2 * r->cap_nodes + 64;
        node *grown = aril__realloc(r->nodes, cap * sizeof *grown);
        if (!grown) return fail(p, NULL);
        r->nodes = grown;
        r->cap_nodes = cap;
    }
    r->nodes[r->n_nodes] = (node){ .kind = (uint8_t)kind, .set = r->n_ranges };
    return r->n_nodes++;
}

static void put_range(parser *p, uint32_t from, uint32_t to)
{
    aril__regex *r = p->r;
    if (p->failed || from > to) return;
    if (r->n_ranges == r->cap_ranges) {
        uint32_t cap = 2 * r->cap_ranges + 64;
        range *grown = aril__realloc(r->ranges, cap * sizeof *grown);
        if (!grown) {
            fail(p, NULL);
            return;
        }
        r->ranges = grown;
        r->cap_ranges = cap;
    }
    r->ranges[r->n_ranges++] = (range){ from, to };
}

/* The part of a range in the letters from `first` on, in the other case. */
static void put_other_case(parser *p, uint32_t from, uint32_t to, uint32_t first, uint32_t other)
{
    uint32_t low = from > first ? from : first, high = to < first + 25 ? to : first + 25;
    if (low <= high) put_range(p, low - first + other, high - first + other);
}

static void add_range(parser *p, uint32_t from, uint32_t to)
{
    put_range(p, from, to);
    if (!(p->flags & IGNORE_CASE)) return;
    put_other_case(p, from, to, 'a', 'A');
    put_other_case(p, from, to, 'A', 'a');
}

static int by_from(const void *a, const void *b)
{
    const range *x = a, *y = b;
    return x->from < y->from ? -1 : x->from > y->from;
}

/* Replaces the ranges from `start` on by those between them. */
static void negate(parser *p, uint32_t start)
{
    aril__regex *r = p->r;
    uint32_t n = r->n_ranges - start, from = 0;
    if (p->failed) return;
    if (n) qsort(r->ranges + start, n, sizeof *r->ranges, by_from);
    range *old = aril__malloc((n + 1) * sizeof *old);
    if (!old) {
        fail(p, NULL);
        return;
    }
    if (n) memcpy(old, r->ranges + start, n * sizeof *old);
    r->n_ranges = start;
    for (uint32_t i = 0; i < n; i++) {
        if (old[i].from > from) put_range(p, from, old[i].from - 1);
        if (old[i].to >= from) from = old[i].to + 1;
    }
    put_range(p, from, MAX_CHAR);
    free(old);
}

/* ---- classes ---- */

static const struct {
    const char *name, *ranges; /* pairs of characters */
} classes[] = {
    { "d", "09" },
    { "w", "09AZ__az" },
    { "s", "\t\n\f\r  " },
    { "[:alnum:]", "09AZaz" },
    { "[:alpha:]", "AZaz" },
    { "[:ascii:]", "\001\177" }, /* and 0 */
    { "[:blank:]", "\t\t  " },
    { "[:cntrl:]", "\001\037\177\177" }, /* and 0 */
    { "[:digit:]", "09" },
    { "[:graph:]", "!~" },
    { "[:lower:]", "az" },
    { "[:print:]", " ~" },
    { "[:punct:]", "!/:@[`{~" },
    { "[:space:]", "\t\r  " },
    { "[:upper:]", "AZ" },
    { "[:word:]", "09AZ__az" },
    { "[:xdigit:]", "09AFaf" },
};
enum { CLASSES = sizeof classes / sizeof *classes };

static void add_class(parser *p, int class, bool other)
{
    uint32_t start = p->r->n_ranges;
    const char *name = classes[class].name;
    if (strcmp(name, "[:ascii:]") == 0 || strcmp(name, "[:cntrl:]") == 0) put_range(p, 0, 0);
    for (const char *at = classes[class].ranges; *at; at += 2)
        add_range(p, (unsigned char)at[0], (unsigned char)at[1]);
    if (other) negate(p, start);
}

/* \d, \D and the like after the backslash: added and taken; false: another letter. */
static bool take_letter_class(parser *p)
{
    if (p->at == p->end) return false;
    for (int i = 0; i < 3; i++) {
        char small = classes[i].name[0], large = (char)(small - 'a' + 'A');
        if (*p->at != (unsigned char)small && *p->at != (unsigned char)large) continue;
        add_class(p, i, *p->at++ == (unsigned char)large);
        return true;
    }
    return false;
}

/* [:alpha:] or [:^alpha:] inside brackets. */
static bool take_named_class(parser *p)
{
    if (!begins(p, "[:")) return false;
    bool other = begins(p, "[:^");
    for (int i = 3; i < CLASSES; i++) {
        const char *rest = classes[i].name + 2;
        size_t n = strlen(rest), skip = other ? 3 : 2;
        if ((size_t)(p->end - p->at) < n + skip || memcmp(p->at + skip, rest, n) != 0) continue;
        p->at += skip + n;
        add_class(p, i, other);
        return true;
    }
    return false;
}

static int digit_of(int c, int base)
{
    int d = c >= '0' && c <= '9'   ? c - '0'
            : c >= 'a' && c <= 'f' ? c - 'a' + 10
            : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                   : 99;
    return d < base ? d : -1;
}

static uint32_t take_number(parser *p, int base, int most)
{
    uint32_t value = 0;
    for (int i = 0; i < most && p->at < p->end && digit_of(*p->at, base) >= 0; i++) {
        value = value * (uint32_t)base + (uint32_t)digit_of(*p->at++, base);
        if (value > MAX_CHAR) return fail(p, "a character is beyond Unicode");
    }
    return value;
}

/* The character of an escape, after the backslash. */
static uint32_t take_escape(parser *p)
{
    static const char letters[] = "afnrtv", values[] = "\a\f\n\r\t\v";
    if (p->at == p->end) return fail(p, "it ends with a backslash");
    unsigned char c = *p->at;
    const char *known = c ? strchr(letters, c) : NULL;
    bool octal =
        c == '0' || (c >= '1' && c <= '7' && p->end - p->at > 1 && digit_of(p->at[1], 8) >= 0);
    if (octal) return take_number(p, 8, 3);
    if (known) {
        p->at++;
        return (unsigned char)values[known - letters];
    }
    if (c == 'x') {
        p->at++;
        bool braces = accept(p, '{');
        const unsigned char *start = p->at;
        uint32_t value = take_number(p, 16, braces ? 8 : 2);
        if (p->at - start < (braces ? 1 : 2) || (braces && !accept(p, '}')))
            return fail(p, "a number of \\x is wrong");
        return value;
    }
    if (digit_of(c, 10) >= 0 || ((c | 32) >= 'a' && (c | 32) <= 'z'))
        return fail(p, "an escape is not supported");
    return take(p);
}

static uint32_t parse_brackets(parser *p)
{
    uint32_t set = new_node(p, SET), start = p->r->n_ranges;
    bool other = accept(p, '^');
    for (bool first = true; !p->failed; first = false) {
        if (p->at == p->end) return fail(p, "a bracket is not closed");
        if (!first && accept(p, ']')) break;
        if (take_named_class(p)) continue;
        bool escape = accept(p, '\\');
        if (escape && take_letter_class(p)) continue;
        uint32_t from = escape ? take_escape(p) : take(p), to = from;
        if (p->end - p->at > 1 && *p->at == '-' && p->at[1] != ']') {
            p->at++;
            to = accept(p, '\\') ? take_escape(p) : take(p);
            if (to < from) return fail(p, "a range ends before it begins");
        }
        add_range(p, from, to);
    }
    if (other) negate(p, start);
    if (p->failed) return 0;
    p->r->nodes[set].count = p->r->n_ranges - start;
    return set;
}

/* ---- expressions ---- */

static uint32_t parse_alternatives(parser *p);

static uint32_t set_of(parser *p, uint32_t from, uint32_t to)
{
    uint32_t set = new_node(p, SET), start = p->r->n_ranges;
    add_range(p, from, to);
    if (!p->failed) p->r->nodes[set].count = p->r->n_ranges - start;
    return set;
}

static uint32_t assertion_of(parser *p, enum assertion a)
{
    uint32_t id = new_node(p, ASSERT);
    if (id) p->r->nodes[id].assertion = (uint8_t)a;
    return id;
}

/* After "(?": flags, which hold to the end of the group around them or for a group of their own. */
static bool take_flags(parser *p, bool *group)
{
    int flags = p->flags;
    bool on = true;
    for (; p->at < p->end; p->at++) {
        int flag = *p->at == 'i'   ? IGNORE_CASE
                   : *p->at == 's' ? DOT_ALL
                   : *p->at == 'm' ? MULTI_LINE
                                   : 0;
        if (flag)
            flags = on ? flags | flag : flags & ~flag;
        else if (*p->at == '-' && on)
            on = false;
        else if (*p->at != 'U') /* which alternative is tried first does not matter */
            break;
    }
    *group = p->at < p->end && *p->at == ':';
    if (!*group && !(p->at < p->end && *p->at == ')')) return false;
    p->at++;
    p->flags = flags;
    return true;
}

static uint32_t parse_group(parser *p)
{
    int flags = p->flags;
    bool group = true;
    if (begins(p, "?P<") || begins(p, "?<")) {
        p->at += p->at[1] == 'P' ? 3 : 2;
        if (p->at < p->end && (*p->at == '=' || *p->at == '!'))
            return fail(p, "looking behind is not supported");
        while (p->at < p->end && *p->at != '>') p->at++;
        if (!accept(p, '>')) return fail(p, "the name of a group is not closed");
    } else if (accept(p, '?') && !take_flags(p, &group)) {
        return fail(p, "a group of this kind is not supported");
    }
    if (!group) return new_node(p, EMPTY); /* flags alone */
    if (++p->depth > MAX_DEPTH) return fail(p, "groups are nested too deep");
    uint32_t id = parse_alternatives(p);
    p->depth--;
    p->flags = flags;
    if (!p->failed && !accept(p, ')')) return fail(p, "a group is not closed");
    return id;
}

static uint32_t parse_escape(parser *p)
{
    uint32_t set = new_node(p, SET), start = p->r->n_ranges;
    if (take_letter_class(p)) {
        if (!p->failed) p->r->nodes[set].count = p->r->n_ranges - start;
        return set;
    }
    if (accept(p, 'A')) return assertion_of(p, TEXT_BEGIN);
    if (accept(p, 'z')) return assertion_of(p, TEXT_END);
    if (accept(p, 'b')) return assertion_of(p, WORD_BORDER);
    if (accept(p, 'B')) return assertion_of(p, NO_WORD_BORDER);
    uint32_t c = take_escape(p);
    return set_of(p, c, c);
}

static uint32_t parse_any(parser *p)
{
    if (p->flags & DOT_ALL) return set_of(p, 0, MAX_CHAR);
    uint32_t set = new_node(p, SET);
    put_range(p, 0, '\n' - 1);
    put_range(p, '\n' + 1, MAX_CHAR);
    if (!p->failed) p->r->nodes[set].count = 2;
    return set;
}

static uint32_t parse_atom(parser *p)
{
    if (p->quoted) {
        uint32_t c = take(p);
        return set_of(p, c, c);
    }
    if (accept(p, '(')) return parse_group(p);
    if (accept(p, '[')) return parse_brackets(p);
    if (accept(p, '.')) return parse_any(p);
    if (accept(p, '^')) return assertion_of(p, p->flags & MULTI_LINE ? LINE_BEGIN : TEXT_BEGIN);
    if (accept(p, '$')) return assertion_of(p, p->flags & MULTI_LINE ? LINE_END : TEXT_END);
    if (accept(p, '\\')) return parse_escape(p);
    if (*p->at == '*' || *p->at == '+' || *p->at == '?')
        return fail(p, "nothing stands before a repetition");
    uint32_t c = take(p);
    return set_of(p, c, c);
}

/* {n}, {n,} or {n,m}; false, with nothing taken: the brace is a character. */
static bool take_counts(parser *p, int *min, int *max)
{
    const unsigned char *at = p->at;
    long n[2] = { 0, -1 };
    int digits[2] = { 0 }, i = 0;
    if (at == p->end || *at++ != '{') return false;
    for (; at < p->end && *at != '}'; at++) {
        if (*at == ',' && i == 0 && digits[0]) {
            i = 1;
            continue;
        }
        if (*at < '0' || *at > '9') return false;
        if (!digits[i]++) n[i] = 0;
        if (n[i] <= MAX_REPEAT) n[i] = n[i] * 10 + (*at - '0');
    }
    if (at == p->end || !digits[0]) return false;
    p->at = at + 1;
    *min = (int)n[0];
    *max = i ? (int)n[1] : *min;
    if (n[0] > MAX_REPEAT || n[1] > MAX_REPEAT || (*max >= 0 && *max < *min))
        fail(p, "a repetition is out of range: at most 1000");
    return true;
}

static bool take_repetition(parser *p, int *min, int *max)
{
    *min = 0;
    *max = -1;
    if (p->at == p->end) return false;
    if (accept(p, '*')) return true;
    if (accept(p, '+')) return (*min = 1);
    if (accept(p, '?')) return (*max = 1);
    return take_counts(p, min, max);
}

/* Characters between \Q and \E stand for themselves. */
static void take_quotes(parser *p)
{
    for (; begins(p, p->quoted ? "\\E" : "\\Q"); p->at += 2) p->quoted = !p->quoted;
}

static uint32_t parse_repeated(parser *p)
{
    int min, max, more[2];
    uint32_t id = parse_atom(p);
    take_quotes(p);
    if (p->failed || p->quoted || !take_repetition(p, &min, &max)) return id;
    accept(p, '?'); /* prefers fewer: the same texts match */
    if (!p->failed && take_repetition(p, &more[0], &more[1]))
        return fail(p, "a repetition of a repetition");
    uint32_t all = new_node(p, REPEAT);
    if (!all) return 0;
    node *n = &p->r->nodes[all];
    n->min = min;
    n->max = max;
    n->first = id;
    return all;
}

static uint32_t parse_sequence(parser *p)
{
    uint32_t list = new_node(p, CAT), last = 0;
    for (take_quotes(p); !p->failed && p->at < p->end; take_quotes(p)) {
        if (!p->quoted && (*p->at == '|' || *p->at == ')')) break;
        uint32_t id = parse_repeated(p);
        if (p->failed) break;
        *(last ? &p->r->nodes[last].next : &p->r->nodes[list].first) = id;
        last = id;
    }
    return list;
}

static uint32_t parse_alternatives(parser *p)
{
    uint32_t list = new_node(p, ALT), last = 0;
    do {
        uint32_t id = parse_sequence(p);
        if (p->failed) return 0;
        *(last ? &p->r->nodes[last].next : &p->r->nodes[list].first) = id;
        last = id;
    } while (accept(p, '|'));
    return list;
}

/* ---- instructions ---- */

static uint32_t emit(aril__regex *r, instruction i)
{
    if (r->n_code >= MAX_CODE) return 0;
    r->code[r->n_code] = i;
    return r->n_code++;
}

/* Code for a node that goes on at `next`, made from the end to the beginning: where it begins; 0:
 * too large. Recursion is as deep as the groups are. */
static uint32_t compile(aril__regex *r, uint32_t id, uint32_t next)
{
    const node *n = &r->nodes[id];
    if (++r->steps > 4 * MAX_CODE) return 0; /* repetitions of what needs no instruction */
    switch (n->kind) {
    case EMPTY: return next;
    case SET:
        return emit(r,
                    (instruction){ .op = OP_SET, .next = next, .set = n->set, .count = n->count });
    case ASSERT:
        return emit(r, (instruction){ .op = OP_ASSERT, .next = next, .assertion = n->assertion });
    case ALT: {
        uint32_t at = compile(r, n->first, next);
        for (uint32_t k = r->nodes[n->first].next; k && at; k = r->nodes[k].next) {
            uint32_t other = compile(r, k, next);
            at = other ? emit(r, (instruction){ .op = OP_SPLIT, .next = at, .other = other }) : 0;
        }
        return at;
    }
    case CAT: {
        uint32_t count = 0, *list = NULL;
        for (uint32_t k = n->first; k; k = r->nodes[k].next) count++;
        if (count && !(list = aril__malloc(count * sizeof *list))) return 0;
        count = 0;
        for (uint32_t k = n->first; k; k = r->nodes[k].next) list[count++] = k;
        while (count && next) next = compile(r, list[--count], next);
        free(list);
        return next;
    }
    default: break;
    }
    if (n->max < 0) {
        uint32_t loop = emit(r, (instruction){ .op = OP_SPLIT, .other = next });
        uint32_t body = loop ? compile(r, n->first, loop) : 0;
        if (!body) return 0;
        r->code[loop].next = body;
        next = loop;
    }
    for (int i = n->min; i < n->max && next; i++) {
        uint32_t body = compile(r, n->first, next);
        next = body ? emit(r, (instruction){ .op = OP_SPLIT, .next = body, .other = next }) : 0;
    }
    for (int i = 0; i < n->min && next; i++) next = compile(r, n->first, next);
    return next;
}

/* ---- matching ---- */

typedef struct around {
    bool begin, end; /* of the text */
    uint32_t before, after;
} around;

static bool is_word(uint32_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

static bool holds(const around *a, enum assertion what)
{
    bool border = (!a->begin && is_word(a->before)) != (!a->end && is_word(a->after));
    switch (what) {
    case TEXT_BEGIN: return a->begin;
    case TEXT_END: return a->end;
    case LINE_BEGIN: return a->begin || a->before == '\n';
    case LINE_END: return a->end || a->after == '\n';
    case WORD_BORDER: return border;
    default: return !border;
    }
}

static void push(aril__regex *r, uint32_t state, uint32_t *n)
{
    if (r->seen[state] == r->mark) return;
    r->seen[state] = r->mark;
    r->stack[(*n)++] = state;
}

/* Adds the states that are reached from `state` without a character; true: the end is one. */
static bool follow(aril__regex *r, int list, uint32_t state, const around *a)
{
    uint32_t n = 0;
    bool matched = false;
    push(r, state, &n);
    while (n) {
        uint32_t at = r->stack[--n];
        const instruction *i = &r->code[at];
        if (i->op == OP_SET) r->list[list][r->n_list[list]++] = at;
        if (i->op == OP_MATCH) matched = true;
        if (i->op == OP_SPLIT || (i->op == OP_ASSERT && holds(a, (enum assertion)i->assertion)))
            push(r, i->next, &n);
        if (i->op == OP_SPLIT) push(r, i->other, &n);
    }
    return matched;
}

static bool is_in(const aril__regex *r, const instruction *i, uint32_t c)
{
    for (uint32_t k = 0; k < i->count; k++)
        if (c >= r->ranges[i->set + k].from && c <= r->ranges[i->set + k].to) return true;
    return false;
}

static void next_mark(aril__regex *r)
{
    if (++r->mark) return;
    memset(r->seen, 0, r->n_code * sizeof *r->seen);
    r->mark = 1;
}

ptrdiff_t aril__regex_longest(aril__regex *r, const char *text, size_t n, size_t from)
{
    const unsigned char *start = (const unsigned char *)text + from, *at = start,
                        *end = start - from + n;
    const unsigned char *before = at;
    around a = { .begin = !from, .end = at == end };
    int now = 0, size = 0;
    while (before > (const unsigned char *)text && (*--before & 0xc0) == 0x80) {
    }
    if (from) a.before = decode(before, end, &size);
    a.after = a.end ? 0 : decode(at, end, &size);
    r->n_list[0] = r->n_list[1] = 0;
    next_mark(r);
    ptrdiff_t longest = follow(r, now, r->n_code - 1, &a) ? 0 : -1;
    while (at < end && r->n_list[now]) {
        uint32_t c = a.after;
        at += size;
        a = (around){ .end = at == end, .before = c };
        if (!a.end) a.after = decode(at, end, &size);
        r->n_list[!now] = 0;
        next_mark(r);
        bool matched = false;
        for (uint32_t k = 0; k < r->n_list[now]; k++) {
            const instruction *i = &r->code[r->list[now][k]];
            if (is_in(r, i, c)) matched |= follow(r, !now, i->next, &a);
        }
        if (matched) longest = at - start;
        now = !now;
    }
    return longest;
}

bool aril__regex_matches(aril__regex *r, const char *text, size_t n)
{
    return aril__regex_longest(r, text, n, 0) == (ptrdiff_t)n;
}

/* ---- the expression ---- */

aril__regex *aril__regex_new(const char *pattern, size_t n, const char **error)
{
    aril__regex *r = aril__calloc(sizeof *r);
    parser p = { .r = r,
                 .at = (const unsigned char *)pattern,
                 .end = (const unsigned char *)pattern + n };
    *error = NULL;
    if (!r) return NULL;
    if (n > MAX_PATTERN) fail(&p, "it is too long");
    new_node(&p, EMPTY); /* 0 is none */
    uint32_t all = parse_alternatives(&p);
    if (!p.failed && p.at < p.end) fail(&p, "a parenthesis is not open");
    if (!p.failed && !(r->code = aril__malloc(MAX_CODE * sizeof *r->code))) fail(&p, NULL);
    if (!p.failed) {
        emit(r, (instruction){ .op = OP_MATCH }); /* 0 is none */
        uint32_t match = emit(r, (instruction){ .op = OP_MATCH });
        uint32_t begin = compile(r, all, match);
        /* The last one is where it begins. */
        if (!begin || !emit(r, (instruction){ .op = OP_SPLIT, .next = begin, .other = begin }))
            fail(&p, "it is too large");
    }
    size_t states = r->n_code * sizeof(uint32_t);
    if (!p.failed) {
        r->list[0] = aril__malloc(states);
        r->list[1] = aril__malloc(states);
        r->stack = aril__malloc(states);
        r->seen = aril__calloc(states);
        if (!r->list[0] || !r->list[1] || !r->stack || !r->seen) fail(&p, NULL);
    }
    if (!p.failed) return r;
    *error = p.error;
    aril__regex_free(r);
    return NULL;
}

void aril__regex_free(aril__regex *r)
{
    if (!r) return;
    free(r->nodes);
    free(r->ranges);
    free(r->code);
    free(r->list[0]);
    free(r->list[1]);
    free(r->stack);
    free(r->seen);
    free(r);
}
