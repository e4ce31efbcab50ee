"""Optimizers and schedules over 100 steps: as torch.optim makes them, and from the published formulas
where it has none (LARS, LAMB, Lion; Caffe's schedules)."""
import math

from golden import *

STEPS = 100

prelude(r"""
enum { STEPS = 100 };

/* The gradients of a step: small whole numbers, in 32nds. */
static void set_grads(aril_tensor **p, aril_tensor **x, int t)
{
    for (int k = 0; k < 2; k++) {
        aril_tensor *g = aril_cast(aril_select(x[2 + k], 0, t), aril_dtype_of(p[k]));
        aril_set_grad(p[k], aril_mul_scalar(g, 1 / 32.0));
    }
}

/* Runs o over the gradients x[2], x[3] from x[0], x[1], and frees it. */
static void run(aril_optim *o, aril_tensor **p, aril_tensor **x, aril_tensor **y)
{
    for (int t = 0; t < STEPS; t++) {
        ARIL_SCOPE;
        set_grads(p, x, t);
        aril_step(o);
    }
    const aril_named *state = aril_optim_state(o);
    int n = 2;
    y[0] = aril_copy(aril_detach(p[0]));
    y[1] = aril_copy(aril_detach(p[1]));
    for (int i = 0; state && i < state->n; i++)
        if (strncmp(state->name[i], "optim.", 6) != 0) y[n++] = aril_copy(state->at[i]);
    aril_optim_free(o);
    aril_release(p[0]);
    aril_release(p[1]);
}

static void run_one(const char *name, aril_optim_opts opts, aril_tensor **x, aril_tensor **y)
{
    aril_tensor *p[2] = { aril_parameter(aril_copy(x[0])), aril_parameter(aril_copy(x[1])) };
    run(aril_optim_new(name, ARIL_TENSORS(p[0], p[1]), opts), p, x, y);
}

static void run_two(const char *name, aril_optim_opts opts, aril_optim_opts second,
                    aril_tensor **x, aril_tensor **y)
{
    aril_tensor *p[2] = { aril_parameter(aril_copy(x[0])), aril_parameter(aril_copy(x[1])) };
    aril_optim *o = aril_optim_new(name, ARIL_TENSORS(p[0]), opts);
    aril_optim_add_group(o, ARIL_TENSORS(p[1]), second);
    run(o, p, x, y);
}

/* The rates of a schedule; x[0]: metrics for a plateau. */
static void rates(aril_schedule *s, aril_tensor **x, aril_tensor **y)
{
    aril_optim *o = aril_sgd(NULL, (aril_sgd_opts){ .lr = 0.4 });
    double lr[STEPS + 1], metric[STEPS];
    aril_read(x[0], metric);
    aril_optim_schedule(o, s);
    for (int t = 0; t <= STEPS; t++) {
        lr[t] = aril_item(aril_optim_lr(o));
        if (t < STEPS) aril_optim_epoch(o, metric[t]);
    }
    y[0] = aril_from(lr, ARIL_SHAPE(STEPS + 1), ARIL_F64, test_device());
    aril_optim_free(o);
}

/* The momenta of a schedule. */
static void momenta(aril_schedule *s, aril_tensor **x, aril_tensor **y)
{
    (void)x;
    double m[STEPS + 1];
    for (int t = 0; t <= STEPS; t++) m[t] = aril_schedule_momentum_at(s, 0.9, t);
    y[0] = aril_from(m, ARIL_SHAPE(STEPS + 1), ARIL_F64, test_device());
    aril_schedule_free(s);
}

/* The steps of an optimizer with a schedule. */
static void run_with(const char *name, aril_optim_opts opts, aril_schedule *s, aril_tensor **x,
                     aril_tensor **y)
{
    aril_tensor *p[2] = { aril_parameter(aril_copy(x[0])), aril_parameter(aril_copy(x[1])) };
    aril_optim *o = aril_optim_new(name, ARIL_TENSORS(p[0], p[1]), opts);
    aril_optim_schedule(o, s);
    run(o, p, x, y);
}

/* A function with curved valleys. */
static aril_tensor *valley(void *ctx)
{
    aril_tensor **p = ctx;
    aril_tensor *a = aril_reshape(p[0], ARIL_SHAPE(-1));
    aril_tensor *left = aril_slice(a, 0, 0, 20, 1), *right = aril_slice(a, 0, 1, 21, 1);
    aril_tensor *bend = aril_sum(aril_square(aril_sub(right, aril_square(left))), ARIL_ALL);
    aril_tensor *far = aril_sum(aril_square(aril_sub(aril_rsub_scalar(left, 1), p[2])), ARIL_ALL);
    aril_tensor *deep = aril_sum(aril_cosh(aril_sub_scalar(p[1], 0.5)), ARIL_ALL);
    aril_tensor *loss = aril_add(aril_add(aril_mul_scalar(bend, 5), far), deep);
    aril_backward(loss);
    return loss;
}

static void descend(int steps, aril_optim_opts opts, aril_tensor **x, aril_tensor **y)
{
    aril_tensor *p[3] = { aril_parameter(aril_copy(x[0])), aril_parameter(aril_copy(x[1])), x[2] };
    aril_optim *o = aril_lbfgs(ARIL_TENSORS(p[0], p[1]), opts);
    double loss[STEPS];
    for (int t = 0; t < steps; t++) {
        ARIL_SCOPE;
        loss[t] = aril_item(aril_step_closure(o, valley, p));
    }
    y[0] = aril_copy(aril_detach(p[0]));
    y[1] = aril_copy(aril_detach(p[1]));
    y[2] = aril_from(loss, ARIL_SHAPE(steps), ARIL_F64, test_device());
    aril_optim_free(o);
    aril_release(p[0]);
    aril_release(p[1]);
}

static void average(aril_average_opts opts, aril_tensor **x, aril_tensor **y)
{
    aril_tensor *p[2] = { aril_parameter(aril_copy(x[0])), aril_parameter(aril_copy(x[1])) };
    aril_optim *o = aril_sgd(ARIL_TENSORS(p[0], p[1]), (aril_sgd_opts){ .lr = 0.3 });
    aril_average *a = aril_average_new(ARIL_TENSORS(p[0], p[1]), opts);
    for (int t = 0; t < STEPS; t++) {
        ARIL_SCOPE;
        set_grads(p, x, t);
        aril_step(o);
        aril_average_update(a);
    }
    aril_average_swap(a);
    y[0] = aril_copy(aril_detach(p[0]));
    y[1] = aril_copy(aril_detach(p[1]));
    aril_average_free(a);
    aril_optim_free(o);
    aril_release(p[0]);
    aril_release(p[1]);
}

static double by_square(double base, int64_t t, void *ctx)
{
    return base / (1 + *(const double *)ctx * (double)(t * t));
}
""")


