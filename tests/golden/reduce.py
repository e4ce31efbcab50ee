from golden import *

f16, bf16, f32, f64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
inf, nan = float("inf"), float("nan")

# The axes of each form: C, Python keywords.
AXES = {"all": ("ARIL_ALL", {}), "axis1": ("ARIL_AXES(1)", {"dim": 1}),
        "last": ("ARIL_AXES(-1)", {"dim": -1}), "keep": ("ARIL_KEEPDIM(0)", {"dim": 0, "keepdim": True}),
        "two": ("ARIL_AXES(0, 2)", {"dim": (0, 2)}),
        "keep_two": ("ARIL_KEEPDIM(1, -1)", {"dim": (1, -1), "keepdim": True})}


def over_axes(name, fn, make, forms=AXES, **more):
    for form, (c, kw) in AXES.items():
        if form in forms:
            kw = dict(kw)
            if form == "all" and name in ("logsumexp", "amax", "amin"):
                kw = {"dim": (0, 1, 2)}
            case(f"{name}/{form}", f"y[0] = aril_{name}(x[0], {c});",
                 lambda x, kw=kw: fn(x[0], **kw), [make(2, 3, 4)], **more)


# ---- sum, mean, logsumexp ----
over_axes("sum", torch.sum, randn)
over_axes("mean", torch.mean, randn)
over_axes("logsumexp", torch.logsumexp, randn)
over_axes("amax", torch.amax, apart)
over_axes("amin", torch.amin, apart)
over_axes("count_nonzero", lambda x, dim=None, **k: torch.count_nonzero(x, dim),
          lambda *s: randint(0, 2, *s), ["all", "axis1", "two"])
for op in ["any", "all"]:
    over_axes(op, getattr(torch, op), randbool)
    case(f"{op}/u8", f"y[0] = aril_{op}(x[0], ARIL_AXES(1));",
         lambda x, op=op: getattr(torch, op)(x[0], 1), [randint(0, 2, 3, 2, dtype=torch.uint8)])
    case(f"{op}/nothing", f"y[0] = aril_{op}(x[0], ARIL_ALL);",
         lambda x, op=op: getattr(torch, op)(x[0]), [randbool(0)])
for d, name in [(torch.bool, "bool"), (torch.int8, "i8"), (torch.uint8, "u8"), (torch.int64, "i64")]:
    case(f"sum/{name}", "y[0] = aril_sum(x[0], ARIL_AXES(0));", lambda x: x[0].sum(0),
         [randint(0, 2 if d == torch.bool else 100, 5, 3, dtype=d)])
for d, name in [(f16, "f16"), (bf16, "bf16"), (f64, "f64")]:
    for op in ["sum", "mean", "logsumexp"]:
        case(f"{op}/{name}", f"y[0] = aril_{op}(x[0], ARIL_AXES(1));",
             lambda x, op=op: getattr(torch, op)(x[0], 1), [randn(3, 8, dtype=d)],
             rtol=0.04 if d == bf16 else None)
case("sum/nothing", "y[0] = aril_sum(x[0], ARIL_AXES(0));", lambda x: x[0].sum(0), [randn(0, 3)])
case("sum/permuted", "y[0] = aril_sum(aril_permute(x[0], ARIL_AXES(2, 0, 1)), ARIL_AXES(1));",
     lambda x: x[0].permute(2, 0, 1).sum(1), [randn(3, 4, 5)])
case("mean/long", "y[0] = aril_mean(aril_expand(x[0], ARIL_SHAPE(3, 70000)), ARIL_AXES(1));",
     lambda x: x[0].expand(3, 70000).mean(1), [randn(3, 1)])
case("mean/f16_long", "y[0] = aril_mean(aril_expand(x[0], ARIL_SHAPE(3, 70000)), ARIL_AXES(1));",
     lambda x: x[0].expand(3, 70000).mean(1), [randn(3, 1, dtype=f16)], grad=False)
case("logsumexp/infinite", "y[0] = aril_logsumexp(x[0], ARIL_AXES(1));",
     lambda x: torch.logsumexp(x[0], 1),
     [tensor([[1.0, -inf, 2.0], [-inf, -inf, -inf], [1.0, inf, 0.0], [3.0, nan, inf]])],
     grad=False)
