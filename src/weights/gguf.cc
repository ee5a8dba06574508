#include "weights/gguf.h"

#include <fmt/format.h>

#include "base/checked.h"
#include "weights/gguf_parser.h"
#include "weights/quote.h"
#include "weights/tensor_table.h"

namespace pelton::weights {
namespace {

constexpr int64_t kMaxShards = 1024;

std::string_view type_name(const GgufValue& value) {
  struct Name {
    std::string_view operator()(uint64_t) const { return "unsigned integer"; }
    std::string_view operator()(int64_t) const { return "integer"; }
    std::string_view operator()(double) const { return "float"; }
    std::string_view operator()(bool) const { return "boolean"; }
    std::string_view operator()(const std::string&) const { return "string"; }
    std::string_view operator()(const std::vector<int64_t>&) const { return "integer array"; }
    std::string_view operator()(const std::vector<double>&) const { return "float array"; }
    std::string_view operator()(const std::vector<std::string>&) const { return "string array"; }
  };
  return std::visit(Name(), value);
}

template <typename T>
const T* get_array(const std::map<std::string, GgufValue, std::less<>>& metadata,
                   std::string_view key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? nullptr : std::get_if<T>(&found->second);
}

std::string shard_suffix(int64_t index, int64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", index + 1, count);
}

}  // namespace

struct GgufFile::Impl {
  std::string path;
  std::vector<std::shared_ptr<const MappedFile>> files;  // empty when parsed from memory
  uint32_t version = 0;
  std::map<std::string, GgufValue, std::less<>> metadata;
  TensorTable table;

