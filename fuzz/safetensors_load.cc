// The safetensors reader over arbitrary bytes, against a second checker that shares no code with
// it: both must accept or both refuse.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "weights/safetensors.h"
#include "weights/testing/source_oracle.h"

namespace {

// A reader of one JSON text by hand: on anything unexpected `bad` is set and stays set.
class Checker {
 public:
  explicit Checker(std::string_view text) : text_(text) {}

  // The whole header; `data_bytes` is what follows it in the file.
  bool accepts(uint64_t data_bytes) {
    std::set<std::string> names;
    if (text_.empty() || text_[0] != '{') return false;
    object([&](std::string key) {
      if (!names.insert(key).second) bad_ = true;
      if (key == "__metadata__") {
        metadata();
      } else {
        tensor(key);
      }
    });
    space();
    return !bad_ && at_ == text_.size() && covers(data_bytes);
  }

 private:
  struct Entry {
    uint64_t begin = 0, end = 0;
  };

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void space() {
    while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) != nullptr && text_[at_] != 0)
      ++at_;
  }
  bool take(char wanted) {
    space();
    if (peek() != wanted || at_ >= text_.size()) return false;
    ++at_;
    return true;
  }
  void need(char wanted) {
    if (!take(wanted)) bad_ = true;
  }

  template <typename OnKey>
  void object(OnKey on_key) {
    need('{');
    if (bad_ || take('}')) return;
    do {
      std::string key = string();
      need(':');
      if (bad_) return;
      on_key(std::move(key));
    } while (!bad_ && take(','));
    need('}');
  }

  template <typename OnElement>
  void array(OnElement on_element) {
    need('[');
    if (bad_ || take(']')) return;
    do {
      on_element();
    } while (!bad_ && take(','));
    need(']');
  }

  int hex4() {
    int value = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = peek();
      ++at_;
      if (c >= '0' && c <= '9') {
        value = value * 16 + (c - '0');
      } else if ((c | 32) >= 'a' && (c | 32) <= 'f') {
        value = value * 16 + ((c | 32) - 'a' + 10);
      } else {
        bad_ = true;
        return 0;
      }
    }
    return value;
  }

  static void put(uint32_t c, std::string* out) {
    const auto tail = [&](int shift) {
      out->push_back(static_cast<char>(0x80 | ((c >> shift) & 0x3F)));
    };
    if (c < 0x80) {
      out->push_back(static_cast<char>(c));
    } else if (c < 0x800) {
      out->push_back(static_cast<char>(0xC0 | c >> 6));
      tail(0);
    } else if (c < 0x10000) {
      out->push_back(static_cast<char>(0xE0 | c >> 12));
      tail(6), tail(0);
    } else {
      out->push_back(static_cast<char>(0xF0 | c >> 18));
      tail(12), tail(6), tail(0);
    }
  }

  void escape(std::string* out) {
    constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
    const char c = peek();
    ++at_;
    if (const size_t i = kFrom.find(c); i != std::string_view::npos && c != 0) {
      out->push_back(kTo[i]);
      return;
    }
    if (c != 'u') {
      bad_ = true;
      return;
    }
    auto code = static_cast<uint32_t>(hex4());
    if (code >= 0xDC00 && code < 0xE000) bad_ = true;
    if (code >= 0xD800 && code < 0xDC00) {
      if (text_.substr(std::min(at_, text_.size()), 2) != "\\u") {
        bad_ = true;
        return;
      }
      at_ += 2;
      const auto low = static_cast<uint32_t>(hex4());
      if (low < 0xDC00 || low >= 0xE000) bad_ = true;
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    if (!bad_) put(code, out);
  }

  // Well-formed sequences by Unicode's table of byte ranges.
  void raw(std::string* out) {
    const auto byte = [&](size_t i) {
      return at_ + i < text_.size() ? static_cast<unsigned char>(text_[at_ + i]) : 0u;
    };
    const unsigned lead = byte(0), next = byte(1);
    size_t length = 0;
    if (lead >= 0x20 && lead < 0x80) {
      length = 1;
    } else if (lead >= 0xC2 && lead <= 0xDF) {
      length = 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
      length = (lead == 0xE0 && next < 0xA0) || (lead == 0xED && next > 0x9F) ? 0 : 3;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
      length = (lead == 0xF0 && next < 0x90) || (lead == 0xF4 && next > 0x8F) ? 0 : 4;
    }
    for (size_t i = 1; i < length; ++i) {
      if ((byte(i) & 0xC0) != 0x80) length = 0;
    }
    if (length == 0) {
      bad_ = true;
      return;
    }
    out->append(text_.substr(at_, length));
    at_ += length;
  }

  std::string string() {
    std::string out;
    need('"');
    while (!bad_ && peek() != '"') {
      if (peek() == '\\') {
        ++at_;
        escape(&out);
      } else {
        raw(&out);
      }
    }
    ++at_;
    return out;
  }

  // Digits without a leading zero that fit 64 bits.
  uint64_t integer() {
    space();
    const size_t start = at_;
    uint64_t value = 0;
    while (peek() >= '0' && peek() <= '9') {
      const auto digit = static_cast<uint64_t>(peek() - '0');
      if (value > (UINT64_MAX - digit) / 10) bad_ = true;
      value = value * 10 + digit;
      ++at_;
    }
    if (at_ == start || (text_[start] == '0' && at_ > start + 1)) bad_ = true;
    return value;
  }

  void metadata() {
    space();
    std::set<std::string> keys;
    object([&](std::string key) {
      if (!keys.insert(std::move(key)).second) bad_ = true;
      space();
      string();
    });
  }

  static unsigned bits(const std::string& dtype) {
    for (const char* name : {"F64", "I64", "U64", "C64"})
      if (dtype == name) return 64;
    for (const char* name : {"F32", "I32", "U32"})
      if (dtype == name) return 32;
    for (const char* name : {"F16", "BF16", "I16", "U16"})
      if (dtype == name) return 16;
    for (const char* name :
         {"I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"})
      if (dtype == name) return 8;
    if (dtype == "F6_E2M3" || dtype == "F6_E3M2") return 6;
    return dtype == "F4" ? 4 : 0;
  }

  void tensor(const std::string& name) {
    if (name.empty() || name.size() > 256) bad_ = true;
    std::set<std::string> fields;
    std::string dtype;
    std::vector<uint64_t> shape, offsets;
    object([&](std::string key) {
      if (key == "dtype") {
        space();
        dtype = string();
      } else if (key == "shape") {
        array([&] { shape.push_back(integer()); });
      } else if (key == "data_offsets") {
        array([&] { offsets.push_back(integer()); });
      } else {
        bad_ = true;
      }
      if (!fields.insert(std::move(key)).second) bad_ = true;
    });
    if (bad_ || fields.size() != 3 || offsets.size() != 2 || shape.size() > 8 || bits(dtype) == 0) {
      bad_ = true;
      return;
    }
    // Any size above 2^56 elements is larger than any file.
    uint64_t elements = 1;
    for (uint64_t size : shape) {
      if (size == 0 || elements > (uint64_t{1} << 56) / size) {
        bad_ = true;
        return;
      }
      elements *= size;
    }
    const uint64_t total = elements * bits(dtype);
    if (total % 8 != 0 || offsets[0] > offsets[1] || offsets[1] - offsets[0] != total / 8)
      bad_ = true;
    entries_.push_back({offsets[0], offsets[1]});
  }

  bool covers(uint64_t data_bytes) {
    std::sort(entries_.begin(), entries_.end(),
              [](const Entry& a, const Entry& b) { return a.begin < b.begin; });
    uint64_t at = 0;
    for (const Entry& entry : entries_) {
      if (entry.begin != at) return false;
      at = entry.end;
    }
    return at == data_bytes;
  }

  std::string_view text_;
  size_t at_ = 0;
  bool bad_ = false;
  std::vector<Entry> entries_;
};

bool second_opinion(std::span<const std::byte> bytes) {
  uint64_t length = 0;
  if (bytes.size() < 8) return false;
  std::memcpy(&length, bytes.data(), 8);
  if (length > 100'000'000 || length > bytes.size() - 8) return false;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  return Checker(text).accepts(bytes.size() - 8 - length);
}

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::weights;
  // A copy of exactly this size: reading past the end is then seen.
  const std::unique_ptr<std::byte[]> bytes(new std::byte[size]);
  std::memcpy(bytes.get(), data, size);
  const std::span<const std::byte> file(bytes.get(), size);
  const auto set = SafetensorsSet::parse(file, "fuzz.safetensors");
  require(set.ok() == second_opinion(file));
  if (!set.ok()) {
    require(set.status().message().starts_with("fuzz.safetensors: "));
    require(set.status().message().find('\n') == std::string::npos);
    return 0;
  }
  require(testing::broken_promise(**set, file).empty());
  for (const UnusedTensor& tensor : (*set)->unused()) require(!(*set)->require(tensor.name).ok());
  return 0;
}
