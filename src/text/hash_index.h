// Open-addressing tables for vocabularies and merges: built once, then only read.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace pelton::text {

// Drawn once a process, so that a vocabulary cannot be crafted to collide.
uint64_t hash_seed();

__extension__ typedef unsigned __int128 Wide;

inline uint64_t mix(uint64_t a, uint64_t b) {
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t hash_bytes(std::string_view bytes, uint64_t seed) {
  constexpr uint64_t kA = 0x9E3779B97F4A7C15u, kB = 0xD6E8FEB86659FD93u;
  uint64_t state = seed ^ (bytes.size() * kB);
  const char* at = bytes.data();
  size_t left = bytes.size();
  while (left >= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    state = mix(state ^ word, kA);
    at += 8;
    left -= 8;
  }
  uint64_t word = 0;
  if (left >= 4) {
    uint32_t head, tail;
    std::memcpy(&head, at, 4);
    std::memcpy(&tail, at + left - 4, 4);
    word = uint64_t{head} << 32 | tail;
  } else if (left > 0) {
    word = uint64_t{static_cast<uint8_t>(at[0])} << 16 |
           uint64_t{static_cast<uint8_t>(at[left / 2])} << 8 | static_cast<uint8_t>(at[left - 1]);
  }
  return mix(state ^ word, kB);
}

// Text to a non-negative number. The texts stay with their owner and must outlive the index.
class StringIndex {
 public:
  explicit StringIndex(size_t expected = 0) { rebuild(std::bit_ceil(expected * 2 + 16)); }

  // False, and nothing changed, when the text is there already.
  bool insert(std::string_view text, int32_t value) {
    if ((size_ + 1) * 2 > slots_.size()) rebuild(slots_.size() * 2);
    Slot& slot = find_slot(text);
    if (slot.value >= 0) return false;
    slot = {text.data(), static_cast<uint32_t>(text.size()), value};
    ++size_;
    return true;
  }
  // As insert, but replaces the value of a text that is there.
  void assign(std::string_view text, int32_t value) {
    if (!insert(text, value)) find_slot(text).value = value;
  }

  // -1 when absent.
  int32_t find(std::string_view text) const {
    return const_cast<StringIndex*>(this)->find_slot(text).value;
  }
  size_t size() const { return size_; }

 private:
  struct Slot {
    const char* data = nullptr;
    uint32_t length = 0;
    int32_t value = -1;
  };

  Slot& find_slot(std::string_view text) {
    const size_t mask = slots_.size() - 1;
    for (size_t at = hash_bytes(text, seed_) & mask;; at = (at + 1) & mask) {
      Slot& slot = slots_[at];
      if (slot.value < 0 ||
          (slot.length == text.size() && std::memcmp(slot.data, text.data(), text.size()) == 0)) {
        return slot;
      }
    }
  }
  void rebuild(size_t capacity) {
    std::vector<Slot> old = std::move(slots_);
    slots_.assign(capacity, Slot{});
    for (const Slot& slot : old) {
      if (slot.value >= 0) find_slot({slot.data, slot.length}) = slot;
    }
  }

  uint64_t seed_ = hash_seed();
  std::vector<Slot> slots_;
  size_t size_ = 0;
};

// A 64-bit key other than ~0 to a pair of numbers.
class PairIndex {
 public:
  struct Value {
    uint32_t rank = 0;
    int32_t id = -1;
  };
  static uint64_t key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }

  explicit PairIndex(size_t expected = 0) { rebuild(std::bit_ceil(expected * 2 + 16)); }

  // False, and nothing changed, when the key is there already.
  bool insert(uint64_t key, Value value) {
    if ((size_ + 1) * 2 > slots_.size()) rebuild(slots_.size() * 2);
    Slot& slot = slots_[find_slot(key)];
    if (slot.key == key) return false;
    slot = {key, value};
    ++size_;
    return true;
  }
  void assign(uint64_t key, Value value) {
    if (!insert(key, value)) slots_[find_slot(key)].value = value;
  }
  // Null when absent.
  const Value* find(uint64_t key) const {
    const Slot& slot = slots_[find_slot(key)];
    return slot.key == key ? &slot.value : nullptr;
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    Value value;
  };

  size_t find_slot(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    size_t at = mix(key ^ seed_, 0x9E3779B97F4A7C15u) & mask;
    while (slots_[at].key != key && slots_[at].key != kEmpty) at = (at + 1) & mask;
    return at;
  }
  void rebuild(size_t capacity) {
    std::vector<Slot> old = std::move(slots_);
    slots_.assign(capacity, Slot{});
    for (const Slot& slot : old) {
      if (slot.key != kEmpty) slots_[find_slot(slot.key)] = slot;
    }
  }

  uint64_t seed_ = hash_seed();
  std::vector<Slot> slots_;
  size_t size_ = 0;
};

}  // namespace pelton::text
