#include "bench_serve/answer_reader.h"

namespace pelton::bench_serve {
namespace {

using simdjson::dom::element;

constexpr size_t kMostMessage = 300;

int64_t integer(const element& object, std::string_view key) {
  int64_t value = 0;
  return object[key].get(value) == simdjson::SUCCESS && value > 0 ? value : 0;
}

bool has_text(const element& object, std::string_view key) {
  std::string_view text;
  return object[key].get(text) == simdjson::SUCCESS && !text.empty();
}

bool has_items(const element& object, std::string_view key) {
  simdjson::dom::array items;
  return object[key].get(items) == simdjson::SUCCESS && items.size() > 0;
}

void read_choice(const element& choice, Piece* piece) {
  piece->has_text |= has_text(choice, "text");
  for (const std::string_view key : {"delta", "message"}) {
    element part;
    if (choice[key].get(part) != simdjson::SUCCESS) continue;
    piece->has_text |= has_text(part, "content") || has_text(part, "reasoning_content") ||
                       has_text(part, "reasoning") || has_items(part, "tool_calls");
  }
  piece->finished |= has_text(choice, "finish_reason");
}

}  // namespace

Piece AnswerReader::read(std::string_view json) {
  Piece piece;
  element root;
  if (parser_.parse(json.data(), json.size()).get(root) != simdjson::SUCCESS) return piece;
  if (!root.is_object()) return piece;
  piece.well_formed = true;
  element part;
  if (root["error"].get(part) == simdjson::SUCCESS && !part.is_null()) {
    std::string_view message;
    const bool told =
        part.get(message) == simdjson::SUCCESS || part["message"].get(message) == simdjson::SUCCESS;
    if (!told) message = "an error without a message";
    piece.error = std::string(message.substr(0, kMostMessage));
  }
  simdjson::dom::array choices;
  if (root["choices"].get(choices) == simdjson::SUCCESS) {
    for (const element choice : choices) read_choice(choice, &piece);
  }
  if (root["usage"].get(part) == simdjson::SUCCESS && part.is_object()) {
    TokenCounts counts{integer(part, "prompt_tokens"), integer(part, "completion_tokens"), 0};
    element details;
    if (part["prompt_tokens_details"].get(details) == simdjson::SUCCESS)
      counts.cached = integer(details, "cached_tokens");
    piece.usage = counts;
  }
  return piece;
}

}  // namespace pelton::bench_serve
