#include "cases.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WORDS = 16, MAX_DEPTH = 8 };

typedef struct words {
    int n;
    char at[MAX_WORDS][BENCH_NAME];
} words;

typedef struct bench_block {
    char name[BENCH_NAME];
    words parameters;
    int n;
    words *line;
} bench_block;

typedef struct reader {
    bench_cases *cases;
    const char *file;
    int line;
    char *error;
    size_t size;
    bool failed;
    bench_block *block; /* owner of the indented lines: one of these three */
    bench_net *net;
    bench_case *at;
} reader;

static const struct form {
    const char *name;
    bench_layer_type type;
    int numbers;
    bool window, bias; /* accepts stride and pad; accepts nobias */
} forms[] = {
    { "conv", BENCH_CONV, 2, true, true },
    { "linear", BENCH_LINEAR, 1, false, true },
    { "bn", BENCH_BN, 0, false, false },
    { "relu", BENCH_RELU, 0, false, false },
    { "tanh", BENCH_TANH, 0, false, false },
    { "dropout", BENCH_DROPOUT, 1, false, false },
    { "flatten", BENCH_FLATTEN, 0, false, false },
    { "avgpool", BENCH_AVGPOOL, 0, false, false },
    { "maxpool", BENCH_MAXPOOL, 1, true, false },
    { "rnn", BENCH_RNN, 1, false, false },
    { "rnnloop", BENCH_RNN_LOOP, 1, false, false },
    { "lstm", BENCH_LSTM, 2, false, false },
    { "residual", BENCH_RESIDUAL, 0, false, false },
    { "shortcut", BENCH_SHORTCUT, 0, false, false },
    { "end", BENCH_END, 0, false, false },
};

static const struct op_form {
    const char *name;
    int inputs, numbers;
} op_forms[] = {
#define BENCH_OP(name, inputs, numbers) { #name, inputs, numbers },
    BENCH_OPS(BENCH_OP)
#undef BENCH_OP
};
enum { N_OPS = sizeof op_forms / sizeof *op_forms };

__attribute__((format(printf, 2, 3))) static bool fail(reader *r, const char *format, ...)
{
    if (r->failed) return false;
    r->failed = true;
    int n = snprintf(r->error, r->size, "%s:%d: ", r->file, r->line);
    va_list args;
    va_start(args, format);
    if (n > 0 && (size_t)n < r->size) vsnprintf(r->error + n, r->size - (size_t)n, format, args);
    va_end(args);
    return false;
}

/* Allocates one more zeroed element; `n` exist already. */
static void *one_more(reader *r, int n, int max, size_t size)
{
    void *p = n < max ? calloc(1, size) : NULL;
    if (!p && n < max) fail(r, "out of memory");
    if (!p) fail(r, "more than %d entries", max);
    return p;
}

static bool is(const words *w, int i, const char *text)
{
    return i < w->n && strcmp(w->at[i], text) == 0;
}

static bool number(reader *r, const words *w, int i, double *to)
{
    if (i >= w->n) return fail(r, "expected a number after '%s'", w->at[w->n - 1]);
    char *end;
    *to = strtod(w->at[i], &end);
    if (*end || !(*to > -1e15 && *to < 1e15)) return fail(r, "'%s' is not a number", w->at[i]);
    return true;
}

static bool integer(reader *r, const words *w, int i, int64_t min, int64_t *to)
{
    double v = 0;
    if (!number(r, w, i, &v)) return false;
    *to = (int64_t)v;
    if ((double)*to != v || *to < min)
        return fail(r, "'%s' is not an integer of at least %lld", w->at[i], (long long)min);
    return true;
}

static bool set_name(reader *r, char *to, const words *w, int i)
{
    if (i >= w->n) return fail(r, "expected a name after '%s'", w->at[w->n - 1]);
    snprintf(to, BENCH_NAME, "%s", w->at[i]);
    return true;
}

static bool no_more(reader *r, const words *w, int n)
{
    return w->n <= n || fail(r, "unexpected '%s' after '%s'", w->at[n], w->at[n - 1]);
}

/* ---- nets ---- */

static bool add_layer(reader *r, bench_net *net, const words *w, int block, int depth);

