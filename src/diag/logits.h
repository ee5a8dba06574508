// Logits of a text's every position, through the engine like any request.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace pelton::diag {

// Runs `ids` as a prompt and calls `row(position, logits)` once for every position, in order. The
// engine must be idle.
Status for_each_row(engine::Engine& engine, const std::vector<int32_t>& ids,
                    const std::function<void(int32_t, std::span<const float>)>& row);

// All rows, [ids.size() * vocab_size].
Result<std::vector<float>> all_logits(engine::Engine& engine, const std::vector<int32_t>& ids);

}  // namespace pelton::diag
