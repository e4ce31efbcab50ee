#include "ops/table/apply.h"
#include "ops/table/rows.h"

#include "core/foreign.h"
#include "core/log.h"
#include "core/queues.h"
#include "ops/elementwise/formula.h"
#include "ops/elementwise/fused.h"
#include "ops/shape/copy.h"
#include "ops/table/stage.h"
#include "ops/table/tuning.h"

#include "aril/parallel.h"

#include <dlfcn.h>
#ifdef __linux__
#include <link.h>
#endif
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- attribute layouts ---- */

const char *aril__layout_text(const aril__op *op, char *buf, size_t size)
{
    size_t n = 0;
    buf[0] = '\0';
    for (int i = 0; i < op->n_attrs && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s %s %d; ", op->attrs[i].name,
                              op->attrs[i].type == ARIL__I64 ? "I64" : "F64", op->attrs[i].count);
    return buf;
}

uint64_t aril__layout_hash(void)
{
    uint64_t h = 0xcbf29ce484222325u;
    char text[1024];
    for (int k = 0; k < aril__n_ops; k++) {
        aril__layout_text(aril__ops[k], text, sizeof text);
        for (const char *p = aril__ops[k]->name; *p; p++)
            h = (h ^ (unsigned char)*p) * 0x100000001b3u;
        for (const char *p = text; *p; p++) h = (h ^ (unsigned char)*p) * 0x100000001b3u;
    }
    return h;
}

/* ---- the host table ---- */

static aril_status host_fail(aril_status code, const char *fmt, ...)
{
    char text[800];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return aril__fail(aril__foreign_code(code, ARIL_ERR_PLUGIN), "%s", text);
}

static void host_log(const char *fmt, ...)
{
    char text[800];
    if (!aril__log_on(ARIL__LOG_PLUGIN)) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    aril__log(ARIL__LOG_PLUGIN, "%s", text);
}

static int host_n_in(const aril_run *r)
{
    return r->n_in;
}

static int host_n_out(const aril_run *r)
{
    return r->n_out;
}

static aril_tensor *host_in(const aril_run *r, int i)
{
    return i >= 0 && i < r->n_in ? r->in[i] : NULL;
}

static aril_tensor *host_out(const aril_run *r, int i)
{
    return i >= 0 && i < r->n_out ? r->out[i] : NULL;
}

static void *host_device(const aril_run *r)
{
    return r->device->self;
}

static void *host_prepared(const aril_run *r)
{
    return r->prepared;
}

static void *host_workspace(const aril_run *r)
{
    return r->workspace;
}

static const void *host_attrs(const aril_run *r)
{
    return r->attrs;
}

static const void *find_attr(const aril_run *r, const char *name, aril__attr_type type)
{
    for (int i = 0; r->attrs && i < r->op->n_attrs; i++)
        if (strcmp(r->op->attrs[i].name, name) == 0 && r->op->attrs[i].type == type)
            return (const char *)r->attrs + r->op->attrs[i].offset;
    return NULL;
}

static const int64_t *host_attr_i64(const aril_run *r, const char *name)
{
    return find_attr(r, name, ARIL__I64);
}

static const double *host_attr_f64(const aril_run *r, const char *name)
{
    return find_attr(r, name, ARIL__F64);
}

static aril_dtype host_type(const aril_run *r)
{
    return r->type;
}

static void *host_data(const aril_tensor *t)
{
    return aril__ptr(t);
}

static const int64_t *host_dims(const aril_tensor *t)
{
    return t->dim;
}

static const int64_t *host_strides(const aril_tensor *t)
{
    return t->stride;
}

static bool host_number(const aril_run *r, int i, aril_host_number *value)
{
    const aril_tensor *t = host_in(r, i);
    if (!t || !aril__is_number(t)) return false;
    *value = (aril_host_number){ .kind = t->flags & ARIL__KEY     ? ARIL_NUMBER_KEY
                                         : t->flags & ARIL__STATE ? ARIL_NUMBER_STATE
                                                                  : ARIL_NUMBER_CONSTANT };
    if (value->kind == ARIL_NUMBER_KEY) {
        memcpy(value->key, aril__ptr(t), sizeof value->key);
    } else {
        aril__dtypes[t->dtype].load[ARIL__C_F64](&value->f64, aril__base(t), t->offset, 1, 1);
        aril__dtypes[t->dtype].load[ARIL__C_I64](&value->i64, aril__base(t), t->offset, 1, 1);
    }
    return true;
}