case("logsumexp/minus_inf", "y[0] = aril_logsumexp(x[0], ARIL_AXES(1));",
     lambda x: torch.logsumexp(x[0], 1), [tensor([[1.0, -inf, 2.0], [-inf, 3.0, -inf]])])
case("logsumexp/large", "y[0] = aril_logsumexp(x[0], ARIL_AXES(0));",
     lambda x: torch.logsumexp(x[0], 0), [randn(6, 3) * 300])

# ---- largest and smallest ----
case("amax/ties", "y[0] = aril_amax(x[0], ARIL_AXES(1));", lambda x: torch.amax(x[0], 1),
     [tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [1.0, 0.0, -1.0]])])
case("amin/ties", "y[0] = aril_amin(x[0], ARIL_ALL);", lambda x: torch.amin(x[0], (0, 1)),
     [tensor([[1.0, 3.0, 0.0], [2.0, 0.0, 2.0]])])
case("amax/i32", "y[0] = aril_amax(x[0], ARIL_AXES(1));", lambda x: torch.amax(x[0], 1),
     [randint(-50, 50, 3, 7, dtype=torch.int32)])
case("amax/bool", "y[0] = aril_amax(x[0], ARIL_AXES(1));", lambda x: torch.amax(x[0], 1),
     [randbool(3, 3)])
case("amin/nan", "y[0] = aril_amin(x[0], ARIL_AXES(1));", lambda x: torch.amin(x[0], 1),
     [tensor([[1.0, nan, 3.0], [inf, 2.0, -inf], [inf, inf, inf]])], grad=False)
for op in ["max", "min"]:
    case(f"{op}/all", f"y[0] = aril_{op}(x[0], ARIL_ALL, NULL);",
         lambda x, op=op: getattr(torch, op)(x[0]), [apart(2, 5)])
    for form in ["axis1", "last", "keep"]:
        c, kw = AXES[form]
        case(f"{op}/{form}", f"y[0] = aril_{op}(x[0], {c}, &y[1]);",
             lambda x, op=op, kw=kw: getattr(torch, op)(x[0], **kw), [apart(2, 3, 4)])
    case(f"{op}/ties", f"y[0] = aril_{op}(x[0], ARIL_AXES(1), &y[1]);",
         lambda x, op=op: getattr(torch, op)(x[0], 1),
         [tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [-1.0, 0.0, -1.0]])])
    case(f"{op}/nan", f"y[0] = aril_{op}(x[0], ARIL_AXES(1), &y[1]);",
         lambda x, op=op: getattr(torch, op)(x[0], 1),
         [tensor([[1.0, nan, 3.0, nan], [inf, 2.0, -inf, 2.0], [-inf, -inf, -inf, -inf]])])
    case(f"{op}/f16", f"y[0] = aril_{op}(x[0], ARIL_AXES(0), &y[1]);",
         lambda x, op=op: getattr(torch, op)(x[0], 0), [apart(5, 3, dtype=f16)])
    case(f"{op}/i64", f"y[0] = aril_{op}(x[0], ARIL_AXES(0), &y[1]);",
         lambda x, op=op: getattr(torch, op)(x[0], 0), [randint(-1000, 1000, 5, 3)])
    case(f"{op}/scalar", f"y[0] = aril_{op}(x[0], ARIL_AXES(0), &y[1]);",
         lambda x, op=op: getattr(torch, op)(x[0], 0), [tensor(1.5)])
    case(f"arg{op}/all", f"y[0] = aril_arg{op}(x[0], ARIL_ALL);",
         lambda x, op=op: getattr(torch, "arg" + op)(x[0]), [apart(3, 4)])
    case(f"arg{op}/permuted", f"y[0] = aril_arg{op}(aril_t(x[0]), ARIL_ALL);",
         lambda x, op=op: getattr(torch, "arg" + op)(x[0].t()), [apart(3, 4)])
    case(f"arg{op}/all_keep", f"y[0] = aril_arg{op}(x[0], (aril_axes){{ .keepdim = true }});",
         lambda x, op=op: getattr(torch, "arg" + op)(x[0], None, True), [apart(3, 4)])
    case(f"arg{op}/axis", f"y[0] = aril_arg{op}(x[0], ARIL_AXES(-2));",
         lambda x, op=op: getattr(torch, "arg" + op)(x[0], -2), [apart(2, 3, 4)])
    case(f"arg{op}/nan", f"y[0] = aril_arg{op}(x[0], ARIL_KEEPDIM(1));",
         lambda x, op=op: getattr(torch, "arg" + op)(x[0], 1, True),
         [tensor([[1.0, nan, 3.0, nan], [inf, 2.0, -inf, 2.0]])])

