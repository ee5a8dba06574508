#include "weights/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <set>

#include "weights/quote.h"
#include "weights/safetensors_header.h"
#include "weights/tensor_table.h"

namespace pelton::weights {
namespace {

constexpr uint64_t kMaxIndexBytes = 100'000'000;
constexpr size_t kMaxShards = 1024;

// Why a folder cannot be opened.
std::string missing_files(const std::filesystem::path& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() != ".safetensors") continue;
    return fmt::format("holds {} but neither model.safetensors nor model.safetensors.index.json",
                       quote(it->path().filename().string()));
  }
  return "holds neither model.safetensors nor model.safetensors.index.json";
}

}  // namespace

struct SafetensorsSet::Impl {
  std::string path;
  std::vector<std::shared_ptr<const MappedFile>> files;  // empty when parsed from memory
  std::vector<std::unique_ptr<std::byte[]>> copies;      // of data that its file misaligns
  std::map<std::string, std::string, std::less<>> metadata;
  std::vector<TensorInfo> pending;  // until every shard is read
  std::vector<UnusedTensor> unused;
  TensorTable table;

  Status add_file(std::shared_ptr<const MappedFile> file, std::vector<std::string>* names);
  Status add_bytes(std::span<const std::byte> bytes, std::string_view path, const MappedFile* file,
                   std::vector<std::string>* names);
  std::span<const std::byte> aligned(std::span<const std::byte> data, size_t alignment,
                                     const MappedFile** file);
  Status add_shards(const std::filesystem::path& folder, const std::string& index_path);
};

// A tensor's bytes where they are, or a copy (whose `file` is null) when they are not aligned.
std::span<const std::byte> SafetensorsSet::Impl::aligned(std::span<const std::byte> data,
                                                         size_t alignment,
                                                         const MappedFile** file) {
  if (reinterpret_cast<uintptr_t>(data.data()) % alignment == 0) return data;
  copies.push_back(std::make_unique_for_overwrite<std::byte[]>(data.size()));
  std::memcpy(copies.back().get(), data.data(), data.size());
  *file = nullptr;
  return {copies.back().get(), data.size()};
}

// Appends the tensors of one file; `names`, when given, receives all names, unused ones too.
Status SafetensorsSet::Impl::add_bytes(std::span<const std::byte> bytes, std::string_view file_path,
                                       const MappedFile* file, std::vector<std::string>* names) {
  auto header = parse_safetensors_header(bytes, file_path);
  if (!header.ok()) return header.status();
  for (SafetensorsEntry& entry : header->entries) {
    if (names != nullptr) names->push_back(entry.name);
    const uint64_t size = entry.end - entry.begin;
    const auto format = format_of_safetensors_dtype(entry.dtype);
    if (!format) {
      unused.push_back(
          {std::move(entry.name), std::move(entry.dtype), std::move(entry.shape), size});
      continue;
    }
    const auto data = bytes.subspan(static_cast<size_t>(header->data_start + entry.begin),
                                    static_cast<size_t>(size));
    TensorInfo tensor{std::move(entry.name), *format, std::move(entry.shape), {}, file};
    tensor.data =
        aligned(data, static_cast<size_t>(weight_format_info(*format).block_bytes), &tensor.file);
    pending.push_back(std::move(tensor));
  }
  if (files.size() <= 1) metadata = std::move(header->metadata);
  return {};
}

Status SafetensorsSet::Impl::add_file(std::shared_ptr<const MappedFile> file,
                                      std::vector<std::string>* names) {
  const bool truncated_before = truncated_while_mapped();
  files.push_back(std::move(file));
  const MappedFile& mapped = *files.back();
  if (Status s = add_bytes(mapped.bytes(), mapped.path(), &mapped, names); !s.ok()) return s;
  if (!truncated_before && truncated_while_mapped())
    return file_error(StatusCode::kDataLoss, mapped.path(), "became shorter while it was read");
  return {};
}

