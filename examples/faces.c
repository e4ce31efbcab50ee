/* Finds faces in an image with a detector made elsewhere: version-RFB-320.onnx of
 * "Ultra-Light-Fast-Generic-Face-Detector-1MB".
 *
 *     faces MODEL.onnx IMAGE */
#include <aril/aril.h>

#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 320, HEIGHT = 240, MAX_FACES = 16 };

typedef struct face {
    float score, box[4]; /* x0, y0, x1, y1: from 0 to 1 */
} face;

/* The image as the model wants it: [1,3,240,320], from -1 to 1. */
static aril_tensor *prepare(aril_tensor *image)
{
    aril_tensor *x = aril_unsqueeze(aril_cast(image, ARIL_F32), 0);
    x = aril_interpolate(x,
                         (aril_interpolate_opts){ .size = { HEIGHT, WIDTH }, .mode = ARIL_LINEAR });
    return aril_div_scalar(aril_sub_scalar(x, 127), 128);
}

static float area(const float *b)
{
    return b[2] > b[0] && b[3] > b[1] ? (b[2] - b[0]) * (b[3] - b[1]) : 0;
}

/* The part of both boxes that they share. */
static float overlap(const float *a, const float *b)
{
    float both[4] = { a[0] > b[0] ? a[0] : b[0], a[1] > b[1] ? a[1] : b[1],
                      a[2] < b[2] ? a[2] : b[2], a[3] < b[3] ? a[3] : b[3] };
    return area(both) / (area(a) + area(b) - area(both));
}

/* The best boxes that do not overlap: scores [1,n,2], boxes [1,n,4]. */
static int select_faces(aril_tensor *scores, aril_tensor *boxes, face *to)
{
    aril_tensor *order, *p = aril_select(aril_squeeze(scores, ARIL_AXES(0)), 1, 1);
    aril_tensor *sorted = aril_sort(p, 0, (aril_sort_opts){ .descending = true }, &order);
    aril_tensor *best = aril_index_select(aril_squeeze(boxes, ARIL_AXES(0)), order, 0);
    const float *score = aril_data(sorted), *box = aril_data(best);
    int n = 0;
    for (int64_t i = 0; i < aril_numel(p) && score && box && score[i] > 0.7f && n < MAX_FACES;
         i++) {
        bool seen = false;
        for (int k = 0; k < n; k++) seen |= overlap(to[k].box, box + 4 * i) > 0.3f;
        if (seen) continue;
        to[n].score = score[i];
        for (int k = 0; k < 4; k++) to[n].box[k] = box[4 * i + k];
        n++;
    }
    return n;
}

int main(int argc, char **argv)
{
    bool quick = getenv("ARIL_EXAMPLE_QUICK") != NULL;
    const char *data = getenv("ARIL_TEST_DATA");
    char model[4096], path[4096];
    snprintf(model, sizeof model, "%s/onnx-models/ultraface/version-RFB-320.onnx",
             data ? data : "data");
    snprintf(path, sizeof path, "%s/images/scikit-image/astronaut.png", data ? data : "data");
    if (argc > 1) snprintf(model, sizeof model, "%s", argv[1]);
    if (argc > 2) snprintf(path, sizeof path, "%s", argv[2]);
    FILE *there = fopen(model, "rb");
    if (!there) {
        printf("%sno model %s; faces MODEL.onnx IMAGE reads others\n", quick ? "SKIP: " : "",
               model);
        return quick ? 77 : 1;
    }
    fclose(there);
    aril_tensor *image = aril_image_read(path, (aril_image_opts){ .channels = 3 }); /* [3,H,W] */
    if (quick && aril_error_code() == ARIL_ERR_UNSUPPORTED) {
        printf("SKIP: %s\n", aril_error());
        return 77;
    }
    aril_program *detector = aril_program_load(model, (aril_load_opts){ 0 });
    aril_tensor *out[2]; /* scores [1,4420,2], boxes [1,4420,4] */
    face found[MAX_FACES];
    if (detector && aril_program_run(detector, ARIL_LIST(prepare(image)), out) == ARIL_OK) {
        int n = select_faces(out[0], out[1], found);
        double w = (double)aril_size(image, 2), h = (double)aril_size(image, 1);
        for (int i = 0; i < n; i++)
            printf("face %d: %.0f %%, from (%.0f, %.0f) to (%.0f, %.0f)\n", i + 1,
                   100 * found[i].score, found[i].box[0] * w, found[i].box[1] * h,
                   found[i].box[2] * w, found[i].box[3] * h);
        printf("%d %s in %s\n", n, n == 1 ? "face" : "faces", path);
    }
    aril_program_free(detector);
    return aril_report(stderr);
}