static size_t host_workspace_bytes(const aril_run *r)
{
    return r->workspace ? r->workspace_bytes : 0;
}

static aril_access host_access(const aril_run *r, int i)
{
    const aril_tensor *t = host_in(r, i);
    if (!t || !t->storage || t->storage->device != r->device || aril__is_number(t) ||
        (i < 31 && r->op->shape_only >> i & 1))
        return ARIL_ACCESS_NONE;
    return aril__changes(r->op, i) ? ARIL_ACCESS_CHANGE : ARIL_ACCESS_READ;
}

/* Orders the work of a run after what other queues do with a tensor of its device. */
static inline void order(const aril_run *r, int here, const aril_tensor *t, bool writes)
{
    aril__storage *s = t ? t->storage : NULL;
    if (s && s->device == r->device && aril__unlikely(!aril__is_ordered(s, here, writes)))
        aril__order_use(s, writes);
}

aril_queue *aril__run_queue(const aril_run *r)
{
    if (aril__one_queue()) return r->device->queue;
    int here = aril__queue_number(r->device);
    for (int i = 0; i < r->n_in; i++) order(r, here, r->in[i], aril__changes(r->op, i));
    for (int i = 0; i < r->n_out; i++) order(r, here, r->out[i], true);
    return aril__queue_numbered(r->device, here);
}

static const char *host_op(const aril_run *r)
{
    return r->op->name;
}

static const char *host_formula(const aril_run *r)
{
    return r->op->formula ? r->op->formula->text : NULL;
}

static aril_status host_alloc_out(aril_run *r, int i, aril_dtype dtype, int ndim,
                                  const int64_t *dim)
{
    if (i < 0 || i >= r->n_out || !(r->op->flags & DYNAMIC))
        return aril__fail(ARIL_ERR_PLUGIN,
                          "%s: alloc_out for output %d, but %s; a row allocates only results whose "
                          "sizes are known after the run",
                          r->op->name, i,
                          i < 0 || i >= r->n_out ? "there is none" : "its memory is there");
    if ((unsigned)dtype >= ARIL__DTYPE_COUNT || ndim < 0 || ndim > ARIL_MAX_DIMS || (ndim && !dim))
        return aril__fail(ARIL_ERR_PLUGIN, "%s: alloc_out with dtype %d and %d dimensions%s",
                          r->op->name, (int)dtype, ndim, ndim && !dim ? " of NULL" : "");
    for (int d = 0; d < ndim; d++)
        if (dim[d] < 0)
            return aril__fail(ARIL_ERR_PLUGIN, "%s: alloc_out with size %lld of dimension %d",
                              r->op->name, (long long)dim[d], d);
    return aril__run_alloc(r, i, dtype, ndim, dim);
}

static bool host_deterministic(void)
{
    return aril_deterministic() != ARIL_NOT_DETERMINISTIC;
}

static aril_host host = { .size = sizeof host,
                          .version = ARIL_PLUGIN_VERSION,
                          .fail = host_fail,
                          .log = host_log,
                          .n_in = host_n_in,
                          .n_out = host_n_out,
                          .in = host_in,
                          .out = host_out,
                          .device = host_device,
                          .prepared = host_prepared,
                          .workspace = host_workspace,
                          .attrs = host_attrs,
                          .attr_i64 = host_attr_i64,
                          .attr_f64 = host_attr_f64,
                          .type = host_type,
                          .alloc_out = host_alloc_out,
                          .data = host_data,
                          .dtype = aril_dtype_of,
                          .ndim = aril_ndim,
                          .dims = host_dims,
                          .strides = host_strides,
                          .numel = aril_numel,
                          .number = host_number,
                          .queue = aril__run_queue,
                          .op = host_op,
                          .formula = host_formula,
                          .tf32_allowed = aril_tf32_allowed,
                          .deterministic = host_deterministic,
                          .tuning = aril_tuning,
                          .tuned = aril__tuned,
                          .tune = aril__tune,
                          .fused = aril__fused_of,
                          .access = host_access,
                          .workspace_bytes = host_workspace_bytes };

/* ---- loading ---- */

enum { MAX_PLUGINS = 16, NAME_SIZE = sizeof(((aril__device *)NULL)->kind_name) };
static void
    *opened[MAX_PLUGINS]; /* never closed: tensors may stay on a plug-in's device until exit */