static bool use_block(reader *r, bench_net *net, const words *w, int before, int depth)
{
    bench_block *b = NULL;
    int which = 0;
    for (int i = 0; i < before && !b; i++)
        if (is(w, 1, r->cases->block[i]->name)) b = r->cases->block[which = i];
    if (!b) return fail(r, "unknown block '%s': define it first", w->n > 1 ? w->at[1] : "");
    if (depth == MAX_DEPTH) return fail(r, "blocks are nested too deeply");
    int given = w->n - 2;
    int64_t times = 1;
    if (given >= 2 && is(w, w->n - 2, "times")) {
        if (!integer(r, w, w->n - 1, 1, &times)) return false;
        given -= 2;
    }
    if (given != b->parameters.n)
        return fail(r, "block '%s' expects %d numbers, got %d", b->name, b->parameters.n, given);
    for (int64_t k = 0; k < times; k++) {
        for (int i = 0; i < b->n; i++) {
            words line = b->line[i];
            for (int j = 1; j < line.n; j++)
                for (int p = 0; p < given; p++)
                    if (is(&line, j, b->parameters.at[p])) {
                        snprintf(line.at[j], BENCH_NAME, "%s", w->at[2 + p]);
                        break;
                    }
            if (!add_layer(r, net, &line, which, depth + 1)) return false;
        }
    }
    return true;
}

/* Adds a layer to a net, or expands a block; only blocks before number `before` may be used. */
static bool add_layer(reader *r, bench_net *net, const words *w, int before, int depth)
{
    if (is(w, 0, "use")) return use_block(r, net, w, before, depth);
    const struct form *f = NULL;
    for (size_t i = 0; i < sizeof forms / sizeof *forms && !f; i++)
        if (is(w, 0, forms[i].name)) f = &forms[i];
    if (!f) return fail(r, "unknown layer '%s'", w->at[0]);

    bench_layer l = { .type = f->type };
    int i = 1;
    for (; i <= f->numbers; i++) {
        int64_t n;
        if (f->type == BENCH_DROPOUT ? !number(r, w, i, &l.number[i - 1])
                                     : !integer(r, w, i, 1, &n))
            return false;
        if (f->type != BENCH_DROPOUT) l.number[i - 1] = (double)n;
    }
    for (; i < w->n; i++) {
        if (f->window && is(w, i, "stride")) {
            if (!integer(r, w, ++i, 1, &l.stride)) return false;
        } else if (f->window && is(w, i, "pad")) {
            if (!integer(r, w, ++i, 0, &l.pad)) return false;
        } else if (f->bias && is(w, i, "nobias")) {
            l.nobias = true;
        } else {
            return fail(r, "unexpected '%s' after '%s'", w->at[i], w->at[i - 1]);
        }
    }
    bench_layer *wider = realloc(net->layer, sizeof *wider * (size_t)(net->n + 1));
    if (!wider) return fail(r, "out of memory");
    net->layer = wider;
    wider[net->n++] = l;
    return true;
}

/* Checks that every residual is closed and has at most one shortcut. */
static bool check_nesting(reader *r, const bench_net *net)
{
    int depth = 0, shortcuts[MAX_DEPTH + 1] = { 0 };
    for (int i = 0; i < net->n; i++) {
        bench_layer_type t = net->layer[i].type;
        if (t == BENCH_RESIDUAL) {
            if (depth == MAX_DEPTH) return fail(r, "net '%s' is nested too deeply", net->name);
            shortcuts[++depth] = 0;
        } else if (t == BENCH_SHORTCUT && (depth == 0 || ++shortcuts[depth] > 1)) {
            return fail(r, "net '%s' has a shortcut outside a residual", net->name);
        } else if (t == BENCH_END && depth-- == 0) {
            return fail(r, "net '%s' has an end without a residual", net->name);
        }
    }
    return depth == 0 || fail(r, "net '%s' has a residual without an end", net->name);
}

/* ---- cases ---- */

static int find_slot(const bench_case *c, const char *name)
{
    for (int i = 0; i < c->n_slots; i++)
        if (strcmp(c->slot[i].name, name) == 0) return i;
    return -1;
}

