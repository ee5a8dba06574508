#include "ops/matmul.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/check.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/packing.h"
#include "ops/device_ops.h"
#include "ops/elementwise.h"
#include "pelton/status.h"

namespace pelton::ops {
namespace {

using kernels::ActivationPrecision;
using kernels::kTileRows;
using kernels::OffsetKind;
using kernels::QuantizedRows;
using kernels::SplitRows;
using kernels::WeightLayout;
using kernels::WeightMatrix;

constexpr size_t kMaxSegments = 8;

bool is_packed_format(WeightFormat format) { return kernels::packed_geometry(format).low > 0; }

int64_t tiles_of(int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }

// Activation rows that meet a weight tile while it is decoded: enough to pay for decoding, few
// enough that they stay in the second-level cache.
int64_t rows_per_block(int64_t rows, int64_t row_bytes) {
  constexpr int64_t kCacheBytes = 256 * 1024;
  const int64_t fits = std::max<int64_t>(16, kCacheBytes / std::max<int64_t>(row_bytes, 1) / 8 * 8);
  return std::min<int64_t>({rows, fits, kernels::kMaxProductRows});
}

// What a product kernel multiplies.
enum class Family { kInt8, kSplit, kExact };

Family family_of(const StepContext& context, const WeightMatrix& w) {
  if (context.activations != ActivationPrecision::kInt8) return Family::kExact;
  if (w.layout == WeightLayout::kInterleaved) return Family::kInt8;
  const bool split = context.cpu.matmul.split_product[static_cast<size_t>(w.format)] != nullptr &&
                     w.columns % kernels::kSplitColumns == 0;
  return split ? Family::kSplit : Family::kExact;
}

// Activations of one call as every segment's kernel wants them.
struct Activations {
  const Tensor* x = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t block_rows = 0;  // rows of a full row block
  // Arrays over all row blocks; block b begins at row b * block_rows of each.
  QuantizedRows all;
  SplitRows split;

