// Hands a model its weights: finds each tensor under its Hugging Face name, proves shape and
// format, and puts it into the kernels' layout. Used twice with the same calls, like the step
// arena: counting (shapes only, from headers; nothing read) gives the plan, loading fills exactly
// what was planned. The first error sticks and later calls return empty weights, so that a model's
// constructor reads as a list of its parts; check status() at its end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "memory/device_region.h"
#include "memory/region.h"
#include "memory/uploader.h"
#include "ops/device_weights.h"
#include "ops/matmul.h"
#include "pelton/status.h"
#include "weights/weight_source.h"

namespace pelton::nn {

// Where weights go, and how block-quantized matrices are kept there.
struct WeightPlacement {
  bool on_device = false;
  // On a device matrices become BF16. Where this is set plain formats stay as the file has them
  // and block-quantized ones become F32.
  bool exact = false;
  // On a device: what matrices() are quantized to at load, kSource for nothing.
  kernels::WeightLayout quantization = kernels::WeightLayout::kSource;
  // On a device: the arena holds the matrices already (a side file was read); vectors are read.
  bool filled = false;
};

// Memory that the weights of one model live in. Must outlive the model; the mapped files must too.
struct WeightStorage {
  memory::Region arena;                        // repacked matrices and float vectors
  memory::DeviceRegion device_arena;           // instead, everything, on a device
  std::unique_ptr<memory::Uploader> uploader;  // only while weights go to a device
  // On a device: queues the making of random weights, for sources that have such.
  std::function<Status(const kernels::RandomWeightsParams&)> make_random;
  size_t arena_bytes = 0;     // what was planned
  size_t in_place_bytes = 0;  // matrices used where the file is mapped
  size_t streamed_bytes =
      0;  // weight bytes that one decoded token reads (all matrices but an untied embedding)
  size_t parameters = 0;
  // Of the names that were asked for and where what they gave lies: tells two arenas apart.
  uint64_t arrangement = 0;
};

class WeightLoader {
 public:
  // Translates a Hugging Face tensor name to the file's; identity for safetensors.
  using NameMap = std::function<std::string(std::string_view)>;

  // Counting.
  WeightLoader(const weights::WeightSource& source, NameMap names, WeightPlacement placement = {});
  // Loading into `storage`, whose arena must have the size that counting found.
  WeightLoader(const weights::WeightSource& source, NameMap names, WeightStorage* storage,
               ThreadPool* pool, WeightPlacement placement = {});

  bool counting() const { return pool_ == nullptr; }
  bool has(std::string_view name) const;

  // Weight of a linear layer [rows, columns]; `transposed`: the file holds [columns, rows] (GPT-2's
  // Conv1D).
  kernels::WeightMatrix matrix(std::string_view name, int64_t rows, int64_t columns,
                               bool transposed = false);
  // Weights of linear layers whose outputs lie side by side, each as matrix() gives it; where the
  // placement quantizes and the shapes allow it, as one matrix.
  struct Part {
    std::string name;
    int64_t rows = 0;
  };
  std::vector<kernels::WeightMatrix> matrices(const std::vector<Part>& parts, int64_t columns,
                                              bool transposed = false);
  // Embedding table [rows, columns]. With `also_head` it is laid out for products, since the head
  // is tied to it; else it stays in the mapped file.
  kernels::WeightMatrix embedding(std::string_view name, int64_t rows, int64_t columns,
                                  bool also_head);
  // Float vector [size], each value plus `offset`. Null when the loader counts.
  const float* vector(std::string_view name, int64_t size, float offset = 0.0f);
  // Several vectors end to end.
  const float* vectors(const std::vector<std::string>& names, const std::vector<int64_t>& sizes);

  // Numbers that the model computed itself (rotary frequencies), where its weights are. Null when
  // the loader counts.
  const float* constants(std::span<const float> values);

  void fail(Status status);  // puts the file's path before the message
  const Status& status() const { return status_; }
  // Sizes so far; storage's own figures once loading.
  const WeightStorage& totals() const { return *storage_; }
  // Tensors of the file that no call asked for.
  std::vector<std::string> unused() const;

 private:
  const weights::TensorInfo* lookup(std::string_view name, const std::vector<int64_t>& shape);
  // How a matrix is made on the device, where no file holds it.
  std::optional<weights::RandomTensor> made_there(const weights::TensorInfo& info) const;
  // Where rows of a matrix lie on the device.
  struct Place {
    kernels::WeightLayout layout = kernels::WeightLayout::kSource;
    std::byte* out = nullptr;  // codes or numbers
    float* scale = nullptr;    // [rows], of layouts with a scale a channel
    int64_t rows = 0;
    int64_t columns = 0;
  };
  void make_there(const weights::RandomTensor& random, const Place& place);
  std::span<std::byte> take(size_t bytes);
  std::span<std::byte> arena() const;
  kernels::WeightMatrix device_matrix(const weights::TensorInfo& info, int64_t rows,
                                      int64_t columns, bool transposed);
  kernels::WeightMatrix quantized_matrix(const std::vector<Part>& parts, int64_t columns,
                                         bool transposed);
  // The part's tensor; null, and an error, where its blocks do not fill its rows.
  const weights::TensorInfo* quantizable(const Part& part, int64_t columns, bool transposed);
  // Reads one part and sends its tiles and scales to where they belong.
  void upload_quantized(const weights::TensorInfo& info, bool transposed, const Place& place);
  // Makes `size` floats of `fill` and puts them where weights are.
  const float* floats(int64_t size, FunctionRef<void(float* out)> fill);

  const weights::WeightSource& source_;
  NameMap names_;
  WeightStorage counted_;
  WeightStorage* storage_;
  ThreadPool* pool_ = nullptr;
  WeightPlacement placement_;
  size_t used_ = 0;
  std::set<std::string, std::less<>> asked_;
  Status status_;
};

}  // namespace pelton::nn