  Status wrong_type(std::string_view key, const GgufValue& value, std::string_view wanted) const {
    return file_error(
        StatusCode::kDataLoss, path,
        fmt::format("key {}: {} where {} is expected", quote(key), type_name(value), wanted));
  }
  const GgufValue* value(std::string_view key) const {
    const auto found = metadata.find(key);
    return found == metadata.end() ? nullptr : &found->second;
  }
};

namespace {

// One mapped shard; its tensors carry the file.
Result<GgufContents> parse_mapped(const MappedFile& file) {
  const bool truncated_before = truncated_while_mapped();
  auto contents = parse_gguf(file.bytes(), file.path());
  if (!contents.ok()) return contents.status();
  if (!truncated_before && truncated_while_mapped())
    return file_error(StatusCode::kDataLoss, file.path(), "became shorter while it was read");
  for (TensorInfo& tensor : contents->tensors) tensor.file = &file;
  return contents;
}

// An integer key of one shard; `fallback` when it is absent.
Result<int64_t> shard_key(const GgufContents& contents, std::string_view path, std::string_view key,
                          int64_t fallback) {
  const auto found = contents.metadata.find(key);
  if (found == contents.metadata.end()) return fallback;
  if (const auto* u = std::get_if<uint64_t>(&found->second)) {
    if (const auto fits = checked_cast<int64_t>(*u)) return *fits;
  }
  if (const auto* i = std::get_if<int64_t>(&found->second)) return *i;
  return file_error(StatusCode::kDataLoss, path, fmt::format("key {}: not an integer", quote(key)));
}

// What a shard says of itself.
struct ShardKeys {
  int64_t index = 0;
  int64_t count = 0;
  int64_t tensors = -1;
};

Result<ShardKeys> shard_keys(const GgufContents& contents, std::string_view path) {
  const auto index = shard_key(contents, path, "split.no", 0);
  if (!index.ok()) return index.status();
  const auto count = shard_key(contents, path, "split.count", 0);
  if (!count.ok()) return count.status();
  const auto tensors = shard_key(contents, path, "split.tensors.count", -1);
  if (!tensors.ok()) return tensors.status();
  if (*count < 0 || *count > kMaxShards) {
    return file_error(StatusCode::kDataLoss, path,
                      fmt::format("key 'split.count': {} is not from 0 to {}", *count, kMaxShards));
  }
  if (*index < 0 || (*index > 0 && *index >= *count)) {
    return file_error(
        StatusCode::kDataLoss, path,
        fmt::format("key 'split.no': {} is not below split.count {}", *index, *count));
  }
  return ShardKeys{*index, *count, *tensors};
}

// Opens shards 2..N beside the first and appends their tensors. `stem` is the common path without
// the "-00001-of-0000N.gguf" suffix.
Status append_shards(const ShardKeys& first, const std::string& stem,
                     std::vector<std::shared_ptr<const MappedFile>>* files,
                     GgufContents* contents) {
  const auto wrong = [](std::string_view path, std::string_view reason) {
    return file_error(StatusCode::kDataLoss, path, reason);
  };
  for (int64_t i = 1; i < first.count; ++i) {
    auto file = MappedFile::open(stem + shard_suffix(i, first.count));
    if (!file.ok())
      return file.status().with_context(fmt::format("shard {} of {}", i + 1, first.count));
    const std::string& path = (*file)->path();
    auto shard = parse_mapped(**file);
    if (!shard.ok()) return shard.status();
    const auto keys = shard_keys(*shard, path);
    if (!keys.ok()) return keys.status();
    if (keys->index != i || keys->count != first.count) {
      return wrong(path, fmt::format("holds shard {} of {}; its name says {} of {}",
                                     keys->index + 1, keys->count, i + 1, first.count));
    }
    const auto architecture = shard->metadata.find("general.architecture");
    if (keys->tensors != first.tensors ||
        (architecture != shard->metadata.end() &&
         architecture->second != contents->metadata["general.architecture"])) {
      return wrong(path, "shard of another model");
    }
    std::move(shard->tensors.begin(), shard->tensors.end(), std::back_inserter(contents->tensors));
    files->push_back(*std::move(file));
  }
  const auto total = static_cast<int64_t>(contents->tensors.size());
  if (first.tensors >= 0 && total != first.tensors) {
    return wrong(files->front()->path(),
                 fmt::format("the shards hold {} tensors; 'split.tensors.count' says {}", total,
                             first.tensors));
  }
  return {};
}

Status open_shards(std::vector<std::shared_ptr<const MappedFile>>* files, GgufContents* contents) {
  const std::string& path = files->front()->path();
  const auto keys = shard_keys(*contents, path);
  if (!keys.ok()) return keys.status();
  if (keys->count <= 1) return {};
  const std::string suffix = shard_suffix(keys->index, keys->count);
  if (keys->index != 0) {
    return file_error(StatusCode::kInvalidArgument, path,
                      fmt::format("is shard {} of {}; open the one ending in {}", keys->index + 1,
                                  keys->count, shard_suffix(0, keys->count)));
  }
  if (!path.ends_with(suffix)) {
    return file_error(
        StatusCode::kDataLoss, path,
        fmt::format("is the first of {} shards; its name must end in {}", keys->count, suffix));
  }
  return append_shards(*keys, path.substr(0, path.size() - suffix.size()), files, contents);
}

}  // namespace

GgufFile::GgufFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GgufFile::~GgufFile() = default;

Result<std::unique_ptr<GgufFile>> GgufFile::open(const std::filesystem::path& path) {
  auto file = MappedFile::open(path);
  if (!file.ok()) return file.status();
  auto impl = std::make_unique<Impl>();
  impl->path = (*file)->path();
  impl->files.push_back(*std::move(file));
  auto contents = parse_mapped(*impl->files.front());
  if (!contents.ok()) return contents.status();
  if (Status s = open_shards(&impl->files, &*contents); !s.ok()) return s;
  impl->version = contents->version;
  impl->metadata = std::move(contents->metadata);
  if (Status s = impl->table.assign(std::move(contents->tensors), impl->path); !s.ok()) return s;
  return std::unique_ptr<GgufFile>(new GgufFile(std::move(impl)));
}

Result<std::unique_ptr<GgufFile>> GgufFile::parse(std::span<const std::byte> bytes,
                                                  std::string path) {
  auto contents = parse_gguf(bytes, path);
  if (!contents.ok()) return contents.status();
  const auto keys = shard_keys(*contents, path);
  if (!keys.ok()) return keys.status();
  if (keys->count > 1) {
    return file_error(StatusCode::kUnsupported, path,
                      fmt::format("shard {} of {} alone", keys->index + 1, keys->count));
  }
  auto impl = std::make_unique<Impl>();
  impl->path = std::move(path);
  impl->version = contents->version;
  impl->metadata = std::move(contents->metadata);
  if (Status s = impl->table.assign(std::move(contents->tensors), impl->path); !s.ok()) return s;
  return std::unique_ptr<GgufFile>(new GgufFile(std::move(impl)));
}

const TensorInfo* GgufFile::find(std::string_view name) const { return impl_->table.find(name); }
std::span<const TensorInfo> GgufFile::tensors() const { return impl_->table.tensors(); }
const std::string& GgufFile::path() const { return impl_->path; }

uint64_t GgufFile::mapped_bytes() const {
  uint64_t total = 0;
  for (const auto& file : impl_->files) total += file->bytes().size();
  return total;
}

uint32_t GgufFile::version() const { return impl_->version; }

const std::map<std::string, GgufValue, std::less<>>& GgufFile::metadata() const {
  return impl_->metadata;
}

Result<std::optional<int64_t>> GgufFile::get_int(std::string_view key) const {
  const GgufValue* value = impl_->value(key);
  if (value == nullptr) return std::optional<int64_t>();
  if (const auto* i = std::get_if<int64_t>(value)) return std::optional<int64_t>(*i);
  if (const auto* u = std::get_if<uint64_t>(value)) {
    if (const auto fits = checked_cast<int64_t>(*u)) return std::optional<int64_t>(*fits);
    return file_error(StatusCode::kDataLoss, impl_->path,
                      fmt::format("key {}: {} does not fit 63 bits", quote(key), *u));
  }
  return impl_->wrong_type(key, *value, "an integer");
}

Result<std::optional<double>> GgufFile::get_float(std::string_view key) const {
  const GgufValue* value = impl_->value(key);
  if (value == nullptr) return std::optional<double>();
  if (const auto* f = std::get_if<double>(value)) return std::optional<double>(*f);
  if (const auto* i = std::get_if<int64_t>(value))
    return std::optional<double>(static_cast<double>(*i));
  if (const auto* u = std::get_if<uint64_t>(value))
    return std::optional<double>(static_cast<double>(*u));
  return impl_->wrong_type(key, *value, "a number");
}

Result<std::optional<bool>> GgufFile::get_bool(std::string_view key) const {
  const GgufValue* value = impl_->value(key);
  if (value == nullptr) return std::optional<bool>();
  if (const auto* b = std::get_if<bool>(value)) return std::optional<bool>(*b);
  return impl_->wrong_type(key, *value, "a boolean");
}

Result<std::optional<std::string>> GgufFile::get_string(std::string_view key) const {
  const GgufValue* value = impl_->value(key);
  if (value == nullptr) return std::optional<std::string>();
  if (const auto* s = std::get_if<std::string>(value)) return std::optional<std::string>(*s);
  return impl_->wrong_type(key, *value, "a string");
}

const std::vector<std::string>* GgufFile::get_strings(std::string_view key) const {
  return get_array<std::vector<std::string>>(impl_->metadata, key);
}
const std::vector<int64_t>* GgufFile::get_ints(std::string_view key) const {
  return get_array<std::vector<int64_t>>(impl_->metadata, key);
}
const std::vector<double>* GgufFile::get_floats(std::string_view key) const {
  return get_array<std::vector<double>>(impl_->metadata, key);
}

}  // namespace pelton::weights
