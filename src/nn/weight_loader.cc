#include "nn/weight_loader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "ops/matmul.h"

namespace pelton::nn {
namespace {

constexpr size_t kAlignment = 64;

// Transposes a plain matrix [columns, rows] into [rows, columns].
std::vector<std::byte> transpose(std::span<const std::byte> source, int64_t rows, int64_t columns,
                                 size_t element) {
  std::vector<std::byte> out(source.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      std::memcpy(out.data() + static_cast<size_t>(r * columns + c) * element,
                  source.data() + static_cast<size_t>(c * rows + r) * element, element);
    }
  }
  return out;
}

// The format in which a device keeps a matrix of the file's format.
WeightFormat device_format(WeightFormat format, bool exact) {
  if (!exact) return WeightFormat::kBF16;
  return weight_format_info(format).block_elements == 1 ? format : WeightFormat::kF32;
}

// Rows of `source` from first_row on, as `format`, as many as fill `out`.
void convert_rows(const kernels::WeightMatrix& source, WeightFormat format, int64_t first_row,
                  std::span<std::byte> out, ThreadPool& pool) {
  const auto columns = static_cast<size_t>(source.columns);
  const size_t row_bytes = columns * static_cast<size_t>(weight_format_info(format).block_bytes);
  const size_t rows = out.size() / row_bytes;
  if (format == source.format) {
    const std::byte* from = source.data + static_cast<size_t>(first_row) * row_bytes;
    constexpr size_t kBytesPerItem = size_t{512} << 10;  // reading the file is shared out as well
    const size_t pieces = (out.size() + kBytesPerItem - 1) / kBytesPerItem;
    pool.parallel_for(static_cast<int64_t>(pieces), [&](int64_t piece, int) {
      const size_t begin = static_cast<size_t>(piece) * kBytesPerItem;
      std::memcpy(out.data() + begin, from + begin, std::min(kBytesPerItem, out.size() - begin));
    });
    return;
  }
  constexpr size_t kRowsPerItem = 16;
  const size_t items = (rows + kRowsPerItem - 1) / kRowsPerItem;
  pool.parallel_for(static_cast<int64_t>(items), [&](int64_t item, int) {
    std::vector<float> values(columns);
    const size_t begin = static_cast<size_t>(item) * kRowsPerItem;
    for (size_t r = begin; r < std::min(begin + kRowsPerItem, rows); ++r) {
      ops::dequantize_row(source, first_row + static_cast<int64_t>(r), values.data());
      std::byte* to = out.data() + r * row_bytes;
      if (format == WeightFormat::kF32) {
        std::memcpy(to, values.data(), row_bytes);
        continue;
      }
      for (size_t c = 0; c < columns; ++c) {
        const uint16_t bits = f32_to_bf16(values[c]);
        std::memcpy(to + c * sizeof(bits), &bits, sizeof(bits));
      }
    }
  });
}

}  // namespace

WeightLoader::WeightLoader(const weights::WeightSource& source, NameMap names,
                           WeightPlacement placement)
    : source_(source), names_(std::move(names)), storage_(&counted_), placement_(placement) {}

WeightLoader::WeightLoader(const weights::WeightSource& source, NameMap names,
                           WeightStorage* storage, ThreadPool* pool, WeightPlacement placement)
    : source_(source),
      names_(std::move(names)),
      storage_(storage),
      pool_(pool),
      placement_(placement) {
  check(pool != nullptr, "loading needs a thread pool");
  check(!placement.on_device || storage->uploader != nullptr, "a device needs an uploader");
}

void WeightLoader::fail(Status status) {
  if (status_.ok()) status_ = status.with_context(source_.path());
}

bool WeightLoader::has(std::string_view name) const {
  return source_.find(names_(name)) != nullptr;
}

const weights::TensorInfo* WeightLoader::lookup(std::string_view name,
                                                const std::vector<int64_t>& shape) {
  if (!status_.ok()) return nullptr;
  const std::string file_name = names_(name);
  const weights::TensorInfo* info = source_.find(file_name);
  if (info == nullptr) {
    fail(data_loss(fmt::format("tensor '{}' is missing", file_name)));
    return nullptr;
  }
  asked_.insert(file_name);
  if (info->shape != shape) {
    fail(data_loss(
        fmt::format("tensor '{}' has shape [{}], but the model's configuration asks for [{}]",
                    file_name, fmt::join(info->shape, ", "), fmt::join(shape, ", "))));
    return nullptr;
  }
  if (!counting()) source_.prepare(*info, *pool_);
  return info;
}

