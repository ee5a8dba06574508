#include "weights/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "tests/support/allocation_hook.h"
#include "weights/testing/safetensors_writer.h"
#include "weights/testing/source_oracle.h"

namespace pelton::weights {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

Status status_of(const std::string& bytes) {
  return SafetensorsSet::parse(as_bytes(bytes), "t.safetensors").status();
}

TEST(Safetensors, ReadsUsableTensors) {
  const std::string bytes = write_safetensors(small_safetensors());
  const auto set = SafetensorsSet::parse(as_bytes(bytes), "t.safetensors");
  ASSERT_TRUE(set.ok()) << set.status().to_string();
  EXPECT_EQ(broken_promise(**set, as_bytes(bytes)), "");
  ASSERT_EQ((*set)->tensors().size(), 4u);
  EXPECT_THAT((*set)->find("a.weight")->shape, ElementsAre(2, 3));
  EXPECT_EQ((*set)->find("b.weight")->format, WeightFormat::kBF16);
  EXPECT_EQ((*set)->find("c.weight")->format, WeightFormat::kF16);
  EXPECT_THAT((*set)->find("e.scale")->shape, ElementsAre());
  EXPECT_EQ((*set)->metadata().at("format"), "pt");
}

TEST(Safetensors, StepsOverOtherDtypes) {
  const std::string bytes = write_safetensors(small_safetensors());
  const auto set = SafetensorsSet::parse(as_bytes(bytes), "t.safetensors");
  ASSERT_TRUE(set.ok());
  ASSERT_EQ((*set)->unused().size(), 1u);
  EXPECT_EQ((*set)->unused()[0].dtype, "I64");
  EXPECT_EQ((*set)->unused()[0].bytes, 16u);
  EXPECT_EQ((*set)->find("d.position_ids"), nullptr);
  EXPECT_EQ((*set)->require("d.position_ids").status().message(),
            "t.safetensors: tensor 'd.position_ids': dtype I64 is not supported");
  EXPECT_EQ((*set)->require("f").status().message(), "t.safetensors: tensor 'f': missing");
}

// Old writers did not pad the header; the data is then copied to where its elements are aligned.
TEST(Safetensors, AlignsDataThatTheFileDoesNot) {
  SafetensorsSpec spec = small_safetensors();
  spec.align = 1;
  for (int pad = 0; pad < 8; ++pad) {
    spec.metadata = fmt::format(R"({{"pad":"{}"}})", std::string(static_cast<size_t>(pad), 'x'));
    const std::string bytes = write_safetensors(spec);
    const auto set = SafetensorsSet::parse(as_bytes(bytes), "t.safetensors");
    ASSERT_TRUE(set.ok());
    EXPECT_EQ(broken_promise(**set, as_bytes(bytes)), "");
    const auto data = (*set)->find("a.weight")->data;
    EXPECT_TRUE(std::ranges::equal(data, as_bytes(spec.tensors[0].data)));
  }
}

TEST(Safetensors, HeaderOrderIsFree) {
  const std::string bytes = wrap_safetensors(
      R"({"b":{"data_offsets":[4,8],"shape":[2],"dtype":"F16"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}  )",
      "abcdefgh");
  const auto set = SafetensorsSet::parse(as_bytes(bytes), "t.safetensors");
  ASSERT_TRUE(set.ok()) << set.status().to_string();
  EXPECT_EQ(static_cast<char>((*set)->find("b")->data[0]), 'e');
}

TEST(Safetensors, AnEmptySetIsAFile) { EXPECT_TRUE(status_of(wrap_safetensors("{}", "")).ok()); }

struct Fault {
  std::string header;
  const char* message;
};

// Headers over 8 bytes of data.
std::vector<Fault> header_faults() {
  const auto tensor = [](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    return fmt::format(R"({{"a":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape,
                       offsets);
  };
  const std::string good = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const std::string deep = std::string(100000, '[');
  return {
      {"[]", "not a safetensors file"},
      {" {}", "not a safetensors file"},
      {"{" + good, "header: not valid JSON at byte"},
      {"{" + good + "}}", "header: not valid JSON at byte"},
      {"{" + good + "} x", "header: not valid JSON at byte"},
      {"{" + good + "}" + std::string(1, '\0'), "NUL"},
      {"{" + good + ",}", "not valid JSON"},
      {"{" + good + "} // comment", "not valid JSON"},
      {"{" + good + ",\"\xFF\":1}", "not valid JSON"},
      {"{" + good + "," + good + "}", "tensor 'a': appears twice"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       "tensor 'a': field 'dtype' appears twice"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", "unknown field 'x'"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", "needs dtype, shape and data_offsets"},
      {R"({"a":{}})", "needs dtype, shape and data_offsets"},
      {R"({"a":7})", "tensor 'a': an integer where an object is expected"},
      {R"({"a":null})", "tensor 'a': null where an object is expected"},
      {R"({"":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "empty name"},
      {R"({"__metadata__":{"a":1},)" + good + "}", "__metadata__ must map strings to strings"},
      {R"({"__metadata__":[],)" + good + "}", "__metadata__ must map strings to strings"},
      {R"({"__metadata__":{"a":{}},)" + good + "}", "__metadata__ must map strings to strings"},
      {R"({"__metadata__":{"a":"","a":""},)" + good + "}", "__metadata__ holds a key twice"},
      {R"({"__metadata__":{},"__metadata__":{},)" + good + "}", "__metadata__ appears twice"},
      {tensor("7", "[2]", "[0,8]"), "tensor 'a': dtype is an integer, not a string"},
      {tensor(R"("F31")", "[2]", "[0,8]"), "tensor 'a': unknown dtype 'F31'"},
      {tensor(R"("F32")", "2", "[0,8]"), "tensor 'a': an integer where shape lists"},
      {tensor(R"("F32")", "[-2]", "[0,8]"), "tensor 'a': a negative integer where shape"},
      {tensor(R"("F32")", "[2.0]", "[0,8]"), "tensor 'a': a fraction where shape"},
      {tensor(R"("F32")", "[[2]]", "[0,8]"), "tensor 'a': an array where shape"},
      {tensor(R"("F32")", "[0]", "[0,0]"), "tensor 'a': dimension of size 0"},
      {tensor(R"("F32")", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), "more than 8 dimensions"},
      {tensor(R"("F32")", "[9223372036854775808]", "[0,8]"),
       "dimension of size 9223372036854775808"},
      {tensor(R"("F32")", "[99999999999999999999]", "[0,8]"), "a fraction where shape"},
      {tensor(R"("F32")", "[4611686018427387904,4]", "[0,8]"), "number of elements overflows"},
      {tensor(R"("F32")", "[4611686018427387904,2]", "[0,8]"), "number of elements overflows"},
      {tensor(R"("F32")", "[4611686018427387904]", "[0,8]"), "size in bytes overflows"},
      {tensor(R"("F32")", "[4398046511105]", "[0,8]"), "span 8 bytes; shape and dtype need 1759"},
      {tensor(R"("F4")", "[3]", "[0,8]"), "does not fill whole bytes"},
      {tensor(R"("F32")", "[1]", "[0,8]"), "data_offsets span 8 bytes; shape and dtype need 4"},
      {tensor(R"("F32")", "[2]", "[8,0]"), "tensor 'a': data_offsets [8, 0] pass"},
      {tensor(R"("F32")", "[2]", "[0,16]"), "data_offsets [0, 16] pass the 8 bytes of data"},
      {tensor(R"("F32")", "[2]", "[18446744073709551608,18446744073709551615]"),
       "pass the 8 bytes"},
      {tensor(R"("F32")", "[2]", "[0]"), "data_offsets must be two integers"},
      {tensor(R"("F32")", "[2]", "[0,8,8]"), "data_offsets must be two integers"},
      {tensor(R"("F32")", "[2]", "[0,\"8\"]"), "a string where data_offsets are two integers"},
      {tensor(R"("F32")", "[1]", "[0,4]"), "4 bytes follow the last tensor"},
      {tensor(R"("F32")", "[1]", "[4,8]"), "data begins at 4, which leaves a gap"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "tensor 'b': data begins at 4, which overlaps"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       "which overlaps"},
      {R"({"a":)" + deep, "header: "},
      {R"({"a":{"shape":)" + deep, "header: "},
      {"{", "not valid JSON"},
  };
}

TEST(SafetensorsFaults, AreRefusedInOneLine) {
  for (const Fault& fault : header_faults()) {
    SCOPED_TRACE(fault.header.substr(0, 120));
    const std::string bytes = wrap_safetensors(fault.header, "abcdefgh");
    const pelton::testing::AllocationCounter memory;
    const Status status = status_of(bytes);
    EXPECT_LT(memory.peak_bytes(), int64_t{1} << 20);
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.message(), HasSubstr(fault.message));
    EXPECT_TRUE(status.message().starts_with("t.safetensors: ")) << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
}

TEST(SafetensorsFaults, LongNames) {
  SafetensorsSpec spec = small_safetensors();
  spec.tensors[0].name = std::string(256, 'n');
  EXPECT_TRUE(status_of(write_safetensors(spec)).ok());
  spec.tensors[0].name += 'n';
  EXPECT_THAT(status_of(write_safetensors(spec)).message(), HasSubstr("name of 257 bytes"));
}

TEST(SafetensorsFaults, HeaderLengths) {
  const std::string whole = write_safetensors(small_safetensors());
  for (uint64_t length : {uint64_t{0}, uint64_t{1}, uint64_t{whole.size()}, uint64_t{100'000'000},
                          uint64_t{100'000'001}, uint64_t{1} << 63, ~uint64_t{0}}) {
    std::string bytes = whole;
    bytes.replace(0, 8, reinterpret_cast<const char*>(&length), 8);
    const pelton::testing::AllocationCounter memory;
    EXPECT_FALSE(status_of(bytes).ok()) << length;
    EXPECT_LT(memory.peak_bytes(), int64_t{1} << 20);
  }
}

TEST(SafetensorsTruncation, EveryByte) {
  const std::string whole = write_safetensors(small_safetensors());
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string cut = whole.substr(0, size);
    EXPECT_FALSE(status_of(cut).ok()) << size;
  }
  EXPECT_THAT(status_of(whole + "x").message(), HasSubstr("1 bytes follow the last tensor"));
  EXPECT_THAT(status_of(whole.substr(0, whole.size() - 1)).message(),
              HasSubstr("tensor 'e.scale'"));
}

TEST(SafetensorsMutation, RandomBytes) {
  const SafetensorsSpec spec = small_safetensors();
  const std::string whole = write_safetensors(spec);
  const size_t header = 8 + safetensors_header_text(spec).size();
  constexpr std::string_view kTokens = "0123456789[]{},:\"aFB-.e \\";
  Random random(7);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = whole;
    for (uint64_t edits = 1 + random.below(3); edits > 0; --edits)
      bytes[8 + random.below(header - 8)] = kTokens[random.below(kTokens.size())];
    const auto set = SafetensorsSet::parse(as_bytes(bytes), "t.safetensors");
    if (!set.ok()) {
      EXPECT_TRUE(set.status().message().starts_with("t.safetensors: "));
      continue;
    }
    ++accepted;
    EXPECT_EQ(broken_promise(**set, as_bytes(bytes)), "");
  }
  EXPECT_GT(accepted, 100);  // the loop reaches past the reader
}

}  // namespace
}  // namespace pelton::weights