# ---- softmax ----
for op in ["softmax", "log_softmax", "softmin"]:
    for axis in [-1, 0, 1]:
        case(f"{op}/axis{axis}", f"y[0] = aril_{op}(x[0], {axis});",
             lambda x, op=op, axis=axis: getattr(F, op)(x[0], axis), [randn(2, 5, 3)])
    case(f"{op}/large", f"y[0] = aril_{op}(x[0], 1);", lambda x, op=op: getattr(F, op)(x[0], 1),
         [randn(2, 7) * 200])
    case(f"{op}/masked", f"y[0] = aril_{op}(x[0], 1);", lambda x, op=op: getattr(F, op)(x[0], 1),
         [tensor([[1.0, -inf, 2.0, -inf], [0.0, 1.0, 2.0, 3.0]])], grad=op == "softmax")
    case(f"{op}/scalar", f"y[0] = aril_{op}(x[0], 0);", lambda x, op=op: getattr(F, op)(x[0], 0),
         [randn()])
    case(f"{op}/f64", f"y[0] = aril_{op}(x[0], 1);", lambda x, op=op: getattr(F, op)(x[0], 1),
         [randn(3, 4, dtype=f64)])
    for d, name in [(f16, "f16"), (bf16, "bf16")]:
        case(f"{op}/{name}", f"y[0] = aril_{op}(x[0], 1);",
             lambda x, op=op: getattr(F, op)(x[0], 1), [randn(3, 9, dtype=d)],
             rtol=0.02 if d == f16 else 0.1, atol=4e-3)
case("softmax/wide", "y[0] = aril_softmax(x[0], 0);", lambda x: F.softmax(x[0], 0), [randn(3, 70)])

# ---- prod ----
over_axes("prod", torch.prod, lambda *s: uniform(0.5, 1.5, *s), ["all", "axis1", "last", "keep"])
case("prod/two_axes", "y[0] = aril_prod(x[0], ARIL_AXES(0, 2));",
     lambda x: x[0].permute(1, 0, 2).reshape(3, 8).prod(1), [randn(2, 3, 4)])
case("prod/zeros", "y[0] = aril_prod(x[0], ARIL_AXES(1));", lambda x: x[0].prod(1),
     [tensor([[1.0, 2.0, 3.0], [0.0, 2.0, 3.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0]])])
case("prod/i32", "y[0] = aril_prod(x[0], ARIL_ALL);", lambda x: x[0].prod(),
     [randint(1, 4, 6, dtype=torch.int32)])
case("prod/nothing", "y[0] = aril_prod(x[0], ARIL_AXES(0));", lambda x: x[0].prod(0), [randn(0, 2)])
case("prod/f16", "y[0] = aril_prod(x[0], ARIL_AXES(0));", lambda x: x[0].prod(0),
     [uniform(0.5, 1.5, 5, 2, dtype=f16)])

