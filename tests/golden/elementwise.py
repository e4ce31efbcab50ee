"""Elementwise functions: values, gradients, broadcasting, promotion, special numbers."""
from golden import *

case("add/same", "y[0] = aril_add(x[0], x[1]);", lambda x: x[0] + x[1], [randn(2, 3), randn(2, 3)])
case("add/broadcast", "y[0] = aril_add(x[0], x[1]);", lambda x: x[0] + x[1],
     [randn(2, 1, 3), randn(4, 1)])
