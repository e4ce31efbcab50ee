/* A tokenizer's tokens and merges. */
#include "text/tokenizer.h"

#include "core/error.h"
#include "core/memory.h"
#include "text/alphabet.h"

#include <stdlib.h>
#include <string.h>

static aril_status no_memory(void)
{
    return aril__fail(ARIL_ERR_MEMORY, "out of memory for a tokenizer");
}

aril_tokenizer *aril__tokenizer_new(void)
{
    aril_tokenizer *t = aril__calloc(sizeof *t);
    if (!t) {
        no_memory();
        return NULL;
    }
    t->kind = &aril__tokenizer_bpe;
    t->unknown = t->before = t->after = -1;
    t->word_limit = 100;
    for (int i = 0; i < 256; i++) t->byte[i] = -1;
    return t;
}

void aril_tokenizer_free(aril_tokenizer *t)
{
    if (!t) return;
    aril__bytes_free(&t->text);
    free(t->token);
    free((void *)t->whole);
    free(t->slot);
    free(t->merge);
    free(t->pair);
    free(t->added);
    aril__bytes_free(&t->forms);
    free(t->later);
    free(t->part);
    free(t);
}

/* Room for n items of `size` bytes, at least doubled when it grows; false when out of memory. New
 * memory is cleared. */
static bool make_room(void **items, size_t *room, size_t n, size_t size)
{
    if (n <= *room) return true;
    size_t more = *room * 2 > n ? *room * 2 : n;
    if (more < 64) more = 64;
    void *p = more > SIZE_MAX / size ? NULL : aril__realloc(*items, more * size);
    if (!p) return false;
    memset((char *)p + *room * size, 0, (more - *room) * size);
    *items = p;
    *room = more;
    return true;
}

/* ---- tokens ---- */

static uint64_t mixed(uint64_t h)
{
    h *= UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 32;
}

static uint64_t hash(const unsigned char *p, size_t n)
{
    uint64_t h = n;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h = mixed(h ^ word);
    }
    for (size_t i = 0; i < n; i++) h = mixed(h ^ p[i]);
    return h;
}

/* The slot of a token: where it is, or where it would be inserted. */
static size_t slot_of(const aril_tokenizer *t, const void *bytes, size_t n, bool spelled)
{
    size_t at = (size_t)hash(bytes, n) & (t->slots - 1);
    for (; t->slot[at]; at = (at + 1) & (t->slots - 1)) {
        const aril__token *k = &t->token[t->slot[at] - 1];
        if (k->size == n && !(k->kind & ARIL__TOKEN_BYTES) == !spelled &&
            memcmp(t->text.at + k->at, bytes, n) == 0)
            break;
    }
    return at;
}

int64_t aril__token_find(const aril_tokenizer *t, const void *bytes, size_t n, bool spelled)
{
    if (!t->slots || n > t->longest) return -1;
    return (int64_t)t->slot[slot_of(t, bytes, n, spelled)] - 1;
}

static bool grow_slots(aril_tokenizer *t)
{
    size_t slots = t->slots ? t->slots * 2 : 1024;
    uint32_t *slot = aril__calloc(slots * sizeof *slot), *old = t->slot;
    size_t old_slots = t->slots;
    if (!slot) return false;
    t->slot = slot;
    t->slots = slots;
    for (size_t i = 0; i < old_slots; i++) {
        if (!old[i]) continue;
        const aril__token *k = &t->token[old[i] - 1];
        t->slot[slot_of(t, t->text.at + k->at, k->size, k->kind & ARIL__TOKEN_BYTES)] = old[i];
    }
    free(old);
    return true;
}