# ---- var, std, norm ----
for op in ["var", "std"]:
    for form, (c, kw) in AXES.items():
        for corr in [1, 0]:
            if corr == 0 and form not in ("all", "two"):
                continue
            case(f"{op}/{form}{corr}", f"y[0] = aril_{op}(x[0], {c}, {corr});",
                 lambda x, op=op, kw=kw, corr=corr:
                 getattr(torch, op)(x[0], **{"dim": None, **kw}, correction=corr), [randn(2, 3, 4)])
    case(f"{op}/constant", f"y[0] = aril_{op}(x[0], ARIL_AXES(1), 1);",
         lambda x, op=op: getattr(torch, op)(x[0], 1),
         [tensor([[2.0, 2.0, 2.0], [1.0, 2.0, 4.0]])])
    case(f"{op}/shifted", f"y[0] = aril_{op}(x[0], ARIL_AXES(0), 1);",
         lambda x, op=op: getattr(torch, op)(x[0], 0),
         [torch.randn(50, 2, dtype=f64, generator=torch.Generator().manual_seed(1)) + 1e6], rtol=1e-8)
    case(f"{op}/bf16", f"y[0] = aril_{op}(x[0], ARIL_AXES(0), 1);",
         lambda x, op=op: getattr(torch, op)(x[0], 0), [randn(9, 2, dtype=bf16)], atol=4e-3, rtol=0.04)
case("var_mean/axis", "y[0] = aril_var_mean(x[0], ARIL_KEEPDIM(1), 1, &y[1]);",
     lambda x: torch.var_mean(x[0], 1, keepdim=True), [randn(3, 5)])
case("var_mean/all", "y[0] = aril_var_mean(x[0], ARIL_ALL, 0, &y[1]);",
     lambda x: torch.var_mean(x[0], correction=0), [randn(3, 5)])
for p, c in [(0, "0"), (1, "1"), (2, "2"), (3, "3"), (0.5, "0.5"), (1.5, "1.5"), (-1, "-1"),
             (inf, "HUGE_VAL"), (-inf, "-HUGE_VAL")]:
    case(f"norm/all{p}", f"y[0] = aril_norm(x[0], ARIL_ALL, {c});",
         lambda x, p=p: torch.linalg.vector_norm(x[0], p), [apart(2, 3)])
    case(f"norm/axis{p}", f"y[0] = aril_norm(x[0], ARIL_KEEPDIM(1), {c});",
         lambda x, p=p: torch.linalg.vector_norm(x[0], p, 1, True), [apart(2, 3, 2)])
for p, c in [(0, "0"), (1, "1"), (2, "2"), (3, "3"), (inf, "HUGE_VAL")]:
    case(f"norm/zeros{p}", f"y[0] = aril_norm(x[0], ARIL_AXES(1), {c});",
         lambda x, p=p: torch.linalg.vector_norm(x[0], p, 1),
         [tensor([[0.0, 0.0, 0.0], [0.0, -1.0, 2.0], [3.0, -3.0, 3.0]])])
case("norm/nan", "y[0] = aril_norm(x[0], ARIL_AXES(1), HUGE_VAL);",
     lambda x: torch.linalg.vector_norm(x[0], inf, 1), [tensor([[0.0, nan, 0.0], [1.0, 2.0, 3.0]])],
     grad=False)
case("norm/nothing", "y[0] = aril_norm(x[0], ARIL_AXES(0), 2);",
     lambda x: torch.linalg.vector_norm(x[0], 2, 0), [randn(0, 2)])
case("nansum/axis", "y[0] = aril_nansum(x[0], ARIL_AXES(1));", lambda x: x[0].nansum(1),
     [tensor([[1.0, nan, 2.0], [nan, nan, nan]])])
case("nanmean/axis", "y[0] = aril_nanmean(x[0], ARIL_AXES(1));", lambda x: x[0].nanmean(1),
     [tensor([[1.0, nan, 2.0], [3.0, 4.0, nan]])])

