#include "cli/inspect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/cpu_features.h"
#include "base/search_path.h"
#include "cli/common.h"
#include "cli/model_report.h"

namespace pelton::cli {
namespace {

std::string count_text(uint64_t count) {
  const auto value = static_cast<double>(count);
  if (count >= 1'000'000'000) return fmt::format("{:.2f} B", value / 1e9);
  if (count >= 1'000'000) return fmt::format("{:.2f} M", value / 1e6);
  return fmt::format("{}", count);
}

double bits_per_weight(uint64_t bytes, uint64_t elements) {
  return elements == 0 ? 0.0 : static_cast<double>(bytes) * 8.0 / static_cast<double>(elements);
}

std::string first_line(const std::string& text) {
  return text.substr(0, std::min(text.find('\n'), text.size()));
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

void add_line(std::string* out, std::string_view label, const std::string& value) {
  if (!value.empty()) *out += fmt::format("{:<16}{}\n", label, printable(value));
}

std::string config_text(const models::ModelConfig& config) {
  return fmt::format(
      "{}: {} layers, hidden {}, {} heads of {} ({} KV), feed-forward {}, vocabulary {}, "
      "{} positions",
      config.model_type, config.num_hidden_layers, config.hidden_size, config.num_attention_heads,
      config.head_dim, config.num_key_value_heads, config.intermediate_size, config.vocab_size,
      config.max_position_embeddings);
}

std::string tokenizer_text(const ModelReport& report) {
  if (report.tokenizer.empty()) return "none";
  std::string text = report.tokenizer;
  if (report.vocab_size > 0) text += fmt::format(", {} tokens", report.vocab_size);
  if (report.merges > 0) text += fmt::format(", {} merges", report.merges);
  return text;
}

std::string as_text(const ModelReport& report) {
  std::string out;
  add_line(&out, "path", report.path);
  add_line(&out, "container",
           fmt::format("{}, {} tensors, {}", report.container, report.tensors.size(),
                       format_bytes(report.mapped_bytes)));
  add_line(&out, "name", report.name);
  add_line(&out, "architecture", report.architecture);
  if (report.config) add_line(&out, "configuration", config_text(*report.config));
  add_line(&out, "not runnable", report.config_error);
  add_line(&out, "parameters",
           fmt::format("{}, {:.2f} bits each", count_text(report.parameters),
                       bits_per_weight(report.tensor_bytes, report.parameters)));
  add_line(&out, "tokenizer", tokenizer_text(report));
  add_line(&out, "chat template",
           report.chat_template.empty()
               ? "none"
               : fmt::format("{} bytes: {}", report.chat_template.size(),
                             utf8_prefix(first_line(report.chat_template), 160)));
  out += fmt::format("\n{:<12}{:>9}{:>12}{:>12}{:>8}{:>8}\n", "format", "tensors", "weights",
                     "size", "share", "bits");
  for (const ReportedFormat& format : report.formats) {
    out += fmt::format("{:<12}{:>9}{:>12}{:>12}{:>7.1f}%{:>8.2f}\n", printable(format.format),
                       format.tensors, count_text(format.elements), format_bytes(format.bytes),
                       100.0 * static_cast<double>(format.bytes) /
                           static_cast<double>(std::max<uint64_t>(report.tensor_bytes, 1)),
                       bits_per_weight(format.bytes, format.elements));
  }
  out += fmt::format("\nmetadata ({} keys)\n", report.metadata.size());
  for (const ReportedValue& value : report.metadata) {
    out += fmt::format("  {:<44} {:<24} {}\n", printable(value.key), value.type,
                       printable(value.value));
  }
  out += fmt::format("\ntensors ({})\n", report.tensors.size());
  for (const ReportedTensor& tensor : report.tensors) {
    out +=
        fmt::format("  {:<44} {:<24} {:<8} {:>12}\n", printable(tensor.name),
                    shape_text(tensor.shape), printable(tensor.format), format_bytes(tensor.bytes));
  }
  return out;
}

Json model_json(const ModelReport& report) {
  Json model = {{"path", report.path},
                {"container", report.container},
                {"name", report.name},
                {"architecture", report.architecture},
                {"parameters", report.parameters},
                {"tensor_bytes", report.tensor_bytes},
                {"mapped_bytes", report.mapped_bytes},
                {"runnable", report.config.has_value()}};
  if (!report.config) {
    model["error"] = report.config_error;
    return model;
  }
  const models::ModelConfig& config = *report.config;
  model["model_type"] = config.model_type;
  model["layers"] = config.num_hidden_layers;
  model["hidden_size"] = config.hidden_size;
  model["num_attention_heads"] = config.num_attention_heads;
  model["num_key_value_heads"] = config.num_key_value_heads;
  model["head_dim"] = config.head_dim;
  model["intermediate_size"] = config.intermediate_size;
  model["vocab_size"] = config.vocab_size;
  model["max_position_embeddings"] = config.max_position_embeddings;
  return model;
}

Json rows_json(const ModelReport& report) {
  Json rows = Json::array();
  for (const ReportedFormat& format : report.formats) {
    Json entry = answer_row(format.format, static_cast<double>(format.bytes), "bytes");
    if (report.tensor_bytes > 0) {
      entry["limit"] = report.tensor_bytes;
      entry["percent"] =
          100.0 * static_cast<double>(format.bytes) / static_cast<double>(report.tensor_bytes);
    }
    entry["tensors"] = format.tensors;
    entry["parameters"] = format.elements;
    rows.push_back(std::move(entry));
  }
  return rows;
}

std::string as_json(const ModelReport& report) {
  Json answer;
  answer["schema"] = "pelton.inspect.1";
  answer["model"] = model_json(report);
  answer["machine"] = machine_json(cpu_features().best_level(), 0);
  answer["rows"] = rows_json(report);
  answer["tokenizer"] = {{"kind", report.tokenizer.empty() ? Json() : Json(report.tokenizer)},
                         {"vocab_size", report.vocab_size},
                         {"merges", report.merges}};
  answer["chat_template"] = {{"bytes", report.chat_template.size()},
                             {"first_line", first_line(report.chat_template)}};
  Json metadata = Json::array();
  for (const ReportedValue& value : report.metadata)
    metadata.push_back({{"key", value.key}, {"type", value.type}, {"value", value.value}});
  answer["metadata"] = std::move(metadata);
  Json tensors = Json::array();
  for (const ReportedTensor& tensor : report.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"format", tensor.format},
                       {"shape", tensor.shape},
                       {"bytes", tensor.bytes}});
  }
  answer["tensors"] = std::move(tensors);
  return answer.dump(2) + "\n";
}

}  // namespace

Status run_inspect(const InspectOptions& options, std::string* out) {
  const auto path = find_model(options.model, options.model_path);
  if (!path.ok()) return path.status();
  const auto report = report_model(*path);
  if (!report.ok()) return report.status();
  *out += options.json ? as_json(*report) : as_text(*report);
  return {};
}

}  // namespace pelton::cli
