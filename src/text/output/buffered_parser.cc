#include "text/output/buffered_parser.h"

#include <algorithm>

namespace pelton::text {

MarkerHit find_marker(std::string_view text, std::span<const std::string_view> markers) {
  MarkerHit hit;
  for (size_t i = 0; i < markers.size(); ++i) {
    const size_t at = text.find(markers[i]);
    if (at < hit.begin) hit = {.begin = at, .which = i};
  }
  return hit;
}

size_t held_suffix(std::string_view text, std::span<const std::string_view> markers) {
  size_t held = 0;
  for (const std::string_view marker : markers) {
    for (size_t n = std::min(marker.size() - 1, text.size()); n > held; --n) {
      if (text.substr(text.size() - n) == marker.substr(0, n)) {
        held = n;
        break;
      }
    }
  }
  return held;
}

size_t trailing_space(std::string_view text) {
  size_t n = 0;
  while (n < kMaxHeldSpace && n < text.size() && is_space(text[text.size() - 1 - n])) ++n;
  return n;
}

void append_piece(OutputPiece::Kind kind, int32_t call, std::string_view text, OutputPieces* out) {
  if (text.empty()) return;
  if (!out->empty() && kind != OutputPiece::Kind::kCallName && out->back().kind == kind &&
      out->back().call == call) {
    out->back().text += text;
    return;
  }
  out->push_back({.kind = kind, .call = call, .text = std::string(text)});
}

void BufferedParser::feed(std::string_view text, OutputPieces* out) {
  pending_ += text;
  run(out);
}

void BufferedParser::finish(OutputPieces* out) {
  at_end_ = true;
  run(out);
}

void BufferedParser::run(OutputPieces* out) {
  while (step(out)) {
  }
  pending_.erase(0, used_);
  used_ = 0;
}

bool BufferedParser::skip_space() {
  size_t n = 0;
  while (n < rest().size() && is_space(rest()[n])) ++n;
  consume(n);
  return !rest().empty();
}

BufferedParser::Match BufferedParser::take(std::string_view marker) {
  const std::string_view have = rest();
  if (have.substr(0, marker.size()) == marker) {
    consume(marker.size());
    return Match::kYes;
  }
  const bool could = have.size() < marker.size() && marker.substr(0, have.size()) == have;
  return could && !at_end_ ? Match::kMore : Match::kNo;
}

bool BufferedParser::pass_until(std::span<const std::string_view> markers, OutputPiece::Kind kind,
                                size_t* which, OutputPieces* out) {
  if (trim_ && !skip_space()) return false;
  const std::string_view text = rest();
  const MarkerHit hit = find_marker(text, markers);
  if (hit.begin != std::string_view::npos) {
    const std::string_view before = text.substr(0, hit.begin);
    append_piece(kind, -1, before.substr(0, before.size() - trailing_space(before)), out);
    consume(hit.begin + markers[hit.which].size());
    *which = hit.which;
    trim_ = false;
    return true;
  }
  size_t pass = text.size();
  if (!at_end_) {
    pass -= held_suffix(text, markers);
    pass -= trailing_space(text.substr(0, pass));
  }
  if (pass > 0) trim_ = false;
  append_piece(kind, -1, text.substr(0, pass), out);
  consume(pass);
  return false;
}

bool BufferedParser::drop_until(std::span<const std::string_view> markers) {
  const MarkerHit hit = find_marker(rest(), markers);
  if (hit.begin != std::string_view::npos) {
    consume(hit.begin);
    return true;
  }
  consume(rest().size() - (at_end_ ? 0 : held_suffix(rest(), markers)));
  return false;
}

bool CallParser::is_tool(std::string_view name) const {
  return options_.tools.empty() ||
         std::find(options_.tools.begin(), options_.tools.end(), name) != options_.tools.end();
}

void CallParser::begin_call(std::string_view name, OutputPieces* out) {
  ++calls_;
  if (calls_ > 1 && !options_.parallel_calls) return;
  append_piece(OutputPiece::Kind::kCallName, calls_ - 1, name, out);
}

void CallParser::arguments(std::string_view json, OutputPieces* out) {
  if (calls_ > 1 && !options_.parallel_calls) return;
  append_piece(OutputPiece::Kind::kCallArguments, calls_ - 1, json, out);
}

void CallParser::content(std::string_view text, OutputPieces* out) {
  append_piece(OutputPiece::Kind::kContent, -1, text, out);
}

CallReader::State CallParser::read_call(CallReader& reader, OutputPieces* out) {
  while (!rest().empty() && reader.state() == CallReader::State::kMore) {
    const bool was_named = reader.named();
    consume(reader.feed(rest()));
    if (!was_named && reader.named()) {
      if (!accepts(reader.name())) break;
      begin_call(reader.name(), out);
    }
    arguments(reader.take_arguments(), out);
  }
  return reader.state();
}

}  // namespace pelton::text
