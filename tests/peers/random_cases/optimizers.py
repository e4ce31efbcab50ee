"""Random steps of the optimizers of aril/optim.h on given gradients, beside PyTorch's.

Dtypes, options, groups, master weights, clipping, accumulation, loss scales with infinities, and schedules by step are random; some
parameters have no gradient in some steps. After each step, parameters, learning rates, the loss scale and the step count are compared with
PyTorch's in f64 from the same gradients; parameters in half precision are rounded after each step there.
"""
import ctypes as C
import math
import random

import torch
from by_ctypes import B, F64, I, I64, P, S, ZERO, Named, Tensor, api, declare, options

from .engine import Draw, Failed, Input, Refused, check_error, clear_error, dtype_name, guard_end, scope_begin, values_of
from .networks import OptimOptions, optim_free

LOW = (torch.bfloat16, torch.float16)
item = declare("aril_item", C.c_double, P)
lr_of, state_of = declare("aril_optim_group_lr", P, P, I), declare("aril_optim_state", C.POINTER(Named), P)
scale_of, steps_of = declare("aril_optim_loss_scale", P, P), declare("aril_optim_steps", P, P)
add_group = declare("aril_optim_add_group", I, P, P, OptimOptions)
ScheduleOptions = options(
    "ScheduleOptions", (B, "per_batch"), (I64, "total every"), (I64 * 16, "at"), (F64, "gamma power min_lr start end growth max_lr warm_share div "
    "final_div"), (B, "straight three_phases"), (F64, "base_momentum max_momentum"), (B, "fixed_momentum"), (I64, "up down"), (B, "halving"),
    (F64, "factor"), (I64, "patience cooldown"), (F64, "threshold"), (B, "absolute rising"), (I64, "warmup"), (F64, "warm_start"))


# ---- Optimizers that PyTorch does not have, by their formulas ------------------------------------------------------------


class ByFormula(torch.optim.Optimizer):
    def __init__(self, params, **fields):
        super().__init__(params, fields)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    g = -p.grad if group.get("maximize") else p.grad
                    self.update(p, g, group, self.state[p])


class Lion(ByFormula):
    def update(self, p, g, o, state):
        m = state.setdefault("m", torch.zeros_like(p))
        p.mul_(1 - o["lr"] * o["weight_decay"])
        p.sub_(o["lr"] * (o["betas"][0] * m + (1 - o["betas"][0]) * g).sign())
        m.mul_(o["betas"][1]).add_((1 - o["betas"][1]) * g)


class Lars(ByFormula):
    def update(self, p, g, o, state):
        size, slope = p.norm(), g.norm()
        trust = o["trust"] * size / (slope + o["weight_decay"] * size) if size > 0 and slope > 0 else 1
        g = trust * (g + o["weight_decay"] * p)
        b = state.setdefault("b", torch.zeros_like(p)).mul_(o["momentum"]).add_(o["lr"] * g)
        p.sub_(b)


class Lamb(ByFormula):
    def update(self, p, g, o, state):
        t = state["t"] = state.get("t", 0) + 1
        m, v = state.setdefault("m", torch.zeros_like(p)), state.setdefault("v", torch.zeros_like(p))
        (b1, b2) = o["betas"]
        m.mul_(b1).add_((1 - b1) * g)
        v.mul_(b2).add_((1 - b2) * g * g)
        u = m / (1 - b1 ** t) / ((v / (1 - b2 ** t)).sqrt() + o["eps"]) + o["weight_decay"] * p
        trust = p.norm() / u.norm() if p.norm() > 0 and u.norm() > 0 else 1
        p.sub_(o["lr"] * trust * u)


TITLES = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "amsgrad": "Adam", "adamax": "Adamax", "nadam": "NAdam", "radam": "RAdam",
          "adagrad": "Adagrad", "adadelta": "Adadelta", "rmsprop": "RMSprop", "rprop": "Rprop", "adafactor": "Adafactor"}
OWN = {"lion": Lion, "lars": Lars, "lamb": Lamb}
WITH_BETAS = ("adam", "adamw", "amsgrad", "adamax", "nadam", "radam", "lion", "lamb")


def zero(x):
    return x or float(ZERO)