std::span<std::byte> WeightLoader::take(size_t bytes) {
  const size_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const size_t begin = used_;
  used_ += padded;
  if (counting()) {
    storage_->arena_bytes = used_;
    return {};
  }
  check(used_ <= arena().size(), "weights exceed their plan");
  return arena().subspan(begin, bytes);
}

std::span<std::byte> WeightLoader::arena() const {
  return placement_.on_device ? storage_->device_arena.bytes() : storage_->arena.bytes();
}

kernels::WeightMatrix WeightLoader::matrix(std::string_view name, int64_t rows, int64_t columns,
                                           bool transposed) {
  const weights::TensorInfo* info = lookup(
      name, transposed ? std::vector<int64_t>{columns, rows} : std::vector<int64_t>{rows, columns});
  if (info == nullptr) return {};
  const WeightFormatInfo& format = weight_format_info(info->format);
  if (columns % format.block_elements != 0) {
    fail(data_loss(fmt::format("tensor '{}': rows of {} elements do not fill whole {} blocks of {}",
                               info->name, columns, format.name, format.block_elements)));
    return {};
  }
  if (transposed && format.block_elements != 1) {
    fail(unsupported(
        fmt::format("tensor '{}': a transposed matrix cannot be {}", info->name, format.name)));
    return {};
  }
  storage_->parameters += static_cast<size_t>(rows * columns);
  if (placement_.on_device) {
    kernels::WeightMatrix there = device_matrix(*info, rows, columns, transposed);
    storage_->streamed_bytes += there.bytes;
    return there;
  }
  const ops::PackPlan plan = ops::plan_pack(info->format, rows, columns);
  if (plan.layout == kernels::WeightLayout::kSource && !transposed) {
    storage_->in_place_bytes += info->data.size();
    storage_->streamed_bytes += info->data.size();
    return ops::in_place(info->format, rows, columns, info->data);
  }
  const size_t bytes =
      plan.layout == kernels::WeightLayout::kSource ? info->data.size() : plan.bytes;
  storage_->streamed_bytes += bytes;
  const std::span<std::byte> out = take(bytes);
  if (counting()) {
    kernels::WeightMatrix planned = ops::in_place(info->format, rows, columns, info->data);
    planned.layout = plan.layout;
    return planned;
  }
  std::vector<std::byte> turned;
  std::span<const std::byte> data = info->data;
  if (transposed) {
    turned = transpose(data, rows, columns, static_cast<size_t>(format.block_bytes));
    data = turned;
  }
  kernels::WeightMatrix result;
  if (plan.layout == kernels::WeightLayout::kSource) {
    std::memcpy(out.data(), data.data(), data.size());
    result = ops::in_place(info->format, rows, columns, out);
  } else {
    result = ops::pack(info->format, rows, columns, data, out, *pool_);
  }
  source_.release(*info);
  return result;
}

kernels::WeightMatrix WeightLoader::embedding(std::string_view name, int64_t rows, int64_t columns,
                                              bool also_head) {
  if (also_head) return matrix(name, rows, columns);
  const weights::TensorInfo* info = lookup(name, {rows, columns});
  if (info == nullptr) return {};
  if (columns % weight_format_info(info->format).block_elements != 0) {
    fail(data_loss(fmt::format("tensor '{}': rows do not fill whole blocks", info->name)));
    return {};
  }
  storage_->parameters += static_cast<size_t>(rows * columns);
  if (placement_.on_device) return device_matrix(*info, rows, columns, false);
  storage_->in_place_bytes += info->data.size();
  return ops::in_place(info->format, rows, columns, info->data);
}