// Opens every shard that the index names and checks that index and shards hold the same tensors.
Status SafetensorsSet::Impl::add_shards(const std::filesystem::path& folder,
                                        const std::string& index_path) {
  const auto text = read_file(index_path, kMaxIndexBytes);
  if (!text.ok()) return text.status();
  const auto index = parse_safetensors_index(*text, index_path);
  if (!index.ok()) return index.status();
  std::set<std::string_view> shards;
  for (const auto& [tensor, shard] : *index) {
    shards.insert(shard);
    if (shards.size() > kMaxShards) {
      return file_error(StatusCode::kDataLoss, index_path,
                        fmt::format("more than {} shards", kMaxShards));
    }
  }
  std::set<std::string, std::less<>> present;
  for (std::string_view shard : shards) {
    auto file = MappedFile::open(folder / shard);
    if (!file.ok()) return file.status().with_context(fmt::format("shard of {}", index_path));
    const std::string shard_path = (*file)->path();
    std::vector<std::string> names;
    if (Status s = add_file(*std::move(file), &names); !s.ok()) return s;
    for (std::string& name : names) {
      const auto listed = index->find(name);
      if (listed == index->end())
        return tensor_error(StatusCode::kDataLoss, shard_path, name, "not in the index");
      if (listed->second != shard) {
        return tensor_error(StatusCode::kDataLoss, shard_path, name,
                            fmt::format("the index has it in {}", quote(listed->second)));
      }
      present.insert(std::move(name));
    }
  }
  if (present.size() == index->size()) return {};
  for (const auto& [tensor, shard] : *index) {
    if (present.contains(tensor)) continue;
    return tensor_error(StatusCode::kDataLoss, (folder / shard).string(), tensor,
                        "listed in the index, missing in this shard");
  }
  return {};
}

SafetensorsSet::SafetensorsSet(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SafetensorsSet::~SafetensorsSet() = default;

Result<std::unique_ptr<SafetensorsSet>> SafetensorsSet::open(const std::filesystem::path& path) {
  auto impl = std::make_unique<Impl>();
  impl->path = path.string();
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(path, ignored);
  const auto single = folder ? path / "model.safetensors" : path;
  const auto index = path / "model.safetensors.index.json";
  if (!folder || std::filesystem::exists(single, ignored)) {
    auto file = MappedFile::open(single);
    if (!file.ok()) return file.status();
    if (Status s = impl->add_file(*std::move(file), nullptr); !s.ok()) return s;
  } else if (std::filesystem::exists(index, ignored)) {
    if (Status s = impl->add_shards(path, index.string()); !s.ok()) return s;
  } else {
    return file_error(StatusCode::kNotFound, impl->path, missing_files(path));
  }
  if (Status s = impl->table.assign(std::move(impl->pending), impl->path); !s.ok()) return s;
  return std::unique_ptr<SafetensorsSet>(new SafetensorsSet(std::move(impl)));
}

Result<std::unique_ptr<SafetensorsSet>> SafetensorsSet::parse(std::span<const std::byte> bytes,
                                                              std::string path) {
  auto impl = std::make_unique<Impl>();
  impl->path = std::move(path);
  if (Status s = impl->add_bytes(bytes, impl->path, nullptr, nullptr); !s.ok()) return s;
  if (Status s = impl->table.assign(std::move(impl->pending), impl->path); !s.ok()) return s;
  return std::unique_ptr<SafetensorsSet>(new SafetensorsSet(std::move(impl)));
}

const TensorInfo* SafetensorsSet::find(std::string_view name) const {
  return impl_->table.find(name);
}
std::span<const TensorInfo> SafetensorsSet::tensors() const { return impl_->table.tensors(); }
const std::string& SafetensorsSet::path() const { return impl_->path; }

uint64_t SafetensorsSet::mapped_bytes() const {
  uint64_t total = 0;
  for (const auto& file : impl_->files) total += file->bytes().size();
  return total;
}

std::span<const UnusedTensor> SafetensorsSet::unused() const { return impl_->unused; }

const std::map<std::string, std::string, std::less<>>& SafetensorsSet::metadata() const {
  return impl_->metadata;
}

std::string SafetensorsSet::unusable_reason(std::string_view name) const {
  for (const UnusedTensor& tensor : impl_->unused) {
    if (tensor.name == name) return fmt::format("dtype {} is not supported", tensor.dtype);
  }
  return {};
}

}  // namespace pelton::weights