# ---- scans ----
for op in ["cumsum", "cumprod", "logcumsumexp"]:
    for axis in [0, 1, -1]:
        case(f"{op}/axis{axis}", f"y[0] = aril_{op}(x[0], {axis});",
             lambda x, op=op, axis=axis: getattr(torch, op)(x[0], axis), [randn(3, 4, 5)])
    case(f"{op}/wide", f"y[0] = aril_{op}(x[0], 0);", lambda x, op=op: getattr(torch, op)(x[0], 0),
         [uniform(0.8, 1.2, 70, 19)], rtol=1e-4)
    case(f"{op}/permuted", f"y[0] = aril_{op}(aril_t(x[0]), 1);",
         lambda x, op=op: getattr(torch, op)(x[0].t(), 1), [randn(5, 6)])
    case(f"{op}/scalar", f"y[0] = aril_{op}(x[0], 0);", lambda x, op=op: getattr(torch, op)(x[0], 0),
         [randn()])
    case(f"{op}/f16", f"y[0] = aril_{op}(x[0], 1);", lambda x, op=op: getattr(torch, op)(x[0], 1),
         [uniform(0.5, 1.5, 3, 6, dtype=f16)], rtol=0.01, atol=4e-3)
case("cumsum/i32", "y[0] = aril_cumsum(x[0], 0);", lambda x: x[0].cumsum(0),
     [randint(-9, 9, 4, 2, dtype=torch.int32)])
case("cumsum/bool", "y[0] = aril_cumsum(x[0], 0);", lambda x: x[0].cumsum(0), [randbool(9)])
case("cumprod/i64", "y[0] = aril_cumprod(x[0], 1);", lambda x: x[0].cumprod(1), [randint(-3, 4, 2, 6)])
case("cumprod/zeros", "y[0] = aril_cumprod(x[0], 1);", lambda x: x[0].cumprod(1),
     [tensor([[2.0, 0.0, 3.0, 4.0], [0.0, 2.0, 0.0, 5.0], [1.0, 2.0, 3.0, 0.0]])])
case("logcumsumexp/minus_inf", "y[0] = aril_logcumsumexp(x[0], 1);", lambda x: x[0].logcumsumexp(1),
     [tensor([[-inf, -inf, 1.0, 2.0], [0.0, -inf, 300.0, -300.0]])], grad=False)
for op in ["cummax", "cummin"]:
    for axis in [0, -1]:
        case(f"{op}/axis{axis}", f"y[0] = aril_{op}(x[0], {axis}, &y[1]);",
             lambda x, op=op, axis=axis: tuple(getattr(torch, op)(x[0], axis)), [apart(3, 4, 5)])
    case(f"{op}/ties", f"y[0] = aril_{op}(x[0], 0, &y[1]);",
         lambda x, op=op: tuple(getattr(torch, op)(x[0], 0)),
         [tensor([1.0, 2.0, 2.0, 1.0, 3.0, 1.0, 0.0, 3.0])])
    case(f"{op}/nan", f"y[0] = aril_{op}(x[0], 0, &y[1]);",
         lambda x, op=op: tuple(getattr(torch, op)(x[0], 0)), [tensor([1.0, 2.0, nan, 5.0, 0.0, nan, 1.0])])
    case(f"{op}/i64", f"y[0] = aril_{op}(x[0], 0, &y[1]);",
         lambda x, op=op: tuple(getattr(torch, op)(x[0], 0)), [randint(-5, 5, 8)])
case("diff/first", "y[0] = aril_diff(x[0], 1, -1);", lambda x: torch.diff(x[0]), [randn(2, 5)])
case("diff/second", "y[0] = aril_diff(x[0], 2, 0);", lambda x: torch.diff(x[0], 2, 0), [randn(5, 2)])
case("diff/bool", "y[0] = aril_diff(x[0], 1, 0);", lambda x: torch.diff(x[0]), [randbool(6)])

# ---- sort and selection ----
for axis in [0, 1, -1]:
    for down in [False, True]:
        case(f"sort/axis{axis}{'_down' if down else ''}",
             f"y[0] = aril_sort(x[0], {axis}, (aril_sort_opts){{ .descending = {str(down).lower()} }}, &y[1]);",
             lambda x, axis=axis, down=down: tuple(torch.sort(x[0], axis, down)), [apart(3, 4, 5)])