static int n_opened;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The functions of a device by name, in groups of which a device has all or none. */
typedef struct slot {
    const char *name;
    size_t offset;
} slot;
#define SLOT(name)                             \
    {                                          \
#name, offsetof(aril_device_ops, name) \
    }
static const slot required[] = { SLOT(alloc),   SLOT(free), SLOT(from_host),
                                 SLOT(to_host), SLOT(copy), { 0 } };
static const slot queues[] = { SLOT(queue_new),   SLOT(queue_free), SLOT(queue_wait),
                               SLOT(synchronize), SLOT(poll),       { 0 } };
static const slot events[] = { SLOT(event_new),  SLOT(event_free),  SLOT(event_record),
                               SLOT(event_wait), SLOT(event_query), { 0 } };
static const slot pinned[] = { SLOT(pinned_alloc), SLOT(pinned_free), { 0 } };
static const slot compiling[] = { SLOT(compile), SLOT(program_free), SLOT(launch), { 0 } };
static const slot capturing[] = {
    SLOT(capture_begin), SLOT(capture_end), SLOT(replay), SLOT(recording_free), { 0 }
};
static const slot small[] = { SLOT(is_small), SLOT(record_small), { 0 } };
static const slot ranges[] = { SLOT(range_begin), SLOT(range_end), { 0 } };
static const slot profiling[] = {
    SLOT(profile_begin), SLOT(profile_mark), SLOT(profile_end), { 0 }
};

static bool has_slot(const aril_device_ops *ops, const slot *s)
{
    void (*fn)(void);
    memcpy(&fn, (const char *)ops + s->offset, sizeof fn);
    return fn != NULL;
}

/* A group is complete, or absent unless it is `needed`. */
static aril_status check_group(const char *path, const aril_device_ops *ops, const slot *group,
                               bool needed)
{
    const slot *there = NULL, *missing = NULL;
    for (const slot *s = group; s->name; s++) {
        if (has_slot(ops, s))
            there = s;
        else if (!missing)
            missing = s;
    }
    if (!missing || (!there && !needed)) return ARIL_OK;
    return there && !needed
               ? aril__fail(ARIL_ERR_PLUGIN,
                            "plug-in %s: its devices have %s but no %s; one needs the other", path,
                            there->name, missing->name)
               : aril__fail(ARIL_ERR_PLUGIN,
                            "plug-in %s: the required device function %s is missing", path,
                            missing->name);
}

static aril_status check_devices(const char *path, const aril_device_ops *ops)
{
    static const slot *const optional[] = { queues,    events, pinned, compiling,
                                            capturing, small,  ranges, profiling };
    if (ops->size != sizeof *ops)
        return aril__fail(ARIL_ERR_PLUGIN, "plug-in %s: aril_device_ops.size is %u, expected %zu",
                          path, ops->size, sizeof *ops);
    aril_status s = check_group(path, ops, required, true);
    for (size_t i = 0; i < sizeof optional / sizeof *optional && s == ARIL_OK; i++)
        s = check_group(path, ops, optional[i], false);
    if (s == ARIL_OK && (ops->event_new || ops->capture_begin))
        s = check_group(path, ops, queues, true);
    if (s == ARIL_OK && ops->is_small) s = check_group(path, ops, capturing, true);
    return s;
}

/* A dtype that the row accepts and that it would get in one that it does not compute in, or -1. */
static int unstaged_dtype(const aril_row *row)
{
    for (int t = 0; t < ARIL__DTYPE_COUNT && row->native; t++)
        if (row->dtypes >> t & 1 && !(row->native >> aril__staged_dtype(row->native, t) & 1))
            return t;
    return -1;
}

