// A model in memory: weights in the kernels' layout and the tokenizer. Immutable; several engines
// may share one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "engine/model_files.h"
#include "models/model.h"
#include "runtime/backend.h"

namespace pelton::engine {

class LoadedModel {
 public:
  struct Target {
    int32_t context_len = 0;                         // the longest context that will run
    size_t weight_bytes = 0;                         // memory_plan's figure
    std::shared_ptr<runtime::Backend> backend = {};  // null: the CPU
    bool exact_weights = false;                      // nn::WeightPlacement
    kernels::WeightLayout quantization = kernels::WeightLayout::kSource;
    std::string packed_cache = {};  // EngineOptions::packed_cache
    uint64_t arrangement = 0;       // nn::WeightStorage's, as the plan found it
  };
  // Takes the weights' memory and reads them with `pool`. Errors name file and tensor.
  static Result<std::shared_ptr<const LoadedModel>> load(std::unique_ptr<ModelFiles> files,
                                                         const Target& target, ThreadPool& pool);

  const ModelFiles& files() const { return *files_; }
  const models::Model& model() const { return *model_; }
  // The device that the weights lie on; null: host memory.
  std::shared_ptr<runtime::Backend> backend() const { return backend_; }
  std::shared_ptr<const text::Tokenizer> tokenizer() const { return tokenizer_; }
  // Token ids that end a generation: the configuration's and the tokenizer's.
  const std::vector<int32_t>& end_ids() const { return end_ids_; }
  // Things a user should know but that stop nothing.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  LoadedModel() = default;
  Status take_memory(const Target& target);
  Status read_weights(const ModelFiles& files, const Target& target, ThreadPool& pool);

  std::unique_ptr<ModelFiles> files_;
  std::shared_ptr<runtime::Backend> backend_;  // outlives the storage
  nn::WeightStorage storage_;
  std::unique_ptr<models::Model> model_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::vector<int32_t> end_ids_;
  std::vector<std::string> warnings_;
};

}  // namespace pelton::engine
