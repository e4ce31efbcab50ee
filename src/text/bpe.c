/* Merges the bytes of a word: the pair of neighbors of the lowest rank first, of equal ones the
 * leftmost. A heap finds it, so that a word of n bytes takes n log n steps. */
#include "core/error.h"
#include "core/memory.h"
#include "text/split.h"
#include "text/tokenizer.h"

#include <stdlib.h>

#define NONE UINT32_MAX

/* A token in the word: a doubly linked list. */
typedef struct aril__symbol {
    uint32_t id; /* NONE: merged with the one before */
    uint32_t before, after;
    uint32_t rank; /* of the merge with the one after; NONE: there is none */
} symbol;

void aril__bpe_free(aril__bpe *b)
{
    free(b->symbol);
    free(b->heap);
    *b = (aril__bpe){ 0 };
}

/* Room for a word of n bytes. Each merge adds at most two pairs to the n - 1 of the beginning, and
 * takes one. */
static bool make_room(aril__bpe *b, size_t n)
{
    if (n <= b->room) return true;
    size_t room = n < 256 ? 256 : n;
    symbol *s = aril__realloc(b->symbol, room * sizeof *s);
    if (s) b->symbol = s;
    uint64_t *heap = aril__realloc(b->heap, 2 * room * sizeof *heap);
    if (heap) b->heap = heap;
    if (!s || !heap) return false;
    b->room = room;
    return true;
}

/* The heap holds rank and position, the smallest first. */
static void push(uint64_t *heap, size_t *n, uint64_t key)
{
    size_t at = (*n)++;
    for (; at > 0 && heap[(at - 1) / 2] > key; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = key;
}

static uint64_t pop(uint64_t *heap, size_t *n)
{
    uint64_t top = heap[0], key = heap[--*n];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < *n; at = child) {
        if (child + 1 < *n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= key) break;
        heap[at] = heap[child];
    }
    heap[at] = key;
    return top;
}

/* Looks up the pair that begins at a symbol. */
static void pair_at(const aril_tokenizer *t, aril__bpe *b, size_t *pairs, uint32_t at)
{
    symbol *s = &b->symbol[at];
    int64_t rank = s->after == NONE ? -1 : aril__merge_find(t, s->id, b->symbol[s->after].id);
    s->rank = rank < 0 ? NONE : (uint32_t)rank;
    if (rank >= 0) push(b->heap, pairs, (uint64_t)rank << 32 | at);
}

static void merge_all(const aril_tokenizer *t, aril__bpe *b, uint32_t n)
{
    size_t pairs = 0;
    for (uint32_t i = 0; i < n; i++) pair_at(t, b, &pairs, i);
    while (pairs > 0) {
        uint64_t top = pop(b->heap, &pairs);
        uint32_t at = (uint32_t)top, rank = (uint32_t)(top >> 32);
        symbol *s = &b->symbol[at];
        if (s->id == NONE || s->rank != rank) continue; /* the pair is gone */
        symbol *next = &b->symbol[s->after];
        s->id = t->merge[rank].result;
        s->after = next->after;
        next->id = NONE;
        if (s->after != NONE) b->symbol[s->after].before = at;
        pair_at(t, b, &pairs, at);
        if (s->before != NONE) pair_at(t, b, &pairs, s->before);
    }
}

/* The tokens of the bytes of a word. Bytes without one become the unknown token, or an error. */
static aril_status start(const aril_tokenizer *t, aril__bpe *b, const unsigned char *word, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int64_t id = t->byte[word[i]] >= 0 ? t->byte[word[i]] : t->unknown;
        if (id < 0)
            return aril__fail(ARIL_ERR_ARG,
                              "the tokenizer has no token for the byte 0x%02x, and none for "
                              "unknown bytes",
                              word[i]);
        b->symbol[i] = (symbol){ .id = (uint32_t)id,
                                 .before = i > 0 ? (uint32_t)i - 1 : NONE,
                                 .after = i + 1 < n ? (uint32_t)i + 1 : NONE };
    }
    return ARIL_OK;
}

aril_status aril__bpe_word(const aril_tokenizer *t, aril__bpe *b, const unsigned char *word,
                           size_t n, aril__bytes *to)
{
    int64_t whole = aril__token_find(t, word, n, true);
    if (whole >= 0 && !(t->token[whole].kind & ARIL__TOKEN_MODEL)) whole = -1;
    uint8_t known =
        whole < 0 ? ARIL__IN_PARTS : atomic_load_explicit(&t->whole[whole], memory_order_relaxed);
    if (known == ARIL__WHOLE) {
        aril__bytes_add(to, &whole, sizeof whole);
        return ARIL_OK;
    }
    if (n >= NONE) return aril__fail(ARIL_ERR_ARG, "a word of %zu bytes is too long", n);
    if (!make_room(b, n))
        return aril__fail(ARIL_ERR_MEMORY, "out of memory for a word of %zu bytes", n);
    aril_status status = start(t, b, word, n);
    if (status != ARIL_OK) return status;
    merge_all(t, b, (uint32_t)n);
    int64_t count = 0;
    for (uint32_t i = 0; i != NONE; i = b->symbol[i].after, count++) {
        int64_t id = b->symbol[i].id;
        aril__bytes_add(to, &id, sizeof id);
    }
    if (known == ARIL__UNKNOWN)
        atomic_store_explicit(&t->whole[whole],
                              count == 1 && b->symbol[0].id == whole ? ARIL__WHOLE : ARIL__IN_PARTS,
                              memory_order_relaxed);
    return ARIL_OK;
}

/* ---- texts ---- */

static aril_status encode_words(const aril_tokenizer *t, aril__bpe *b, const unsigned char *p,
                                size_t n, aril__bytes *to)
{
    aril_status status = ARIL_OK;
    for (size_t at = 0; at < n && status == ARIL_OK;) {
        size_t length = aril__word_length(p + at, n - at);
        status = aril__bpe_word(t, b, p + at, length, to);
        at += length;
    }
    return status;
}

/* The first word of a text gets a space in front if the tokenizer wants that. */
static aril_status encode(const aril_tokenizer *t, aril__bpe *b, const unsigned char *p, size_t n,
                          aril__bytes *to)
{
    if (n == 0 || !t->prefix_space || *p == ' ') return encode_words(t, b, p, n, to);
    aril__bytes spaced = { 0 };
    aril__bytes_add(&spaced, " ", 1);
    aril__bytes_add(&spaced, p, n);
    aril_status status = spaced.failed ? aril__fail(ARIL_ERR_MEMORY, "out of memory for a text")
                                       : encode_words(t, b, spaced.at, spaced.n, to);
    aril__bytes_free(&spaced);
    return status;
}

static void decode(const aril_tokenizer *t, int64_t id, bool first, aril__bytes *to)
{
    const aril__token *k = &t->token[id];
    (void)first;
    aril__bytes_add(to, t->text.at + k->at, k->size);
}

const aril__tokenizer_kind aril__tokenizer_bpe = { .model = "BPE",
                                                   .spelled = true,
                                                   .encode = encode,
                                                   .decode = decode,
                                                   .save = aril__bpe_save,
                                                   .write = aril__bpe_write };