def rules(d):
    """A name, and options of Aril and of PyTorch."""
    name = d.pick(*TITLES, *OWN, "sgd", "adam")
    lr, decay = d.pick(0.01, 0.1, 0.003), d.pick(0.0, 0.0, 0.1, 0.01)
    ours, theirs = dict(lr=lr, weight_decay=zero(decay)), dict(lr=lr, weight_decay=decay)

    def both(**fields):
        ours.update({k: zero(v) if isinstance(v, float) else v for k, v in fields.items()})
        theirs.update(fields)

    if name in WITH_BETAS:
        betas = d.pick((0.9, 0.999), (0.8, 0.95), (0.5, 0.9), (0.9, 0.6))
        ours.update(beta1=betas[0], beta2=betas[1])
        theirs.update(betas=betas)
    if name not in ("lion", "sgd", "lars", "rprop", "adafactor"):
        both(eps=d.pick(1e-8, 1e-3, 1e-6))
    if name == "sgd":
        both(momentum=d.pick(0.0, 0.9, 0.5))
        both(**(dict(nesterov=True) if theirs["momentum"] and d.chance(0.4) else dict(dampening=d.pick(0.0, 0.3))))
    elif name in ("adam", "adamw") and d.chance(0.4):
        both(amsgrad=True)
    elif name == "amsgrad":
        theirs["amsgrad"] = True
    elif name == "adagrad":
        ours.update(decay=zero(d.pick(0.0, 0.1)), initial=zero(d.pick(0.0, 0.1)))
        theirs.update(lr_decay=max(0.0, ours["decay"]), initial_accumulator_value=max(0.0, ours["initial"]))
    elif name == "adadelta":
        ours["alpha"] = theirs["rho"] = d.pick(0.9, 0.8)
    elif name == "rmsprop":
        both(alpha=d.pick(0.99, 0.9), momentum=d.pick(0.0, 0.5), centered=d.chance(0.4))
    elif name == "rprop":
        eta, size = d.pick((0.5, 1.2), (0.4, 1.5)), d.pick((1e-6, 50.0), (1e-3, 0.02))
        ours = dict(lr=lr, eta_minus=eta[0], eta_plus=eta[1], step_min=size[0], step_max=size[1])
        theirs = dict(lr=lr, etas=eta, step_sizes=size)
    elif name == "adafactor":
        ours.update(beta2_decay=d.pick(0.8, 0.6), min_scale=1e-3, clip_update=d.pick(1.0, 2.0))
        theirs.update(beta2_decay=-ours["beta2_decay"], eps=(None, 1e-3), d=ours["clip_update"])
    elif name == "lars":
        both(momentum=d.pick(0.9, 0.5), trust=d.pick(0.001, 0.1))
    if name in ("nadam", "radam", "adam") and d.chance(0.3):
        ours["decoupled"] = theirs["decoupled_weight_decay"] = True
    if name == "nadam":
        both(momentum_decay=d.pick(0.004, 0.02))
    if d.chance(0.2):
        both(maximize=True)
    return name, ours, theirs


# ---- Schedules -------------------------------------------------------------------------------------------------------------


