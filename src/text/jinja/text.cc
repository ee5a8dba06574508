#include "text/jinja/text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"

namespace pelton::text::jinja {
namespace {

bool is_ascii(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool is_lead(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

}  // namespace

Text::Text(std::string bytes, bool from_user) {
  if (bytes.empty()) return;
  auto data = std::make_shared<Data>();
  data->ascii = is_ascii(bytes);
  if (from_user) data->user.push_back({0, bytes.size()});
  data->bytes = std::move(bytes);
  data_ = std::move(data);
}

Text::Text(std::string bytes, std::vector<Span> user) {
  if (bytes.empty()) return;
  auto data = std::make_shared<Data>();
  data->ascii = is_ascii(bytes);
  data->bytes = std::move(bytes);
  data->user = std::move(user);
  data_ = std::move(data);
}

const std::vector<Span>& Text::user() const {
  static const std::vector<Span> none;
  return data_ ? data_->user : none;
}

size_t Text::length() const {
  if (ascii()) return size();
  return static_cast<size_t>(std::count_if(view().begin(), view().end(), is_lead));
}

size_t Text::offset(size_t index) const {
  if (ascii()) return std::min(index, size());
  const std::string_view bytes = view();
  size_t at = 0;
  while (at < bytes.size()) {
    if (is_lead(bytes[at])) {
      if (index == 0) return at;
      --index;
    }
    ++at;
  }
  return bytes.size();
}

void TextBuilder::append(std::string_view bytes, bool from_user) {
  if (bytes.empty() || !run_.hold(bytes.size())) return;
  if (bytes_.size() + bytes.size() > run_.limits().max_output_bytes) {
    run_.fail(
        fmt::format("a text grows past the limit of {} bytes", run_.limits().max_output_bytes));
    return;
  }
  if (from_user) {
    const size_t begin = bytes_.size();
    if (!user_.empty() && user_.back().end == begin) {
      user_.back().end = begin + bytes.size();
    } else {
      user_.push_back({begin, begin + bytes.size()});
    }
  }
  bytes_ += bytes;
}

void TextBuilder::append(const Text& text, size_t begin, size_t end) {
  if (begin >= end) return;
  if (text.user().empty()) {
    append(text.view().substr(begin, end - begin));
    return;
  }
  for_each_part(text, begin, end,
                [&](std::string_view part, bool from_user) { append(part, from_user); });
}

void TextBuilder::append_code(uint32_t code, bool from_user) {
  std::string bytes;
  append_utf8(code, &bytes);
  append(bytes, from_user);
}

Text TextBuilder::take() {
  Text out(std::move(bytes_), std::move(user_));
  bytes_.clear();
  user_.clear();
  return out;
}

Text substring(Run& run, const Text& text, size_t begin, size_t end) {
  if (begin == 0 && end >= text.size()) return text;
  TextBuilder out(run);
  out.append(text, begin, std::min(end, text.size()));
  return out.take();
}

}  // namespace pelton::text::jinja
