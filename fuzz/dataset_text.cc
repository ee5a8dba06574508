// Any text as the load generator's data file: prompts whose requests are valid JSON, or an error
// that says what is wrong.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "bench_serve/target.h"
#include "bench_serve/workload.h"

namespace {

using namespace pelton::bench_serve;

void check(bool condition) {
  if (!condition) std::abort();
}

void check_prompt(const Prompt& prompt) {
  check(!prompt.text.empty() && prompt.ids.empty());
  check(prompt.max_tokens >= 1 && prompt.max_tokens <= 1 << 20);
  for (const bool chat : {false, true}) {
    const auto body = pelton::Json::parse(request_body(prompt, {.chat = chat}));
    check(body.ok() && (*body)["max_tokens"].as_integer() == prompt.max_tokens);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  WorkloadOptions options;
  options.count = 3;
  const auto prompts = read_dataset(text, "data", options);
  if (!prompts.ok()) {
    check(!prompts.status().message().empty());
    return 0;
  }
  check(prompts->size() == 3);
  for (const Prompt& prompt : *prompts) check_prompt(prompt);
  return 0;
}
