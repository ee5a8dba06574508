#include "nn/weight_loader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

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

}  // namespace

WeightLoader::WeightLoader(const weights::WeightSource& source, NameMap names)
    : source_(source), names_(std::move(names)), storage_(&counted_) {}

WeightLoader::WeightLoader(const weights::WeightSource& source, NameMap names,
                           WeightStorage* storage, ThreadPool* pool)
    : source_(source), names_(std::move(names)), storage_(storage), pool_(pool) {
  check(pool != nullptr, "loading needs a thread pool");
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
  check(used_ <= storage_->arena.size(), "weights exceed their plan");
  return storage_->arena.bytes().subspan(begin, bytes);
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
  if (info->file != nullptr) info->file->drop_pages(info->data);
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
  storage_->in_place_bytes += info->data.size();
  return ops::in_place(info->format, rows, columns, info->data);
}

const float* WeightLoader::vector(std::string_view name, int64_t size, float offset) {
  const weights::TensorInfo* info = lookup(name, {size});
  if (info == nullptr) return nullptr;
  storage_->parameters += static_cast<size_t>(size);
  const std::span<std::byte> out = take(static_cast<size_t>(size) * sizeof(float));
  if (weight_format_info(info->format).block_elements != 1) {
    fail(data_loss(fmt::format("tensor '{}': a vector must be F32, F16 or BF16, not {}", info->name,
                               weight_format_name(info->format))));
    return nullptr;
  }
  if (counting()) return nullptr;
  auto* values = reinterpret_cast<float*>(out.data());
  ops::dequantize_row(ops::in_place(info->format, 1, size, info->data), 0, values);
  for (int64_t i = 0; i < size; ++i) values[i] += offset;
  return values;
}

const float* WeightLoader::vectors(const std::vector<std::string>& names,
                                   const std::vector<int64_t>& sizes) {
  check(names.size() == sizes.size() && !names.empty(), "one size a vector");
  int64_t total = 0;
  for (int64_t size : sizes) total += size;
  const std::span<std::byte> out = take(static_cast<size_t>(total) * sizeof(float));
  auto* values = reinterpret_cast<float*>(out.data());
  for (size_t i = 0; i < names.size(); ++i) {
    const weights::TensorInfo* info = lookup(names[i], {sizes[i]});
    if (info == nullptr) return nullptr;
    storage_->parameters += static_cast<size_t>(sizes[i]);
    if (weight_format_info(info->format).block_elements != 1) {
      fail(data_loss(fmt::format("tensor '{}': a vector must be F32, F16 or BF16", info->name)));
      return nullptr;
    }
    if (counting()) continue;
    ops::dequantize_row(ops::in_place(info->format, 1, sizes[i], info->data), 0, values);
    values += sizes[i];
  }
  return counting() ? nullptr : reinterpret_cast<const float*>(out.data());
}

std::vector<std::string> WeightLoader::unused() const {
  std::vector<std::string> names;
  for (const weights::TensorInfo& info : source_.tensors()) {
    if (!asked_.contains(info.name)) names.push_back(info.name);
  }
  return names;
}

}  // namespace pelton::nn
