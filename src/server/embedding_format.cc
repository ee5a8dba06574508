// Lists of embeddings: of length one, as numbers or as the bytes of 32-bit floats.
#include <fmt/core.h>

#include <bit>
#include <cmath>
#include <iterator>
#include <utility>

#include "server/answer_format.h"
#include "server/json_writer.h"

namespace pelton::server {
namespace {

// Of length one; what has no direction stays.
std::vector<float> normalised(const std::vector<float>& values) {
  double squares = 0;
  for (const float v : values) squares += static_cast<double>(v) * static_cast<double>(v);
  const double scale = squares > 0 && std::isfinite(squares) ? 1.0 / std::sqrt(squares) : 1.0;
  std::vector<float> out;
  out.reserve(values.size());
  for (const float v : values) out.push_back(static_cast<float>(static_cast<double>(v) * scale));
  return out;
}

std::string base64_of(const std::vector<float>& values) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  for (const float v : values) {
    const auto bits = std::bit_cast<uint32_t>(v);
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(bits >> shift & 0xFF);
  }
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k)
      out += i + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

class EmbeddingFormat final : public OpenAiFormat {
 public:
  EmbeddingFormat(AnswerInfo info, bool base64) : OpenAiFormat(std::move(info)), base64_(base64) {}

  // Never streamed.
  void begin(std::string*) override {}
  void delta(int32_t, const TokenEvent&, std::string*) override {}

  std::string whole(const std::vector<Choice>& choices, const Usage& usage,
                    const std::string& timings) override {
    JsonWriter json;
    head(false, json);
    json.key("data").begin_array();
    for (size_t i = 0; i < choices.size(); ++i) {
      json.begin_object().field("object", "embedding").field("index", static_cast<int64_t>(i));
      write(normalised(choices[i].embedding), json.key("embedding"));
      json.end_object();
    }
    json.end_array().key("usage").begin_object();
    json.field("prompt_tokens", usage.prompt_tokens).field("total_tokens", usage.prompt_tokens);
    json.end_object();
    if (!timings.empty()) json.key("timings").raw(timings);
    json.end_object();
    return json.take();
  }

 private:
  void head(bool, JsonWriter& json) const override {
    json.begin_object().field("object", "list").field("model", info_.model);
  }

  void write(const std::vector<float>& values, JsonWriter& json) const {
    if (base64_) {
      json.string(base64_of(values));
      return;
    }
    std::string list = "[";
    for (size_t i = 0; i < values.size(); ++i)
      list += fmt::format("{}{}", i > 0 ? "," : "", values[i]);
    json.raw(list + "]");
  }

  const bool base64_;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_embedding_format(AnswerInfo info, bool base64) {
  return std::make_unique<EmbeddingFormat>(std::move(info), base64);
}

}  // namespace pelton::server