def inputs(dtype, shapes=((3, 7), (5,))):
    """Parameters, and the gradients of all steps as small whole numbers."""
    return ([randn(*s).to(dtype) for s in shapes]
            + [randint(-60, 61, STEPS, *s).to(torch.int8) for s in shapes])


def each_step(x):
    """Parameters whose gradients are set, step by step: yields (step, parameters)."""
    params = [torch.nn.Parameter(t.detach().clone()) for t in x[:2]]
    for t in range(STEPS):
        for k, p in enumerate(params):
            p.grad = x[2 + k][t].to(p.dtype) / 32
        yield t, params


def run(make, slots):
    def fn(x):
        optimizer = None
        for t, params in each_step(x):
            optimizer = optimizer or make(params)
            optimizer.step()
        y = [p.detach() for p in params]
        return y + [optimizer.state[p][name].detach() for p in params for name in slots]
    return fn


def both(name, c, make, slots, **tolerance):
    for dtype, tail in ((torch.float32, ""), (torch.float64, "/f64")):
        case(name + tail, c, run(make, slots), inputs(dtype), grad=False,
             **({} if tail else tolerance))


def optimizer(kind, name, c, slots, make=None, torch_name=None, **k):
    of = make or getattr(torch.optim, torch_name)
    both(f"{kind}/{name}", f'run_one("{kind}", (aril_optim_opts){{ {c} }}, x, y);',
         lambda p: of(p, **k), slots)


def sgd(name, c, slots=(), **k):
    optimizer("sgd", name, c, slots, torch_name="SGD", **k)


M = ["momentum_buffer"]
sgd("plain", ".lr = 0.05", lr=0.05)
sgd("decay", ".lr = 0.05, .weight_decay = 0.1", lr=0.05, weight_decay=0.1)
sgd("momentum", ".lr = 0.05, .momentum = 0.9", M, lr=0.05, momentum=0.9)
sgd("dampening", ".lr = 0.05, .momentum = 0.9, .dampening = 0.4", M, lr=0.05, momentum=0.9,
    dampening=0.4)
sgd("nesterov", ".lr = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01", M, lr=0.05,
    momentum=0.9, nesterov=True, weight_decay=0.01)
sgd("maximize", ".lr = 0.01, .momentum = 0.5, .weight_decay = 0.2, .maximize = true", M, lr=0.01,
    momentum=0.5, weight_decay=0.2, maximize=True)


class KerasSGD(torch.optim.SGD):
    """The rate falls as lr / (1 + decay * iterations)."""
    def __init__(self, params, lr, decay, **k):
        super().__init__(params, lr=lr, **k)
        self.base, self.fall, self.iterations = lr, decay, 0

    def step(self):
        self.param_groups[0]["lr"] = self.base / (1 + self.fall * self.iterations)
        self.iterations += 1
        super().step()


