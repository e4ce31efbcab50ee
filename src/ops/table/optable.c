#include "aril/optable.h"

#include "ops/elementwise/formula.h"
#include "ops/table/op.h"
#include "ops/table/rows.h"

int aril_op_count(void)
{
    return aril__n_ops;
}

static const char *const cast_names[] = { [CAST_LOW] = "low",
                                          [CAST_F32] = "f32",
                                          [CAST_WIDEST] = "widest",
                                          [CAST_F32_IN_F16] = "f32 in f16 regions",
                                          [CAST_BY_CALL] = "by call" };

aril_op_info aril_op_at(int i)
{
    if (i < 0 || i >= aril__n_ops) {
        aril__fail(ARIL_ERR_INDEX, "op_at: index %d is out of range for %d ops", i, aril__n_ops);
        return (aril_op_info){ .name = "" };
    }
    const aril__op *op = aril__ops[i];
    const aril__formula *f = op->formula;
    return (aril_op_info){ .name = op->name,
                           .doc = op->doc,
                           .onnx = op->onnx,
                           .formula = f ? f->text : NULL,
                           .autocast = cast_names[op->cast],
                           .gradient = op->flags & NONDIFF ? "none"
                                       : f && !f->is_grad  ? "formula"
                                       : op->vjp           ? "rule"
                                       : op->decompose     ? "decomposed"
                                                           : "none",
                           .min_inputs = op->min_in,
                           .max_inputs = op->max_in == ARIL__ANY ? -1 : op->max_in,
                           .outputs = op->n_out,
                           .view = ARIL__IS_VIEW(op->out[0]),
                           .random = op->flags & RANDOM,
                           .backward = (f && f->is_grad) || op->flags & GRADIENT,
                           .file = op->file };
}

const char *aril_op_layout(int i, char *buf, size_t size)
{
    if (!buf || size == 0) return "";
    buf[0] = '\0';
    if (i >= 0 && i < aril__n_ops) return aril__layout_text(aril__ops[i], buf, size);
    aril__fail(ARIL_ERR_INDEX, "op_layout: index %d is out of range for %d ops", i, aril__n_ops);
    return buf;
}
