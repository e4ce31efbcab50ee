/* Preprocessor helpers for rows with lists: optimizers.def. */
#ifndef ARIL_OPS_UPDATE_EACH_H
#define ARIL_OPS_UPDATE_EACH_H

/* clang-format off */

/* EACH(M, a, b, c): M(0, a) M(1, b) M(2, c); up to 16. */
#define EACH(M, ...)        EACH_OF(EACH_COUNT(__VA_ARGS__), M, __VA_ARGS__)
#define EACH_OF(n, M, ...)  EACH_OF_(n, M, __VA_ARGS__)
#define EACH_OF_(n, M, ...) EACH_##n(M, __VA_ARGS__)
#define EACH_COUNT(...) \
    EACH_17TH(__VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define EACH_17TH(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, ...) q
#define EACH_1(M, a) M(0, a)
#define EACH_2(M, a, b) \
    EACH_1(M, a) M(1, b)
#define EACH_3(M, a, b, c) \
    EACH_2(M, a, b) M(2, c)
#define EACH_4(M, a, b, c, d) \
    EACH_3(M, a, b, c) M(3, d)
#define EACH_5(M, a, b, c, d, e) \
    EACH_4(M, a, b, c, d) M(4, e)
#define EACH_6(M, a, b, c, d, e, f) \
    EACH_5(M, a, b, c, d, e) M(5, f)
#define EACH_7(M, a, b, c, d, e, f, g) \
    EACH_6(M, a, b, c, d, e, f) M(6, g)
#define EACH_8(M, a, b, c, d, e, f, g, h) \
    EACH_7(M, a, b, c, d, e, f, g) M(7, h)
#define EACH_9(M, a, b, c, d, e, f, g, h, i) \
    EACH_8(M, a, b, c, d, e, f, g, h) M(8, i)
#define EACH_10(M, a, b, c, d, e, f, g, h, i, j) \
    EACH_9(M, a, b, c, d, e, f, g, h, i) M(9, j)
#define EACH_11(M, a, b, c, d, e, f, g, h, i, j, k) \
    EACH_10(M, a, b, c, d, e, f, g, h, i, j) M(10, k)
#define EACH_12(M, a, b, c, d, e, f, g, h, i, j, k, l) \
    EACH_11(M, a, b, c, d, e, f, g, h, i, j, k) M(11, l)
#define EACH_13(M, a, b, c, d, e, f, g, h, i, j, k, l, m) \
    EACH_12(M, a, b, c, d, e, f, g, h, i, j, k, l) M(12, m)
#define EACH_14(M, a, b, c, d, e, f, g, h, i, j, k, l, m, n) \
    EACH_13(M, a, b, c, d, e, f, g, h, i, j, k, l, m) M(13, n)
#define EACH_15(M, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o) \
    EACH_14(M, a, b, c, d, e, f, g, h, i, j, k, l, m, n) M(14, o)
#define EACH_16(M, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) \
    EACH_15(M, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o) M(15, p)

/* PART((a, b)): a, b. FIRST((a, b)): a. SECOND((a, b)): b. */
#define PART(list)      PART_ list
#define PART_(...)      __VA_ARGS__
#define FIRST(list)     FIRST_ list
#define FIRST_(a, ...)  a
#define SECOND(list)    SECOND_ list
#define SECOND_(a, ...) __VA_ARGS__

/* BY_KIND(M, i, (KIND, a, b)): M_KIND(i, a, b). */
#define BY_KIND(M, i, list)        BY_KIND_(M, i, PART(list))
#define BY_KIND_(M, i, ...)        BY_KIND__(M, i, __VA_ARGS__)
#define BY_KIND__(M, i, kind, ...) M##_##kind(i, __VA_ARGS__)

/* clang-format on */

#endif
