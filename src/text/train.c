/* Learning merges from a text (Sennrich, Haddow, Birch: Neural Machine Translation of Rare Words
 * with Subword Units, 2016), over bytes. Distinct words are kept once, with how often they occur.
 * A heap holds the pairs by how often they occur; a count in it that is out of date is renewed when
 * it comes up. */
#include "core/error.h"
#include "core/memory.h"
#include "text/alphabet.h"
#include "text/split.h"
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* A distinct word: its tokens are symbol[begin .. begin + n). */
typedef struct word {
    size_t begin; /* in `symbol` */
    uint32_t n;
    int64_t count;
    const unsigned char *text;
    size_t size;
} word;

typedef struct pair {
    uint32_t left, right;
    int64_t count;
    uint32_t *in; /* the words it occurs in, perhaps some where it no longer does */
    uint32_t n, room;
} pair;

typedef struct training {
    aril_tokenizer *t;
    aril__bytes words; /* word */
    uint32_t *slot;    /* hash table of words: index + 1 */
    size_t slots;
    uint32_t *symbol;
    aril__bytes pairs;   /* pair */
    uint32_t *pair_slot; /* hash table of pairs: index + 1 */
    size_t pair_slots;
    struct {
        int64_t count;
        uint32_t pair;
    } * heap;
    size_t heap_n, heap_room;
    bool failed;
} training;

static word *word_at(training *r, size_t i)
{
    return (word *)(void *)r->words.at + i;
}

static pair *pair_at(training *r, size_t i)
{
    return (pair *)(void *)r->pairs.at + i;
}

static uint64_t mixed(uint64_t h)
{
    h *= UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 32;
}

/* ---- the words of a text ---- */

static uint64_t hash(const unsigned char *p, size_t n)
{
    uint64_t h = n;
    for (size_t i = 0; i < n; i++) h = mixed(h ^ p[i]);
    return h;
}

static uint32_t *slot_of(training *r, const unsigned char *p, size_t n)
{
    size_t at = (size_t)hash(p, n) & (r->slots - 1);
    for (; r->slot[at]; at = (at + 1) & (r->slots - 1)) {
        const word *w = word_at(r, r->slot[at] - 1);
        if (w->size == n && memcmp(w->text, p, n) == 0) break;
    }
    return &r->slot[at];
}

static bool count_word(training *r, const unsigned char *p, size_t n)
{
    size_t words = r->words.n / sizeof(word);
    if (words * 2 >= r->slots) {
        size_t slots = r->slots ? r->slots * 2 : 4096;
        uint32_t *slot = aril__calloc(slots * sizeof *slot);
        if (!slot || words >= UINT32_MAX / 2) {
            free(slot);
            return false;
        }
        free(r->slot);
        r->slot = slot;
        r->slots = slots;
        for (size_t i = 0; i < words; i++)
            *slot_of(r, word_at(r, i)->text, word_at(r, i)->size) = (uint32_t)i + 1;
    }
    uint32_t *slot = slot_of(r, p, n);
    if (*slot) {
        word_at(r, *slot - 1)->count++;
        return true;
    }
    word w = { .n = (uint32_t)n, .count = 1, .text = p, .size = n };
    if (!aril__bytes_add(&r->words, &w, sizeof w)) return false;
    *slot = (uint32_t)words + 1;
    return true;
}

/* ---- pairs ---- */

