// A template's string: UTF-8 bytes and the spans of them that came from message content. Every
// operation carries the spans along, so the rendered prompt knows what its user typed.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/run.h"

namespace pelton::text::jinja {

struct Span {
  size_t begin;
  size_t end;
};

class Text {
 public:
  Text() = default;
  // The whole text is the template's (`from_user` false) or the user's. Must be valid UTF-8.
  explicit Text(std::string bytes, bool from_user = false);
  Text(std::string bytes, std::vector<Span> user);

  std::string_view view() const { return data_ ? std::string_view(data_->bytes) : ""; }
  size_t size() const { return data_ ? data_->bytes.size() : 0; }
  bool empty() const { return size() == 0; }
  bool ascii() const { return data_ ? data_->ascii : true; }
  // Sorted, disjoint, not empty.
  const std::vector<Span>& user() const;
  // Whether it passed `safe` or `escape`: adding such a text to another escapes the other.
  bool markup() const { return markup_; }
  Text as_markup() const {
    Text copy = *this;
    copy.markup_ = true;
    return copy;
  }
  // Characters, not bytes.
  size_t length() const;
  // Byte offset of the character with this index; size() when there are fewer.
  size_t offset(size_t index) const;

 private:
  struct Data {
    std::string bytes;
    std::vector<Span> user;
    bool ascii;
  };
  std::shared_ptr<const Data> data_;
  bool markup_ = false;
};

// Calls fn(part, from_user) over the maximal parts of text[begin, end) in order.
template <typename Fn>
void for_each_part(const Text& text, size_t begin, size_t end, Fn fn) {
  size_t at = begin;
  for (const Span& span : text.user()) {
    if (span.end <= at) continue;
    if (span.begin >= end) break;
    if (span.begin > at) {
      fn(text.view().substr(at, span.begin - at), false);
      at = span.begin;
    }
    const size_t stop = span.end < end ? span.end : end;
    fn(text.view().substr(at, stop - at), true);
    at = stop;
  }
  if (at < end) fn(text.view().substr(at, end - at), false);
}

// Collects a text under the run's budgets: appends past a limit fail the run and add nothing.
class TextBuilder {
 public:
  explicit TextBuilder(Run& run) : run_(run) {}
  void append(std::string_view bytes, bool from_user = false);
  void append(const Text& text) { append(text, 0, text.size()); }
  void append(const Text& text, size_t begin, size_t end);
  void append_code(uint32_t code, bool from_user);
  size_t size() const { return bytes_.size(); }
  Run& run() { return run_; }
  // Leaves the builder empty.
  Text take();

 private:
  Run& run_;
  std::string bytes_;
  std::vector<Span> user_;
};

Text substring(Run& run, const Text& text, size_t begin, size_t end);

}  // namespace pelton::text::jinja