aril_status aril__token_add(aril_tokenizer *t, const char *what, int64_t id, const void *bytes,
                            size_t size, unsigned kind)
{
    if (id < 0 || id >= ARIL__MAX_TOKENS)
        return aril__fail(ARIL_ERR_FORMAT, "%s: token ids must be below %d, got %lld", what,
                          ARIL__MAX_TOKENS, (long long)id);
    if (size > UINT32_MAX) return aril__fail(ARIL_ERR_FORMAT, "%s: a token is too long", what);
    if (id < t->n && t->token[id].kind)
        return aril__fail(ARIL_ERR_FORMAT, "%s: two tokens have the id %lld", what, (long long)id);
    if (!make_room((void **)&t->token, &t->token_room, (size_t)id + 1, sizeof *t->token))
        return no_memory();
    size_t tokens = (size_t)(id < t->n ? t->n : id + 1);
    while (t->slots < tokens * 2)
        if (!grow_slots(t)) return no_memory();
    size_t at = slot_of(t, bytes, size, kind & ARIL__TOKEN_BYTES);
    if (t->slot[at])
        return aril__fail(ARIL_ERR_FORMAT, "%s: the tokens %lld and %lld are the same", what,
                          (long long)t->slot[at] - 1, (long long)id);
    size_t begin = t->text.n;
    aril__bytes_add(&t->text, bytes, size);
    if (!aril__bytes_add(&t->text, "", 1)) return no_memory();
    t->token[id] = (aril__token){ .at = begin,
                                  .size = (uint32_t)size,
                                  .kind = (uint8_t)(kind | ARIL__TOKEN_USED) };
    t->slot[at] = (uint32_t)id + 1;
    if (id >= t->n) t->n = id + 1;
    if (size > t->longest) t->longest = size;
    if (size == 1 && kind & ARIL__TOKEN_BYTES) t->byte[*(const unsigned char *)bytes] = id;
    return ARIL_OK;
}

int64_t aril__token_spelled(const aril_tokenizer *t, const char *text, size_t n)
{
    unsigned char *bytes = t->kind->spelled && n <= 2 * t->longest ? aril__malloc(n + 1) : NULL;
    int64_t size = bytes ? aril__alphabet_to_bytes(text, n, bytes) : -1;
    int64_t id = size >= 0 ? aril__token_find(t, bytes, (size_t)size, true) : -1;
    free(bytes);
    return id >= 0 ? id : aril__token_find(t, text, n, false);
}

/* The text that an added token stands for: U+00E9 is that of the byte 0xe9. */
static bool form_of(aril_tokenizer *t, int64_t id, aril__form *form)
{
    const aril__token *k = &t->token[id];
    *form = (aril__form){ .at = k->at, .size = k->size, .id = (uint32_t)id };
    aril__bytes text = { 0 };
    aril__bytes_add(&text, "", 0);
    aril__token_spell(&text, t, id);
    bool good = !text.failed;
    if (good && (text.n != k->size || memcmp(text.at, t->text.at + k->at, text.n) != 0)) {
        form->at = t->text.n;
        form->size = (uint32_t)text.n;
        good = aril__bytes_add(&t->text, text.at, text.n) != NULL;
    }
    aril__bytes_free(&text);
    return good;
}

aril_status aril__token_mark(aril_tokenizer *t, int64_t id, unsigned kind)
{
    bool known = t->token[id].kind & ARIL__TOKEN_ADDED;
    aril__form form;
    if (!known && (!form_of(t, id, &form) || !make_room((void **)&t->added, &t->added_room,
                                                        (size_t)t->n_added + 1, sizeof *t->added)))
        return no_memory();
    t->token[id].kind |= (uint8_t)(kind | ARIL__TOKEN_ADDED);
    if (known) return ARIL_OK;
    int64_t i = t->n_added++;
    for (; i > 0 && t->added[i - 1].size < form.size; i--) t->added[i] = t->added[i - 1];
    t->added[i] = form;
    if (form.size > 0) t->starts_added[t->text.at[form.at]] = true;
    return ARIL_OK;
}

/* ---- merges ---- */

static size_t pair_slot(const aril_tokenizer *t, uint32_t left, uint32_t right)
{
    size_t at = (size_t)mixed((uint64_t)left << 32 | right) & (t->pairs - 1);
    for (; t->pair[at]; at = (at + 1) & (t->pairs - 1)) {
        const aril__merge *m = &t->merge[t->pair[at] - 1];
        if (m->left == left && m->right == right) break;
    }
    return at;
}

int64_t aril__merge_find(const aril_tokenizer *t, uint32_t left, uint32_t right)
{
    return t->pairs ? (int64_t)t->pair[pair_slot(t, left, right)] - 1 : -1;
}

static bool grow_pairs(aril_tokenizer *t)
{
    size_t pairs = t->pairs ? t->pairs * 2 : 1024;
    uint32_t *pair = aril__calloc(pairs * sizeof *pair);
    if (!pair) return false;
    free(t->pair);
    t->pair = pair;
    t->pairs = pairs;
    for (int64_t i = 0; i < t->merges; i++)
        t->pair[pair_slot(t, t->merge[i].left, t->merge[i].right)] = (uint32_t)i + 1;
    return true;
}

