#include "models/testing/golden.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tests/support/source_root.h"

namespace pelton::models::testing {
namespace {

using nlohmann::json;

constexpr uint64_t kLimit = uint64_t{16} << 20;

GoldenArray array(const json& entry, const std::vector<float>& storage) {
  GoldenArray out;
  size_t count = 1;
  for (const json& dimension : entry.at("shape")) {
    out.shape.push_back(dimension.get<int64_t>());
    count *= dimension.get<size_t>();
  }
  const auto offset = entry.at("offset").get<size_t>();
  check(offset + count <= storage.size(), "golden.bin is shorter than golden.json says");
  out.values = std::span(storage).subspan(offset, count);
  return out;
}

GoldenBeam beam(const json& entry) {
  GoldenBeam out;
  out.prompt = entry.at("prompt").get<std::vector<int32_t>>();
  out.num_beams = entry.at("num_beams");
  out.length_penalty = entry.at("length_penalty");
  const json& early = entry.at("early_stopping");
  out.early_stopping = early.is_string() ? early.get<std::string>() : early.dump();
  out.max_new_tokens = entry.at("max_new_tokens");
  out.eos_token_ids = entry.at("eos_token_ids").get<std::vector<int32_t>>();
  out.sequences = entry.at("sequences").get<std::vector<std::vector<int32_t>>>();
  out.scores = entry.at("scores").get<std::vector<float>>();
  return out;
}

}  // namespace

std::filesystem::path golden_root() { return pelton::source_root() / "tests/golden/models"; }

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_root())) {
    if (std::filesystem::exists(entry.path() / "golden.json")) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<Golden> load_golden(std::string_view name) {
  Golden out;
  out.name = name;
  out.folder = golden_root() / name;
  const auto index = read_file(out.folder / "golden.json", kLimit);
  if (!index.ok()) return index.status();
  const auto values = read_file(out.folder / "golden.bin", kLimit);
  if (!values.ok()) return values.status();
  out.storage.resize(values->size() / sizeof(float));
  std::memcpy(out.storage.data(), values->data(), out.storage.size() * sizeof(float));
  if (std::filesystem::exists(out.folder / "model.gguf")) out.gguf = out.folder / "model.gguf";

  const json root = json::parse(*index, nullptr, false);
  if (!root.is_object()) return data_loss(std::string(name) + "/golden.json: not a JSON object");
  for (const json& entry : root.at("cases")) {
    GoldenCase& one = out.cases.emplace_back();
    one.ids = entry.at("ids").get<std::vector<int32_t>>();
    one.context_len = entry.at("context_len");
    one.logits = array(entry.at("logits"), out.storage);
    for (const auto& [key, value] : entry.at("hidden").items()) {
      one.hidden.emplace(key, array(value, out.storage));
    }
  }
  if (root.contains("greedy")) {
    out.greedy.prompt = root["greedy"].at("prompt").get<std::vector<int32_t>>();
    out.greedy.ids = root["greedy"].at("ids").get<std::vector<int32_t>>();
    out.greedy.least_margin = root["greedy"].at("least_margin");
  }
  if (root.contains("beam")) {
    for (const json& entry : root["beam"]) out.beams.push_back(beam(entry));
  }
  return out;
}

double relative_error(std::span<const float> got, std::span<const float> want) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (got.size() != want.size()) return kInfinity;
  double difference = 0.0;
  double largest = 0.0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double d = std::abs(double{got[i]} - double{want[i]});
    if (!std::isfinite(d)) return kInfinity;
    difference = std::max(difference, d);
    largest = std::max(largest, std::abs(double{want[i]}));
  }
  return largest == 0.0 ? (difference == 0.0 ? 0.0 : kInfinity) : difference / largest;
}

}  // namespace pelton::models::testing