static bench_slot *add_slot(reader *r, bench_case *c, const words *w, int i, bench_role role)
{
    char name[BENCH_NAME];
    if (!set_name(r, name, w, i)) return NULL;
    if (find_slot(c, name) >= 0) {
        fail(r, "'%s' is defined twice", name);
        return NULL;
    }
    if (c->n_slots == BENCH_SLOTS) {
        fail(r, "a case has at most %d tensors", BENCH_SLOTS);
        return NULL;
    }
    bench_slot *s = &c->slot[c->n_slots++];
    memcpy(s->name, name, sizeof name);
    s->role = role;
    return s;
}

static bool add_tensor(reader *r, bench_case *c, const words *w, bench_role role)
{
    bench_slot *s = add_slot(r, c, w, 1, role);
    int first = role == BENCH_LABELS ? 3 : 2;
    if (!s || (role == BENCH_LABELS && !integer(r, w, 2, 1, &s->classes))) return false;
    if (w->n <= first) return fail(r, "'%s' has no sizes", s->name);
    if (w->n - first > ARIL_MAX_DIMS) return fail(r, "'%s' has too many sizes", s->name);
    for (int i = first; i < w->n; i++)
        if (!integer(r, w, i, 1, &s->shape.dim[s->shape.ndim++])) return false;
    return true;
}

/* NAME = OP ARGUMENT... */
static bool add_call(reader *r, bench_case *c, const words *w)
{
    bench_call *call = &c->call[c->n_calls];
    int i = 3, inputs = 1, numbers = 0;
    if (w->n < 4) return fail(r, "unexpected '%s'", w->at[0]);
    if (is(w, 2, "net")) {
        call->op = BENCH_OP_net;
        for (int k = 0; k < r->cases->n_nets; k++)
            if (is(w, 3, r->cases->net[k]->name)) call->net = r->cases->net[k];
        if (!call->net) return fail(r, "unknown net '%s': define it first", w->at[3]);
        i = 4;
    } else if (is(w, 2, "zoo")) {
        call->op = BENCH_OP_net;
        if (!set_name(r, call->zoo, w, 3)) return false;
        i = 4;
    } else {
        int op = 0;
        while (op < N_OPS && !is(w, 2, op_forms[op].name)) op++;
        if (op == N_OPS) return fail(r, "unknown operation '%s'", w->at[2]);
        call->op = (bench_op)op;
        inputs = op_forms[op].inputs;
        numbers = op_forms[op].numbers;
    }
    for (; call->n_in < inputs; i++) {
        if (i >= w->n) return fail(r, "'%s' expects %d tensors", w->at[2], inputs);
        int slot = find_slot(c, w->at[i]);
        if (slot < 0) return fail(r, "unknown tensor '%s': define it first", w->at[i]);
        call->in[call->n_in++] = slot;
    }
    for (; i < w->n && call->n_numbers < numbers; i++)
        if (!number(r, w, i, &call->number[call->n_numbers++])) return false;
    if (call->op == BENCH_OP_cat && call->n_numbers == 0) return fail(r, "cat needs an axis");
    if (!no_more(r, w, i) || !add_slot(r, c, w, 0, BENCH_RESULT)) return false;
    call->out = c->n_slots - 1;
    c->n_calls++;
    return true;
}

static bool read_dtype(reader *r, const words *w, bench_case *c)
{
    c->tf32 = is(w, 1, "tf32");
    c->dtype = is(w, 1, "bf16") ? ARIL_BF16 : ARIL_F32;
    if (!is(w, 1, "bf16") && !is(w, 1, "f32") && !c->tf32)
        return fail(r, "dtype must be f32, tf32 or bf16");
    return no_more(r, w, 2);
}

