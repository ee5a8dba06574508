// A streamed answer from token ids to what its client joins, for any ids, stop strings and cuts:
// the pieces of every API equal the text of all ids cut at the stop that is complete first, the
// whole answer says the same, and which stop it was does not depend on the tokens.
//
// Input: a byte each for tokenizer, options, tokens an event and bytes a read; place and length of
// three stop strings in the text of all ids, a byte each; then ids, two bytes each.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_tree.h"
#include "base/utf8.h"
#include "bench_serve/sse_reader.h"
#include "engine/stop_text.h"
#include "server/answer_format.h"
#include "tests/support/source_root.h"
#include "text/tokenizer.h"

namespace {

using namespace pelton;

constexpr size_t kHeadBytes = 10;

void check(bool condition) {
  if (!condition) std::abort();
}

struct Input {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  bool skip_special = false;
  bool include_stop = false;
  size_t tokens_per_event = 1;
  size_t bytes_per_read = 1;
  std::vector<std::string> stops;
  std::vector<int32_t> ids;
};

std::vector<std::shared_ptr<const text::Tokenizer>> load_tokenizers() {
  std::vector<std::shared_ptr<const text::Tokenizer>> out;
  for (const char* name : {"bytes_o200k_regex", "bytes_added", "sentencepiece_bpe",
                           "unigram_precompiled", "word_piece", "normalizer_strip"}) {
    std::ifstream in(source_root().string() + "/tests/golden/text/tiny/" + name + ".json");
    std::ostringstream text;
    text << in.rdbuf();
    auto tokenizer = text::Tokenizer::from_json(text.str(), "");
    check(tokenizer.ok());
    out.push_back(*tokenizer);
  }
  return out;
}

Input read_input(std::string_view data) {
  static const auto tokenizers = load_tokenizers();
  const auto byte = [&](size_t at) { return static_cast<size_t>(static_cast<uint8_t>(data[at])); };
  Input input;
  input.tokenizer = tokenizers[byte(0) % tokenizers.size()];
  input.skip_special = (byte(1) & 1) != 0;
  input.include_stop = (byte(1) & 2) != 0;
  input.tokens_per_event = 1 + byte(2) % 4;
  input.bytes_per_read = 1 + byte(3);
  const auto vocabulary = static_cast<size_t>(input.tokenizer->vocab_size());
  for (size_t at = kHeadBytes; at + 1 < data.size(); at += 2)
    input.ids.push_back(static_cast<int32_t>((byte(at) << 8 | byte(at + 1)) % vocabulary));
  const std::string all = input.tokenizer->decode(input.ids, input.skip_special);
  for (size_t at = 4; at < kHeadBytes; at += 2) {
    // Of a stop that begins or ends inside of a character the piece of it becomes U+FFFD.
    const size_t begin = std::min(byte(at), all.size());
    input.stops.push_back(replace_invalid_utf8(all.substr(begin, byte(at + 1) % 12)));
  }
  return input;
}

// The text of all ids up to the stop that is complete first; of those that end together, the
// longest.
struct Expected {
  std::string text;
  size_t stop_size = 0;  // 0: none was met
};

Expected expected_of(const Input& input) {
  const std::string all = input.tokenizer->decode(input.ids, input.skip_special);
  for (size_t end = 1; end <= all.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : input.stops) {
      if (stop.size() > longest && std::string_view(all).substr(0, end).ends_with(stop))
        longest = stop.size();
    }
    if (longest > 0) return {all.substr(0, input.include_stop ? end : end - longest), longest};
  }
  return {all, 0};
}

struct Streamed {
  std::vector<TokenEvent> events;
  std::string text;
  int32_t stopped_by = -1;
};

// As the engine makes events: what is complete, and the rest with the end.
Streamed stream(const Input& input) {
  engine::StopText shown(input.tokenizer, input.stops, input.include_stop, input.skip_special);
  Streamed out;
  size_t next = 0;
  while (out.events.empty() || out.events.back().finish == FinishReason::kNone) {
    TokenEvent event;
    for (size_t i = 0; i < input.tokens_per_event && next < input.ids.size() && !shown.stopped();
         ++i) {
      event.tokens.push_back(input.ids[next]);
      event.text += shown.push(input.ids[next++]);
    }
    if (shown.stopped() || next == input.ids.size()) {
      event.text += shown.finish();
      event.finish = shown.stopped() ? FinishReason::kStop : FinishReason::kLength;
    }
    check(is_valid_utf8(event.text));
    out.text += event.text;
    out.events.push_back(std::move(event));
  }
  out.stopped_by = shown.stopped_by();
  return out;
}

// Text of one event of a stream, whichever API it is of.
std::string text_of(const Json& event) {
  const Json* choices = event.find("choices");
  const Json* holder = choices == nullptr ? event.find("delta")
                       : choices->empty() ? nullptr
                                          : &choices->elements().front();
  if (holder == nullptr) return {};
  if (const Json* delta = holder->find("delta")) holder = delta;
  const Json* text = holder->find("text");
  if (text == nullptr) text = holder->find("content");
  return text == nullptr ? std::string() : text->as_string();
}

std::string joined(std::string_view bytes, size_t step) {
  bench_serve::SseReader reader;
  std::string text;
  const auto take = [&](std::string_view data) {
    if (data == "[DONE]") return;
    const auto json = Json::parse(data);
    check(json.ok());
    text += text_of(*json);
  };
  for (size_t at = 0; at < bytes.size(); at += step)
    check(reader.feed(bytes.substr(at, step), take));
  check(!reader.pending());
  return text;
}

void check_api(const Input& input, const Streamed& streamed, server::AnswerFormat& format) {
  std::string bytes;
  format.begin(&bytes);
  for (const TokenEvent& event : streamed.events) format.delta(0, event, &bytes);
  format.end({}, {}, &bytes);
  check(is_valid_utf8(bytes));
  check(joined(bytes, input.bytes_per_read) == streamed.text);

  const server::Choice choice{.text = streamed.text,
                              .logprobs = {},
                              .prompt_logprobs = {},
                              .finish = streamed.events.back().finish,
                              .stopped_by = streamed.stopped_by,
                              .embedding = {}};
  const auto whole = Json::parse(format.whole({choice}, {}, {}));
  check(whole.ok());
  const Json* holder = whole->find("choices");
  if (holder == nullptr) holder = whole->find("content");
  std::string text;
  for (const Json& part : holder->elements()) {
    const Json* message = part.find("message");
    text += text_of(Json{{"choices", Json::array({message == nullptr ? part : *message})}});
  }
  check(text == streamed.text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < kHeadBytes) return 0;
  const Input input = read_input({reinterpret_cast<const char*>(data), size});
  const Expected expected = expected_of(input);
  const Streamed streamed = stream(input);
  check(streamed.text == expected.text);
  const bool stopped = streamed.stopped_by >= 0;
  check(stopped == (expected.stop_size > 0));
  if (stopped)
    check(input.stops[static_cast<size_t>(streamed.stopped_by)].size() == expected.stop_size);
  server::AnswerInfo info;
  info.id = "id";
  info.model = "m";
  info.tokenizer = input.tokenizer;
  info.stop = input.stops;
  check_api(input, streamed, *server::make_completion_format(info, {}));
  check_api(input, streamed, *server::make_chat_format(info));
  check_api(input, streamed, *server::make_messages_format(info));
  return 0;
}
