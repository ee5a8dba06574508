// pelton serve --self-test: a running server asks itself what a client would.
#pragma once

#include <cstdint>
#include <string>

#include "pelton/status.h"

namespace pelton::cli {

struct SelfTestTarget {
  uint16_t port = 0;  // on 127.0.0.1
  std::string key;    // empty: the server asks for none
  bool chat = true;   // the model has a chat template
};

// Health, a completion, a chat, a stream and the metrics of that server, over loopback; prints a
// line for each on standard output. An error names those that failed.
Status run_self_test(const SelfTestTarget& target);

}  // namespace pelton::cli