static bool case_line(reader *r, bench_case *c, const words *w, const char *rest)
{
    int64_t n;
    if (is(w, 1, "=")) return add_call(r, c, w);
    if (is(w, 0, "about")) {
        if ((size_t)snprintf(c->about, sizeof c->about, "%s", rest) >= sizeof c->about)
            return fail(r, "expected a text of at most %zu characters", sizeof c->about - 1);
        return true;
    }
    if (is(w, 0, "input")) return add_tensor(r, c, w, BENCH_INPUT);
    if (is(w, 0, "param")) return add_tensor(r, c, w, BENCH_PARAM);
    if (is(w, 0, "labels")) return add_tensor(r, c, w, BENCH_LABELS);
    if (is(w, 0, "task")) {
        if (w->n < 2) return fail(r, "task needs a name");
        return set_name(r, c->task, w, 1) && no_more(r, w, 2);
    }
    if (is(w, 0, "dtype")) return read_dtype(r, w, c);
    if (is(w, 0, "want")) return number(r, w, 1, &c->want) && no_more(r, w, 2);
    if (is(w, 0, "sgd")) return number(r, w, 1, &c->sgd) && no_more(r, w, 2);
    if (is(w, 0, "priority")) {
        if (!integer(r, w, 1, 1, &n)) return false;
        c->priority = (int)n;
        return no_more(r, w, 2);
    }
    if (is(w, 0, "infer") || is(w, 0, "modules")) {
        *(is(w, 0, "infer") ? &c->infer : &c->modules) = true;
        return no_more(r, w, 1);
    }
    if (is(w, 0, "backward")) {
        c->backward = w->n > 1 ? find_slot(c, w->at[1]) : -1;
        if (c->backward < 0) return fail(r, "backward needs the name of a result");
        return no_more(r, w, 2);
    }
    return fail(r, "unknown line '%s' in a case", w->at[0]);
}

/* Finds the last use of each result, after which it is dropped. */
static void find_dead(bench_case *c)
{
    for (int s = 0; s < c->n_slots; s++) {
        bench_call *last = NULL;
        for (int k = 0; k < c->n_calls; k++)
            for (int i = 0; i < c->call[k].n_in; i++)
                if (c->call[k].in[i] == s) last = &c->call[k];
        if (last && c->slot[s].role == BENCH_RESULT && s != c->backward)
            last->dead[last->n_dead++] = s;
    }
}

static bool plain_layers(const bench_case *c)
{
    for (int k = 0; k < c->n_calls; k++) {
        const bench_net *net = c->call[k].net;
        for (int i = 0; net && i < net->n; i++)
            if (net->layer[i].type >= BENCH_RNN) return false;
    }
    return true;
}

static bool finish(reader *r)
{
    bench_case *c = r->at;
    if (r->net && !check_nesting(r, r->net)) return false;
    if (c) {
        if (c->n_calls == 0 && !c->task[0]) return fail(r, "case '%s' does nothing", c->name);
        if (c->task[0] && (c->n_calls || c->n_slots))
            return fail(r, "case '%s': a task cannot be combined with other lines", c->name);
        if (c->sgd != 0 && c->backward < 0)
            return fail(r, "case '%s': sgd without backward", c->name);
        if (c->infer && c->backward >= 0)
            return fail(r, "case '%s': backward in inference mode", c->name);
        if (c->modules && !plain_layers(c))
            return fail(r, "case '%s': modules support plain layers only", c->name);
        find_dead(c);
    }
    r->block = NULL;
    r->net = NULL;
    r->at = NULL;
    return true;
}

/* ---- lines ---- */

static bool taken(const bench_cases *c, const char *name, const char *kind)
{
    if (strcmp(kind, "case") == 0) {
        for (int i = 0; i < c->n_cases; i++)
            if (strcmp(c->at[i]->name, name) == 0) return true;
    } else if (strcmp(kind, "net") == 0) {
        for (int i = 0; i < c->n_nets; i++)
            if (strcmp(c->net[i]->name, name) == 0) return true;
    } else {
        for (int i = 0; i < c->n_blocks; i++)
            if (strcmp(c->block[i]->name, name) == 0) return true;
    }
    return false;
}

