"""The parts of tests/peers/random.py: `engine` draws and compares, `intended` holds intended differences, the others a row for each
function; `networks` trains networks, `optimizers` takes steps."""
from . import chains, elementwise, linear, loss, neural, reduce, views, vision  # noqa: F401
from .engine import rows, run_case  # noqa: F401
from .intended import EXCLUDED, HEADERS, intended  # noqa: F401
from .networks import run_network  # noqa: F401
from .optimizers import run_optimizer  # noqa: F401