optimizer("sgd", "keras", ".lr = 0.1, .decay = 0.03, .momentum = 0.9, .nesterov = true", M, KerasSGD,
          lr=0.1, decay=0.03, momentum=0.9, nesterov=True)

MV = ["exp_avg", "exp_avg_sq"]
MVL = MV + ["max_exp_avg_sq"]


def adam(name, c, slots=MV, **k):
    optimizer("adam", name, c, slots, torch_name="Adam", **k)


adam("default", "0")
adam("betas", ".lr = 0.02, .beta1 = 0.5, .beta2 = 0.7, .eps = 1e-3", lr=0.02, betas=(0.5, 0.7),
     eps=1e-3)
adam("no_beta1", ".lr = 0.02, .beta1 = ARIL_ZERO", lr=0.02, betas=(0.0, 0.999))
adam("decay", ".lr = 0.02, .weight_decay = 0.1, .maximize = true", lr=0.02, weight_decay=0.1,
     maximize=True)
adam("amsgrad", ".lr = 0.02, .amsgrad = true", MVL, lr=0.02, amsgrad=True)
adam("decoupled", ".lr = 0.02, .weight_decay = 0.1, .decoupled = true", lr=0.02, weight_decay=0.1,
     decoupled_weight_decay=True)
optimizer("amsgrad", "decay", ".lr = 0.02, .weight_decay = 0.2", MVL, torch_name="Adam", lr=0.02,
          amsgrad=True, weight_decay=0.2)
optimizer("adamw", "default", "0", MV, torch_name="AdamW")
optimizer("adamw", "amsgrad", ".lr = 0.03, .weight_decay = 0.3, .amsgrad = true, .eps = 1e-4", MVL,
          torch_name="AdamW", lr=0.03, weight_decay=0.3, amsgrad=True, eps=1e-4)

optimizer("adamax", "default", "0", ["exp_avg", "exp_inf"], torch_name="Adamax")
optimizer("adamax", "all",
          ".lr = 0.05, .beta1 = 0.7, .beta2 = 0.9, .eps = 1e-3, .weight_decay = 0.1",
          ["exp_avg", "exp_inf"], torch_name="Adamax", lr=0.05, betas=(0.7, 0.9), eps=1e-3,
          weight_decay=0.1)

N = MV + ["mu_product"]


class NAdam(torch.optim.NAdam):
    """Its product as one f64."""
    def __init__(self, params, **k):
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        super().__init__(params, **k)
        self.before = before

    def step(self):
        torch.set_default_dtype(torch.float64)
        super().step()
        torch.set_default_dtype(self.before)
        for p in self.state:
            self.state[p]["mu_product"] = self.state[p]["mu_product"].double()


optimizer("nadam", "default", "0", N, NAdam)
optimizer("nadam", "all",
          ".lr = 0.03, .beta1 = 0.8, .beta2 = 0.95, .momentum_decay = 0.02, .weight_decay = 0.1",
          N, NAdam, lr=0.03, betas=(0.8, 0.95), momentum_decay=0.02, weight_decay=0.1)
optimizer("nadam", "decoupled", ".lr = 0.03, .weight_decay = 0.1, .decoupled = true", N, NAdam,
          lr=0.03, weight_decay=0.1, decoupled_weight_decay=True)
optimizer("radam", "default", "0", MV, torch_name="RAdam")
optimizer("radam", "all", ".lr = 0.03, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1", MV,
          torch_name="RAdam", lr=0.03, betas=(0.8, 0.95), weight_decay=0.1)
optimizer("radam", "decoupled", ".lr = 0.03, .weight_decay = 0.1, .decoupled = true", MV,
          torch_name="RAdam", lr=0.03, weight_decay=0.1, decoupled_weight_decay=True)

optimizer("adagrad", "default", "0", ["sum"], torch_name="Adagrad")
optimizer("adagrad", "all", ".lr = 0.2, .decay = 0.05, .initial = 0.5, .weight_decay = 0.1",
          ["sum"], torch_name="Adagrad", lr=0.2, lr_decay=0.05, initial_accumulator_value=0.5,
          weight_decay=0.1)
optimizer("adadelta", "default", "0", ["square_avg", "acc_delta"], torch_name="Adadelta")
optimizer("adadelta", "all", ".lr = 0.5, .alpha = 0.8, .eps = 1e-3, .weight_decay = 0.1",
          ["square_avg", "acc_delta"], torch_name="Adadelta", lr=0.5, rho=0.8, eps=1e-3,
          weight_decay=0.1)
optimizer("rmsprop", "default", "0", ["square_avg"], torch_name="RMSprop")
optimizer("rmsprop", "momentum", ".lr = 0.003, .momentum = 0.9, .alpha = 0.9, .weight_decay = 0.1",
          ["square_avg", "momentum_buffer"], torch_name="RMSprop", lr=0.003, momentum=0.9, alpha=0.9,
          weight_decay=0.1)
