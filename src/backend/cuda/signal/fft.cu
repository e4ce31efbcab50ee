/* Fourier transforms. cuFFT's sign is that of the forward transform where the input is real, and of
 * the inverse where the output is: other signs conjugate the spectrum before or after it. */
#include "backend/cuda/signal/signal.cuh"

#include "backend/cuda/launch.cuh"

#include <cufft.h>
#include <math.h>
#include <new>

enum form { C2C, R2C, C2R };

/* ---- cuFFT ---- */

#define FUNCTIONS(F)          \
    F(cufftCreate)            \
    F(cufftDestroy)           \
    F(cufftSetAutoAllocation) \
    F(cufftMakePlanMany64)    \
    F(cufftSetStream)         \
    F(cufftSetWorkArea)       \
    F(cufftExecC2C)           \
    F(cufftExecR2C)           \
    F(cufftExecC2R)           \
    F(cufftExecZ2Z)           \
    F(cufftExecD2Z)           \
    F(cufftExecZ2D)

static struct {
    pthread_once_t once = PTHREAD_ONCE_INIT;
    bool found = false;
    char why[512] = "";
#define F(name) decltype(&::name) name = nullptr;
    FUNCTIONS(F)
#undef F
} library;

static void open_library()
{
    static const char *const names[] = { "libcufft.so.12", "libcufft.so.11",
                                         "/usr/local/cuda/lib64/libcufft.so.12",
                                         "/usr/local/cuda/lib64/libcufft.so.11", nullptr };
    static const aril_cuda_function functions[] = {
#define F(name) { #name, &library.name },
        FUNCTIONS(F)
#undef F
            {}
    };
    char *why = library.why;
    void *handle = aril_cuda_open_library("cuFFT", names, why, sizeof library.why);
    library.found =
        handle && aril_cuda_find_functions(handle, "cuFFT", functions, why, sizeof library.why);
}

struct prepared {
    form which;
    bool wide;
    int64_t n, rows;
    size_t work;          /* bytes of cuFFT's workspace; a copy of the input follows it */
    pthread_mutex_t lock; /* a plan serves one stream and workspace at a time */
    cufftHandle plan;
};

/* ---- kernels ---- */

/* The half spectra that a transform with a real side reads or writes: rows of `bins` numbers. Those
 * that stand for two of the full spectrum are multiplied by `paired`, the others by `single`, and
 * `sign` multiplies imaginary parts. */
struct half_spectrum {
    int64_t bins, n;
    double paired, single, sign;
    bool real_ends; /* imaginary parts of the others are set to 0 */
};

/* to may be from. Addresses are aligned to their elements only. */
template <typename T>
static __global__ void weigh(T *to, const T *from, int64_t count,
                             const __grid_constant__ half_spectrum h)
{
    ARIL_CUDA_LOOP(i, count)
    {
        int64_t k = i % h.bins;
        bool pair = k > 0 && 2 * k != h.n;
        T by = (T)(pair ? h.paired : h.single), re = from[2 * i], im = from[2 * i + 1];
        to[2 * i] = re * by;
        to[2 * i + 1] = h.real_ends && !pair ? T(0) : im * by * (T)h.sign;
    }
}

template <typename T> static __global__ void multiply(T *x, int64_t n, T by)
{
    ARIL_CUDA_LOOP(i, n) x[i] *= by;
}

/* The sum that defines a transform. */
struct sums {
    int64_t n, have, want, rows;
    bool from_real, to_real, twice, inverse;
    double scale;
};

static __device__ double times_counted(const sums &s, int64_t k)
{
    return s.twice && k > 0 && 2 * k != s.n ? 2 : 1;
}

template <typename T> static __global__ void plain(T *y, const T *x, const __grid_constant__ sums s)
{
    ARIL_CUDA_LOOP(i, s.rows * s.want)
    {
        int64_t row = i / s.want, k = i % s.want, turn = 0;
        double re = 0, im = 0, by = s.scale * (s.from_real ? times_counted(s, k) : 1);
        for (int64_t m = 0; m < s.have; m++) {
            int64_t at = row * s.have + m;
            double c, d, w = s.to_real ? times_counted(s, m) : 1;
            sincospi(2.0 * (double)turn / (double)s.n, &d, &c);
            if (!s.inverse) d = -d;
            double xr = w * (double)x[s.from_real ? at : 2 * at];
            double xi = s.from_real ? 0 : w * (double)x[2 * at + 1];
            re += xr * c - xi * d;
            im += xr * d + xi * c;
            turn += k; /* k m modulo n */
            if (turn >= s.n) turn -= s.n;
        }
        y[s.to_real ? i : 2 * i] = (T)(by * re);
        if (!s.to_real) y[2 * i + 1] = (T)(by * im);
    }
}

/* ---- rows ---- */

/* The length of the transform. */
static int64_t length_of(const aril_run *r, form which)
{
    if (which == C2R) return aril_cuda_dim(aril_cuda_out(r, 0), -1);
    return aril_cuda_dim(aril_cuda_in(r, 0), which == C2C ? -2 : -1);
}