static bool begin(reader *r, const words *w)
{
    bench_cases *c = r->cases;
    if (!finish(r)) return false;
    if (w->n < 2) return fail(r, "'%s' has no name", w->at[0]);
    if (taken(c, w->at[1], w->at[0]))
        return fail(r, "%s '%s' is defined twice", w->at[0], w->at[1]);
    if (is(w, 0, "block")) {
        if (!(r->block = one_more(r, c->n_blocks, BENCH_NETS, sizeof *r->block))) return false;
        c->block[c->n_blocks++] = r->block;
        for (int i = 2; i < w->n; i++)
            snprintf(r->block->parameters.at[r->block->parameters.n++], BENCH_NAME, "%s", w->at[i]);
        return set_name(r, r->block->name, w, 1);
    }
    if (is(w, 0, "net")) {
        if (!(r->net = one_more(r, c->n_nets, BENCH_NETS, sizeof *r->net))) return false;
        c->net[c->n_nets++] = r->net;
        return set_name(r, r->net->name, w, 1) && no_more(r, w, 2);
    }
    if (!is(w, 0, "case"))
        return fail(r, "a line that is not indented must start with block, net or case");
    if (!(r->at = one_more(r, c->n_cases, BENCH_CASES, sizeof *r->at))) return false;
    c->at[c->n_cases++] = r->at;
    r->at->dtype = ARIL_F32;
    r->at->priority = 9;
    r->at->backward = -1;
    return set_name(r, r->at->name, w, 1) && no_more(r, w, 2);
}

static bool add_to_block(reader *r, bench_block *b, const words *w)
{
    words *wider = realloc(b->line, sizeof *wider * (size_t)(b->n + 1));
    if (!wider) return fail(r, "out of memory");
    b->line = wider;
    wider[b->n++] = *w;
    return true;
}

static bool split(reader *r, const char *from, const char *end, words *w)
{
    w->n = 0;
    while (from < end) {
        while (from < end && (*from == ' ' || *from == '\t')) from++;
        const char *start = from;
        while (from < end && *from != ' ' && *from != '\t') from++;
        if (from == start) break;
        if (from - start >= BENCH_NAME)
            return fail(r, "a word is longer than %d characters", BENCH_NAME - 1);
        if (w->n == MAX_WORDS) {
            if (is(w, 0, "about")) return true; /* the description may have any number of words */
            return fail(r, "more than %d words", MAX_WORDS);
        }
        snprintf(w->at[w->n++], BENCH_NAME, "%.*s", (int)(from - start), start);
    }
    return true;
}

static bool read_line(reader *r, const char *from, const char *end)
{
    const char *comment = memchr(from, '#', (size_t)(end - from));
    if (comment) end = comment;
    while (end > from && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r')) end--;
    words w;
    if (!split(r, from, end, &w)) return false;
    if (w.n == 0) return true;
    if (*from != ' ' && *from != '\t') return begin(r, &w);
    if (r->block) return add_to_block(r, r->block, &w);
    if (r->net) return add_layer(r, r->net, &w, r->cases->n_blocks, 0);
    if (!r->at) return fail(r, "an indented line must follow block, net or case");
    char rest[256] = "";
    const char *second = from + strspn(from, " \t");
    second += strcspn(second, " \t");
    second += strspn(second, " \t");
    if (second < end) snprintf(rest, sizeof rest, "%.*s", (int)(end - second), second);
    return case_line(r, r->at, &w, rest);
}

static void free_blocks(bench_cases *c)
{
    for (int i = 0; i < c->n_blocks; i++) {
        free(c->block[i]->line);
        free(c->block[i]);
    }
    c->n_blocks = 0;
}

void bench_cases_free(bench_cases *c)
{
    if (!c) return;
    free_blocks(c);
    for (int i = 0; i < c->n_nets; i++) {
        free(c->net[i]->layer);
        free(c->net[i]);
    }
    for (int i = 0; i < c->n_cases; i++) free(c->at[i]);
    free(c);
}

bench_cases *bench_cases_read(const char *text, const char *file, char *error, size_t size)
{
    reader r = { .cases = calloc(1, sizeof *r.cases), .file = file, .error = error, .size = size };
    if (!r.cases) {
        fail(&r, "out of memory");
        return NULL;
    }
    while (*text && !r.failed) {
        const char *end = strchr(text, '\n');
        if (!end) end = text + strlen(text);
        r.line++;
        read_line(&r, text, end);
        text = *end ? end + 1 : end;
    }
    if (!r.failed) finish(&r);
    if (r.failed) {
        bench_cases_free(r.cases);
        return NULL;
    }
    free_blocks(r.cases);
    return r.cases;
}