optimizer("rmsprop", "centered", ".centered = true, .eps = 1e-3", ["square_avg", "grad_avg"],
          torch_name="RMSprop", centered=True, eps=1e-3)
optimizer("rmsprop", "both", ".lr = 0.003, .centered = true, .momentum = 0.8, .eps = 1e-3",
          ["square_avg", "grad_avg", "momentum_buffer"], torch_name="RMSprop", lr=0.003,
          centered=True, momentum=0.8, eps=1e-3)
optimizer("rprop", "default", "0", ["prev", "step_size"], torch_name="Rprop")
optimizer("rprop", "all",
          ".lr = 0.1, .eta_minus = 0.4, .eta_plus = 1.5, .step_min = 1e-3, .step_max = 0.3, "
          ".maximize = true", ["prev", "step_size"], torch_name="Rprop", lr=0.1, etas=(0.4, 1.5),
          step_sizes=(1e-3, 0.3), maximize=True)


class Published:
    """An optimizer written from its paper."""
    def __init__(self, params, **k):
        self.params, self.k, self.state, self.t = params, k, {p: {} for p in params}, 0

    @torch.no_grad()
    def step(self):
        self.t += 1
        for p in self.params:
            self.update(p, p.grad, self.state[p], **self.k)


class Lars(Published):
    """You, Gitman, Ginsburg: Large batch training of convolutional networks (2017)."""
    def update(self, p, g, s, lr=0.1, momentum=0.9, trust=0.001, decay=0.0):
        of_p, of_g = p.norm(), g.norm()
        local = trust * of_p / (of_g + decay * of_p) if of_p > 0 and of_g > 0 else 1.0
        s["v"] = momentum * s.get("v", torch.zeros_like(p)) + lr * local * (g + decay * p)
        p -= s["v"]


class Lamb(Published):
    """You et al.: Large batch optimization for deep learning (2019)."""
    def update(self, p, g, s, lr=0.001, betas=(0.9, 0.999), eps=1e-6, decay=0.0):
        zero = torch.zeros_like(p)
        s["m"] = betas[0] * s.get("m", zero) + (1 - betas[0]) * g
        s["v"] = betas[1] * s.get("v", zero) + (1 - betas[1]) * g * g
        m, v = s["m"] / (1 - betas[0] ** self.t), s["v"] / (1 - betas[1] ** self.t)
        u = m / (v.sqrt() + eps) + decay * p
        ratio = p.norm() / u.norm() if p.norm() > 0 and u.norm() > 0 else 1.0
        p -= lr * ratio * u


class Lion(Published):
    """Chen et al.: Symbolic discovery of optimization algorithms (2023)."""
    def update(self, p, g, s, lr=1e-4, betas=(0.9, 0.99), decay=0.0):
        m = s.get("m", torch.zeros_like(p))
        u = torch.sign(betas[0] * m + (1 - betas[0]) * g)
        p -= lr * (u + decay * p)
        s["m"] = betas[1] * m + (1 - betas[1]) * g


optimizer("lars", "default", "0", ["v"], Lars)
optimizer("lars", "decay", ".lr = 2, .momentum = 0.8, .trust = 0.02, .weight_decay = 0.1", ["v"], Lars,
          lr=2, momentum=0.8, trust=0.02, decay=0.1)
optimizer("lamb", "default", "0", ["m", "v"], Lamb)
optimizer("lamb", "decay", ".lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1",
          ["m", "v"], Lamb, lr=0.02, betas=(0.8, 0.95), decay=0.1)
optimizer("lion", "default", "0", ["m"], Lion)
optimizer("lion", "decay", ".lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1", ["m"],
          Lion, lr=0.01, betas=(0.8, 0.95), decay=0.1)

# ---- groups, clipping, accumulation, averages ----


def groups(p):
    return torch.optim.SGD([{"params": [p[0]]},
                            {"params": [p[1]], "lr": 0.2, "weight_decay": 0.0, "momentum": 0.5}],
                           lr=0.05, weight_decay=0.1, momentum=0.9)


both("groups/sgd", "run_two(\"sgd\", (aril_optim_opts){ .lr = 0.05, .weight_decay = 0.1, .momentum = 0.9 },"
     " (aril_optim_opts){ .lr = 0.2, .weight_decay = ARIL_ZERO, .momentum = 0.5 }, x, y);", groups, M)


def clipped(by_norm):
    def fn(x):
        o = None
        for t, params in each_step(x):
            o = o or torch.optim.Adam(params, lr=0.02)
            if by_norm:
                torch.nn.utils.clip_grad_norm_(params, 1.5)
            else:
                torch.nn.utils.clip_grad_value_(params, 0.6)
            o.step()
        return [p.detach() for p in params] + [o.state[p][n].detach() for p in params for n in MV]
    return fn