static int64_t rows_of(const aril_run *r, form which, int64_t n)
{
    const aril_tensor *t = which == C2R ? aril_cuda_out(r, 0) : aril_cuda_in(r, 0);
    return aril_cuda_host->numel(t) / (which == C2C ? 2 * n : n);
}

static double scale_of(const aril_run *r, int64_t n)
{
    int64_t norm = aril_cuda_attrs<fft_attrs>(r)->norm[0];
    return norm == 1 ? 1 / sqrt((double)n) : norm == 2 ? 1 / (double)n : 1;
}

static aril_status run_plain(aril_run *r, form which)
{
    const fft_attrs *a = aril_cuda_attrs<fft_attrs>(r);
    const void *x = aril_cuda_data(aril_cuda_in(r, 0));
    void *y = aril_cuda_data(aril_cuda_out(r, 0));
    if (aril_cuda_host->numel(aril_cuda_out(r, 0)) == 0) return ARIL_OK;
    int64_t n = length_of(r, which), half = n / 2 + 1;
    sums s = { n,
               which == C2R ? half : n,
               which == R2C ? half : n,
               rows_of(r, which, n),
               which == R2C,
               which == C2R,
               a->twice[0] != 0,
               a->inverse[0] != 0,
               scale_of(r, n) };
    cudaStream_t stream = aril_cuda_stream(r);
    unsigned blocks = aril_cuda_blocks(r, s.rows * s.want, 256);
    if (aril_cuda_host->type(r) == ARIL_F64)
        plain<double><<<blocks, 256, 0, stream>>>((double *)y, (const double *)x, s);
    else
        plain<float><<<blocks, 256, 0, stream>>>((float *)y, (const float *)x, s);
    return aril_cuda_launched(r);
}

aril_status aril_cuda_fft_c2c_plain(aril_run *r)
{
    return run_plain(r, C2C);
}

aril_status aril_cuda_fft_r2c_plain(aril_run *r)
{
    return run_plain(r, R2C);
}

aril_status aril_cuda_fft_c2r_plain(aril_run *r)
{
    return run_plain(r, C2R);
}

void aril_cuda_fft_destroy(void *given)
{
    prepared *p = static_cast<prepared *>(given);
    library.cufftDestroy(p->plan);
    pthread_mutex_destroy(&p->lock);
    delete p;
}

static cufftType type_of(const prepared *p)
{
    if (p->which == C2C) return p->wide ? CUFFT_Z2Z : CUFFT_C2C;
    if (p->which == R2C) return p->wide ? CUFFT_D2Z : CUFFT_R2C;
    return p->wide ? CUFFT_Z2D : CUFFT_C2R;
}

/* Bytes of the input. */
static size_t input_bytes(const prepared *p)
{
    int64_t row = p->which == C2C ? 2 * p->n : p->which == R2C ? p->n : 2 * (p->n / 2 + 1);
    return (size_t)(p->rows * row) * (p->wide ? 8 : 4);
}

static const char *prepare(const aril_run *r, aril_plan *plan, form which)
{
    pthread_once(&library.once, open_library);
    if (!library.found) return library.why;
    if (aril_cuda_host->numel(aril_cuda_out(r, 0)) == 0) return "an empty result";
    int64_t n = length_of(r, which);
    if (n == 1) return "one point";
    prepared *p = new (std::nothrow) prepared();
    if (!p) return "out of memory";
    p->which = which;
    p->wide = aril_cuda_host->type(r) == ARIL_F64;
    p->n = n;
    p->rows = rows_of(r, which, n);
    aril_cuda_use(aril_cuda_device_of(r));
    if (library.cufftCreate(&p->plan) != CUFFT_SUCCESS) {
        delete p;
        return "cuFFT cannot start";
    }
    pthread_mutex_init(&p->lock, nullptr);
    long long length = n;
    size_t work = 0;
    if (library.cufftSetAutoAllocation(p->plan, 0) != CUFFT_SUCCESS ||
        library.cufftMakePlanMany64(p->plan, 1, &length, nullptr, 1, 0, nullptr, 1, 0, type_of(p),
                                    p->rows, &work) != CUFFT_SUCCESS) {
        aril_cuda_fft_destroy(p);
        return "cuFFT has no plan";
    }
    p->work = (work + 255) / 256 * 256;
    plan->workspace = p->work + input_bytes(p);
    plan->prepared = p;
    return nullptr;
}

const char *aril_cuda_fft_c2c_prepare(const aril_run *r, aril_plan *plan)
{
    return prepare(r, plan, C2C);
}

const char *aril_cuda_fft_r2c_prepare(const aril_run *r, aril_plan *plan)
{
    return prepare(r, plan, R2C);
}

const char *aril_cuda_fft_c2r_prepare(const aril_run *r, aril_plan *plan)
{
    return prepare(r, plan, C2R);
}