  int64_t num_blocks() const { return (rows + block_rows - 1) / block_rows; }
  int64_t rows_in(int64_t block) const { return std::min(block_rows, rows - block * block_rows); }
  SplitRows split_block(int64_t b) const {
    const int64_t offset = b * block_rows * columns * 2;
    return {rows_in(b), columns, split.parts == nullptr ? nullptr : split.parts + offset};
  }
  QuantizedRows block(int64_t b) const {
    const int64_t first = b * block_rows;
    QuantizedRows q = all;
    q.rows = rows_in(b);
    q.codes += first * columns;
    const int64_t halves = first * all.blocks * kernels::kHalvesPerBlock;
    q.scales += halves;
    q.sums += first * all.blocks;
    if (q.half_sums != nullptr) q.half_sums += halves;
    for (uint32_t*& words : q.offsets) {
      if (words != nullptr) words += halves;
    }
    return q;
  }
};

void take_scratch(memory::StepArena& arena, std::span<const WeightMatrix> weights, Activations* a) {
  const int64_t halves = a->rows * a->columns / kernels::kHalfColumns;
  a->all.rows = a->rows;
  a->all.blocks = a->columns / kernels::kBlockColumns;
  a->all.codes = arena.allocate_array<int8_t>(a->rows * a->columns);
  a->all.scales = arena.allocate_array<float>(halves);
  a->all.sums = arena.allocate_array<float>(halves / kernels::kHalvesPerBlock);
  for (const WeightMatrix& w : weights) {
    if (kernels::has_half_minimum(w.format) && a->all.half_sums == nullptr) {
      a->all.half_sums = arena.allocate_array<float>(halves);
    }
    const OffsetKind kind = kernels::offset_kind(w.format);
    uint32_t*& words = a->all.offsets[static_cast<size_t>(kind)];
    if (words == nullptr && kind != OffsetKind::kNone && is_packed_format(w.format)) {
      words = arena.allocate_array<uint32_t>(halves);
    }
  }
}

// Quantizes and splits all rows, as far as the call's weights ask for it.
void convert(StepContext& context, const Activations& a) {
  constexpr int64_t kRowsPerItem = 4;
  const auto run = [&](int64_t first, int64_t last) {
    const int64_t b = first / a.block_rows;
    const int64_t base = b * a.block_rows;
    const float* x = a.x->row_f32(base);
    const kernels::MatmulKernels& matmul = context.cpu.matmul;
    if (a.all.codes != nullptr) {
      matmul.quantize(x, a.x->row_stride, first - base, last - base, a.block(b));
    }
    if (a.split.parts != nullptr) {
      matmul.split(x, a.x->row_stride, first - base, last - base, a.split_block(b));
    }
  };
  if (a.rows * a.columns < 32 * 1024) {
    for (int64_t b = 0; b < a.num_blocks(); ++b) {
      run(b * a.block_rows, b * a.block_rows + a.rows_in(b));
    }
    return;
  }
  const int64_t items_per_block = (a.block_rows + kRowsPerItem - 1) / kRowsPerItem;
  context.pool.parallel_for(a.num_blocks() * items_per_block, [&](int64_t item, int) {
    const int64_t b = item / items_per_block;
    const int64_t begin = item % items_per_block * kRowsPerItem;
    const int64_t end = std::min(begin + kRowsPerItem, a.rows_in(b));
    if (begin < end) run(b * a.block_rows + begin, b * a.block_rows + end);
  });
}

struct Segment {
  kernels::ProductArgs args;  // without tiles, rows and activations
  kernels::ProductKernel kernel = nullptr;
  int64_t first_tile = 0;  // in the order of all segments
};

// Tiles an item covers: items big enough to hide the claim, small enough to balance.
int64_t tiles_per_item(int64_t tiles, int64_t row_blocks, int threads) {
  const int64_t items_wanted = std::max<int64_t>(1, int64_t{threads} * 8 / row_blocks);
  return std::clamp<int64_t>(tiles / items_wanted, 1, 64);
}

class Product {
 public:
  Product(StepContext& context, const MatmulArgs& args, const Activations& activations)
      : activations_(activations) {
    check(args.weights.size() <= kMaxSegments, "too many weight segments in one product");
    int64_t column = 0;
    for (const WeightMatrix& w : args.weights) {
      add_segment(context, args, w, column);
      column += w.rows;
    }
  }

  void run(ThreadPool& pool) {
    const int64_t row_blocks = activations_.num_blocks();
    const int64_t group = tiles_per_item(tiles_, row_blocks, pool.size());
    const int64_t groups = (tiles_ + group - 1) / group;
    pool.parallel_for(row_blocks * groups, [&](int64_t item, int) {
      const int64_t first = item % groups * group;
      run_tiles(item / groups, first, std::min(first + group, tiles_));
    });
  }

 private:
  void add_segment(StepContext& context, const MatmulArgs& args, const WeightMatrix& w,
                   int64_t column) {
    Segment& s = segments_[count_++];
    const auto index = static_cast<size_t>(w.format);
    s.first_tile = tiles_;
    tiles_ += tiles_of(w.rows);
    const auto* base = reinterpret_cast<const uint8_t*>(w.data);
    s.args.low = base;
    if (w.layout == WeightLayout::kInterleaved) {
      const kernels::PackedPlanes planes = kernels::packed_planes(w.format, w.rows, w.columns);
      s.args.high = base + planes.high_offset;
      s.args.scales = base + planes.scales_offset;
    } else {
      check(!is_packed_format(w.format), "block-quantized weights are multiplied packed only");
    }
    const kernels::MatmulKernels& matmul = context.cpu.matmul;
    const Family family = family_of(context, w);
    s.kernel = family == Family::kInt8    ? matmul.int8[index]
               : family == Family::kSplit ? matmul.split_product[index]
                                          : matmul.exact[index];
    check(s.kernel != nullptr, "no product kernel for this format");
    s.args.n = w.rows;
    s.args.k = w.columns;
    s.args.x_stride = args.x.row_stride;
    s.args.out = args.out.f32() + column;
    s.args.out_stride = args.out.row_stride;
    s.args.bias = args.bias == nullptr ? nullptr : args.bias + column;
    s.args.accumulate = args.accumulate;
  }

