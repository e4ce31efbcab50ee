/* NonMaxSuppression on many boxes, against its definition. */
#include "onnx/onnx_text.h"

#include <math.h>
#include <stdio.h>

enum { BOXES = 1200 };

/* How much two boxes y0 x0 y1 x1, of corners in any order, overlap as a part of both. */
static double overlap(const float *a, const float *b)
{
    double size[2], area[2] = { 1, 1 };
    for (int d = 0; d < 2; d++) {
        double a0 = fmin(a[d], a[d + 2]), a1 = fmax(a[d], a[d + 2]), b0 = fmin(b[d], b[d + 2]),
               b1 = fmax(b[d], b[d + 2]);
        size[d] = fmax(0, fmin(a1, b1) - fmax(a0, b0));
        area[0] *= a1 - a0;
        area[1] *= b1 - b0;
    }
    double both = area[0] + area[1] - size[0] * size[1];
    return both > 0 ? size[0] * size[1] / both : 0;
}

/* The boxes that are kept, best first; ties by their numbers. Returns how many. */
static int kept_by_definition(const float *box, const float *score, double iou, double least,
                              int most, int *kept)
{
    bool done[BOXES] = { false };
    int n = 0;
    for (;;) {
        int best = -1;
        for (int i = 0; i < BOXES; i++)
            if (!done[i] && (double)score[i] > least && (best < 0 || score[i] > score[best]))
                best = i;
        if (best < 0 || n == most) return n;
        done[best] = true;
        bool covered = false;
        for (int k = 0; k < n; k++) covered |= overlap(box + 4 * best, box + 4 * kept[k]) > iou;
        if (!covered) kept[n++] = best;
    }
}

static void compare(double iou, double least, int most, bool nan)
{
    ARIL_SCOPE;
    static int want[BOXES];
    char graph[900];
    snprintf(graph, sizeof graph,
             "node { op_type: \"NonMaxSuppression\" input: [\"b\", \"s\", \"m\", \"i\", \"t\"] "
             "output: \"y\" } initializer { name: \"m\" data_type: 7 int64_data: %d } initializer "
             "{ name: \"i\" data_type: 1 float_data: %g } initializer { name: \"t\" data_type: 1 "
             "float_data: %g } input " ANY("b") "input " ANY("s") "output " TYPED("y", 7),
             most, iou, least);
    aril_program *p = load_text(OPSET(13), graph);
    aril_seed(7);
    aril_tensor *box = aril_rand(ARIL_SHAPE(1, BOXES, 4), ARIL_F32, aril_cpu());
    aril_tensor *score = aril_rand(ARIL_SHAPE(1, 1, BOXES), ARIL_F32, aril_cpu()), *y = NULL;
    if (nan) aril_fill_(aril_narrow(aril_narrow(box, 1, 5, 40), 2, 1, 1), NAN);
    score = aril_div_scalar(aril_floor(aril_mul_scalar(score, 500)), 512.0); /* with ties */
    CHECK(p && aril_program_run(p, ARIL_LIST(box, score), &y) == ARIL_OK);
    int n = kept_by_definition(aril_data(box), aril_data(score), (double)(float)iou,
                               (double)(float)least, most, want);
    CHECK_INT(aril_size(y, 0), n);
    const int64_t *got = aril_data(y);
    for (int i = 0; i < n && i < aril_size(y, 0); i++) CHECK_INT(got[3 * i + 2], want[i]);
    aril_program_free(p);
}

TEST(many_boxes)
{
    compare(0.5, 0, BOXES, false);
    compare(0.05, 0.25, BOXES, false);
    compare(0, 0, BOXES, false);
    compare(0.9, 0.5, 37, false);
    compare(0.3, 0, BOXES, true);
}
