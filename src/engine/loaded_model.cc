#include "engine/loaded_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "engine/packed_weights.h"

namespace pelton::engine {
namespace {

std::string unused_warning(const std::vector<std::string>& names) {
  constexpr std::ptrdiff_t kShown = 4;
  const auto end = names.begin() + std::min(kShown, std::ssize(names));
  return fmt::format("{} tensors of the file are not used by this architecture: {}{}", names.size(),
                     fmt::join(names.begin(), end, ", "),
                     std::ssize(names) > kShown ? ", ..." : "");
}

}  // namespace

Status LoadedModel::take_memory(const Target& target) {
  if (target.backend == nullptr) {
    auto arena = memory::Region::allocate(target.weight_bytes);
    if (!arena.ok()) return arena.status();
    storage_.arena = std::move(arena).value();
    return {};
  }
  device::Device& device = target.backend->device();
  auto arena = memory::DeviceRegion::allocate(device, target.weight_bytes);
  if (!arena.ok()) return arena.status();
  storage_.device_arena = std::move(arena).value();
  auto uploader = memory::Uploader::create(device, target.backend->stream());
  if (!uploader.ok()) return uploader.status();
  storage_.uploader = std::move(uploader).value();
  storage_.make_random = [backend = target.backend.get()](const auto& params) {
    return backend->make_random_weights(params);
  };
  return {};
}

Status LoadedModel::read_weights(const ModelFiles& files, const Target& target, ThreadPool& pool) {
  nn::WeightPlacement placement{.on_device = target.backend != nullptr,
                                .exact = target.exact_weights,
                                .quantization = target.quantization};
  const bool packs = placement.on_device && !target.packed_cache.empty();
  weights::PackedKey key;
  std::filesystem::path packed;
  if (packs) {
    storage_.arrangement = target.arrangement;
    storage_.arena_bytes = target.weight_bytes;
    key = packed_key(files.source(), placement, storage_);
    storage_.arrangement = 0;
    packed = packed_path(target.packed_cache, key);
    auto read = read_packed(packed, key, storage_, pool);
    if (!read.ok()) return read.status().with_context("--packed-cache");
    placement.filled = *read;
  }
  nn::WeightLoader loader(files.source(), files.name_map(), &storage_, &pool, placement);
  auto model = models::build_model(files.config(), target.context_len, loader);
  if (!model.ok()) return model.status();
  model_ = std::move(model).value();
  if (const auto unused = loader.unused(); !unused.empty())
    warnings_.push_back(unused_warning(unused));
  if (storage_.uploader == nullptr) return {};
  if (Status s = storage_.uploader->finish(); !s.ok()) return s.with_context("weights");
  if (packs && !placement.filled) {
    // A start that works is worth more than the next one's speed.
    if (Status s = write_packed(packed, key, storage_); !s.ok())
      warnings_.push_back("packed weights were not written: " + s.message());
  }
  storage_.uploader.reset();
  storage_.make_random = nullptr;
  return {};
}

Result<std::shared_ptr<const LoadedModel>> LoadedModel::load(std::unique_ptr<ModelFiles> files,
                                                             const Target& target,
                                                             ThreadPool& pool) {
  std::shared_ptr<LoadedModel> loaded(new LoadedModel());
  auto tokenizer = files->load_tokenizer();
  if (!tokenizer.ok()) return tokenizer.status();
  loaded->tokenizer_ = std::move(tokenizer).value();
  loaded->backend_ = target.backend;
  if (Status s = loaded->take_memory(target); !s.ok()) return s.with_context("weights");
  if (Status s = loaded->read_weights(*files, target, pool); !s.ok()) return s;
  if (truncated_while_mapped())
    return data_loss(files->path() + ": became shorter while it was read");
  if (target.backend != nullptr && !target.backend->library_note().empty())
    loaded->warnings_.push_back(target.backend->library_note());
  const int32_t vocab_size = files->config().vocab_size;
  if (loaded->tokenizer_->vocab_size() > vocab_size) {
    loaded->warnings_.push_back(
        fmt::format("the tokenizer has {} ids, the model {}: ids beyond the model's are refused",
                    loaded->tokenizer_->vocab_size(), vocab_size));
  }
  for (const std::vector<int32_t>* ids :
       {&files->config().eos_token_ids, &loaded->tokenizer_->end_ids()}) {
    for (int32_t id : *ids) {
      const bool known =
          std::find(loaded->end_ids_.begin(), loaded->end_ids_.end(), id) != loaded->end_ids_.end();
      if (!known && id >= 0 && id < vocab_size) loaded->end_ids_.push_back(id);
    }
  }
  loaded->files_ = std::move(files);
  return std::shared_ptr<const LoadedModel>(std::move(loaded));
}

}  // namespace pelton::engine
