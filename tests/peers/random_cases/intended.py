"""Where Aril differs from PyTorch on purpose, and which functions have no row; each with its reason."""
import re

# Headers of functions of tensors.
HEADERS = ("math", "reduce", "sort", "view", "index", "create", "linalg", "conv", "neural", "loss", "fft", "embedding")

# Patterns of functions without a row.
EXCLUDED = {
    r"rand.*|bernoulli.*|normal.*|uniform.*": "random numbers: other generators, other numbers",
    r".*dropout.*|multinomial.*|gumbel_softmax.*": "random numbers",
    r"empty|empty_like": "memory that is not cleared",
}

# Patterns of a function, of a kind of failure, and of the failure's text; and the reason.
DIFFERENCES = (
    (r"scatter.*|index_(add|copy)_?|index_select|gather|.*_along_axis|put.*", "accepted", r"PyTorch: .*index -\d+ is out of bounds|index out of range|out of DATA bounds, id=-",
     "negative indices count from the end (aril/index.h)"),
    (r"square_?", "value: dtype", r"bool", "the square of a bool is a bool: x * x keeps its dtype"),
    (r"max_pool.*", "value", r"got -1,", "a window that lies in the padding has no largest element: -1, where PyTorch names an element outside it"),
    (r"roll|scatter.*|gather|index_select", "value: refused", r"\[0[],]|, 0[],]", "PyTorch does not look at the arguments where there are no elements"),
    (r"take_along_axis", "value: refused", r"wrong call.*out of range", "PyTorch does not check a broadcast index"),
    (r"index.*", "value.*|accepted", r"int(32|64)\[\]", "an index tensor without dimensions counts as an index tensor, as in NumPy"),
    (r"r?fftfreq", "value: refused", r" (0|-\d+) points", "a spectrum has at least one point"),
    (r"isin", "accepted", r"Unsupported input type encountered for isin\(\): Bool", "bools are numbers here"),
    (r"cross|cdist", "accepted", r"expected scalar type", "dtypes are promoted"),
    (r"block_diag", "gradient", r"\[0\]", "PyTorch's gradient leaves out the row of a vector without elements"),
    (r"block_diag", "value: dtype", r"\[\] =", "a block without dimensions takes part in the promotion, as one of 1 x 1 does"),
    (r"unfold", "accepted", r"other non-zero dimensions for input", "padding of nothing is padding"),
    (r"cdist", "value: dtype", r"wrong call", "dtypes are promoted"),
    (r"cov", "accepted", r"weights sum to zero", "the mean of nothing is NaN"),
    (r"std_mean", "value: special values", r"value 1.*got -?inf, PyTorch nan", "the mean of numbers and an infinity is infinite"),
    (r"index_fill.*", "accepted", r"Index has to be a vector/scalar", "an index of any shape"),
    (r"repeat_interleave.*|take_along_axis", "accepted", r"\[\] =", "a scalar has an axis 0 of size 1, as in other functions"),
    (r"group_norm|instance_norm", "accepted", r"Expected more than 1 value per channel", "a group of one value is normalized to 0, as the formula says"),
    (r"instance_norm", "value: special values", r"\[0,", "an empty batch leaves the running values alone; in PyTorch they become NaN"),
    (r"adaptive_.*", "accepted", r"output_size must be greater|size = .*-1", "documented: -1 keeps a size"),
    (r"group_norm", "accepted", r"HxW to be greater than 0", "nothing is normalized to nothing"),
    (r"pad", "accepted", r"non-zero dimensions for input", "padding of nothing in another axis is nothing"),
    (r"multilabel_soft_margin_loss.*", "value: refused", r"must have the same shape", "documented: target has the shape of x"),
    (r"instance_norm|batch_norm_?", "value: refused", r"expected one value for each",
     "PyTorch broadcasts a parameter without dimensions, and takes any where x is empty"),
    (r"hardswish_?", "value: special values", r"got -?0.0, PyTorch nan", "hardswish(-inf) is 0, its limit; PyTorch has -inf * 0"),
    (r"zeta.*|polygamma|trigamma_?", "value: special values", r"got -?0.0, PyTorch (nan|none, in f64 nan)", "the sum at infinity is 0, its limit"),
    (r"copysign.*", "second derivative", r"got -?0.0,", "the slope is constant; PyTorch divides the result by the input"),
    (r"cdist", "value: special values", r"got nan,", "NaN stays NaN, where PyTorch's largest difference passes over it"),
    (r"bincount", "value: dtype", r"\[0\]", "documented: weights decide the dtype, of nothing too"),
    (r"put_along_axis", "value: refused", r"does not broadcast", "documented: src is broadcast to index, not cut"),
    (r"index.*", "value: refused", r"\b0[],].*is out of range", "PyTorch does not look at indices where the result is empty"),
    (r"pad", "accepted", r"length must be non-negative", "what is cropped may be padding"),
    (r"put_along_axis", "accepted", r"same number of dimensions as src", "documented: src is broadcast to index"),
    (r"addmv", "value: shape", r"is \[0\]|, 0\]", "PyTorch's result of no rows, or of no columns, has the shape of c"),
    (r"scaled_dot_product_attention", "value: refused", r"inner sizes differ|do not broadcast", "PyTorch does not look at sizes where there are no elements"),
    (r"clamp_tensor", "value: special values", r"PyTorch nan", "documented: a bound that is NaN holds nothing"),
    (r"conv.*", "value: refused", r"must have the same dtype", "one dtype for all, which PyTorch asks for in most convolutions"),
    (r"max_unpool.*", "accepted", r"invalid output_size", "any size that the indices fit in"),
    (r"pow.*", "value: special values", r"got inf, PyTorch nan", "pow(-inf, 0.5) is inf, as in C; PyTorch takes the square root"),
    (r"scaled_dot_product_attention", "value: special values", r"mask = (causal|bool).*PyTorch nan",
     "a key that a query does not see has no effect on it, NaN or not; PyTorch multiplies it by 0"),
    (r"diff", "value: refused", r"n = 0.*axis -?\d+ is out of range", "PyTorch does not look at the axis where it does nothing"),
    (r"pad|pow_scalar_?", "accepted", r"without overflow", "a number of another range wraps, as in full"),
    (r"local_response_norm", "value: refused", r"\[.*\b0\b.*\].* size -?\d+ must be", "PyTorch does not look at the size where there are no elements"),
    (r"conv_transpose.*", "value: refused", r"would be empty", "an empty output is an error, as for other convolutions"),
    (r"lerp_?", "value: special values", r"got -?inf, PyTorch nan", "a + w (b - a); PyTorch's b - (1 - w) (b - a) is inf - inf"),
    (r"batch_norm_?", "accepted", r"input size torch.Size\(\[\d+, 0", "no channels are no error"),
    (r"slice", "accepted", r"step must be greater", "documented: a negative step goes backwards"),
    (r"roll", "accepted", r"no dimensions", "a scalar has an axis 0 of size 1, as in other functions"),
    (r"matmul|mm|bmm|mv|dot|addm[mv]|baddbmm", "value: refused", r"\b0\b.*cast one of them", "PyTorch does not look at dtypes where there are no elements"),
    (r"linear.*", "value: refused", r"needs a bias \[\d+\], got \[\]", "documented: a bias for each result"),
    (r"max_pool.*", "accepted", r"at most half of effective kernel size", "padding is less than the window"),
    (r"interpolate", "accepted", r"same number of spatial dimensions", "numbers behind those of the spatial dimensions are not looked at"),
    (r"scaled_dot_product_attention", "accepted", r"doesn't match the broadcast shape", "a mask may widen the batch, as keys and values may"),
    (r"einsum", "value: dtype|accepted", r"int\d+\[", "integers keep their dtype; PyTorch sums a broadcast dimension in i64, or fails at it"),
    (r"var_mean", "value: special values", r"value 1.*got -?inf, PyTorch nan", "the mean of an infinity is one; PyTorch's running sum has inf - inf"),
    (r"eye", "accepted", r"got -1", "documented: as many columns as rows"),
    (r"masked_scatter_?", "value: refused", r"\b0[],].*does not broadcast", "PyTorch does not look at the shape of an empty mask"),
    (r"embedding_bag", "accepted", r"step must be nonzero", "bags of nothing are 0"),
    (r"embedding_bag", "value: special values", r"got nan.*mode = max|mode = max.*got nan", "NaN is the largest, as in max_pool; PyTorch's depends on the order"),
    (r"scatter_?(add_?)?|put_along_axis", "accepted", r"no larger size than src \[\]", "documented: a source without dimensions is put everywhere"),
    (r"kron", "value: refused", r"at most 4 dimensions", "documented"),
    (r"pad", "value: refused", r"only constant padding can crop", "documented"),
    (r"(nan)?median", "value: refused", r"is empty", "an empty axis has no median; PyTorch gives NaN, or 0 for integers"),
    (r"unique_axis", "accepted", r"(0|zero) sized dimensions", "slices without elements are equal"),
    (r"r?sub(_scalar)?_?|diff", "accepted", r"bool tensor is not supported", "a bool counts as 0 or 1"),
    (r"instance_norm|batch_norm_?", "accepted", r"index 0 out of range", "no channels are no error"),
    (r"index_select", "accepted", r"supposed to be a vector", "documented: an index may have any number of dimensions"),
    (r"conv.*", "value: refused", r"\[0,.*would have no elements", "PyTorch does not look at sizes where the batch is empty"),
    (r"ctc_loss.*", "value: refused", r"label -?\d+ is out of range", "labels are checked; PyTorch reads past its table"),
    (r"embedding_bag", "value: refused", r"offset .* is out of range", "offsets go up; PyTorch takes any"),
    (r"(mse|l1|smooth_l1|huber|bce|bce_with_logits|poisson_nll|gaussian_nll|soft_margin|hinge|hinge_embedding|margin_ranking|kl_div)"
     r"(_loss)?(_with)?", "accepted", r"doesn't match the broadcast shape|must match|size", "losses of elements broadcast"),
    (r"(avg|lp)_pool3d", "accepted", r"smaller than kernel size", "windows may hang over padding, as in avg_pool2d"),
    (r"meshgrid|lerp_?|.*_loss.*|addc.*", "accepted", r"dtype|scalar type|same type", "arguments of several dtypes meet in one, as in other functions"),
)