for dtype, tail in ((torch.float32, ""), (torch.float64, "/f64")):
    case("clip/norm" + tail,
         'run_one("adam", (aril_optim_opts){ .lr = 0.02, .clip_norm = 1.5 }, x, y);', clipped(True),
         inputs(dtype), grad=False)
    case("clip/value" + tail,
         'run_one("adam", (aril_optim_opts){ .lr = 0.02, .clip_value = 0.6 }, x, y);',
         clipped(False), inputs(dtype), grad=False)


def gathered(x):
    o, sums = None, None
    for t, params in each_step(x):
        o = o or torch.optim.SGD(params, lr=0.1, momentum=0.9)
        sums = [p.grad if t % 4 == 0 else s + p.grad for p, s in zip(params, sums or params)]
        if t % 4 == 3:
            for p, s in zip(params, sums):
                p.grad = s / 4
            o.step()
    return [p.detach() for p in params]


case("accumulate", """
     aril_tensor *p[2] = { aril_parameter(aril_copy(x[0])), aril_parameter(aril_copy(x[1])) };
     aril_optim *o = aril_sgd(ARIL_TENSORS(p[0], p[1]),
                              (aril_sgd_opts){ .lr = 0.1, .momentum = 0.9, .accumulate = 4 });
     for (int t = 0; t < STEPS; t++) {
         ARIL_SCOPE;
         for (int k = 0; k < 2; k++) {
             aril_tensor *g = aril_mul_scalar(aril_cast(aril_select(x[2 + k], 0, t), ARIL_F32), 1 / 32.0);
             aril_backward(aril_sum(aril_mul(p[k], g), ARIL_ALL));
         }
         aril_step(o);
     }
     y[0] = aril_copy(aril_detach(p[0])); y[1] = aril_copy(aril_detach(p[1]));
     aril_optim_free(o); aril_release(p[0]); aril_release(p[1]);""", gathered,
     inputs(torch.float32), grad=False)


def averaged(average):
    def fn(x):
        module, mean, o = torch.nn.Module(), None, None
        for t, params in each_step(x):
            if o is None:
                module.a, module.b = params
                o = torch.optim.SGD(params, lr=0.3)
                mean = torch.optim.swa_utils.AveragedModel(module, multi_avg_fn=average)
            o.step()
            mean.update_parameters(module)
        return [mean.module.a.detach(), mean.module.b.detach()]
    return fn


def equal(means, params, n):
    """PyTorch's own weight, 1 / (n + 1), is an f32 even for f64."""
    for m, p in zip(means, params):
        m += (p - m) / (int(n) + 1)


for dtype, tail in ((torch.float32, ""), (torch.float64, "/f64")):
    case("average/ema" + tail, "average((aril_average_opts){ .decay = 0.9 }, x, y);",
         averaged(torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)), inputs(dtype), grad=False)
    case("average/equal" + tail, "average((aril_average_opts){ .equal = true }, x, y);",
         averaged(equal), inputs(dtype), grad=False)

# ---- L-BFGS ----


def descend(steps, **k):
    def fn(x):
        p = [torch.nn.Parameter(t.detach().clone()) for t in x[:2]]
        o = torch.optim.LBFGS(p, **k)

        def closure():
            o.zero_grad()
            a = p[0].reshape(-1)
            bend = (a[1:] - a[:-1] ** 2).square().sum()
            far = (1 - a[:-1] - x[2]).square().sum()
            loss = 5 * bend + far + torch.cosh(p[1] - 0.5).sum()
            loss.backward()
            return loss
        losses = [float(o.step(closure).detach()) for _ in range(steps)]
        return [p[0].detach(), p[1].detach(), torch.tensor(losses, dtype=torch.float64)]
    return fn


def lbfgs(name, steps, c, **k):
    x = [0.3 * randn(3, 7, dtype=torch.float64), randn(5, dtype=torch.float64),
         0.2 * randn(20, dtype=torch.float64)]
    case(f"lbfgs/{name}", f"descend({steps}, (aril_lbfgs_opts){{ {c} }}, x, y);",
         descend(steps, **k), x, grad=False)


lbfgs("wolfe", 3, ".strong_wolfe = true, .max_iter = 5", line_search_fn="strong_wolfe", max_iter=5)
lbfgs("wolfe_long", 100, ".strong_wolfe = true", line_search_fn="strong_wolfe")
lbfgs("plain", 5, ".lr = 0.1, .max_iter = 4", lr=0.1, max_iter=4)
lbfgs("short_memory", 4, ".lr = 0.2, .max_iter = 10, .history = 3", lr=0.2, max_iter=10,
      history_size=3)

# ---- schedules ----