  void run_tiles(int64_t row_block, int64_t first, int64_t last) const {
    const int64_t base = row_block * activations_.block_rows;
    QuantizedRows q;
    if (activations_.all.codes != nullptr) q = activations_.block(row_block);
    const SplitRows split = activations_.split_block(row_block);
    for (size_t i = 0; i < count_; ++i) {
      const Segment& s = segments_[i];
      const int64_t begin = std::max(first, s.first_tile);
      const int64_t end = std::min(last, s.first_tile + tiles_of(s.args.n));
      if (begin >= end) continue;
      kernels::ProductArgs args = s.args;
      args.first_tile = begin - s.first_tile;
      args.last_tile = end - s.first_tile;
      args.rows = activations_.rows_in(row_block);
      args.quantized = &q;
      args.split = &split;
      args.x = activations_.x->row_f32(base);
      args.out += base * args.out_stride;
      s.kernel(args);
    }
  }

  const Activations& activations_;
  std::array<Segment, kMaxSegments> segments_;
  size_t count_ = 0;
  int64_t tiles_ = 0;
};

// Products read and write f32, or bf16 on a device.
void check_shapes(const StepContext& context, const MatmulArgs& args, int64_t outputs) {
  for (const WeightMatrix& w : args.weights)
    check(w.columns == args.x.row_elements(), "matmul: x and weight differ in columns");
  check(args.out.row_elements() == outputs, "matmul: out is not as wide as the weights together");
  check(args.out.num_rows() == args.x.num_rows(), "matmul: out and x differ in rows");
  for (const DType type : {args.x.dtype, args.out.dtype}) {
    check(type == DType::kF32 || (type == DType::kBF16 && context.device != nullptr),
          "matmul: tensors are not of an activation type");
  }
}

int64_t outputs_of(std::span<const WeightMatrix> weights) {
  int64_t n = 0;
  for (const WeightMatrix& w : weights) n += w.rows;
  return n;
}

}  // namespace

PackPlan plan_pack(WeightFormat format, int64_t rows, int64_t columns) {
  if (is_packed_format(format)) {
    return {WeightLayout::kInterleaved, kernels::packed_planes(format, rows, columns).bytes};
  }
  const auto bytes = weight_bytes(format, static_cast<uint64_t>(rows * columns));
  check(bytes.has_value(), "matrix is too large");
  return {WeightLayout::kSource, static_cast<size_t>(*bytes)};
}

kernels::WeightMatrix pack(WeightFormat format, int64_t rows, int64_t columns,
                           std::span<const std::byte> source, std::span<std::byte> out,
                           ThreadPool& pool) {
  const PackPlan plan = plan_pack(format, rows, columns);
  check(plan.layout == WeightLayout::kInterleaved, "this format is used in place");
  check(out.size() >= plan.bytes, "pack: output is smaller than its plan");
  const auto bytes = weight_bytes(format, static_cast<uint64_t>(rows * columns));
  check(bytes.has_value() && source.size() >= *bytes, "pack: source is smaller than the matrix");
  constexpr int64_t kTilesPerItem = 4;
  const int64_t tiles = tiles_of(rows);
  pool.parallel_for((tiles + kTilesPerItem - 1) / kTilesPerItem, [&](int64_t item, int) {
    const int64_t first = item * kTilesPerItem;
    kernels::pack_tiles(format, rows, columns, source.data(), out.data(), first,
                        std::min(first + kTilesPerItem, tiles));
  });
  return {out.data(), plan.bytes, rows, columns, format, WeightLayout::kInterleaved};
}

kernels::WeightMatrix in_place(WeightFormat format, int64_t rows, int64_t columns,
                               std::span<const std::byte> source) {
  const auto bytes = weight_bytes(format, static_cast<uint64_t>(rows * columns));
  check(bytes.has_value() && source.size() >= *bytes, "in_place: source is too small");
  return {source.data(), static_cast<size_t>(*bytes), rows, columns, format, WeightLayout::kSource};
}

void dequantize_row(const kernels::WeightMatrix& weight, int64_t row, float* out) {
  kernels::dequantize_weight_row(weight, row, out);
}

Status matmul(StepContext& context, const MatmulArgs& args) {
  check_shapes(context, args, outputs_of(args.weights));
  if (context.device != nullptr) return on_device::matmul(context, args);
  const memory::StepArena::Scope scope(context.arena);
  if (args.norm) {
    MatmulArgs product = args;
    product.norm = false;
    product.x = context.activation(args.x.num_rows(), args.x.row_elements());
    if (Status s = rms_norm(
            context,
            {.x = args.x, .weight = args.norm_weight, .eps = args.norm_eps, .out = product.x});
        !s.ok()) {
      return s;
    }
    return matmul(context, product);
  }
  Activations a;
  a.x = &args.x;
  a.rows = args.x.num_rows();
  a.columns = args.x.row_elements();
  const auto any = [&](Family family) {
    return std::any_of(args.weights.begin(), args.weights.end(),
                       [&](const WeightMatrix& w) { return family_of(context, w) == family; });
  };
  const bool quantized = any(Family::kInt8);
  const bool split = any(Family::kSplit);
  if (quantized) take_scratch(context.arena, args.weights, &a);
  if (split) a.split.parts = context.arena.allocate_array<uint16_t>(a.rows * a.columns * 2);
  if (context.planning() || a.rows == 0 || args.weights.empty()) return {};
  a.block_rows = rows_per_block(a.rows, quantized && !split ? a.columns * 5 / 4 : a.columns * 4);
  if (quantized || split) convert(context, a);
  Product(context, args, a).run(context.pool);
  return {};
}

Status gated_matmul(StepContext& context, const GatedMatmulArgs& args) {
  const MatmulArgs& product = args.product;
  check(!product.accumulate, "a gated product does not accumulate");
  const int64_t n = outputs_of(product.weights);
  check(n % 2 == 0, "gate and up are of one size");
  check_shapes(context, product, n / 2);
  if (context.device != nullptr) return on_device::gated_matmul(context, args);
  const memory::StepArena::Scope scope(context.arena);
  MatmulArgs both = product;
  both.out = context.activation(product.x.num_rows(), n);
  if (Status s = matmul(context, both); !s.ok()) return s;
  return gated_activation(context, args.activation, both.out.columns(0, n / 2),
                          both.out.columns(n / 2, n / 2), product.out);
}

Status embedding(StepContext& context, const EmbeddingArgs& args) {
  const kernels::WeightMatrix& table = *args.table;
  const auto count = static_cast<int64_t>(args.ids.size());
  check(args.out.num_rows() == count && args.out.row_elements() == table.columns,
        "embedding: out is not [ids, hidden]");
  if (context.planning()) return {};
  for (const int32_t id : args.ids) {
    const bool taken =
        id < 0 && context.device != nullptr;  // take_tokens() has put its token there
    if (!taken && (id < 0 || id >= table.rows)) {
      return invalid_argument("token id " + std::to_string(id) + " is outside the vocabulary of " +
                              std::to_string(table.rows));
    }
  }
  if (context.device != nullptr) return on_device::embedding(context, args);
  context.pool.parallel_for(count, [&](int64_t i, int) {
    float* out = args.out.row_f32(i);
    kernels::dequantize_weight_row(table, args.ids[static_cast<size_t>(i)], out);
    if (args.scale == 1.0f) return;
    for (int64_t c = 0; c < table.columns; ++c) out[c] *= args.scale;
  });
  return {};
}

}  // namespace pelton::ops