aril_status aril__merge_add(aril_tokenizer *t, uint32_t left, uint32_t right, uint32_t result)
{
    if (t->merges >= ARIL__MAX_TOKENS)
        return aril__fail(ARIL_ERR_FORMAT, "a tokenizer has at most %d merges", ARIL__MAX_TOKENS);
    if (!make_room((void **)&t->merge, &t->merge_room, (size_t)t->merges + 1, sizeof *t->merge))
        return no_memory();
    while (t->pairs < (size_t)t->merges * 3 + 3)
        if (!grow_pairs(t)) return no_memory();
    t->merge[t->merges] = (aril__merge){ left, right, result };
    t->pair[pair_slot(t, left, right)] = (uint32_t)++t->merges; /* of two, the last counts */
    return ARIL_OK;
}

/* Adds what an added token becomes to t->later, behind those that are as long. */
static bool add_form(aril_tokenizer *t, const aril__form *added)
{
    const unsigned char *p = t->text.at + added->at;
    aril__form form = { .at = t->forms.n, .id = added->id };
    if (t->kind->normalize)
        t->kind->normalize(t, p, added->size, &t->forms);
    else
        aril__bytes_add(&t->forms, p, added->size);
    if (t->forms.failed) return false;
    size_t size = t->forms.n - form.at;
    if (size == 0 || size > UINT32_MAX) return true; /* found nowhere */
    form.size = (uint32_t)size;
    int64_t i = t->n_later++;
    for (; i > 0 && t->later[i - 1].size < form.size; i--) t->later[i] = t->later[i - 1];
    t->later[i] = form;
    t->starts_later[t->forms.at[form.at]] = true;
    return true;
}

static bool make_forms(aril_tokenizer *t)
{
    aril__bytes_free(&t->forms);
    free(t->later);
    t->n_later = 0;
    memset(t->starts_later, 0, sizeof t->starts_later);
    t->later = aril__calloc(((size_t)t->n_added + 1) * sizeof *t->later);
    bool good = t->later != NULL;
    for (int64_t i = 0; i < t->n_added && good; i++)
        if (t->token[t->added[i].id].kind & ARIL__TOKEN_LATER) good = add_form(t, &t->added[i]);
    return good;
}

aril_status aril__tokenizer_ready(aril_tokenizer *t)
{
    free((void *)t->whole);
    t->whole = aril__calloc((size_t)t->n + 1);
    return t->whole && make_forms(t) ? ARIL_OK : no_memory();
}

/* ---- public ---- */

int64_t aril_tokenizer_size(const aril_tokenizer *t)
{
    return t ? t->n : 0;
}

int64_t aril_tokenizer_id(const aril_tokenizer *t, const char *token)
{
    if (!t || !token) return -1;
    size_t n = strlen(token);
    for (int64_t i = 0; i < t->n_added; i++)
        if (t->added[i].size == n && memcmp(t->text.at + t->added[i].at, token, n) == 0)
            return t->added[i].id;
    int64_t id = aril__token_find(t, token, n, true);
    return id >= 0 ? id : aril__token_find(t, token, n, false);
}

const char *aril_tokenizer_token(const aril_tokenizer *t, int64_t id, size_t *size)
{
    bool found = t && id >= 0 && id < t->n && t->token[id].kind;
    if (size) *size = found ? t->token[id].size : 0;
    return found ? (const char *)t->text.at + t->token[id].at : NULL;
}

bool aril_tokenizer_is_special(const aril_tokenizer *t, int64_t id)
{
    return t && id >= 0 && id < t->n && (t->token[id].kind & ARIL__TOKEN_SPECIAL);
}

int64_t aril_tokenizer_add_special(aril_tokenizer *t, const char *token)
{
    if (!t || !token || !*token)
        return aril__fail(ARIL_ERR_ARG, "add_special: expected a tokenizer and a text");
    int64_t id = aril__token_spelled(t, token, strlen(token));
    aril_status status = ARIL_OK;
    if (id < 0) {
        id = t->n;
        status = aril__token_add(t, "add_special", id, token, strlen(token), 0);
        if (status == ARIL_OK) status = aril__tokenizer_ready(t);
    }
    if (status == ARIL_OK) status = aril__token_mark(t, id, ARIL__TOKEN_SPECIAL);
    return status == ARIL_OK ? id : status;
}
