// Known model shapes, to be measured without their files: configurations as their publishers give
// them, and the tensors that such a model's file would hold.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/config.h"
#include "weights/synthetic.h"

namespace pelton::models {

// "llama-3.1-8b, llama-3.2-1b, ..."
std::string shape_names();
// kInvalidArgument lists the names. `layers` > 0 cuts or extends the depth.
Result<ModelConfig> shape_config(std::string_view name, int32_t layers);
// Under their Hugging Face names, with values that keep activations in range: products keep the
// variance of what goes in, norms are near 1.
std::vector<weights::SyntheticTensor> shape_tensors(const ModelConfig& config);

}  // namespace pelton::models
