// Files that break one rule each: refused with one line that names the place, before memory is
// taken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/rng.h"
#include "tests/support/allocation_hook.h"
#include "weights/gguf.h"
#include "weights/testing/gguf_writer.h"
#include "weights/testing/source_oracle.h"

namespace pelton::weights {
namespace {

using namespace testing;
using ::testing::HasSubstr;

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

Status status_of(const std::string& bytes) {
  return GgufFile::parse(as_bytes(bytes), "t.gguf").status();
}

// One F32 tensor of 8 elements after one key, to be broken.
GgufSpec plain() {
  GgufSpec spec;
  spec.keys = {{"general.architecture", encode_string("llama")}};
  spec.tensors = {{"a", 0, {8}, std::string(32, 'a')}, {"b", 0, {8, 2}, std::string(64, 'b')}};
  return spec;
}

struct Fault {
  const char* name;
  std::function<void(GgufSpec&)> apply;
  const char* message;  // part of it
  StatusCode code = StatusCode::kDataLoss;
};

void add_key(GgufSpec& spec, std::string name, std::string value) {
  spec.keys.emplace_back(std::move(name), std::move(value));
}
std::string huge_array(GgufType type, uint64_t count) { return encode_array(type, count, ""); }
std::string huge_string(uint64_t length) {
  return number_bytes(static_cast<uint32_t>(GgufType::kString)) + number_bytes(length);
}
void set_alignment(GgufSpec& spec, std::string value) {
  add_key(spec, "general.alignment", std::move(value));
}

std::vector<Fault> header_faults() {
  return {
      {"magic", [](GgufSpec& s) { s.magic = "GGML"; }, "wrong magic"},
      {"empty", [](GgufSpec& s) { s.magic = "GGU"; }, "t.gguf: "},
      {"version 0", [](GgufSpec& s) { s.version = 0; }, "GGUF version 0", StatusCode::kUnsupported},
      {"version 1", [](GgufSpec& s) { s.version = 1; }, "GGUF version 1", StatusCode::kUnsupported},
      {"version 4", [](GgufSpec& s) { s.version = 4; }, "GGUF version 4", StatusCode::kUnsupported},
      {"big-endian", [](GgufSpec& s) { s.version = 0x03000000; }, "big-endian",
       StatusCode::kUnsupported},
      {"tensors 2^63", [](GgufSpec& s) { s.num_tensors = uint64_t{1} << 63; }, "tensor count 922"},
      {"tensors max", [](GgufSpec& s) { s.num_tensors = ~uint64_t{0}; }, "tensor count 184"},
      {"tensors + 1", [](GgufSpec& s) { s.num_tensors = 3; }, "t.gguf: "},
      {"tensors - 1", [](GgufSpec& s) { s.num_tensors = 1; }, "t.gguf: "},
      {"keys 2^63", [](GgufSpec& s) { s.num_keys = uint64_t{1} << 63; }, "metadata count 922"},
      {"keys max", [](GgufSpec& s) { s.num_keys = ~uint64_t{0}; }, "metadata count 184"},
      {"keys + 1", [](GgufSpec& s) { s.num_keys = 2; }, "t.gguf: "},
      {"keys - 1", [](GgufSpec& s) { s.num_keys = 0; }, "t.gguf: "},
  };
}

std::vector<Fault> key_faults() {
  return {
      {"empty name", [](GgufSpec& s) { s.keys[0].first = ""; }, "key 0 has an empty name"},
      {"twice", [](GgufSpec& s) { s.keys.push_back(s.keys[0]); },
       "key 'general.architecture': appears twice"},
      {"long name", [](GgufSpec& s) { s.keys[0].first = std::string(65536, 'k'); },
       "longer than 65535"},
      {"not UTF-8", [](GgufSpec& s) { s.keys[0].first = "k\xFF"; },
       R"(key 'k\xff': name is not valid UTF-8)"},
      {"type 13", [](GgufSpec& s) { add_key(s, "k", number_bytes(13u)); },
       "key 'k': unknown value type 13"},
      {"type max", [](GgufSpec& s) { add_key(s, "k", number_bytes(~0u)); }, "unknown value type"},
      {"bool 2", [](GgufSpec& s) { add_key(s, "k", encode<uint8_t>(GgufType::kBool, 2)); },
       "key 'k': boolean stored as 2"},
      {"bools 7", [](GgufSpec& s) { add_key(s, "k", encode_array(GgufType::kBool, 1, "\7")); },
       "key 'k': boolean stored as 7"},
      {"string 2^20", [](GgufSpec& s) { add_key(s, "k", huge_string(1 << 20)); }, "key 'k'"},
      {"string 2^63", [](GgufSpec& s) { add_key(s, "k", huge_string(uint64_t{1} << 63)); },
       "value of key 'k': longer than"},
      {"string max", [](GgufSpec& s) { add_key(s, "k", huge_string(~uint64_t{0})); },
       "value of key 'k': longer than"},
      {"array of type 99", [](GgufSpec& s) { add_key(s, "k", huge_array(GgufType{99}, 1)); },
       "unknown array element type 99"},
      {"nested array", [](GgufSpec& s) { add_key(s, "k", huge_array(GgufType::kArray, 1)); },
       "key 'k': arrays of arrays", StatusCode::kUnsupported},
      {"u8 array 2^20", [](GgufSpec& s) { add_key(s, "k", huge_array(GgufType::kU8, 1 << 20)); },
       "array of 1048576 elements of key 'k'"},
      {"string array 2^22",
       [](GgufSpec& s) { add_key(s, "k", huge_array(GgufType::kString, 1 << 22)); },
       "array of 4194304 elements of key 'k'"},
      {"vocabulary over the limit",
       [](GgufSpec& s) {
         add_key(s, "tokenizer.ggml.tokens", huge_array(GgufType::kString, (4 << 20) + 1));
       },
       "more than the limit of 4194304"},
      {"array max", [](GgufSpec& s) { add_key(s, "k", huge_array(GgufType::kI64, ~uint64_t{0})); },
       "key 'k': 18446744073709551615 elements"},
      {"array 2^61", [](GgufSpec& s) { add_key(s, "k", huge_array(GgufType::kF64, 1ull << 61)); },
       "more than the limit"},
      {"u64 beyond 63 bits",
       [](GgufSpec& s) {
         add_key(s, "k", encode_array(GgufType::kU64, 1, number_bytes(~uint64_t{0})));
       },
       "does not fit 63 bits"},
      {"string in array too long",
       [](GgufSpec& s) {
         add_key(s, "k", encode_array(GgufType::kString, 1, number_bytes(~uint64_t{0})));
       },
       "string 0 of key 'k'"},
  };
}

std::vector<Fault> alignment_faults() {
  const auto of = [](auto type, auto value) {
    return [=](GgufSpec& s) { set_alignment(s, encode(type, value)); };
  };
  return {
      {"0", of(GgufType::kU32, 0u), "key 'general.alignment': 0 is not a power of two"},
      {"1", of(GgufType::kU32, 1u), "1 is not a power of two from 8"},
      {"13", of(GgufType::kU32, 13u), "13 is not a power of two"},
      {"2^31", of(GgufType::kU32, 1u << 31), "is not a power of two from 8 to 1048576"},
      {"max", of(GgufType::kU32, ~0u), "is not a power of two"},
      {"-1", of(GgufType::kI32, -1), "must be a 32-bit unsigned integer"},
      {"as u64", of(GgufType::kU64, uint64_t{32}), "must be a 32-bit unsigned integer"},
      {"as float", of(GgufType::kF32, 32.0f), "must be a 32-bit unsigned integer"},
      {"as string", [](GgufSpec& s) { set_alignment(s, encode_string("32")); },
       "must be a 32-bit unsigned integer"},
      {"not the file's", of(GgufType::kU32, 64u), "t.gguf: tensor 'b': "},
  };
}

std::vector<Fault> tensor_faults() {
  const auto dims = [](std::vector<uint64_t> sizes) {
    return [=](GgufSpec& s) { s.tensors[1].dims = sizes; };
  };
  const uint64_t top = uint64_t{1} << 63;
  return {
      {"empty name", [](GgufSpec& s) { s.tensors[0].name = ""; }, "tensor 0 has an empty name"},
      {"long name", [](GgufSpec& s) { s.tensors[0].name = std::string(257, 'n'); },
       "name of 257 bytes"},
      {"not UTF-8", [](GgufSpec& s) { s.tensors[0].name = "\xC0"; },
       R"(tensor '\xc0': name is not valid UTF-8)"},
      {"line break stays quoted",
       [](GgufSpec& s) {
         s.tensors[0].name = "x\ny";
         s.tensors[0].type = 4;
       },
       R"(tensor 'x\x0ay': )"},
      {"twice", [](GgufSpec& s) { s.tensors[1].name = "a"; }, "tensor 'a': appears twice"},
      {"5 dims", [](GgufSpec& s) { s.tensors[1].dims.assign(5, 1); },
       "tensor 'b': 5 dimensions, more than 4"},
      {"2^32-1 dims", [](GgufSpec& s) { s.tensors[1].num_dims = ~0u; }, "more than 4"},
      {"dim 0", dims({0, 2}), "tensor 'b': dimension of size 0"},
      {"dim -1", dims({~uint64_t{0}, 2}), "tensor 'b': dimension of size -1"},
      {"dim min", dims({top, 2}), "dimension of size -9223372036854775808"},
      {"elements 2^63", dims({top >> 1, 2}), "tensor 'b': number of elements overflows"},
      {"elements wrap", dims({top >> 1, 2, 2, 2}), "number of elements overflows"},
      {"elements wrap to 16", dims({(uint64_t{1} << 60) + 1, 16}), "number of elements overflows"},
      {"bytes overflow", dims({top >> 1}), "tensor 'b': size in bytes overflows"},
      {"2^42+1", dims({(uint64_t{1} << 42) + 1, 2}), "tensor 'b': 35184372088840 bytes"},
      {"one row more", dims({8, 3}), "tensor 'b': 96 bytes at data offset 32 pass the end"},
      {"one row less", dims({8, 1}), "32 bytes follow the last tensor"},
      {"type 4", [](GgufSpec& s) { s.tensors[1].type = 4; }, "tensor 'b': unknown tensor type 4"},
      {"type 2^32-1", [](GgufSpec& s) { s.tensors[1].type = ~0u; }, "unknown tensor type"},
      {"I32", [](GgufSpec& s) { s.tensors[1].type = 26; },
       "tensor 'b': tensor type I32 (26) is not supported", StatusCode::kUnsupported},
      {"IQ2_XXS", [](GgufSpec& s) { s.tensors[1].type = 16; }, "tensor type IQ2_XXS (16)",
       StatusCode::kUnsupported},
      {"half a block", [](GgufSpec& s) { s.tensors[1].type = 12; },
       "tensor 'b': rows of 8 elements are not whole Q4_K blocks of 256"},
      {"unaligned", [](GgufSpec& s) { s.tensors[1].offset = 36; },
       "tensor 'b': offset 36 is not a multiple of 32"},
      {"overlap", [](GgufSpec& s) { s.tensors[1].offset = 0; }, "tensor 'b': offset 0 overlaps"},
      {"gap",
       [](GgufSpec& s) {
         s.tensors[1].offset = 64;
         s.trailing.assign(32, 'x');
       },
       "tensor 'b': offset 64 leaves a gap"},
      {"gap at the start",
       [](GgufSpec& s) {
         s.tensors[0].offset = 32;
         s.tensors[1].offset = 64;
         s.trailing.assign(32, 'x');
       },
       "tensor 'a': offset 32 leaves a gap"},
      {"past the end", [](GgufSpec& s) { s.tensors[1].offset = 1 << 20; }, "pass the end"},
      {"offset 2^63", [=](GgufSpec& s) { s.tensors[1].offset = top; }, "pass the end"},
      {"offset wraps", [](GgufSpec& s) { s.tensors[1].offset = ~uint64_t{31}; }, "pass the end"},
      {"data cut",
       [](GgufSpec& s) {
         s.tensors[1].data.resize(63);
         s.pad_last = false;
       },
       "tensor 'b': 64 bytes at data offset 32 pass the end of the file"},
      {"trailing bytes", [](GgufSpec& s) { s.trailing = "x"; }, "1 bytes follow the last tensor"},
      {"concatenated", [](GgufSpec& s) { s.trailing = write_gguf(plain()); },
       "several GGUF files were concatenated"},
      {"a shard alone", [](GgufSpec& s) { add_key(s, "split.count", encode_u32(3)); },
       "shard 1 of 3 alone", StatusCode::kUnsupported},
      {"split.count -1", [](GgufSpec& s) { add_key(s, "split.count", encode(GgufType::kI32, -1)); },
       "key 'split.count': -1"},
      {"split.no beyond", [](GgufSpec& s) { add_key(s, "split.no", encode_u32(7)); },
       "key 'split.no': 7"},
  };
}

class GgufFaults : public ::testing::TestWithParam<std::vector<Fault> (*)()> {};

TEST_P(GgufFaults, AreRefusedInOneLine) {
  ASSERT_TRUE(status_of(write_gguf(plain())).ok());
  for (const Fault& fault : GetParam()()) {
    SCOPED_TRACE(fault.name);
    GgufSpec spec = plain();
    fault.apply(spec);
    const std::string bytes = write_gguf(spec);
    const pelton::testing::AllocationCounter memory;
    const Status status = status_of(bytes);
    EXPECT_LT(memory.peak_bytes(), int64_t{1} << 20);
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(status.code(), fault.code) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(fault.message));
    EXPECT_TRUE(status.message().starts_with("t.gguf: ")) << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
}
INSTANTIATE_TEST_SUITE_P(Header, GgufFaults, ::testing::Values(&header_faults));
INSTANTIATE_TEST_SUITE_P(Keys, GgufFaults, ::testing::Values(&key_faults));
INSTANTIATE_TEST_SUITE_P(Alignment, GgufFaults, ::testing::Values(&alignment_faults));
INSTANTIATE_TEST_SUITE_P(Tensors, GgufFaults, ::testing::Values(&tensor_faults));

TEST(GgufTruncation, EveryHeaderByte) {
  const GgufSpec spec = small_gguf();
  const std::string whole = write_gguf(spec);
  for (size_t size = 0; size < gguf_data_start(spec); ++size) {
    const std::string cut = whole.substr(0, size);
    EXPECT_FALSE(status_of(cut).ok()) << size;
  }
}

TEST(GgufTruncation, DataBytesNameTheTensor) {
  GgufSpec spec = small_gguf();
  spec.pad_last = false;
  const std::string whole = write_gguf(spec);
  const size_t start = gguf_data_start(spec);
  Random random(1);
  for (int i = 0; i < 50; ++i) {
    const std::string cut = whole.substr(0, start + random.below(whole.size() - start));
    const Status status = status_of(cut);
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.message(), HasSubstr("t.gguf: tensor 't."));
    EXPECT_THAT(status.message(), HasSubstr("pass the end of the file"));
  }
}

// Each integer key in turn set to 0, -1 and its maximum: refused with the key named, or accepted
// and readable.
TEST(GgufMutation, IntegerKeys) {
  for (const char* key : {"general.alignment", "split.count", "split.no", "split.tensors.count"}) {
    for (const std::string& value :
         {encode_u32(0), encode_u32(~0u), encode(GgufType::kI32, -1),
          encode(GgufType::kU64, ~uint64_t{0}), encode(GgufType::kI64, INT64_MIN)}) {
      GgufSpec spec = plain();
      add_key(spec, key, value);
      const Status status = status_of(write_gguf(spec));
      if (!status.ok()) {
        EXPECT_THAT(status.message(), HasSubstr(key));
      }
    }
  }
}

// Random damage to the header: whatever is still accepted keeps the promises.
TEST(GgufMutation, RandomBytes) {
  const GgufSpec spec = small_gguf();
  const std::string whole = write_gguf(spec);
  const size_t header = gguf_data_start(spec);
  Random random(4);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = whole;
    const uint32_t edits = 1 + random.next_u32() % 3;
    for (uint32_t e = 0; e < edits; ++e) {
      constexpr unsigned char kHostile[] = {0, 1, 0x7F, 0x80, 0xFF};
      const uint32_t draw = random.next_u32();
      bytes[random.below(header)] =
          static_cast<char>(draw % 2 == 0 ? kHostile[draw / 2 % std::size(kHostile)] : draw >> 8);
    }
    const auto file = GgufFile::parse(as_bytes(bytes), "t.gguf");
    if (!file.ok()) {
      EXPECT_TRUE(file.status().message().starts_with("t.gguf: "));
      continue;
    }
    ++accepted;
    EXPECT_EQ(broken_promise(**file, as_bytes(bytes)), "");
  }
  EXPECT_GT(accepted, 100);  // the loop reaches past the reader
}

}  // namespace
}  // namespace pelton::weights
