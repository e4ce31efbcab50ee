"""Transforms of images: as PIL and torchvision make them."""
import numpy
import torchvision.transforms.functional as V
from golden import *
from PIL import Image
from torchvision.transforms import InterpolationMode

FILTERS = {"bilinear": (Image.BILINEAR, InterpolationMode.BILINEAR),
           "nearest": (Image.NEAREST, InterpolationMode.NEAREST),
           "bicubic": (Image.BICUBIC, InterpolationMode.BICUBIC)}


def image(c, h, w):
    """Slopes with noise and a few hard edges, u8."""
    y, x = torch.meshgrid(torch.linspace(0, 3, h), torch.linspace(0, 4, w), indexing="ij")
    p = torch.stack([torch.sin(x * (k + 1)) * torch.cos(y + k) for k in range(c)])
    p = 127 + 90 * p + 25 * randn(c, h, w)
    p[:, h // 3:h // 2, w // 4:w // 3] = 255
    p[:, h // 2:h // 2 + 2, :w // 2] = 0
    return p.clamp(0, 255).to(torch.uint8)


def unit(c, h, w):
    return image(c, h, w).to(torch.float32) / 255


def parsed(text):
    return (f'aril_transform *t = aril_transform_parse("{text}"); y[0] = aril_transform_image(t, x[0], NULL); '
            "aril_transform_free(t);")


def by_pil(size, how):
    def fn(x):
        planes = [Image.fromarray(p.numpy()).resize((size[1], size[0]), FILTERS[how][0]) for p in x[0]]
        return torch.stack([torch.from_numpy(numpy.array(p)) for p in planes])
    return fn


# Whole numbers, bit for bit.
for how in FILTERS:
    for shape, size in (((3, 75, 101), (32, 48)), ((1, 28, 28), (32, 40)), ((3, 40, 33), (17, 33)), ((3, 19, 90), (50, 20)),
                        ((4, 16, 16), (1, 1))):
        name = "resize/u8/%s/%dx%d_to_%dx%d" % ((how,) + shape[1:] + size)
        case(name, parsed("resize=%dx%d:filter=%s" % (size + (how,))), by_pil(size, how), [image(*shape)])

# The vertical pass comes first where more than twice as many rows as columns are lost: 55 and 27, 36 and none, but not 40 and 20.
for how in ("bilinear", "bicubic"):
    for shape, size in (((3, 75, 48), (20, 21)), ((1, 60, 20), (24, 40)), ((3, 61, 40), (21, 20))):
        name = "resize/u8/order/%s/%dx%d_to_%dx%d" % ((how,) + shape[1:] + size)
        case(name, parsed("resize=%dx%d:filter=%s" % (size + (how,))), by_pil(size, how), [image(*shape)])
case("resize/u8/order/interleaved", parsed("resize=30x31").replace("x[0], NULL", "aril_permute(x[0], ARIL_AXES(2, 0, 1)), NULL"),
     lambda x: by_pil((30, 31), "bilinear")([x[0].permute(2, 0, 1)]), [image(3, 90, 53).permute(1, 2, 0).contiguous()])

# Interleaved memory gives the same.
case("resize/u8/interleaved", parsed("resize=30x31").replace("x[0], NULL", "aril_permute(x[0], ARIL_AXES(2, 0, 1)), NULL"),
     lambda x: by_pil((30, 31), "bilinear")([x[0].permute(2, 0, 1)]),
     [image(3, 70, 53).permute(1, 2, 0).contiguous()])

for how in ("bilinear", "bicubic"):
    for shape, size in (((3, 75, 101), (32, 48)), ((1, 28, 28), (32, 40)), ((3, 19, 90), (50, 20))):
        name = "resize/f32/%s/%dx%d_to_%dx%d" % ((how,) + shape[1:] + size)
        case(name, parsed("resize=%dx%d:filter=%s" % (size + (how,))),
             lambda x, size=size, how=how: F.interpolate(x[0][None], size, mode=how, antialias=True)[0], [unit(*shape)],
             grad=False)
case("resize/f32/no_antialias", parsed("resize=11x20:antialias=0"),
     lambda x: F.interpolate(x[0][None], (11, 20), mode="bilinear")[0], [unit(3, 40, 33)], grad=False)
for shape in ((3, 40, 61), (3, 61, 40), (1, 33, 33)):
    case("resize/shorter/%dx%d" % shape[1:], parsed("resize=20"),
         lambda x: by_pil(tuple(V.resize(x[0], 20).shape[1:]), "bilinear")(x), [image(*shape)])

for size in ((20, 20), (21, 34), (50, 30), (45, 70)):
    case("center_crop/%dx%d" % size, parsed("center_crop=%dx%d" % size), lambda x, size=size: V.center_crop(x[0], size),
         [image(3, 40, 61)])
case("pad/four", parsed("pad=1/2/3/4:fill=9"), lambda x: V.pad(x[0], [1, 2, 3, 4], fill=9), [image(3, 8, 9)])
case("pad/one", parsed("pad=2"), lambda x: V.pad(x[0], [2]), [image(1, 5, 4)])
case("flip", parsed("flip=1"), lambda x: V.hflip(x[0]), [image(3, 12, 35)])
case("flip_vertical", parsed("flip_vertical=1"), lambda x: V.vflip(x[0]), [image(3, 12, 35)])
case("flip/f32", parsed("flip=1"), lambda x: V.hflip(x[0]), [unit(3, 12, 35)], grad=False)

ROTATE = "aril_tensor *aril__rotate(aril_tensor * p, double degrees, aril_filter filter, double fill); "
for angle in (10, -33.5, 90, 180):
    for how in ("bilinear", "nearest"):
        if how == "nearest" and angle in (90, 180): continue  # between two pixels
        for kind, make in (("f32", unit), ("u8", image)):
            if kind == "u8" and angle == 90: continue  # half numbers
            name = "rotate/%s/%s/%g" % (kind, how, angle)
            code = ROTATE + "y[0] = aril__rotate(x[0], %g, ARIL_FILTER_%s, 0);" % (angle, how.upper())
            case(name, code, lambda x, a=angle, how=how: V.rotate(x[0], a, FILTERS[how][1]), [make(3, 31, 40)], grad=False,
                 rtol=1e-4, atol=2e-5)
case("rotate/fill", ROTATE + "y[0] = aril__rotate(x[0], 25, ARIL_FILTER_NEAREST, 0.5);",
     lambda x: V.rotate(x[0], 25, InterpolationMode.NEAREST, fill=[0.5]), [unit(1, 28, 28)], grad=False, rtol=1e-4, atol=2e-5)

ADJUST = {"brightness": (V.adjust_brightness, (0.5, 1.7)), "contrast": (V.adjust_contrast, (0.4, 1.6)),
          "saturation": (V.adjust_saturation, (0, 1.8)), "hue": (V.adjust_hue, (0.2, -0.37))}
for what, (fn, factors) in ADJUST.items():
    for factor in factors:
        for kind, make in (("f32", unit), ("u8", image)):
            code = (f"void aril__adjust_{what}(aril_tensor * p, double factor); y[0] = aril_copy(x[0]); "
                    f"aril__adjust_{what}(y[0], {factor});")
            case("jitter/%s/%s/%g" % (what, kind, factor), code, lambda x, fn=fn, f=factor: fn(x[0], f), [make(3, 20, 23)],
                 grad=False)
case("grayscale/u8", parsed("grayscale"), lambda x: V.rgb_to_grayscale(x[0]), [image(3, 20, 23)])
case("grayscale/three", parsed("grayscale=1:3"), lambda x: V.rgb_to_grayscale(x[0], 3), [image(3, 20, 23)])
case("to_float", parsed("to_float"), lambda x: x[0] / 255, [torch.arange(256).to(torch.uint8).view(1, 16, 16)], rtol=0, atol=0)
case("normalize/u8", parsed("normalize=0.485/0.456/0.406:0.229/0.224/0.225"),
     lambda x: V.normalize(x[0] / 255, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]), [image(3, 9, 13)])
case("normalize/f32", parsed("normalize=0.5:0.25"), lambda x: V.normalize(x[0], [0.5], [0.25]), [unit(1, 9, 13)], grad=False)
