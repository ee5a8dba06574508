// A device's weights in a side file, made at the first start that asks for it and read at the next
// ones: no matrix is converted again. What is small and follows the configuration (vectors, rotary
// frequencies) is always read from the model.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "models/model.h"
#include "weights/packed_file.h"

namespace pelton::engine {

// What the file must agree with, of the totals that counting or loading found.
weights::PackedKey packed_key(const weights::WeightSource& source,
                              const nn::WeightPlacement& placement,
                              const nn::WeightStorage& totals);
// Where it lies: `path` itself or, where that is a folder, a name of the key in it.
std::filesystem::path packed_path(const std::filesystem::path& path, const weights::PackedKey& key);

// Fills the device arena. False where there is no such file; an error where it is another's,
// damaged, or of other weights.
Result<bool> read_packed(const std::filesystem::path& path, const weights::PackedKey& key,
                         nn::WeightStorage& storage, ThreadPool& pool);
// Writes the device arena, which holds all weights.
Status write_packed(const std::filesystem::path& path, const weights::PackedKey& key,
                    nn::WeightStorage& storage);

}  // namespace pelton::engine