def schedule(d, name, steps, lr):
    """A name, Aril's options, and a function of PyTorch's optimizer; or None."""
    kinds = torch.optim.lr_scheduler
    kind = d.pick("one_cycle", "one_cycle", "cyclic", "cyclic", "cosine", "step", "multistep", "exponential", "linear", "constant",
                  "polynomial", "warm_restarts")
    total = steps + d.random.randint(1, 6)
    moves = (name in WITH_BETAS or name in ("sgd", "rmsprop", "lars")) and d.chance(0.8)
    if kind == "one_cycle":
        most, share, div, last = lr * d.pick(1, 3), d.pick(0.3, 0.5, 0.1), d.pick(25.0, 4.0), d.pick(1e4, 10.0)
        share = 0.3 if abs(share * total - 1) < 1e-9 else share  # a phase of no steps, by whose length PyTorch divides
        low, high, straight, three = d.pick(0.85, 0.5), d.pick(0.95, 0.9), d.chance(0.4), d.chance(0.4)
        ours = dict(total=total, max_lr=most, warm_share=share, div=div, final_div=last, straight=straight, three_phases=three,
                    base_momentum=low, max_momentum=high, fixed_momentum=not moves)
        return kind, ours, lambda o: kinds.OneCycleLR(o, most, total, pct_start=share, anneal_strategy="linear" if straight else "cos",
                                                      cycle_momentum=moves, base_momentum=low, max_momentum=high, div_factor=div,
                                                      final_div_factor=last, three_phase=three)
    if kind == "cyclic":
        most, up, down = lr * d.pick(2, 4), d.random.randint(1, 5), d.random.randint(1, 5)
        mode, low, high = d.pick("triangular", "triangular2", "exp_range"), d.pick(0.8, 0.5), d.pick(0.9, 0.95)
        gamma = 0.9 if mode == "exp_range" else 1.0
        ours = dict(max_lr=most, up=up, down=down, halving=mode == "triangular2", gamma=gamma, base_momentum=low, max_momentum=high,
                    fixed_momentum=not moves)
        return kind, ours, lambda o: kinds.CyclicLR(o, lr, most, up, down, mode, gamma, cycle_momentum=moves, base_momentum=low, max_momentum=high)
    gamma, every = d.pick(0.5, 0.9), d.random.randint(1, 4)
    at = sorted(d.random.sample(range(1, 10), d.random.randint(1, 3)))
    floor, start, growth = d.pick(0.0, 0.001), d.pick(0.25, 0.5), d.pick(1, 2)
    return {
        "cosine": (kind, dict(total=total, min_lr=floor), lambda o: kinds.CosineAnnealingLR(o, total, floor)),
        "step": (kind, dict(every=every, gamma=gamma), lambda o: kinds.StepLR(o, every, gamma)),
        "multistep": (kind, dict(at=at, gamma=gamma), lambda o: kinds.MultiStepLR(o, at, gamma)),
        "exponential": (kind, dict(gamma=gamma), lambda o: kinds.ExponentialLR(o, gamma)),
        "linear": (kind, dict(total=every, start=start), lambda o: kinds.LinearLR(o, start, total_iters=every)),
        "constant": (kind, dict(total=every, start=start), lambda o: kinds.ConstantLR(o, start, every)),
        "polynomial": (kind, dict(total=total, power=2.0), lambda o: kinds.PolynomialLR(o, total, 2.0)),
        "warm_restarts": (kind, dict(total=every, growth=float(growth), min_lr=floor),
                          lambda o: kinds.CosineAnnealingWarmRestarts(o, every, growth, floor)),
    }[kind]


# ---- A case --------------------------------------------------------------------------------------------------------------------


class Case:
    def __init__(self, seed):
        d = self.draw = Draw(seed, False)
        d.special = False
        self.dtype = d.pick(torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.bfloat16, torch.float16)
        self.low = self.dtype in LOW
        self.masters = self.low and d.chance(0.7)
        self.name, self.ours, self.theirs = rules(d)
        if self.name == "adafactor":
            self.theirs["eps"] = (torch.finfo(torch.float32 if self.masters else self.dtype).eps, 1e-3)
        self.steps = d.random.randint(2, 12)
        self.accumulate = d.pick(2, 3) if not self.low and d.chance(0.2) else 1
        self.clip = d.pick(("norm", 0.5), ("norm", 100.0), ("value", 0.3), None, None, None)
        self.scale = (d.pick(4.0, 64.0), d.random.randint(1, 4)) if d.chance(0.4) else None
        sizes = [d.shape((0, 4), most=400) for _ in range(d.random.randint(1, 5))]
        if self.name == "adafactor":  # PyTorch's divides by the number of elements
            sizes = [[max(1, n) for n in s] for s in sizes]
        self.start = [d.tensor((self.dtype,), sizes=s, domain=d.pick("any", "inner")) for s in sizes]
        for i in self.start:
            i.layout = ("contiguous",) if i.layout[0] == "expanded" else i.layout  # elements that share memory cannot be written to
        self.split = d.random.randint(1, len(sizes) - 1) if len(sizes) > 1 and d.chance(0.3) else 0
        self.other = dict(lr=self.ours["lr"] * 2)
        if self.name != "rprop":
            self.other["weight_decay"] = 0.05
        self.schedule = schedule(d, self.name, self.steps, self.ours["lr"]) if d.chance(0.5) and self.accumulate == 1 and not self.split else None
        self.backward = d.chance(0.5)  # whether gradients come from a backward pass
        self.grads = [[self.gradient(i) for i in self.start] for _ in range(self.steps)]
        if all(g is None for step in self.grads for g in step):
            self.grads[0][0] = self.gradient(self.start[0], True)

    def gradient(self, like, always=False):
        d = self.draw
        if not always and self.accumulate == 1 and d.chance(0.1):
            return None
        g = d.tensor((self.dtype,), sizes=like.value.shape, domain=d.pick("any", "inner"))
        if self.scale and g.value.numel() and d.chance(0.08):
            g.value = g.value.clone()
            g.value.view(-1)[d.random.randrange(g.value.numel())] = d.pick(math.inf, -math.inf, math.nan)
            g.layout = ("contiguous",)
        return g

    def text(self):
        return (f"{dtype_name(self.dtype)} {[list(i.value.shape) for i in self.start]} {self.name} {self.ours}, {self.steps} steps, masters "
                f"{self.masters}, accumulate {self.accumulate}, clip {self.clip}, scale {self.scale}, split {self.split}, backward "
                f"{self.backward}, schedule {self.schedule[:2] if self.schedule else None}")


