#include "kernels/cpu/generic/vec.h"
#include "kernels/cpu/levels.h"

namespace pelton::kernels::generic {
namespace {

#include "kernels/cpu/shared/math.inl"
// Needs math.inl.
#include "kernels/cpu/shared/attention_pages.inl"
// Needs attention_pages.inl.
#include "kernels/cpu/shared/attention_micro.inl"
// Needs attention_micro.inl.
#include "kernels/cpu/shared/attention.inl"

}  // namespace

void fill_attention(AttentionKernels& kernels) { fill_attention_table(kernels); }

}  // namespace pelton::kernels::generic
