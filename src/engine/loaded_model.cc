#include "engine/loaded_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/file.h"

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
  nn::WeightLoader loader(files->source(), files->name_map(), &loaded->storage_, &pool,
                          {.on_device = target.backend != nullptr, .exact = target.exact_weights});
  auto model = models::build_model(files->config(), target.context_len, loader);
  if (!model.ok()) return model.status();
  if (loaded->storage_.uploader != nullptr) {
    if (Status s = loaded->storage_.uploader->finish(); !s.ok()) return s.with_context("weights");
    loaded->storage_.uploader.reset();
  }
  loaded->model_ = std::move(model).value();
  if (truncated_while_mapped())
    return data_loss(files->path() + ": became shorter while it was read");
  if (const auto unused = loader.unused(); !unused.empty())
    loaded->warnings_.push_back(unused_warning(unused));
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