# ---- PyTorch's run ---------------------------------------------------------------------------------------------------------------


def run_theirs(case, dtype, scales):
    """Parameters, learning rate, scale and step count after each step. `scales`: the loss scale that the library used in each step."""
    torch.set_default_dtype(dtype)
    kind = OWN.get(case.name) or getattr(torch.optim, TITLES[case.name])
    params = [i.value.to(dtype).requires_grad_() for i in case.start]
    more = {k: v for k, v in case.other.items()}
    groups = [dict(params=params[:case.split or len(params)])] + ([dict(params=params[case.split:], **more)] if case.split else [])
    step = kind(groups, **case.theirs)
    by_step = case.schedule[2](step) if case.schedule else None
    scaler = torch.amp.GradScaler("cpu", case.scale[0], growth_interval=case.scale[1], enabled=True) if case.scale else None
    if scaler:
        scaler.scale(torch.ones(1))
    out, done = [], 0
    for k in range(case.steps):
        for p, g in zip(params, case.grads[k]):
            if g is not None:
                g = g.value if not scales else (g.value.double() * scales[k]).to(case.dtype)
                p.grad = g.to(dtype) + (0 if p.grad is None else p.grad)
        some = any(p.grad is not None for p in params)
        if (k + 1) % case.accumulate == 0 and some:
            for p in params:
                if p.grad is not None:
                    p.grad /= case.accumulate
            if scaler:
                scaler.unscale_(step)
            if case.clip:
                how, most = case.clip
                (torch.nn.utils.clip_grad_norm_ if how == "norm" else torch.nn.utils.clip_grad_value_)(params, most)
            if scaler:
                bad = sum(v.item() for v in scaler._found_inf_per_device(step).values())
                scaler.step(step)
                scaler.update()
                done += not bad
            else:
                step.step()
                done += 1
            if case.low and not case.masters:
                with torch.no_grad():
                    for p in params:
                        p.copy_(p.to(case.dtype))
            step.zero_grad()
        if by_step and some:
            by_step.step()
        out.append(([p.detach().clone() for p in params], [g["lr"] for g in step.param_groups], scaler.get_scale() if scaler else None, done))
    torch.set_default_dtype(torch.float32)
    return out


# ---- Aril's run --------------------------------------------------------------------------------------------------------------------


def named_of(tensors, first):
    at = (P * max(1, len(tensors)))(*[t.address for t in tensors])
    names = (S * max(1, len(tensors)))(*[f"p{first + i}".encode() for i in range(len(tensors))])
    return Named(n=len(tensors), at=C.cast(at, C.POINTER(P)), name=C.cast(names, C.POINTER(S)))


def make_optimizer(case, params):
    fields = dict(case.ours, master_weights=case.masters, accumulate=case.accumulate if case.accumulate > 1 else 0)
    if case.clip:
        fields["clip_" + case.clip[0]] = case.clip[1]
    if case.scale:
        fields.update(loss_scale=case.scale[0], loss_scale_growth=case.scale[1])
    count = case.split or len(params)
    optim = api.optim_new(case.name.encode(), C.byref(named_of(params[:count], 0)), OptimOptions(**fields)).address
    check_error()
    if case.split:
        add_group(optim, C.byref(named_of(params[count:], count)), OptimOptions(**case.other))
        check_error()
    if case.schedule:
        name, fields, _ = case.schedule
        fields = {k: zero(v) if isinstance(v, float) else v for k, v in fields.items()}
        api.status("optim_schedule", Tensor(optim), api.schedule_new(name.encode(), ScheduleOptions(per_batch=True, **fields)))
        check_error()
    return optim


