#include "text/normalize.h"

#include "text/unicode.h"

#include <stdint.h>

/* ---- tables ---- */

typedef struct range {
    uint32_t first, last;
} range;

static const range removed[] = {
#define REMOVED(a, b) { a, b },
#include "text/wordpiece.inc"
};
static const range chinese[] = {
#define CHINESE(a, b) { a, b },
#include "text/wordpiece.inc"
};
static const range punctuation[] = {
#define PUNCTUATION(a, b) { a, b },
#include "text/wordpiece.inc"
};
/* Accents, which have no width of their own. */
static const range marks[] = {
#define MARK(a, b) { a, b },
#include "text/wordpiece.inc"
};

/* Unicode's combining class of marks that stay: neighbors are sorted by it. */
static const struct class
{
    range r;
    uint8_t order;
} classes[] = {
#define CLASS(a, b, order) { { a, b }, order },
#include "text/wordpiece.inc"
};

/* Every step-th character of a range becomes the one at a distance. */
typedef struct shift {
    range r;
    uint8_t step;
    int32_t distance;
} shift;

static const shift lower[] = {
#define LOWER(a, b, step, distance) { { a, b }, step, distance },
#include "text/wordpiece.inc"
};
static const shift bare[] = {
#define BARE(a, b, step, distance) { { a, b }, step, distance },
#include "text/wordpiece.inc"
};
static const struct one {
    uint32_t code, to;
} ones[] = {
#define ONE(code, to) { code, to },
#include "text/wordpiece.inc"
};
enum { PARTS_MOST = 3 };
static const struct parts {
    uint32_t code, to[PARTS_MOST];
} parts[] = {
#define PARTS(code, a, b, c) { code, { a, b, c } },
#include "text/wordpiece.inc"
};

/* The row of a sorted table, whose rows begin with a range or a code point, that has c; NULL. */
static const void *row_of(const void *table, size_t bytes, size_t row, bool is_range, uint32_t c)
{
    size_t low = 0, high = bytes / row;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const uint32_t *r = (const uint32_t *)((const char *)table + mid * row);
        if (c < r[0])
            high = mid;
        else if (c > r[is_range])
            low = mid + 1;
        else
            return r;
    }
    return NULL;
}

#define ROW(table, is_range, c) row_of(table, sizeof table, sizeof *table, is_range, c)

static uint32_t shifted(const shift *s, uint32_t c)
{
    bool hit = s && (c - s->r.first) % s->step == 0;
    return hit ? (uint32_t)((int64_t)c + s->distance) : c;
}

static bool is_punctuation(uint32_t c)
{
    return ROW(punctuation, 1, c) != NULL;
}

/* ---- characters ---- */

/* The character at p[0..n), n > 0, and its length. */
static uint32_t code_at(const unsigned char *p, size_t n, size_t *length)
{
    size_t size, k = aril__utf8_part(p, n, &size);
    *length = size == k ? k : 1;
    if (size != k) return 0xfffd;
    if (size == 1) return *p;
    uint32_t c = *p & (0x7fu >> size);
    for (size_t i = 1; i < size; i++) c = c << 6 | (p[i] & 63u);
    return c;
}

static void add_code(aril__bytes *to, uint32_t c)
{
    unsigned char b[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6) b[i] = (unsigned char)(0x80 | (c & 63));
    b[0] = (unsigned char)(n == 1 ? c : (0xf00u >> n & 0xf0) | c);
    aril__bytes_add(to, b, n);
}

/* ---- normalizing ---- */

/* Marks that follow each other, until what is before them is written. */
enum { HELD = 32 };
typedef struct normalizing {
    const aril__normalizer *how;
    aril__bytes *to;
    uint32_t held[HELD];
    uint8_t order[HELD];
    int n;
} normalizing;

static void write_lower(normalizing *s, uint32_t c)
{
    enum { I_WITH_DOT = 0x130, DOT_ABOVE = 0x307 };
    if (s->how->keep_case) {
        add_code(s->to, c);
        return;
    }
    if (c == I_WITH_DOT) { /* the only one that becomes two */
        add_code(s->to, 'i');
        c = DOT_ABOVE;
    }
    add_code(s->to, shifted(ROW(lower, 1, c), c));
}

static void write_held(normalizing *s)
{
    for (int i = 0; i < s->n; i++) write_lower(s, s->held[i]);
    s->n = 0;
}

/* Writes a character behind which marks are sorted by their class, equal ones in their order. */
static void write_sorted(normalizing *s, uint32_t c)
{
    const struct class *k = c < 0x300 ? NULL : ROW(classes, 1, c);
    if (!k || s->n == HELD) write_held(s);
    if (!k) {
        write_lower(s, c);
        return;
    }
    int i = s->n++;
    for (; i > 0 && s->order[i - 1] > k->order; i--) {
        s->held[i] = s->held[i - 1];
        s->order[i] = s->order[i - 1];
    }
    s->held[i] = c;
    s->order[i] = k->order;
}

/* Korean syllables become their two or three letters. */
static void write_syllable(normalizing *s, uint32_t i)
{
    enum { VOWELS = 21, ENDS = 28 };
    write_sorted(s, 0x1100 + i / (VOWELS * ENDS));
    write_sorted(s, 0x1161 + i / ENDS % VOWELS);
    if (i % ENDS) write_sorted(s, 0x11a7 + i % ENDS);
}

static void write_bare(normalizing *s, uint32_t c)
{
    enum { SYLLABLES = 0xac00, SYLLABLES_END = 0xd7a4 };
    if (s->how->keep_accents) {
        write_lower(s, c);
        return;
    }
    if (c < 0xc0) {
        write_sorted(s, c);
        return;
    }
    if (ROW(marks, 1, c)) return;
    if (c >= SYLLABLES && c < SYLLABLES_END) {
        write_syllable(s, c - SYLLABLES);
        return;
    }
    const struct parts *p = ROW(parts, 0, c);
    for (int i = 0; p && i < PARTS_MOST && p->to[i]; i++) write_sorted(s, p->to[i]);
    if (p) return;
    const struct one *o = ROW(ones, 0, c);
    write_sorted(s, o ? o->to : shifted(ROW(bare, 1, c), c));
}

void aril__normalize(const aril__normalizer *how, const unsigned char *p, size_t n, aril__bytes *to)
{
    normalizing s = { .how = how, .to = to };
    size_t length;
    for (size_t at = 0; at < n; at += length) {
        uint32_t c = code_at(p + at, n - at, &length);
        if (!how->keep_controls && c != ' ') {
            bool plain = c > ' ' && c < 0x7f;
            if (!plain && ROW(removed, 1, c)) continue;
            if (!plain && aril__class_of(c) == ARIL__CHAR_SPACE) c = ' ';
        }
        bool spaced = !how->keep_chinese && c >= 0x3400 && ROW(chinese, 1, c);
        if (spaced) write_sorted(&s, ' ');
        write_bare(&s, c);
        if (spaced) write_sorted(&s, ' ');
    }
    write_held(&s);
}

/* ---- words ---- */

size_t aril__next_word(const unsigned char *p, size_t n, size_t *word)
{
    size_t begin = 0, at, length;
    *word = 0;
    for (; begin < n; begin += length)
        if (aril__class_of(code_at(p + begin, n - begin, &length)) != ARIL__CHAR_SPACE) break;
    for (at = begin; at < n; at += length) {
        uint32_t c = code_at(p + at, n - at, &length);
        if (aril__class_of(c) == ARIL__CHAR_SPACE) break;
        if (!is_punctuation(c)) continue;
        if (at == begin) at += length;
        break;
    }
    *word = at - begin;
    return begin;
}
