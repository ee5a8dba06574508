// Token ids that end a repetition for the DRY stage. Finding them decodes the whole vocabulary, so
// those of the list that was asked for last are kept.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace pelton::engine {

class DryBreakers {
 public:
  explicit DryBreakers(std::shared_ptr<const text::Tokenizer> tokenizer);

  // Ids, ascending, whose text holds one of `breakers`; empty breakers match nothing. Any thread;
  // one that asks while another decodes the vocabulary waits for it.
  std::vector<int32_t> ids(const std::vector<std::string>& breakers);

 private:
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::mutex mutex_;
  bool filled_ = false;                // below, guarded by mutex_
  std::vector<std::string> breakers_;  // what ids_ was made for
  std::vector<int32_t> ids_;
};

}  // namespace pelton::engine