# The same of calls in autocast regions.
AUTOCAST = (
    (r".*_loss(_with)?", "value: dtype", r"is float32", "losses are computed in f32, those that PyTorch composes of other functions too"),
    (r"prelu.*", "value: dtype", r"PyTorch's float32", "in bf16 or f16, as PyTorch's own prelu, which the row writes as a formula"),
    (r"rnn|gru|lstm", "value: dtype", r"PyTorch's float32", "recurrent layers are cast as a whole, as PyTorch's on a GPU"),
    (r"lstm", "accepted", r"could not create a primitive", "PyTorch's LSTM in bf16 needs a newer processor"),
    (r"(max|global_(max|avg))_pool(3d)?|pinv", "value: dtype", r"is float32", "pooling of volumes and pinv are in the list of f32, which PyTorch's "
     "form of this row goes around"),
    (r"affine_grid", "value: dtype", r"is float32", "coordinates keep their digits; PyTorch's are those of a product in bf16"),
    (r"lp_pool3d", "value: dtype", r"PyTorch's float32", "computed in f32, and given in the dtype of x"),
    (r"local_response_norm", "value: dtype", r"PyTorch's float32", "norms keep the dtype; PyTorch's pools a volume"),
    (r".*", "accepted", r"at::autocast::prioritize", "PyTorch cannot join f16 with another dtype in a region of bf16, nor the reverse"),
    (r"inner|mv|dot|matmul|mm|bmm|addm[mv]|baddbmm|linear.*|conv.*|bilinear|einsum", "accepted", r"same dtype|scalar type",
     "what is cast may differ in dtype"),
)


def intended(name, kind, text, inputs):
    """The reason for a difference, or None."""
    for names, kinds, words, reason in DIFFERENCES + (AUTOCAST if "autocast to " in inputs else ()):
        if re.fullmatch(names, name) and re.fullmatch(kinds, kind) and re.search(words, f"{inputs} | {text}"):
            return reason
    return None
