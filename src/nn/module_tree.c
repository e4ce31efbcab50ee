/* The contents of a module tree: names, lists, counts, the printed form. */
#include "nn/module.h"

#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

/* A path that grows and shrinks during a tree walk. */
typedef struct path {
    char *text;
    size_t length, cap;
} path;

/* Appends ".name"; false, with an error, when out of memory. */
static bool path_push(path *p, const char *name)
{
    size_t n = strlen(name), need = p->length + n + 2;
    if (need > p->cap) {
        size_t cap = need * 2;
        char *grown = aril__realloc(p->text, cap);
        if (!grown) {
            aril__fail(ARIL_ERR_MEMORY, "module: out of memory for a name");
            return false;
        }
        p->text = grown;
        p->cap = cap;
    }
    if (p->length) p->text[p->length++] = '.';
    memcpy(p->text + p->length, name, n + 1);
    p->length += n;
    return true;
}

static void path_pop(path *p, size_t length)
{
    p->length = length;
    if (p->text) p->text[length] = 0;
}

aril_module *aril__find_module(aril_module *m, const char *name, size_t length)
{
    while (length) {
        const char *dot = memchr(name, '.', length);
        size_t part = dot ? (size_t)(dot - name) : length;
        aril_module *next = NULL;
        for (int i = 0; i < m->n_children && !next; i++)
            if (strncmp(m->child[i].name, name, part) == 0 && !m->child[i].name[part])
                next = m->child[i].module;
        if (!next || (dot && part + 1 == length)) return NULL;
        m = next;
        name += dot ? part + 1 : part;
        length -= dot ? part + 1 : part;
    }
    return m;
}

aril_module *aril__find_owner(aril_module *m, const char *name)
{
    const char *dot = name ? strrchr(name, '.') : NULL;
    if (!name || !m || dot == name) return NULL;
    return dot ? aril__find_module(m, name, (size_t)(dot - name)) : m;
}

aril__own_tensor *aril__find_own(aril_module *m, const char *name)
{
    m = aril__find_owner(m, name);
    if (!m) return NULL;
    if (strrchr(name, '.')) name = strrchr(name, '.') + 1;
    for (int i = 0; i < m->n_own; i++)
        if (strcmp(m->own[i].name, name) == 0) return &m->own[i];
    return NULL;
}

bool aril__contains(const aril_module *m, const aril_module *other)
{
    if (m == other) return true;
    for (int i = 0; i < m->n_children; i++)
        if (aril__contains(m->child[i].module, other)) return true;
    return false;
}

aril_tensor *aril_module_tensor(aril_module *m, const char *name)
{
    aril__own_tensor *own = aril__find_own(m, name);
    if (own && own->tensor) return own->tensor;
    aril__fail(ARIL_ERR_ARG, "module_tensor: no tensor \"%s\" in %s", name ? name : "NULL",
               m ? m->type->type : "a NULL module");
    return NULL;
}

aril_module *aril_module_at(aril_module *m, const char *name)
{
    aril_module *found = m && name ? aril__find_module(m, name, strlen(name)) : NULL;
    if (!found)
        aril__fail(ARIL_ERR_ARG, "module_at: no module \"%s\" in %s", name ? name : "NULL",
                   m ? m->type->type : "a NULL module");
    return found;
}

int aril_module_children(const aril_module *m)
{
    return m ? m->n_children : 0;
}

aril_module *aril_module_child(const aril_module *m, int i)
{
    if (m && i >= 0 && i < m->n_children) return m->child[i].module;
    aril__fail(ARIL_ERR_INDEX, "module_child: %s has %d children, got index %d",
               aril_module_type(m), aril_module_children(m), i);
    return NULL;
}

const char *aril_module_child_name(const aril_module *m, int i)
{
    return m && i >= 0 && i < m->n_children ? m->child[i].name : NULL;
}

static aril_status visit(aril_module *m, path *p, aril_module_fn *fn, void *ctx)
{
    size_t length = p->length;
    for (int i = 0; i < m->n_children; i++) {
        if (!path_push(p, m->child[i].name)) return ARIL_ERR_MEMORY;
        aril_status s = visit(m->child[i].module, p, fn, ctx);
        path_pop(p, length);
        if (s < 0) return s;
    }
    fn(m, p->text ? p->text : "", ctx);
    return ARIL_OK;
}

aril_status aril_module_visit(aril_module *m, aril_module_fn *fn, void *ctx)
{
    if (!m || !fn)
        return aril__fail(ARIL_ERR_ARG, "module_visit: the %s is NULL", m ? "function" : "module");
    path p = { 0 };
    aril_status s = visit(m, &p, fn, ctx);
    free(p.text);
    return s;
}