ties = [3.0, 1.0, nan, 3.0, -inf, 1.0, 2.0, inf, nan, 3.0]
for down in [False, True]:
    c = f"(aril_sort_opts){{ .descending = {str(down).lower()} }}"
    case(f"sort/stable{int(down)}", f"y[0] = aril_sort(x[0], 0, {c}, &y[1]);",
         lambda x, down=down: tuple(torch.sort(x[0], dim=0, descending=down, stable=True)), [tensor(ties)])
    case(f"sort/long{int(down)}", f"y[0] = aril_sort(x[0], 1, {c}, &y[1]);",
         lambda x, down=down: tuple(torch.sort(x[0], dim=1, descending=down, stable=True)), [randint(-20, 20, 2, 200)])
    case(f"argsort/{int(down)}", f"y[0] = aril_argsort(x[0], 1, {c});",
         lambda x, down=down: torch.argsort(x[0], dim=1, descending=down, stable=True), [randint(0, 5, 3, 9, dtype=torch.uint8)])
case("sort/bool", "y[0] = aril_sort(x[0], 0, (aril_sort_opts){ 0 }, &y[1]);",
     lambda x: tuple(torch.sort(x[0], dim=0, stable=True)), [randbool(9)])
case("sort/f16", "y[0] = aril_sort(x[0], 0, (aril_sort_opts){ 0 }, &y[1]);",
     lambda x: tuple(torch.sort(x[0], 0)), [apart(7, 2, dtype=f16)])
case("sort/scalar", "y[0] = aril_sort(x[0], 0, (aril_sort_opts){ 0 }, &y[1]);",
     lambda x: tuple(torch.sort(x[0], 0)), [tensor(1.5)])
for k in [1, 3, 6]:
    for small in [False, True]:
        case(f"topk/{k}{'_smallest' if small else ''}",
             f"y[0] = aril_topk(x[0], {k}, 1, (aril_topk_opts){{ .smallest = {str(small).lower()} }}, &y[1]);",
             lambda x, k=k, small=small: tuple(torch.topk(x[0], k, 1, not small)), [apart(3, 6)])
case("topk/of_many", "y[0] = aril_topk(x[0], 4, 0, (aril_topk_opts){ 0 }, &y[1]);",
     lambda x: tuple(torch.topk(x[0], 4, 0)), [apart(90, 2)])
case("topk/i32", "y[0] = aril_topk(x[0], 2, -1, (aril_topk_opts){ 0 }, &y[1]);",
     lambda x: tuple(torch.topk(x[0], 2)), [tensor([[5, 9, -3, 4], [1, 0, 7, -8]], torch.int32)])
case("kthvalue/axis", "y[0] = aril_kthvalue(x[0], 2, ARIL_AXES(1), &y[1]);",
     lambda x: tuple(torch.kthvalue(x[0], 2, 1)), [apart(3, 5, 2)])
case("kthvalue/keep", "y[0] = aril_kthvalue(x[0], 5, ARIL_KEEPDIM(-1), &y[1]);",
     lambda x: tuple(torch.kthvalue(x[0], 5, -1, True)), [apart(3, 5)])
for n in [4, 5]:
    case(f"median/axis{n}", "y[0] = aril_median(x[0], ARIL_AXES(1), &y[1]);",
         lambda x: tuple(torch.median(x[0], 1)), [apart(3, n, 2)])
    case(f"median/all{n}", "y[0] = aril_median(x[0], ARIL_ALL, NULL);",
         lambda x: torch.median(x[0]), [apart(3, n)])
case("median/nan", "y[0] = aril_median(x[0], ARIL_KEEPDIM(1), &y[1]);",
     lambda x: tuple(torch.median(x[0], 1, True)),
     [tensor([[1.0, nan, 0.0, nan], [4.0, 3.0, 2.0, 1.0]])])
case("nanmedian/axis", "y[0] = aril_nanmedian(x[0], ARIL_AXES(1), &y[1]);",
     lambda x: tuple(torch.nanmedian(x[0], 1)),
     [tensor([[1.0, nan, 0.0, nan], [4.0, 3.0, 2.0, 1.0], [nan, 7.0, 5.0, 6.0]])])
case("mode/axis", "y[0] = aril_mode(x[0], ARIL_AXES(1), &y[1]);",
     lambda x: tuple(torch.mode(x[0], 1)),
     [tensor([[1.0, 2.0, 2.0, 1.0, 3.0], [3.0, 3.0, 2.0, 3.0, 1.0], [5.0, 4.0, 3.0, 2.0, 1.0]])])
