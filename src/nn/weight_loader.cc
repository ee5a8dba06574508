#include "nn/weight_loader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/splitmix.h"
#include "ops/matmul.h"

namespace pelton::nn {

using memory::Uploader;

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

// Rows of one tensor as a device's upload asks for them: read from its file, or taken from its
// bytes in memory where it had to be transposed.
class RowReader {
 public:
  RowReader(const weights::TensorInfo& info, int64_t rows, int64_t columns, bool transposed)
      : info_(info),
        columns_(columns),
        row_bytes_(info.data.size() / static_cast<size_t>(std::max<int64_t>(rows, 1))) {
    if (!transposed) return;
    turned_ = transpose(info.data, rows, columns,
                        static_cast<size_t>(weight_format_info(info.format).block_bytes));
  }

  // How many rows one thread converts at a time, for few and large reads.
  int64_t rows_per_item() const {
    constexpr size_t kBytesPerItem = size_t{64} << 10;
    return static_cast<int64_t>(
        std::clamp<size_t>(kBytesPerItem / std::max<size_t>(row_bytes_, 1), 1, 16));
  }
  // Bytes of the rows end to end, from `begin` on.
  void copy(size_t begin, std::span<std::byte> out) const {
    if (turned_.empty()) {
      weights::WeightSource::copy(info_, begin, out);
    } else {
      std::memcpy(out.data(), turned_.data() + begin, out.size());
    }
  }
  // Rows as floats; `raw` is scratch.
  void floats(int64_t first_row, int64_t rows, std::vector<std::byte>& raw, float* out) const {
    raw.resize(static_cast<size_t>(rows) * row_bytes_);
    copy(static_cast<size_t>(first_row) * row_bytes_, raw);
    const kernels::WeightMatrix matrix = ops::in_place(info_.format, rows, columns_, raw);
    for (int64_t r = 0; r < rows; ++r) ops::dequantize_row(matrix, r, out + r * columns_);
  }
  // While a piece of an upload is converted the disk reads the next ones: `begin` and `piece` are
  // of `bytes` on the device.
  void read_ahead(size_t begin, size_t piece, size_t bytes) const {
    constexpr size_t kPieces = 3;
    if (!turned_.empty()) return;
    const double scale = static_cast<double>(info_.data.size()) / static_cast<double>(bytes);
    const auto in_file = [&](size_t at) {
      return static_cast<size_t>(static_cast<double>(at) * scale);
    };
    weights::WeightSource::read_ahead(info_, in_file(begin), in_file(kPieces * piece));
  }