/* The index of a pair, added if needed; -1 when out of memory. */
static int64_t pair_of(training *r, uint32_t left, uint32_t right)
{
    size_t n = r->pairs.n / sizeof(pair);
    if (n * 2 >= r->pair_slots) {
        size_t slots = r->pair_slots ? r->pair_slots * 2 : 4096;
        uint32_t *slot = aril__calloc(slots * sizeof *slot);
        if (!slot || n >= UINT32_MAX / 2) {
            free(slot);
            return -1;
        }
        for (size_t i = 0; i < n; i++) {
            const pair *p = pair_at(r, i);
            size_t at = (size_t)mixed((uint64_t)p->left << 32 | p->right) & (slots - 1);
            while (slot[at]) at = (at + 1) & (slots - 1);
            slot[at] = (uint32_t)i + 1;
        }
        free(r->pair_slot);
        r->pair_slot = slot;
        r->pair_slots = slots;
    }
    size_t at = (size_t)mixed((uint64_t)left << 32 | right) & (r->pair_slots - 1);
    for (; r->pair_slot[at]; at = (at + 1) & (r->pair_slots - 1)) {
        const pair *p = pair_at(r, r->pair_slot[at] - 1);
        if (p->left == left && p->right == right) return r->pair_slot[at] - 1;
    }
    pair new = { .left = left, .right = right };
    if (!aril__bytes_add(&r->pairs, &new, sizeof new)) return -1;
    r->pair_slot[at] = (uint32_t)n + 1;
    return (int64_t)n;
}

/* Counts a pair `by` more times, for a word; returns its index, or -1 when out of memory. */
static int64_t count_pair(training *r, uint32_t left, uint32_t right, uint32_t in, int64_t by)
{
    int64_t i = pair_of(r, left, right);
    if (i < 0) return -1;
    pair *p = pair_at(r, (size_t)i);
    p->count += by;
    if (by < 0 || (p->n > 0 && p->in[p->n - 1] == in)) return i;
    if (p->n == p->room) {
        uint32_t room = p->room ? p->room * 2 : 4;
        uint32_t *more = aril__realloc(p->in, room * sizeof *more);
        if (!more) return -1;
        p->in = more;
        p->room = room;
    }
    p->in[p->n++] = in;
    return i;
}

/* ---- the heap: the most frequent pair, of equally frequent ones that of the smallest ids ---- */

static bool before(training *r, int64_t count_a, uint32_t a, int64_t count_b, uint32_t b)
{
    if (count_a != count_b) return count_a > count_b;
    const pair *x = pair_at(r, a), *y = pair_at(r, b);
    return x->left != y->left ? x->left < y->left : x->right < y->right;
}

static bool push(training *r, uint32_t p)
{
    if (r->heap_n == r->heap_room) {
        size_t room = r->heap_room ? r->heap_room * 2 : 4096;
        void *more = aril__realloc(r->heap, room * sizeof *r->heap);
        if (!more) return false;
        r->heap = more;
        r->heap_room = room;
    }
    int64_t count = pair_at(r, p)->count;
    size_t at = r->heap_n++;
    for (; at > 0; at = (at - 1) / 2) {
        size_t up = (at - 1) / 2;
        if (!before(r, count, p, r->heap[up].count, r->heap[up].pair)) break;
        r->heap[at] = r->heap[up];
    }
    r->heap[at].count = count;
    r->heap[at].pair = p;
    return true;
}

static void pop(training *r)
{
    size_t n = --r->heap_n, at = 0;
    int64_t count = r->heap[n].count;
    uint32_t p = r->heap[n].pair;
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && before(r, r->heap[child + 1].count, r->heap[child + 1].pair,
                                    r->heap[child].count, r->heap[child].pair))
            child++;
        if (!before(r, r->heap[child].count, r->heap[child].pair, count, p)) break;
        r->heap[at] = r->heap[child];
    }
    r->heap[at].count = count;
    r->heap[at].pair = p;
}

/* ---- training ---- */

static bool read_words(training *r, const unsigned char *text, size_t size)
{
    for (size_t at = 0; at < size;) {
        size_t n = aril__word_length(text + at, size - at);
        if (n >= UINT32_MAX || !count_word(r, text + at, n)) return false;
        at += n;
    }
    size_t words = r->words.n / sizeof(word), symbols = 0;
    for (size_t i = 0; i < words; i++) {
        word_at(r, i)->begin = symbols;
        symbols += word_at(r, i)->size;
    }
    r->symbol = aril__malloc((symbols + 1) * sizeof *r->symbol);
    if (!r->symbol) return false;
    for (size_t i = 0; i < words; i++) {
        const word *w = word_at(r, i);
        for (size_t k = 0; k < w->size; k++)
            r->symbol[w->begin + k] = (uint32_t)r->t->byte[w->text[k]];
    }
    return true;
}