/* ---- lists ---- */

static size_t slot_of(const aril__gathered *g, const void *t)
{
    size_t at = ((uintptr_t)t >> 6) * 0x9e3779b97f4a7c15u >> 20 & (g->cap_seen - 1);
    while (g->seen[at] && g->seen[at] != t) at = (at + 1) & (g->cap_seen - 1);
    return at;
}

static aril_status grow_gathered(aril__gathered *g)
{
    int cap = g->cap ? g->cap * 2 : 32;
    aril_tensor **tensor = aril__realloc(g->tensor, (size_t)cap * sizeof *tensor);
    if (tensor) g->tensor = tensor;
    char **name = tensor ? aril__realloc(g->name, (size_t)cap * sizeof *name) : NULL;
    if (name) g->name = name;
    void **seen = name ? aril__calloc((size_t)cap * 2 * sizeof *seen) : NULL;
    if (!seen) return aril__fail(ARIL_ERR_MEMORY, "module: out of memory for a list of tensors");
    free(g->seen);
    g->seen = seen;
    g->cap = cap;
    g->cap_seen = (size_t)cap * 2;
    for (int i = 0; i < g->n; i++) seen[slot_of(g, g->tensor[i])] = g->tensor[i];
    return ARIL_OK;
}

static aril_status gather_own(const aril_module *m, unsigned kinds, int kind, path *p,
                              aril__gathered *g)
{
    size_t length = p->length;
    for (int i = 0; i < m->n_own; i++) {
        const aril__own_tensor *own = &m->own[i];
        if (!own->tensor || own->kind != kind || !(kinds >> kind & 1)) continue;
        aril_status s = g->n < g->cap ? ARIL_OK : grow_gathered(g);
        if (s < 0) return s;
        size_t at = slot_of(g, own->tensor);
        if (g->seen[at]) continue;
        if (!path_push(p, own->name)) return ARIL_ERR_MEMORY;
        char *name = aril__strdup(p->text);
        path_pop(p, length);
        if (!name) return aril__fail(ARIL_ERR_MEMORY, "module: out of memory for a name");
        g->seen[at] = own->tensor;
        g->tensor[g->n] = own->tensor;
        g->name[g->n++] = name;
    }
    return ARIL_OK;
}

/* A module's own parameters, then its buffers, then its children: PyTorch's order. */
static aril_status gather(aril_module *m, unsigned kinds, path *p, aril__gathered *g)
{
    aril_status s = ARIL_OK;
    size_t length = p->length;
    for (int kind = ARIL__PARAMETER; kind <= ARIL__SCRATCH && s == ARIL_OK; kind++)
        s = gather_own(m, kinds, kind, p, g);
    for (int i = 0; i < m->n_children && s == ARIL_OK; i++) {
        if (!path_push(p, m->child[i].name)) return ARIL_ERR_MEMORY;
        s = gather(m->child[i].module, kinds, p, g);
        path_pop(p, length);
    }
    return s;
}

aril_status aril__gather(aril_module *m, unsigned kinds, aril__gathered *g)
{
    path p = { 0 };
    *g = (aril__gathered){ 0 };
    aril_status s = gather(m, kinds, &p, g);
    free(p.text);
    if (s < 0) aril__gathered_free(g);
    return s;
}

void aril__gathered_free(aril__gathered *g)
{
    for (int i = 0; i < g->n; i++) free(g->name[i]);
    free(g->name);
    free(g->tensor);
    free(g->seen);
    *g = (aril__gathered){ 0 };
}

static const aril_tensor *first_tensor(const aril_module *m)
{
    const aril_tensor *t = NULL;
    for (int i = 0; i < m->n_own && !t; i++) t = m->own[i].tensor;
    for (int i = 0; i < m->n_children && !t; i++) t = first_tensor(m->child[i].module);
    return t;
}

static const aril_module *first_placed(const aril_module *m)
{
    const aril_module *placed = m->placed ? m : NULL;
    for (int i = 0; i < m->n_children && !placed; i++) placed = first_placed(m->child[i].module);
    return placed;
}

aril_device aril__module_device(const aril_module *m)
{
    const aril_tensor *t = first_tensor(m);
    const aril_module *placed = t ? NULL : first_placed(m);
    return t ? aril_device_of(t) : placed ? placed->device : m->device;
}