case("mode/i64", "y[0] = aril_mode(x[0], ARIL_KEEPDIM(0), &y[1]);",
     lambda x: tuple(torch.mode(x[0], 0, True)), [randint(0, 3, 7, 2)])
for how in ["linear", "lower", "higher", "midpoint", "nearest"]:
    c = f"ARIL_QUANTILE_{how.upper()}"
    case(f"quantile/{how}", f"y[0] = aril_quantile(x[0], x[1], ARIL_AXES(1), {c});",
         lambda x, how=how: torch.quantile(x[0], x[1], 1, interpolation=how),
         [apart(3, 6, 2), tensor([0.0, 0.3, 0.5, 0.77, 1.0])], grad=[0])
case("quantile/scalar", "y[0] = aril_quantile(x[0], aril_scalar(0.25), ARIL_ALL, ARIL_QUANTILE_LINEAR);",
     lambda x: torch.quantile(x[0], 0.25), [apart(3, 6)])
case("quantile/keep", "y[0] = aril_quantile(x[0], x[1], ARIL_KEEPDIM(0), ARIL_QUANTILE_LINEAR);",
     lambda x: torch.quantile(x[0], x[1], 0, keepdim=True), [apart(5, 2), tensor([0.1, 0.9])], grad=[0])
case("quantile/keep_scalar", "y[0] = aril_quantile(x[0], x[1], ARIL_KEEPDIM(-1), ARIL_QUANTILE_LINEAR);",
     lambda x: torch.quantile(x[0], x[1], -1, keepdim=True), [apart(5, 3, dtype=f64), tensor(0.6, f64)], grad=[0])
case("quantile/nan", "y[0] = aril_quantile(x[0], x[1], ARIL_AXES(1), ARIL_QUANTILE_LINEAR);",
     lambda x: torch.quantile(x[0], x[1], 1), [tensor([[1.0, nan, 2.0], [3.0, 1.0, 2.0]]), tensor([0.5])],
     grad=False)

# ---- counting and searching ----
case("unique/i64", "y[0] = aril_unique(x[0], &y[1], &y[2]);",
     lambda x: torch.unique(x[0], return_inverse=True, return_counts=True), [randint(-3, 4, 3, 5)])
case("unique/f32", "y[0] = aril_unique(x[0], &y[1], &y[2]);",
     lambda x: torch.unique(x[0], return_inverse=True, return_counts=True),
     [tensor([1.0, -2.0, 1.0, 0.5, inf, -inf, -2.0, 0.5])], grad=False)
case("unique/u8", "y[0] = aril_unique(x[0], &y[1], &y[2]);",
     lambda x: torch.unique(x[0], return_inverse=True, return_counts=True),
     [randint(250, 256, 12, dtype=torch.uint8)])
case("unique/bool", "y[0] = aril_unique(x[0], &y[1], &y[2]);",
     lambda x: torch.unique(x[0], return_inverse=True, return_counts=True), [randbool(3, 2)])
case("unique/nothing", "y[0] = aril_unique(x[0], &y[1], &y[2]);",
     lambda x: torch.unique(x[0], return_inverse=True, return_counts=True), [randint(0, 4, 0)])
for axis in [0, 1, -1]:
    case(f"unique/axis{axis}", f"y[0] = aril_unique_axis(x[0], {axis}, &y[1], &y[2]);",
         lambda x, axis=axis: torch.unique(x[0], return_inverse=True, return_counts=True, dim=axis),
         [randint(0, 2, 6, 5, 2)[:, :, :2] if axis != 0 else randint(0, 2, 9, 2, 1)])
case("bincount/plain", "y[0] = aril_bincount(x[0], NULL, 0);", lambda x: torch.bincount(x[0]),
     [randint(0, 7, 20)])
case("bincount/minlength", "y[0] = aril_bincount(x[0], NULL, 10);",
     lambda x: torch.bincount(x[0], minlength=10), [randint(0, 7, 20, dtype=torch.int32)])
