#include <fmt/format.h>

#include <algorithm>

#include "base/json_tree.h"
#include "bench_serve/workload.h"

namespace pelton::bench_serve {
namespace {

constexpr size_t kCharactersPerToken = 4;
constexpr int64_t kMostTokens = 1 << 20;

Status expected(const std::string& place, const char* what) {
  return data_loss(place + ": " + what);
}

const std::string* text_of(const Json& object, const char* key) {
  const Json* value = object.find(key);
  return value != nullptr && value->is_string() ? &value->as_string() : nullptr;
}

// {"prompt", "output_len" | "max_tokens"}
Result<Prompt> plain_entry(const Json& entry, const std::string& place, int32_t output_len) {
  const std::string* text = text_of(entry, "prompt");
  if (text == nullptr || text->empty())
    return expected(place, "an object with a text \"prompt\" is expected");
  Prompt prompt{.text = *text, .max_tokens = output_len};
  for (const char* key : {"output_len", "max_tokens"}) {
    const Json* length = entry.find(key);
    if (length == nullptr) continue;
    if (!length->is_number_integer() || length->as_double() < 1 ||
        length->as_double() > static_cast<double>(kMostTokens))
      return expected(place, "the answer's length must be an integer of 1 to 2^20 tokens");
    prompt.max_tokens = static_cast<int32_t>(length->as_integer());
  }
  return prompt;
}

// {"conversations": [{"value"}, {"value"}]}; null when it has no answer, as some in the wild.
Result<std::vector<Prompt>> conversations(const Json& list, const std::string& name) {
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string place = fmt::format("{}[{}]", name, i);
    const Json* turns = list[i].find("conversations");
    if (turns == nullptr || !turns->is_array())
      return expected(place, "an object with a list \"conversations\" is expected");
    if (turns->size() < 2) continue;
    const std::string* question = text_of((*turns)[0], "value");
    const std::string* answer = text_of((*turns)[1], "value");
    if (question == nullptr || answer == nullptr)
      return expected(place, "each turn needs a text \"value\"");
    if (question->empty() || answer->empty()) continue;
    const size_t tokens = std::max<size_t>(1, answer->size() / kCharactersPerToken);
    prompts.push_back(
        {.text = *question, .max_tokens = static_cast<int32_t>(std::min<size_t>(tokens, 4096))});
  }
  return prompts;
}

Result<std::vector<Prompt>> lines(const std::string& text, const std::string& name,
                                  int32_t output_len) {
  std::vector<Prompt> prompts;
  size_t begin = 0;
  for (int number = 1; begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string place = fmt::format("{}:{}", name, number);
    auto entry = Json::parse(line);
    if (!entry.ok()) return entry.status().with_context(place);
    auto prompt = plain_entry(*entry, place, output_len);
    if (!prompt.ok()) return prompt.status();
    prompts.push_back(std::move(prompt).value());
  }
  return prompts;
}

}  // namespace

Result<std::vector<Prompt>> read_dataset(const std::string& text, const std::string& name,
                                         const WorkloadOptions& options) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  Result<std::vector<Prompt>> read = std::vector<Prompt>();
  if (first != std::string::npos && text[first] == '[') {
    auto list = Json::parse(text);
    if (!list.ok()) return list.status().with_context(name);
    read = conversations(*list, name);
  } else {
    read = lines(text, name, options.output_len);
  }
  if (!read.ok()) return read;
  if (read->empty()) return data_loss(name + ": no prompt in it");
  const size_t distinct = read->size();
  read->resize(static_cast<size_t>(options.count));
  for (size_t i = distinct; i < read->size(); ++i) (*read)[i] = (*read)[i - distinct];
  return read;
}

}  // namespace pelton::bench_serve