static void list_free(aril__named_list *l)
{
    for (int i = 0; i < l->named.n; i++) free(l->name[i]);
    free(l->name);
    free(l->tensor);
    *l = (aril__named_list){ 0 };
}

void aril__lists_free(aril_module *m)
{
    for (int i = 0; i < 3; i++) list_free(&m->list[i]);
}

/* Finds a module whose sizes are unknown and puts its full name in p; false when none is. */
static bool find_waiting(const aril_module *m, path *p, const aril_module **found)
{
    size_t length = p->length;
    if (!aril__is_ready(m)) {
        *found = m;
        return true;
    }
    for (int i = 0; i < m->n_children; i++) {
        if (!path_push(p, m->child[i].name)) return false;
        if (find_waiting(m->child[i].module, p, found)) return true;
        path_pop(p, length);
    }
    return false;
}

static aril_status check_built(const char *what, const aril_module *m)
{
    path p = { 0 };
    const aril_module *unbuilt = NULL;
    aril_status s = ARIL_OK;
    if (find_waiting(m, &p, &unbuilt))
        s = aril__fail(ARIL_ERR_STATE,
                       "%s: \"%s\" (%s) has sizes that are inferred from the first input; call "
                       "aril_module_build first",
                       what, p.text ? p.text : "", unbuilt->type->type);
    free(p.text);
    return s;
}

static bool same_list(const aril__named_list *l, const aril__gathered *g)
{
    if (l->named.n != g->n || !l->named.at) return false;
    for (int i = 0; i < g->n; i++)
        if (l->tensor[i] != g->tensor[i] || strcmp(l->name[i], g->name[i]) != 0) return false;
    return true;
}

/* Gathers the list at each call; when nothing changed, the previous list is returned, so that
 * pointers handed out stay valid. */
static const aril_named *listed(const char *what, aril_module *m, int which, unsigned kinds)
{
    static aril_tensor *const none[1];
    aril__gathered g;
    if (!m) {
        aril__fail(ARIL_ERR_ARG, "%s: the module is NULL", what);
        return NULL;
    }
    if (check_built(what, m) < 0 || aril__gather(m, kinds, &g) < 0) return NULL;
    aril__named_list *l = &m->list[which];
    if (same_list(l, &g)) {
        aril__gathered_free(&g);
        return &l->named;
    }
    list_free(l);
    l->tensor = g.tensor;
    l->name = g.name;
    l->named = (aril_named){ g.n, g.tensor ? g.tensor : none, (const char *const *)g.name };
    free(g.seen);
    return &l->named;
}

const aril_named *aril_parameters(aril_module *m)
{
    return listed("parameters", m, 0, 1u << ARIL__PARAMETER);
}

const aril_named *aril_buffers(aril_module *m)
{
    return listed("buffers", m, 1, 1u << ARIL__BUFFER | 1u << ARIL__SCRATCH);
}

const aril_named *aril_state(aril_module *m)
{
    return listed("state", m, 2, 1u << ARIL__PARAMETER | 1u << ARIL__BUFFER);
}

static int64_t count(aril_module *m, bool trainable)
{
    aril__gathered g;
    int64_t n = 0;
    if (!m || aril__gather(m, 1u << ARIL__PARAMETER, &g) < 0) return 0;
    for (int i = 0; i < g.n; i++)
        if (!trainable || aril_requires_grad(g.tensor[i])) n += g.tensor[i]->numel;
    aril__gathered_free(&g);
    return n;
}

int64_t aril_parameter_count(aril_module *m)
{
    return count(m, false);
}

int64_t aril_trainable_count(aril_module *m)
{
    return count(m, true);
}

/* ---- the printed form ---- */

static void print_tree(const aril_module *m, FILE *to, int depth)
{
    char text[1024] = "";
    if (m->type->describe) m->type->describe(m, text, sizeof text);
    fprintf(to, "%s(", m->type->type);
    if (!m->n_children) {
        fprintf(to, "%s)", text);
        return;
    }
    if (*text) fprintf(to, "\n%*s%s", 2 * depth + 2, "", text);
    for (int i = 0; i < m->n_children; i++) {
        fprintf(to, "\n%*s(%s): ", 2 * depth + 2, "", m->child[i].name);
        print_tree(m->child[i].module, to, depth + 1);
    }
    fprintf(to, "\n%*s)", 2 * depth, "");
}

void aril_module_print(aril_module *m, FILE *to)
{
    if (!m || !to) {
        aril__fail(ARIL_ERR_ARG, "module_print: the %s is NULL", m ? "file" : "module");
        return;
    }
    print_tree(m, to, 0);
    fputc('\n', to);
}