S = torch.optim.lr_scheduler
METRICS = [1 / (1 + t) if t < 20 else 0.05 if t % 7 else 0.05 - 1e-7 * t for t in range(STEPS)]


def rates(make):
    def fn(x):
        p = torch.nn.Parameter(torch.zeros(1))
        o = torch.optim.SGD([p], lr=0.4)
        s, y = make(o), []
        for t in range(STEPS + 1):
            y.append(o.param_groups[0]["lr"])
            o.step()
            if isinstance(s, S.ReduceLROnPlateau):
                s.step(float(x[0][min(t, STEPS - 1)]))
            elif t < STEPS:
                s.step()
        return torch.tensor(y, dtype=torch.float64)
    return fn


def formula(f):
    """A schedule as a formula of base and count."""
    return lambda x: torch.tensor([f(0.4, t) for t in range(STEPS + 1)], dtype=torch.float64)


def schedule(name, c, fn):
    case(f"schedule/{name}", f"rates({c}, x, y);", fn,
         [torch.tensor(METRICS, dtype=torch.float64)], grad=False)


def named(name, kind, c, make):
    schedule(name, f'aril_schedule_new("{kind}", (aril_schedule_opts){{ {c} }})', rates(make))


named("step", "step", ".every = 7, .gamma = 0.7", lambda o: S.StepLR(o, 7, 0.7))
named("step_default", "step", ".every = 30", lambda o: S.StepLR(o, 30))
named("multistep", "multistep", ".at = { 3, 40, 41, 80 }, .gamma = 0.5",
      lambda o: S.MultiStepLR(o, [3, 40, 41, 80], 0.5))
named("exponential", "exponential", ".gamma = 0.97", lambda o: S.ExponentialLR(o, 0.97))
named("cosine", "cosine", ".total = 100, .min_lr = 0.01", lambda o: S.CosineAnnealingLR(o, 100, 0.01))
named("cosine_plain", "cosine", ".total = 120", lambda o: S.CosineAnnealingLR(o, 120))
named("warm_restarts", "warm_restarts", ".total = 9, .growth = 2, .min_lr = 0.02",
      lambda o: S.CosineAnnealingWarmRestarts(o, 9, 2, 0.02))
named("warm_restarts_even", "warm_restarts", ".total = 15",
      lambda o: S.CosineAnnealingWarmRestarts(o, 15))
named("linear", "linear", ".total = 12, .start = 0.1", lambda o: S.LinearLR(o, 0.1, 1.0, 12))
named("linear_down", "linear", ".total = 50, .start = 1, .end = ARIL_ZERO",
      lambda o: S.LinearLR(o, 1.0, 0.0, 50))
named("constant", "constant", ".total = 8, .start = 0.25", lambda o: S.ConstantLR(o, 0.25, 8))
named("polynomial", "polynomial", ".total = 90, .power = 2", lambda o: S.PolynomialLR(o, 90, 2.0))
named("one_cycle", "one_cycle", ".total = 101, .max_lr = 2",
      lambda o: S.OneCycleLR(o, 2.0, 101, cycle_momentum=False))
named("one_cycle_straight", "one_cycle",
      ".total = 101, .straight = true, .warm_share = 0.4, .div = 10, .final_div = 100",
      lambda o: S.OneCycleLR(o, 0.4, 101, anneal_strategy="linear", pct_start=0.4, div_factor=10,
                             final_div_factor=100, cycle_momentum=False))
named("one_cycle_three", "one_cycle", ".total = 101, .three_phases = true",
      lambda o: S.OneCycleLR(o, 0.4, 101, three_phase=True, cycle_momentum=False))
named("cyclic", "cyclic", ".max_lr = 1.5, .up = 7, .down = 4",
      lambda o: S.CyclicLR(o, 0.4, 1.5, 7, 4, cycle_momentum=False))
named("cyclic_halving", "cyclic", ".max_lr = 2, .up = 9, .halving = true",
      lambda o: S.CyclicLR(o, 0.4, 2.0, 9, mode="triangular2", cycle_momentum=False))
named("cyclic_falling", "cyclic", ".max_lr = 2, .up = 12, .gamma = 0.99",
      lambda o: S.CyclicLR(o, 0.4, 2.0, 12, mode="exp_range", gamma=0.99, cycle_momentum=False))


# ---- schedules of the momentum ----


def moments(name, kind, c, make):
    """The momenta that go with the rates."""
    def fn(x):
        o = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.4, momentum=0.9)
        s, y = make(o), []
        for t in range(STEPS + 1):
            y.append(o.param_groups[0]["momentum"])
            o.step()
            if t < STEPS:
                s.step()
        return torch.tensor(y, dtype=torch.float64)
    case(f"momentum/{name}", f'momenta(aril_schedule_new("{kind}", (aril_schedule_opts){{ {c} }}), x, y);', fn,
         [torch.zeros(1)], grad=False)