static aril_status check_row(const char *path, int i, const aril_row *row)
{
    const aril__op *op = row->op ? aril__op_find(row->op) : NULL;
    bool formulas = row->op && strcmp(row->op, ARIL_ROW_FORMULAS) == 0;
    char text[1024];
    if ((!op && !formulas) || !row->run || !row->name)
        return aril__fail(ARIL_ERR_PLUGIN, "plug-in %s: row %d is for '%s', %s", path, i,
                          row->op ? row->op : "(null)",
                          op ? "but has no name or no run function" : "which is not an op");
    if (!row->dtypes)
        return aril__fail(ARIL_ERR_PLUGIN,
                          "plug-in %s: its row for %s accepts no dtype; set bit t of `dtypes` for "
                          "each dtype t",
                          path, row->op);
    if (op && row->layout && strcmp(row->layout, aril__layout_text(op, text, sizeof text)) != 0)
        return aril__fail(ARIL_ERR_PLUGIN,
                          "plug-in %s: its row for %s expects attributes '%s', but they are '%s'",
                          path, row->op, row->layout, text);
    if (op && !row->strided && (op == &aril__op_copy || op == &aril__op_cast))
        return aril__fail(ARIL_ERR_PLUGIN,
                          "plug-in %s: its row for %s is not strided, but others need it to make "
                          "their inputs contiguous",
                          path, row->op);
    if (op && (op->reserve_out || op->reserve_in) && !row->prepare)
        return aril__fail(ARIL_ERR_PLUGIN,
                          "plug-in %s: its row for %s, which has a reserve, needs `prepare`", path,
                          row->op);
    int t = unstaged_dtype(row);
    if (t >= 0)
        return aril__fail(ARIL_ERR_PLUGIN,
                          "plug-in %s: its row for %s accepts %s, which is converted to %s for it, "
                          "but that is not in `native`",
                          path, row->op, aril__dtypes[t].name,
                          aril__dtypes[aril__staged_dtype(row->native, t)].name);
    return ARIL_OK;
}

static aril_status check(const char *path, const aril_plugin *p)
{
    if (p->version != ARIL_PLUGIN_VERSION || p->size != sizeof *p)
        return aril__fail(
            ARIL_ERR_PLUGIN,
            "plug-in %s: built for interface version %u (size %u), expected %d (size %zu)", path,
            p->version, p->size, ARIL_PLUGIN_VERSION, sizeof *p);
    if (p->layout_hash && p->layout_hash != host.layout_hash)
        return aril__fail(ARIL_ERR_PLUGIN,
                          "plug-in %s: built for other op attributes; rebuild it with this version",
                          path);
    if (!p->name || !p->kind || p->n_devices < 0 || p->n_rows < 0 ||
        (p->n_devices && (!p->device_ops || !p->devices)) || (p->n_rows && !p->rows))
        return aril__fail(ARIL_ERR_PLUGIN, "plug-in %s: required fields of aril_plugin are missing",
                          path);
    if (!p->kind[0] || strlen(p->kind) >= NAME_SIZE || strpbrk(p->kind, ": /"))
        return aril__fail(ARIL_ERR_PLUGIN,
                          "plug-in %s: '%.64s' cannot name a kind of device; use 1 to %d "
                          "characters without ':', '/' and spaces",
                          path, p->kind, NAME_SIZE - 1);
    aril_status s = p->n_devices ? check_devices(path, p->device_ops) : ARIL_OK;
    for (int i = 0; i < p->n_rows && s == ARIL_OK; i++) s = check_row(path, i, &p->rows[i]);
    return s;
}

static aril_status register_all(const aril_plugin *p)
{
    int kind = p->n_devices ? aril__devices_register(p->kind, p->n_devices, p->device_ops,
                                                     p->devices, p->host_memory)
                            : aril__device_kind(p->kind);
    if (kind < 0)
        return p->n_devices
                   ? ARIL_ERR_PLUGIN
                   : aril__fail(ARIL_ERR_PLUGIN, "plug-in %s: no device kind '%s' for its rows",
                                p->name, p->kind);
    return aril__rows_register(kind, p->rows, p->n_rows);
}

/* Asks a plug-in for its devices and rows, and checks them. */
static aril_status open_one(const char *path, aril_plugin_open_fn *open, aril_plugin *p)
{
    host.layout_hash = aril__layout_hash();
    host.aril_version = aril_version();
    if (open(&host, p) < 0)
        return aril_ok() ? aril__fail(ARIL_ERR_PLUGIN, "plug-in %s: aril_plugin_open failed", path)
                         : ARIL_ERR_PLUGIN;
    return check(path, p);
}

aril_status aril__plugin_add(const char *path, aril_plugin_open_fn *open)
{
    aril__self();
    pthread_mutex_lock(&lock);
    aril_plugin p = { 0 };
    aril_status s = open_one(path, open, &p);
    if (s == ARIL_OK) s = register_all(&p);
    pthread_mutex_unlock(&lock);
    return s;
}