kernels::WeightMatrix WeightLoader::device_matrix(const weights::TensorInfo& info, int64_t rows,
                                                  int64_t columns, bool transposed) {
  const WeightFormat format = device_format(info.format, placement_.exact);
  const size_t row_bytes =
      static_cast<size_t>(columns) * static_cast<size_t>(weight_format_info(format).block_bytes);
  const size_t bytes = static_cast<size_t>(rows) * row_bytes;
  // Counting hands out distinct addresses, as far apart as loading's: products of neighbours merge.
  const std::byte* planned = reinterpret_cast<const std::byte*>(kAlignment + used_);
  const std::span<std::byte> out = take(bytes);
  kernels::WeightMatrix result = {planned, bytes,  rows,
                                  columns, format, kernels::WeightLayout::kSource};
  if (counting() || !status_.ok()) return result;
  std::vector<std::byte> turned;
  std::span<const std::byte> data = info.data;
  if (transposed) {
    turned = transpose(data, rows, columns,
                       static_cast<size_t>(weight_format_info(info.format).block_bytes));
    data = turned;
  }
  const kernels::WeightMatrix source = ops::in_place(info.format, rows, columns, data);
  const Status status = storage_->uploader->upload(
      out.data(), bytes, row_bytes, [&](size_t begin, std::span<std::byte> piece) {
        convert_rows(source, format, static_cast<int64_t>(begin / row_bytes), piece, *pool_);
      });
  if (!status.ok()) fail(status);
  source_.release(info);
  result.data = out.data();
  return result;
}

const float* WeightLoader::floats(int64_t size, FunctionRef<void(float*)> fill) {
  const std::span<std::byte> out = take(static_cast<size_t>(size) * sizeof(float));
  if (counting() || !status_.ok()) return nullptr;
  if (!placement_.on_device) {
    fill(reinterpret_cast<float*>(out.data()));
  } else {
    std::vector<float> values(static_cast<size_t>(size));
    fill(values.data());
    const Status status =
        storage_->uploader->upload(out.data(), std::as_bytes(std::span<const float>(values)));
    if (!status.ok()) fail(status);
  }
  return reinterpret_cast<const float*>(out.data());
}

const float* WeightLoader::constants(std::span<const float> values) {
  return floats(std::ssize(values), [&](float* out) { std::ranges::copy(values, out); });
}

const float* WeightLoader::vector(std::string_view name, int64_t size, float offset) {
  const weights::TensorInfo* info = lookup(name, {size});
  if (info == nullptr) return nullptr;
  storage_->parameters += static_cast<size_t>(size);
  if (weight_format_info(info->format).block_elements != 1) {
    fail(data_loss(fmt::format("tensor '{}': a vector must be F32, F16 or BF16, not {}", info->name,
                               weight_format_name(info->format))));
    return nullptr;
  }
  return floats(size, [&](float* values) {
    ops::dequantize_row(ops::in_place(info->format, 1, size, info->data), 0, values);
    for (int64_t i = 0; i < size; ++i) values[i] += offset;
  });
}

const float* WeightLoader::vectors(const std::vector<std::string>& names,
                                   const std::vector<int64_t>& sizes) {
  check(names.size() == sizes.size() && !names.empty(), "one size a vector");
  int64_t total = 0;
  std::vector<const weights::TensorInfo*> parts;
  for (size_t i = 0; i < names.size(); ++i) {
    const weights::TensorInfo* info = lookup(names[i], {sizes[i]});
    if (info == nullptr) return nullptr;
    if (weight_format_info(info->format).block_elements != 1) {
      fail(data_loss(fmt::format("tensor '{}': a vector must be F32, F16 or BF16", info->name)));
      return nullptr;
    }
    storage_->parameters += static_cast<size_t>(sizes[i]);
    total += sizes[i];
    parts.push_back(info);
  }
  return floats(total, [&](float* values) {
    for (size_t i = 0; i < parts.size(); ++i) {
      ops::dequantize_row(ops::in_place(parts[i]->format, 1, sizes[i], parts[i]->data), 0, values);
      values += sizes[i];
    }
  });
}

std::vector<std::string> WeightLoader::unused() const {
  std::vector<std::string> names;
  for (const weights::TensorInfo& info : source_.tensors()) {
    if (!asked_.contains(info.name)) names.push_back(info.name);
  }
  return names;
}

}  // namespace pelton::nn