static bool count_pairs(training *r)
{
    size_t words = r->words.n / sizeof(word);
    for (size_t i = 0; i < words; i++) {
        const word *w = word_at(r, i);
        const uint32_t *s = r->symbol + w->begin;
        for (uint32_t k = 0; k + 1 < w->n; k++)
            if (count_pair(r, s[k], s[k + 1], (uint32_t)i, w->count) < 0) return false;
    }
    for (size_t i = 0; i < r->pairs.n / sizeof(pair); i++)
        if (!push(r, (uint32_t)i)) return false;
    return true;
}

/* Replaces the pair in a word by a token. Pairs that the token makes are counted, and noted in
 * `made` to enter the heap. */
static bool merge_in_word(training *r, uint32_t which, uint32_t left, uint32_t right, uint32_t to,
                          aril__bytes *made)
{
    word *w = word_at(r, which);
    uint32_t *s = r->symbol + w->begin, n = 0;
    for (uint32_t k = 0; k < w->n; k++) {
        if (k + 1 == w->n || s[k] != left || s[k + 1] != right) {
            s[n++] = s[k];
            continue;
        }
        if (n > 0) {
            int64_t p = count_pair(r, s[n - 1], to, which, w->count);
            if (p < 0 || count_pair(r, s[n - 1], left, which, -w->count) < 0) return false;
            aril__bytes_add(made, &p, sizeof p);
        }
        if (k + 2 < w->n) {
            int64_t p = count_pair(r, to, s[k + 2], which, w->count);
            if (p < 0 || count_pair(r, right, s[k + 2], which, -w->count) < 0) return false;
            aril__bytes_add(made, &p, sizeof p);
        }
        s[n++] = to;
        k++;
    }
    w->n = n;
    return !made->failed;
}

/* Adds the token and the merge of a pair, unless there is such a token: then that is its result. */
static int64_t add_merge(training *r, uint32_t left, uint32_t right)
{
    const aril__token *a = &r->t->token[left], *b = &r->t->token[right];
    aril__bytes text = { 0 };
    aril__bytes_add(&text, r->t->text.at + a->at, a->size);
    aril__bytes_add(&text, r->t->text.at + b->at, b->size);
    int64_t id = text.failed ? ARIL_ERR_MEMORY : aril__token_find(r->t, text.at, text.n, true);
    if (id == -1) {
        id = r->t->n;
        aril_status s = aril__token_add(r->t, "tokenizer_train", id, text.at, text.n,
                                        ARIL__TOKEN_BYTES | ARIL__TOKEN_MODEL);
        if (s != ARIL_OK) id = s;
    }
    aril__bytes_free(&text);
    if (id < 0) return -1;
    return aril__merge_add(r->t, left, right, (uint32_t)id) == ARIL_OK ? id : -1;
}

