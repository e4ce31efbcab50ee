/* U-Net (Ronneberger, Fischer, Brox: Convolutional Networks for Biomedical Image Segmentation,
 * 2015): [N,C,H,W] -> scores of each pixel's class, [N,classes,H - 184,W - 184]. Convolutions are
 * not padded, so that each score depends on real pixels only: the middle of what the contracting
 * path had joins the expanding path. */
#include "aril/index.h"
#include "models/build.h"
#include "models/models.h"

enum { LEVELS = 4, WIDTH = 64 };

static aril_module *double_conv(int64_t in, int64_t out)
{
    return aril_nn_sequential(aril__conv_bias(in, out, 3, 1, 0), aril_nn_relu(),
                              aril__conv_bias(out, out, 3, 1, 0), aril_nn_relu());
}

/* The middle of x, as large as `like`. */
static aril_tensor *middle(aril_tensor *x, aril_tensor *like)
{
    for (int axis = 2; axis < 4; axis++) {
        int64_t size = aril_size(like, axis);
        x = aril_narrow(x, axis, (aril_size(x, axis) - size) / 2, size);
    }
    return x;
}

/* Children: down1 .. down4, bottom, then up1, merge1 .. up4, merge4, and head. */
static aril_tensor *unet_forward(aril_module *self, aril_tensor *x)
{
    aril_tensor *before[LEVELS];
    int at = 0;
    for (int i = 0; i < LEVELS; i++) {
        before[i] = x = aril_forward(aril_module_child(self, at++), x);
        x = aril_max_pool2d(x, (aril_pool_opts){ .kernel = { 2 } }, NULL);
    }
    x = aril_forward(aril_module_child(self, at++), x);
    for (int i = LEVELS - 1; i >= 0; i--) {
        aril_tensor *up = aril_forward(aril_module_child(self, at++), x);
        x = aril_forward(aril_module_child(self, at++),
                         aril_cat(ARIL_LIST(middle(before[i], up), up), 1));
        aril_drop(up);
    }
    return aril_forward(aril_module_child(self, at), x);
}

static aril_module *unet(const aril_zoo_entry *e, const aril_zoo_opts *o)
{
    if (!aril__takes_image(e->name, o->input)) return NULL;
    int64_t in = o->input.dim[0];
    aril_module *m = aril_module_new("UNet", 0, unet_forward);
    for (int i = 0; i < LEVELS; i++, in = WIDTH << (i - 1)) {
        aril_module *down = double_conv(in, WIDTH << i);
        if (i == LEVELS - 1) down = aril__append(down, aril__dropout(o, 0.5));
        m = aril__with_number(m, "down", i + 1, down);
    }
    m = aril__with(m, "bottom", aril__append(double_conv(in, 2 * in), aril__dropout(o, 0.5)));
    for (int i = 0; i < LEVELS; i++, in /= 2) {
        aril_module *up =
            aril_nn_conv_transpose2d_with(2 * in, in, 2, (aril_nn_conv_opts){ .stride = { 2 } });
        m = aril__with_number(m, "up", i + 1, up);
        m = aril__with_number(m, "merge", i + 1, double_conv(2 * in, in));
    }
    m = aril__with(m, "head", aril__conv_bias(WIDTH, o->classes, 1, 1, 0));
    return aril__init_images(m, 0);
}

const aril_zoo_entry aril__zoo_unet[] = {
    { .name = "unet",
      .family = "unet",
      .paper = "U-Net: Convolutional Networks for Biomedical Image Segmentation",
      .year = 2015,
      ARIL__IMAGE(1, 572, 572),
      .classes = 2,
      .make = unet,
      .about = "U-Net: a class for each pixel; for programs, not for `aril train`" },
    { 0 },
};