def set_gradients(case, optim, params, grads, scale):
    """Gives parameters their gradients: by a backward pass, or as they are."""
    loss = None
    for p, g in zip(params, grads):
        if g is None:
            continue
        if case.backward:
            part = api.sum(api.mul(p, g.build(leaf=False)), options("Axes", (I, "n"), (B, "keepdim"), (I * 8, "axis"))())
            loss = part if loss is None else api.add(loss, part)
        else:
            g = Input((g.value.double() * scale).to(case.dtype), g.layout, False).build(leaf=False)
            if case.accumulate > 1 and declare("aril_has_grad", B, P)(p.address):
                g = api.add(g, api.grad(p))
            api.status("set_grad", p, g)
    if loss is not None:
        api.status("backward", api.scale_loss(Tensor(optim), loss))
    check_error()


def run_ours(case):
    params = [i.build() for i in case.start]
    optim = make_optimizer(case, params)
    out, scales = [], []
    try:
        for k in range(case.steps):
            scope = scope_begin()
            scale = item(scale_of(optim)) if case.scale else 1.0
            scales.append(scale)
            set_gradients(case, optim, params, case.grads[k], scale)
            if any(g is not None for g in case.grads[k]):
                api.status("step", Tensor(optim))
                check_error()
            state, masters = state_of(optim).contents, {}
            for i in range(state.n):
                name = state.name[i].decode()
                if name.endswith(".master"):
                    masters[int(name[1:-7])] = values_of(Tensor(state.at[i]))
            out.append(([values_of(p) for p in params], [item(lr_of(optim, g)) for g in range(2 if case.split else 1)],
                        item(scale_of(optim)) if case.scale else None, int(item(steps_of(optim))), masters))
            check_error()
            guard_end(C.byref(scope))
    finally:
        optim_free(optim)
    return out, scales


# ---- Comparison ----------------------------------------------------------------------------------------------------------------------


def judge(case, ours, exact, theirs):
    for k, (mine, wide, narrow) in enumerate(zip(ours, exact, theirs)):
        for at, (a, b) in enumerate(zip(mine[1], wide[1])):
            if not math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-15):
                raise Failed("learning rate", f"group {at} after step {k}: got {a!r}, PyTorch {b!r}")
        if mine[2] != wide[2]:
            raise Failed("loss scale", f"after step {k}: got {mine[2]}, PyTorch {wide[2]}")
        if mine[3] != wide[3]:
            raise Failed("step count", f"after step {k}: got {mine[3]}, PyTorch {wide[3]}")
        for i, (a, e, b) in enumerate(zip(mine[0], wide[0], narrow[0])):
            what = f"parameter {i} after step {k}"
            check(what, a, e, b, case, 3 if case.low else 0)
            if i in mine[4]:
                check(what + ", master", mine[4][i], e, b, case, 0)


def check(what, a, e, b, case, roundings):
    """`roundings` of the parameter's dtype, besides those of the dtype that is computed in."""
    if not a.numel():
        return
    a, b = a.double(), b.double()
    size = e.abs().clamp_min(torch.finfo(case.dtype).tiny)
    most = max(1e-3, e.abs().max().item())
    eps = torch.finfo(torch.float64 if case.dtype == torch.float64 else torch.float32).eps
    bound = 8 * (b - e).abs().max() + 100 * eps * most + roundings * torch.finfo(case.dtype).eps * size
    bad = ~((a - e).abs() <= bound) & ~(a.isnan() & e.isnan())
    if bad.any():
        at = tuple(bad.nonzero()[0].tolist())
        raise Failed("value", f"{what}{list(at)}: got {a[at].item()!r}, PyTorch {b[at].item()!r}, in f64 {e[at].item()!r} "
                     f"({int(bad.sum())} of {bad.numel()} elements)")


def run_optimizer(seed, name, progress):
    """As run_case, for an optimizer."""
    case = Case(random.Random(f"optimizer {seed}").getrandbits(60))
    text = case.text()
    progress(text)
    scope = scope_begin()
    clear_error()
    try:
        ours, scales = run_ours(case)
        progress(None)
        exact = run_theirs(case, torch.float64, scales)
        narrow = exact if case.dtype == torch.float64 else run_theirs(case, torch.float32, scales)
        judge(case, ours, exact, narrow)
    except Refused as refused:
        return "refused", str(refused), text
    except Failed as failed:
        return (*failed.args, text)
    finally:
        torch.set_default_dtype(torch.float32)
        guard_end(C.byref(scope))
        clear_error()
    return None