/* Whether the path is there and no file: opening a pipe would wait for a writer. */
static bool is_no_file(const char *path)
{
    struct stat is;
    return strchr(path, '/') && stat(path, &is) == 0 && !S_ISREG(is.st_mode);
}

#ifdef __linux__
/* Whether `count` entries of `each` bytes from `offset` are inside a file of that size. */
static bool is_inside(uint64_t offset, uint64_t count, uint64_t each, uint64_t size)
{
    return offset <= size && (each == 0 || count <= (size - offset) / each);
}

/* Whether an ELF file ends before its headers and segments do: loading it would map pages that the
 * file does not have, and reading those kills the process. Other files are left to dlopen. */
static bool is_cut_short(FILE *f, uint64_t size)
{
    ElfW(Ehdr) head;
    if (fread(&head, sizeof head, 1, f) != 1 || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
        head.e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32) ||
        head.e_phentsize != sizeof(ElfW(Phdr)))
        return false;
    if (!is_inside(head.e_phoff, head.e_phnum, head.e_phentsize, size) ||
        !is_inside(head.e_shoff, head.e_shnum, head.e_shentsize, size))
        return true;
    if (fseek(f, (long)head.e_phoff, SEEK_SET) != 0) return true;
    for (int i = 0; i < head.e_phnum; i++) {
        ElfW(Phdr) segment;
        if (fread(&segment, sizeof segment, 1, f) != 1) return true;
        if (segment.p_type == PT_LOAD && !is_inside(segment.p_offset, segment.p_filesz, 1, size))
            return true;
    }
    return false;
}
#endif

/* Refuses what dlopen would not survive. A name without '/' is searched for by dlopen. */
static aril_status check_file(const char *path)
{
    if (is_no_file(path))
        return aril__fail(ARIL_ERR_PLUGIN, "plug-in %s: not a regular file", path);
#ifdef __linux__
    struct stat is;
    FILE *f = strchr(path, '/') ? fopen(path, "rb") : NULL;
    bool cut = f && fstat(fileno(f), &is) == 0 && is_cut_short(f, (uint64_t)is.st_size);
    if (f) fclose(f);
    if (cut)
        return aril__fail(ARIL_ERR_PLUGIN, "plug-in %s: the file is truncated, it has %lld bytes",
                          path, (long long)is.st_size);
#endif
    return ARIL_OK;
}

aril_status aril_plugin_load(const char *path)
{
    aril__self();
    if (!path) return aril__fail(ARIL_ERR_ARG, "plugin_load: the path is NULL");
    pthread_mutex_lock(&lock);
    aril_status s = ARIL_OK;
    void *handle = NULL;
    aril_plugin_open_fn *open = NULL;
    aril_plugin p = { 0 };
    if (n_opened == MAX_PLUGINS)
        s = aril__fail(ARIL_ERR_PLUGIN, "plug-in %s: too many plug-ins, %d are loaded", path,
                       MAX_PLUGINS);
    if (s == ARIL_OK) s = check_file(path);
    if (s == ARIL_OK && !(handle = dlopen(path, RTLD_NOW | RTLD_LOCAL)))
        s = aril__fail(ARIL_ERR_PLUGIN, "plug-in %s: %s", path, dlerror());
    if (s == ARIL_OK) {
        /* Converts an object pointer to a function pointer, as POSIX recommends. */
        *(void **)(void *)&open = dlsym(handle, ARIL_PLUGIN_SYMBOL);
        if (!open)
            s = aril__fail(ARIL_ERR_PLUGIN, "plug-in %s: does not export %s", path,
                           ARIL_PLUGIN_SYMBOL);
    }
    if (s == ARIL_OK) s = open_one(path, open, &p);
    if (s < 0 && handle) dlclose(handle);
    /* From here on something may refer to its code: it stays loaded, even if registration fails. */
    if (s == ARIL_OK) s = register_all(&p);
    if (s == ARIL_OK) opened[n_opened++] = handle;
    pthread_mutex_unlock(&lock);
    if (s == ARIL_OK)
        aril__log(ARIL__LOG_PLUGIN, "%s: %d device%s of kind %s, %d row%s", p.name, p.n_devices,
                  p.n_devices == 1 ? "" : "s", p.kind, p.n_rows, p.n_rows == 1 ? "" : "s");
    return s;
}