moments("one_cycle", "one_cycle", ".total = 101", lambda o: S.OneCycleLR(o, 0.4, 101))
moments("one_cycle_straight", "one_cycle", ".total = 101, .straight = true, .base_momentum = 0.5, .max_momentum = 0.9",
        lambda o: S.OneCycleLR(o, 0.4, 101, anneal_strategy="linear", base_momentum=0.5, max_momentum=0.9))
moments("one_cycle_three", "one_cycle", ".total = 101, .three_phases = true",
        lambda o: S.OneCycleLR(o, 0.4, 101, three_phase=True))
moments("one_cycle_fixed", "one_cycle", ".total = 101, .fixed_momentum = true",
        lambda o: S.OneCycleLR(o, 0.4, 101, cycle_momentum=False))
moments("cyclic", "cyclic", ".max_lr = 1.5, .up = 7, .down = 4", lambda o: S.CyclicLR(o, 0.4, 1.5, 7, 4))
moments("cyclic_halving", "cyclic", ".max_lr = 2, .up = 9, .halving = true, .base_momentum = 0.1",
        lambda o: S.CyclicLR(o, 0.4, 2.0, 9, mode="triangular2", base_momentum=0.1))
moments("cyclic_falling", "cyclic", ".max_lr = 2, .up = 12, .gamma = 0.99",
        lambda o: S.CyclicLR(o, 0.4, 2.0, 12, mode="exp_range", gamma=0.99))


def scheduled(kind, name, c, make, schedule_c, make_schedule, slots):
    """The parameters and state of an optimizer whose learning rate and momentum move at every step."""
    def fn(x):
        o = None
        for t, params in each_step(x):
            if o is None:
                o = make(params)
                s = make_schedule(o)
            o.step()
            if t < STEPS - 1:
                s.step()
        return [p.detach() for p in params] + [o.state[p][n].detach() for p in params for n in slots]
    for dtype, tail in ((torch.float32, ""), (torch.float64, "/f64")):
        case(f"scheduled/{name}{tail}", f'run_with("{kind}", (aril_optim_opts){{ {c} }}, '
             f'aril_schedule_new({schedule_c}), x, y);', fn, inputs(dtype), grad=False)


ONE = '"one_cycle", (aril_schedule_opts){ .total = 100, .per_batch = true, .max_lr = 0.1 }'
UP_AND_DOWN = '"cyclic", (aril_schedule_opts){ .up = 13, .per_batch = true, .max_lr = 0.05 }'
one = lambda o: S.OneCycleLR(o, 0.1, 100)
up_and_down = lambda o: S.CyclicLR(o, 0.02, 0.05, 13)
scheduled("sgd", "sgd", ".lr = 0.02, .momentum = 0.9", lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9), ONE, one, M)
scheduled("sgd", "sgd_without", ".lr = 0.02", lambda p: torch.optim.SGD(p, lr=0.02), ONE, one, M)
scheduled("rmsprop", "rmsprop", ".lr = 0.02, .momentum = 0.5",
          lambda p: torch.optim.RMSprop(p, lr=0.02, momentum=0.5), UP_AND_DOWN, up_and_down,
          ["square_avg", "momentum_buffer"])
scheduled("adamw", "adamw", ".lr = 0.02", lambda p: torch.optim.AdamW(p, lr=0.02), ONE, one, MV)
scheduled("nadam", "nadam", ".lr = 0.02", lambda p: NAdam(p, lr=0.02), UP_AND_DOWN, up_and_down, N)
scheduled("radam", "radam", ".lr = 0.02", lambda p: torch.optim.RAdam(p, lr=0.02), ONE, one, MV)

named("plateau", "plateau", ".patience = 5, .factor = 0.5, .cooldown = 2, .min_lr = 1e-3",
      lambda o: S.ReduceLROnPlateau(o, patience=5, factor=0.5, cooldown=2, min_lr=1e-3))
named("plateau_default", "plateau", "0", lambda o: S.ReduceLROnPlateau(o))
named("plateau_absolute", "plateau",
      ".rising = true, .absolute = true, .threshold = 0.01, .patience = 3, .factor = 0.9",
      lambda o: S.ReduceLROnPlateau(o, mode="max", threshold_mode="abs", threshold=0.01, patience=3,
                                    factor=0.9))
named("warmup_cosine", "cosine", ".total = 90, .warmup = 10, .warm_start = 0.1",
      lambda o: S.SequentialLR(o, [S.LinearLR(o, 0.1, 1.0, 10), S.CosineAnnealingLR(o, 90)], [10]))
schedule("function", "aril_function_schedule(by_square, &(double){ 0.01 }, (aril_schedule_opts){ 0 })",
         rates(lambda o: S.LambdaLR(o, lambda t: 1 / (1 + 0.01 * t * t))))