 private:
  const weights::TensorInfo& info_;
  int64_t columns_;
  size_t row_bytes_;
  std::vector<std::byte> turned_;
};

// One row as `format`, F32 or BF16.
void store_row(std::span<const float> values, WeightFormat format, std::byte* out) {
  if (format == WeightFormat::kF32) {
    std::memcpy(out, values.data(), values.size_bytes());
    return;
  }
  for (size_t c = 0; c < values.size(); ++c) {
    const uint16_t bits = f32_to_bf16(values[c]);
    std::memcpy(out + c * sizeof(bits), &bits, sizeof(bits));
  }
}

// Rows from first_row on, as `format`, as many as fill `out`.
void convert_rows(const RowReader& reader, int64_t columns, WeightFormat format, int64_t first_row,
                  std::span<std::byte> out, ThreadPool& pool) {
  const size_t row_bytes =
      static_cast<size_t>(columns) * static_cast<size_t>(weight_format_info(format).block_bytes);
  const auto rows = static_cast<int64_t>(out.size() / row_bytes);
  const int64_t per_item = reader.rows_per_item();
  pool.parallel_for((rows + per_item - 1) / per_item, [&](int64_t item, int) {
    const int64_t begin = item * per_item;
    const int64_t count = std::min(per_item, rows - begin);
    std::vector<std::byte> raw;
    std::vector<float> values(static_cast<size_t>(count * columns));
    reader.floats(first_row + begin, count, raw, values.data());
    for (int64_t r = 0; r < count; ++r) {
      store_row(
          std::span(values).subspan(static_cast<size_t>(r * columns), static_cast<size_t>(columns)),
          format, out.data() + static_cast<size_t>(begin + r) * row_bytes);
    }
  });
}

// Bytes from `begin` on as they are.
void copy_bytes(const RowReader& reader, size_t begin, std::span<std::byte> out, ThreadPool& pool) {
  constexpr size_t kBytesPerItem = size_t{512} << 10;  // reading the file is shared out as well
  const size_t items = (out.size() + kBytesPerItem - 1) / kBytesPerItem;
  pool.parallel_for(static_cast<int64_t>(items), [&](int64_t item, int) {
    const size_t at = static_cast<size_t>(item) * kBytesPerItem;
    reader.copy(begin + at, out.subspan(at, std::min(kBytesPerItem, out.size() - at)));
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
  storage_->arrangement = mixed(mixed(storage_->arrangement, file_name), used_);
  if (!counting() && !made_there(*info)) source_.prepare(*info, *pool_);
  return info;
}

std::optional<weights::RandomTensor> WeightLoader::made_there(
    const weights::TensorInfo& info) const {
  const bool is_matrix = info.shape.size() == 2;
  return placement_.on_device && is_matrix ? source_.random(info) : std::nullopt;
}

void WeightLoader::make_there(const weights::RandomTensor& random, const Place& place) {
  const Status status = storage_->make_random({.layout = place.layout,
                                               .key = random.key,
                                               .spread = random.spread,
                                               .out = place.out,
                                               .scale = place.scale,
                                               .rows = place.rows,
                                               .columns = place.columns});
  if (!status.ok()) fail(status);
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
  result.data = out.data();
  if (placement_.filled) return result;
  if (const auto random = made_there(info)) {
    make_there(*random, {.out = out.data(), .rows = rows, .columns = columns});
    return result;
  }
  const RowReader reader(info, rows, columns, transposed);
  const Status status = storage_->uploader->upload(
      out.data(), bytes, row_bytes, [&](size_t begin, std::span<std::byte> piece) {
        reader.read_ahead(begin, piece.size(), bytes);
        if (format == info.format) {
          copy_bytes(reader, begin, piece, *pool_);
        } else {
          const auto first_row = static_cast<int64_t>(begin / row_bytes);
          convert_rows(reader, columns, format, first_row, piece, *pool_);
        }
      });
  if (!status.ok()) fail(status);
  source_.release(info);
  return result;
}

std::vector<kernels::WeightMatrix> WeightLoader::matrices(const std::vector<Part>& parts,
                                                          int64_t columns, bool transposed) {
  const kernels::WeightLayout layout = placement_.quantization;
  const bool quantizes = placement_.on_device && layout != kernels::WeightLayout::kSource &&
                         kernels::fits_device_layout(layout, columns) &&
                         kernels::device_tile_bytes(layout, columns) <= Uploader::kBufferBytes &&
                         std::ranges::all_of(parts, [&](const Part& part) {
                           return part.rows % kernels::device_tile_rows(layout) == 0;
                         });
  if (quantizes) return {quantized_matrix(parts, columns, transposed)};
  std::vector<kernels::WeightMatrix> all;
  for (const Part& part : parts) all.push_back(matrix(part.name, part.rows, columns, transposed));
  return all;
}

kernels::WeightMatrix WeightLoader::quantized_matrix(const std::vector<Part>& parts,
                                                     int64_t columns, bool transposed) {
  const kernels::WeightLayout layout = placement_.quantization;
  int64_t rows = 0;
  for (const Part& part : parts) rows += part.rows;
  const size_t bytes = kernels::device_weight_bytes(layout, rows, columns);
  const std::byte* planned = reinterpret_cast<const std::byte*>(kAlignment + used_);
  const std::span<std::byte> out = take(bytes);
  storage_->streamed_bytes += bytes;
  int64_t first_row = 0;
  for (const Part& part : parts) {
    const weights::TensorInfo* info = quantizable(part, columns, transposed);
    if (info == nullptr) return {};
    storage_->parameters += static_cast<size_t>(part.rows * columns);
    if (!counting() && !placement_.filled) {
      const auto tiles = static_cast<size_t>(first_row / kernels::device_tile_rows(layout));
      std::byte* scales = out.data() + kernels::channel_scales_offset(rows, columns);
      const Place place = {.layout = layout,
                           .out = out.data() + tiles * kernels::device_tile_bytes(layout, columns),
                           .scale = layout == kernels::WeightLayout::kInt4Groups
                                        ? nullptr
                                        : reinterpret_cast<float*>(scales) + first_row,
                           .rows = part.rows,
                           .columns = columns};
      if (const auto random = made_there(*info)) {
        make_there(*random, place);
      } else {
        upload_quantized(*info, transposed, place);
      }
    }
    first_row += part.rows;
  }
  return {counting() ? planned : out.data(), bytes, rows, columns, WeightFormat::kBF16, layout};
}

const weights::TensorInfo* WeightLoader::quantizable(const Part& part, int64_t columns,
                                                     bool transposed) {
  const weights::TensorInfo* info =
      lookup(part.name, transposed ? std::vector<int64_t>{columns, part.rows}
                                   : std::vector<int64_t>{part.rows, columns});
  if (info == nullptr) return nullptr;
  const WeightFormatInfo& format = weight_format_info(info->format);
  if (columns % format.block_elements == 0 && (!transposed || format.block_elements == 1))
    return info;
  fail(data_loss(fmt::format("tensor '{}': {} blocks do not fill its rows of {} elements",
                             info->name, format.name, columns)));
  return nullptr;
}

void WeightLoader::upload_quantized(const weights::TensorInfo& info, bool transposed,
                                    const Place& place) {
  const int64_t rows = place.rows;
  const int64_t columns = place.columns;
  const RowReader reader(info, rows, columns, transposed);
  const int64_t tile_rows = kernels::device_tile_rows(place.layout);
  const size_t tile_bytes = kernels::device_tile_bytes(place.layout, columns);
  std::vector<float> scales(static_cast<size_t>(rows));
  struct Scratch {  // a thread's
    std::vector<std::byte> raw;
    std::vector<float> values;
  };
  std::vector<Scratch> scratches(static_cast<size_t>(pool_->size()));
  const int64_t per_item = std::max<int64_t>(1, reader.rows_per_item() / tile_rows);
  std::atomic<bool> finite = true;
  const size_t bytes = static_cast<size_t>(rows / tile_rows) * tile_bytes;
  const auto fill = [&](size_t begin, std::span<std::byte> piece) {
    reader.read_ahead(begin, piece.size(), bytes);
    const auto first = static_cast<int64_t>(begin / tile_bytes);
    const auto tiles = static_cast<int64_t>(piece.size() / tile_bytes);
    pool_->parallel_for((tiles + per_item - 1) / per_item, [&](int64_t item, int thread) {
      auto& [raw, values] = scratches[static_cast<size_t>(thread)];
      const int64_t begin_tile = item * per_item;
      const int64_t count = std::min(per_item, tiles - begin_tile);
      const auto tile_values = static_cast<size_t>(tile_rows * columns);
      values.resize(static_cast<size_t>(per_item) * tile_values);
      const int64_t first_row = (first + begin_tile) * tile_rows;
      reader.floats(first_row, count * tile_rows, raw, values.data());
      for (int64_t i = 0; i < count; ++i) {
        const bool is_finite = kernels::quantize_tile(
            place.layout, columns,
            std::span(values).subspan(static_cast<size_t>(i) * tile_values, tile_values),
            piece.subspan(static_cast<size_t>(begin_tile + i) * tile_bytes, tile_bytes),
            scales.data() + first_row + i * tile_rows);
        if (!is_finite) finite = false;
      }
    });
  };
  Uploader& uploader = *storage_->uploader;
  Status status = uploader.upload(place.out, bytes, tile_bytes, fill);
  if (status.ok() && place.scale != nullptr) {
    status = uploader.upload(reinterpret_cast<std::byte*>(place.scale),
                             std::as_bytes(std::span<const float>(scales)));
  }
  if (!status.ok()) fail(status);
  if (!finite) {
    fail(data_loss(fmt::format("tensor '{}' holds values that are not finite: they cannot be {}",
                               info.name, kernels::weight_layout_name(place.layout))));
  }
  source_.release(info);
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