case("bincount/weights", "y[0] = aril_bincount(x[0], x[1], 0);",
     lambda x: torch.bincount(x[0], x[1]), [randint(0, 7, 20), randn(20)], grad=False)
case("bincount/f64_weights", "y[0] = aril_bincount(x[0], x[1], 9);",
     lambda x: torch.bincount(x[0], x[1], 9), [randint(0, 7, 20), randn(20, dtype=f64)], grad=False)
case("bincount/nothing", "y[0] = aril_bincount(x[0], NULL, 3);",
     lambda x: torch.bincount(x[0], minlength=3), [randint(0, 7, 0)])
case("histc/range", "y[0] = aril_histc(x[0], 7, -1, 1);", lambda x: torch.histc(x[0], 7, -1, 1),
     [randn(40)], grad=False)
case("histc/own_range", "y[0] = aril_histc(x[0], 5, 0, 0);", lambda x: torch.histc(x[0], 5),
     [randn(5, 8, dtype=f64)], grad=False)
case("histc/constant", "y[0] = aril_histc(x[0], 4, 0, 0);", lambda x: torch.histc(x[0], 4),
     [tensor([2.0, 2.0, 2.0])], grad=False)
case("histogram/edges", "y[0] = aril_histogram(x[0], x[1], (aril_histogram_opts){0});",
     lambda x: torch.histogram(x[0], x[1])[0],
     [randn(40), tensor([-1.0, -0.5, 0.25, 2.0])], grad=False)
case("histogram/on_edges", "y[0] = aril_histogram(x[0], x[1], (aril_histogram_opts){0});",
     lambda x: torch.histogram(x[0], x[1])[0],
     [tensor([0.0, 1.0, 1.0, 2.0, 3.0, 4.0]), tensor([1.0, 2.0, 3.0])], grad=False)
case("histogram/weights", "y[0] = aril_histogram(x[0], x[1], (aril_histogram_opts){.weights = x[2]});",
     lambda x: torch.histogram(x[0], x[1], weight=x[2])[0],
     [randn(6, 5), tensor([-1.0, 0.0, 1.0]), rand(6, 5)], grad=False)
case("histogram/density", "y[0] = aril_histogram(x[0], x[1], (aril_histogram_opts){.density = true});",
     lambda x: torch.histogram(x[0], x[1], density=True)[0],
     [randn(40, dtype=f64), tensor([-1.0, -0.5, 0.25, 2.0], f64)], grad=False)
case("histogram/bins", "y[0] = aril_histogram_bins(x[0], 6, -2, 2, (aril_histogram_opts){0}, &y[1]);",
     lambda x: torch.histogram(x[0], 6, range=(-2.0, 2.0)), [randn(30)], grad=False)
case("histogram/own_range", "y[0] = aril_histogram_bins(x[0], 4, 0, 0, (aril_histogram_opts){0}, &y[1]);",
     lambda x: torch.histogram(x[0], 4), [randn(30, dtype=f64)], grad=False)
for right in [False, True]:
    c = f"(aril_search_opts){{ .right = {str(right).lower()} }}"
    case(f"searchsorted/one{int(right)}", f"y[0] = aril_searchsorted(x[0], x[1], {c});",
         lambda x, right=right: torch.searchsorted(x[0], x[1], right=right),
         [tensor([1.0, 3.0, 5.0, 5.0, 9.0]), tensor([[0.0, 1.0, 5.0], [6.0, 9.0, nan]])], grad=False)
    case(f"searchsorted/rows{int(right)}", f"y[0] = aril_searchsorted(x[0], x[1], {c});",
         lambda x, right=right: torch.searchsorted(x[0], x[1], right=right),
         [torch.sort(randint(0, 9, 3, 6))[0], randint(0, 10, 3, 4)])
    case(f"bucketize/{int(right)}", f"y[0] = aril_bucketize(x[0], x[1], {c});",
         lambda x, right=right: torch.bucketize(x[0], x[1], right=right),
         [randint(0, 10, 2, 5, dtype=torch.int32), tensor([2, 4, 4, 7], torch.int32)])