static int by_index(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool merge_pair(training *r, uint32_t which)
{
    pair *p = pair_at(r, which);
    uint32_t left = p->left, right = p->right, *in = p->in, n = p->n;
    int64_t to = add_merge(r, left, right);
    if (to < 0) return false;
    aril__bytes made = { 0 };
    p->in = NULL;
    p->n = p->room = 0;
    bool good = true;
    for (uint32_t i = 0; i < n && good; i++)
        good = merge_in_word(r, in[i], left, right, (uint32_t)to, &made);
    free(in);
    size_t count = made.n / sizeof(int64_t);
    const int64_t *at = (const int64_t *)(const void *)made.at;
    if (count > 0) qsort(made.at, count, sizeof *at, by_index);
    for (size_t i = 0; i < count && good; i++)
        if ((i == 0 || at[i] != at[i - 1]) && pair_at(r, (size_t)at[i])->count > 0)
            good = push(r, (uint32_t)at[i]);
    pair_at(r, which)->count = 0;
    aril__bytes_free(&made);
    return good;
}

static bool learn(training *r, int64_t size, int64_t min_count)
{
    while (r->t->n < size && r->heap_n > 0) {
        uint32_t p = r->heap[0].pair;
        int64_t then = r->heap[0].count, now = pair_at(r, p)->count;
        pop(r);
        if (then != now) { /* it occurs elsewhere in merged tokens by now */
            if (now > 0 && !push(r, p)) return false;
            continue;
        }
        if (now < 1 || now < min_count) break;
        if (!merge_pair(r, p)) return false;
    }
    return true;
}

/* Special tokens first, then the bytes in the order of their spelling. */
static aril_status add_first_tokens(aril_tokenizer *t, aril_tokenizer_opts o)
{
    aril_status s = ARIL_OK;
    for (int i = 0; i < o.n_special && s == ARIL_OK; i++) {
        const char *text = o.special ? o.special[i] : NULL;
        if (!text || !*text)
            return aril__fail(ARIL_ERR_ARG, "tokenizer_train: special token %d is empty", i);
        /* Files spell bytes in an alphabet: a text of its letters is that token too. */
        size_t n = strlen(text);
        unsigned char *bytes = aril__malloc(n);
        if (!bytes) return aril__fail(ARIL_ERR_MEMORY, "out of memory for a special token");
        int64_t size = aril__alphabet_to_bytes(text, n, bytes);
        bool spelled = size >= 0;
        s = aril__token_add(t, "tokenizer_train", i, spelled ? (const void *)bytes : text,
                            spelled ? (size_t)size : n,
                            ARIL__TOKEN_MODEL | (spelled ? ARIL__TOKEN_BYTES : 0));
        free(bytes);
        if (s == ARIL_OK) s = aril__token_mark(t, i, ARIL__TOKEN_SPECIAL);
    }
    for (uint32_t code = '!'; code < 0x100 + 68 && s == ARIL_OK; code++)
        for (int b = 0; b < 256 && s == ARIL_OK; b++) {
            unsigned char byte = (unsigned char)b;
            if (aril__alphabet_code(byte) == code && t->byte[b] < 0)
                s = aril__token_add(t, "tokenizer_train", t->n, &byte, 1,
                                    ARIL__TOKEN_BYTES | ARIL__TOKEN_MODEL);
        }
    return s;
}

static void training_free(training *r)
{
    for (size_t i = 0; i < r->pairs.n / sizeof(pair); i++) free(pair_at(r, i)->in);
    aril__bytes_free(&r->words);
    aril__bytes_free(&r->pairs);
    free(r->slot);
    free(r->symbol);
    free(r->pair_slot);
    free(r->heap);
}

aril_tokenizer *aril_tokenizer_train(const char *text, size_t size, aril_tokenizer_opts o)
{
    if (!o.size) o.size = 30000;
    if (!o.min_count) o.min_count = 2;
    if (!text || o.n_special < 0 || o.size < 256 + o.n_special || o.size > ARIL__MAX_TOKENS) {
        aril__fail(ARIL_ERR_ARG,
                   "tokenizer_train: expected a text and a size from %d (256 bytes and the special "
                   "tokens) to %d, got %lld",
                   256 + (o.n_special > 0 ? o.n_special : 0), ARIL__MAX_TOKENS, (long long)o.size);
        return NULL;
    }
    training r = { .t = aril__tokenizer_new() };
    if (!r.t) return NULL;
    aril_status status = add_first_tokens(r.t, o);
    if (status == ARIL_OK && !(read_words(&r, (const unsigned char *)text, size) &&
                               count_pairs(&r) && learn(&r, o.size, o.min_count)))
        status = aril__fail(ARIL_ERR_MEMORY, "out of memory training a tokenizer");
    if (status == ARIL_OK) status = aril__tokenizer_ready(r.t);
    training_free(&r);
    if (status == ARIL_OK) return r.t;
    aril_tokenizer_free(r.t);
    return NULL;
}