static cufftResult transform(const prepared *p, void *in, void *out, bool inverse)
{
    int sign = inverse ? CUFFT_INVERSE : CUFFT_FORWARD;
    switch (type_of(p)) {
    case CUFFT_C2C:
        return library.cufftExecC2C(p->plan, (cufftComplex *)in, (cufftComplex *)out, sign);
    case CUFFT_Z2Z:
        return library.cufftExecZ2Z(p->plan, (cufftDoubleComplex *)in, (cufftDoubleComplex *)out,
                                    sign);
    case CUFFT_R2C: return library.cufftExecR2C(p->plan, (cufftReal *)in, (cufftComplex *)out);
    case CUFFT_D2Z:
        return library.cufftExecD2Z(p->plan, (cufftDoubleReal *)in, (cufftDoubleComplex *)out);
    case CUFFT_C2R: return library.cufftExecC2R(p->plan, (cufftComplex *)in, (cufftReal *)out);
    default: return library.cufftExecZ2D(p->plan, (cufftDoubleComplex *)in, (cufftDoubleReal *)out);
    }
}

static void run_weigh(aril_run *r, const prepared *p, void *to, const void *from,
                      const half_spectrum &h)
{
    int64_t count = p->rows * h.bins;
    unsigned blocks = aril_cuda_blocks(r, count, 256);
    cudaStream_t stream = aril_cuda_stream(r);
    if (p->wide)
        weigh<double><<<blocks, 256, 0, stream>>>((double *)to, (const double *)from, count, h);
    else
        weigh<float><<<blocks, 256, 0, stream>>>((float *)to, (const float *)from, count, h);
}

static void run_multiply(aril_run *r, const prepared *p, void *x, int64_t n, double by)
{
    unsigned blocks = aril_cuda_blocks(r, n, 256);
    cudaStream_t stream = aril_cuda_stream(r);
    if (p->wide)
        multiply<double><<<blocks, 256, 0, stream>>>((double *)x, n, by);
    else
        multiply<float><<<blocks, 256, 0, stream>>>((float *)x, n, (float)by);
}

/* What cuFFT reads: the input itself, or a copy where it must be changed or is not aligned. */
static void *input_of(aril_run *r, const prepared *p, const void *x, void *copy)
{
    const fft_attrs *a = aril_cuda_attrs<fft_attrs>(r);
    if (p->which == C2R) {
        double scale = scale_of(r, p->n);
        half_spectrum h = {
            p->n / 2 + 1, p->n, a->twice[0] ? scale : scale / 2, scale, a->inverse[0] ? 1.0 : -1.0,
            true
        };
        run_weigh(r, p, copy, x, h);
        return copy;
    }
    if ((uintptr_t)x % (p->wide ? 16 : 8) == 0) return const_cast<void *>(x);
    cudaMemcpyAsync(copy, x, input_bytes(p), cudaMemcpyDeviceToDevice, aril_cuda_stream(r));
    return copy;
}

static void finish(aril_run *r, const prepared *p, void *y)
{
    const fft_attrs *a = aril_cuda_attrs<fft_attrs>(r);
    double scale = scale_of(r, p->n);
    if (p->which == R2C && (a->inverse[0] || a->twice[0] || a->norm[0])) {
        half_spectrum h = {
            p->n / 2 + 1, p->n, a->twice[0] ? 2 * scale : scale, scale, a->inverse[0] ? -1.0 : 1.0,
            false
        };
        run_weigh(r, p, y, y, h);
    } else if (p->which == C2C && a->norm[0]) {
        run_multiply(r, p, y, 2 * p->n * p->rows, scale);
    }
}

aril_status aril_cuda_fft_run(aril_run *r)
{
    prepared *p = static_cast<prepared *>(aril_cuda_host->prepared(r));
    const void *x = aril_cuda_data(aril_cuda_in(r, 0));
    void *y = aril_cuda_data(aril_cuda_out(r, 0));
    char *memory = static_cast<char *>(aril_cuda_host->workspace(r));
    if ((uintptr_t)y % (p->wide ? 16 : 8)) return run_plain(r, p->which);
    cudaStream_t stream = aril_cuda_stream(r);
    void *in = input_of(r, p, x, memory + p->work);
    pthread_mutex_lock(&p->lock);
    cufftResult s = library.cufftSetStream(p->plan, stream);
    if (s == CUFFT_SUCCESS) s = library.cufftSetWorkArea(p->plan, memory);
    if (s == CUFFT_SUCCESS) s = transform(p, in, y, aril_cuda_attrs<fft_attrs>(r)->inverse[0] != 0);
    pthread_mutex_unlock(&p->lock);
    if (s != CUFFT_SUCCESS)
        return aril_cuda_host->fail(ARIL_ERR_DEVICE, "%s: cuFFT failed with status %d",
                                    aril_cuda_host->op(r), (int)s);
    finish(r, p, y);
    return aril_cuda_launched(r);
}
