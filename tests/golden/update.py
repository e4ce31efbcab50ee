"""Updates of parameters: several steps with given gradients, as torch.optim makes them."""
from golden import *

STEPS = 4


def run(make, state_of):
    def fn(x):
        params = [torch.nn.Parameter(t.detach().clone()) for t in x[:2]]
        optimizer = make(params)
        for step in range(STEPS):
            for k, p in enumerate(params):
                p.grad = x[2 + 2 * step + k].detach().clone()
            optimizer.step()
        y = [p.detach() for p in params]
        for name in state_of:
            y += [optimizer.state[p][name].detach() for p in params]
        return y
    return fn


def inputs(dtype):
    shapes = ((3, 37), (5,))
    return [randn(*s).to(dtype) for _ in range(1 + STEPS) for s in shapes]


def c_start(states):
    """Copies of the parameters and zeros for the states: p[2], and s<k>[2] for each."""
    text = "aril_tensor *p[2] = { aril_copy(x[0]), aril_copy(x[1]) };"
    for k in range(states):
        text += f" aril_tensor *s{k}[2] = {{ aril_zeros_like(x[0]), aril_zeros_like(x[1]) }};"
    text += " aril_tensor *n = aril_zeros(ARIL_SHAPE(), ARIL_I64, test_device());"
    return text


def c_steps(call, states):
    text = f" for (int i = 0; i < {STEPS}; i++) {call}"
    text += " y[0] = p[0]; y[1] = p[1];"
    for k in range(states):
        text += f" y[{2 + 2 * k}] = s{k}[0]; y[{3 + 2 * k}] = s{k}[1];"
    return text


LISTS = "ARIL_LIST(p[0], p[1]), ARIL_LIST(x[2 + 2 * i], x[3 + 2 * i])"


def sgd(name, c, dtype=torch.float32, **k):
    keeps = 1 if k.get("momentum") else 0
    buffers = "ARIL_LIST(s0[0], s0[1])" if keeps else "(aril_list){ 0 }"
    call = (f"aril_sgd_update({LISTS}, {buffers}, aril_scalar(0.3), n,"
            f" (aril_sgd_update_opts){{ {c} }});")
    case(f"sgd/{name}", c_start(keeps) + c_steps(call, keeps),
         run(lambda p: torch.optim.SGD(p, lr=0.3, **k), ["momentum_buffer"] * keeps),
         inputs(dtype), grad=False)


sgd("plain", "0")
sgd("decay", ".weight_decay = 0.1", weight_decay=0.1)
sgd("momentum", ".momentum = 0.9", momentum=0.9)
sgd("dampening", ".momentum = 0.9, .dampening = 0.4", momentum=0.9, dampening=0.4)
sgd("nesterov", ".momentum = 0.9, .nesterov = true", momentum=0.9, nesterov=True)
sgd("all", ".momentum = 0.8, .dampening = 0.1, .weight_decay = 0.05, .maximize = true",
    momentum=0.8, dampening=0.1, weight_decay=0.05, maximize=True)
sgd("f64", ".momentum = 0.9, .weight_decay = 0.1", torch.float64, momentum=0.9, weight_decay=0.1)


def adam(name, c, dtype=torch.float32, decoupled=False, **k):
    largest = 1 if k.get("amsgrad") else 0
    make = torch.optim.AdamW if decoupled else torch.optim.Adam
    if decoupled:
        k.setdefault("weight_decay", 0)
    most = "ARIL_LIST(s2[0], s2[1])" if largest else "(aril_list){ 0 }"
    call = (f"aril_adam_update({LISTS}, ARIL_LIST(s0[0], s0[1]), ARIL_LIST(s1[0], s1[1]), {most},"
            f" aril_scalar(0.02), n, (aril_adam_update_opts){{ {c} }});")
    names = ["exp_avg", "exp_avg_sq"] + ["max_exp_avg_sq"] * largest
    case(f"adam/{name}", c_start(2 + largest) + c_steps(call, 2 + largest),
         run(lambda p: make(p, lr=0.02, **k), names), inputs(dtype), grad=False)


adam("plain", "0")
adam("betas", ".beta1 = 0.5, .beta2 = 0.7, .eps = 1e-3", betas=(0.5, 0.7), eps=1e-3)
adam("no_beta1", ".beta1 = ARIL_ZERO", betas=(0.0, 0.999))
adam("decay", ".weight_decay = 0.1", weight_decay=0.1)
adam("amsgrad", "0", amsgrad=True)
adam("amsgrad_decay", ".weight_decay = 0.2, .maximize = true", amsgrad=True, weight_decay=0.2,
     maximize=True)
adam("f64", ".weight_decay = 0.1", torch.float64, weight_decay=0.1)
adam("decoupled", ".decoupled = true, .weight_decay = 0.1", decoupled=True, weight_decay=0.1)
adam("decoupled_amsgrad", ".decoupled = true, .weight_decay = 0.3", decoupled=True,
     weight_decay=0.3, amsgrad=True)