schedule("chained", """aril_chained_schedule(2, (aril_schedule *[]){
         aril_linear_schedule((aril_schedule_opts){ .total = 10, .start = 0.2 }),
         aril_exponential_schedule((aril_schedule_opts){ .gamma = 0.95 }) })""",
         rates(lambda o: S.ChainedScheduler([S.LinearLR(o, 0.2, 1.0, 10), S.ExponentialLR(o, 0.95)])))
schedule("sequential", """aril_sequential_schedule(3, (aril_schedule *[]){
         aril_constant_schedule((aril_schedule_opts){ .total = 20, .start = 0.1 }),
         aril_exponential_schedule((aril_schedule_opts){ .gamma = 0.9 }),
         aril_step_schedule((aril_schedule_opts){ .every = 4, .gamma = 0.5 }) },
         (int64_t[]){ 20, 60 })""",
         rates(lambda o: S.SequentialLR(o, [S.ConstantLR(o, 0.1, 20), S.ExponentialLR(o, 0.9),
                                            S.StepLR(o, 4, 0.5)], [20, 60])))
# Caffe: "inv" and "sigmoid".
schedule("inverse", 'aril_schedule_new("inverse", (aril_schedule_opts){ .gamma = 0.01 })',
         formula(lambda base, t: base * (1 + 0.01 * t) ** -0.75))
schedule("inverse_power",
         'aril_schedule_new("inverse", (aril_schedule_opts){ .gamma = 0.1, .power = 0.5 })',
         formula(lambda base, t: base * (1 + 0.1 * t) ** -0.5))
schedule("sigmoid",
         'aril_schedule_new("sigmoid", (aril_schedule_opts){ .gamma = -0.1, .every = 50 })',
         formula(lambda base, t: base / (1 + math.exp(0.1 * (t - 50)))))

# ---- Adafactor and Muon ----


def adafactor(name, c, **k):
    def fn(x):
        o = None
        for t, params in each_step(x):
            o = o or torch.optim.Adafactor(params, foreach=False, **k)
            o.step()
        slots = [o.state[params[0]]["row_var"], o.state[params[0]]["col_var"], o.state[params[1]]["variance"]]
        return [t.detach() for t in params + slots]
    for dtype, tail in ((torch.float32, ""), (torch.float64, "/f64")):
        case(f"adafactor/{name}{tail}", f'run_one("adafactor", (aril_optim_opts){{ {c} }}, x, y);', fn,
             inputs(dtype), grad=False)


adafactor("default", "0")
adafactor("options", ".lr = 0.3, .beta2_decay = 0.5, .eps = 0.01, .min_scale = 0.2, .clip_update = 1.5,"
          " .weight_decay = 0.1", lr=0.3, beta2_decay=-0.5, eps=(0.01, 0.2), d=1.5, weight_decay=0.1)
adafactor("maximize", ".lr = 0.05, .maximize = true", lr=0.05, maximize=True)


class Muon(Published):
    """Jordan: Muon (2024), as torch.optim.Muon, which rounds the iteration to bf16."""
    def update(self, p, g, s, lr=1e-3, decay=0.1, momentum=0.95, nesterov=True, eps=1e-7, steps=5,
               match_rms=False):
        m = s["momentum"] = s.get("momentum", torch.zeros_like(p)).lerp(g, 1 - momentum)
        x = g.lerp(m, momentum) if nesterov else m
        tall = x.size(0) > x.size(1)
        x = x.T if tall else x
        x = x / x.norm().clamp(min=eps)
        for _ in range(steps):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        x = x.T if tall else x
        ratio = 0.2 * math.sqrt(max(p.shape)) if match_rms else math.sqrt(max(1, p.size(0) / p.size(1)))
        p.mul_(1 - lr * decay).sub_(lr * ratio * x)


def muon(name, c, make=Muon, slot="momentum", dtypes=((torch.float32, ""), (torch.float64, "/f64")), tolerance=None,
         **k):
    for dtype, tail in dtypes:
        case(f"muon/{name}{tail}", f'run_one("muon", (aril_optim_opts){{ {c} }}, x, y);',
             run(lambda p: make(p, **k), [slot]), inputs(dtype, ((3, 7), (6, 2))), grad=False, **(tolerance or {}))


muon("default", "0")
muon("options", ".lr = 0.02, .momentum = 0.8, .weight_decay = ARIL_ZERO, .no_nesterov = true, .ns_steps = 3,"
     " .match_rms = true", lr=0.02, momentum=0.8, decay=0, nesterov=False, steps=3, match_rms=True)
# PyTorch's own, up to its bf16: 100 steps of at most 0.001 * 1.7 in directions that are 2 % off.
muon("torch", "0", torch.optim.Muon, "momentum_buffer", ((torch.float32, ""),), dict(rtol=0, atol=4e-3))
