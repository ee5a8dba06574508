#include "engine/dry_breakers.h"

#include <algorithm>
#include <utility>

namespace pelton::engine {
namespace {

std::vector<int32_t> find(const text::Tokenizer& tokenizer,
                          const std::vector<std::string>& breakers) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string text = tokenizer.decode({id}, false);
    const bool breaks = std::ranges::any_of(breakers, [&](const std::string& b) {
      return !b.empty() && text.find(b) != std::string::npos;
    });
    if (breaks) ids.push_back(id);
  }
  return ids;
}

}  // namespace

DryBreakers::DryBreakers(std::shared_ptr<const text::Tokenizer> tokenizer)
    : tokenizer_(std::move(tokenizer)) {}

std::vector<int32_t> DryBreakers::ids(const std::vector<std::string>& breakers) {
  const std::lock_guard lock(mutex_);
  if (!filled_ || breakers_ != breakers) {
    std::vector<std::string> key = breakers;
    ids_ = find(*tokenizer_, breakers);
    breakers_ = std::move(key);
    filled_ = true;
  }
  return ids_;
}

}  // namespace pelton::engine
