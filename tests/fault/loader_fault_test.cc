// Allocation failure anywhere while a model file is opened: a clean error, nothing left behind.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "models/config.h"
#include "tests/fault/kth_failure.h"
#include "tests/support/models.h"
#include "tests/support/temp_dir.h"
#include "weights/gguf.h"
#include "weights/safetensors.h"
#include "weights/testing/gguf_writer.h"
#include "weights/testing/safetensors_writer.h"

namespace pelton {
namespace {

using testing::fail_each_allocation;
using namespace weights::testing;

template <typename Source>
Status open(const std::filesystem::path& path) {
  return Source::open(path).status();
}

// How many failures the harness reports for an operation.
int failures_of(FunctionRef<Status()> operation) {
  ::testing::TestPartResultArray failures;
  const ::testing::ScopedFakeTestPartResultReporter reporter(
      ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
  fail_each_allocation(operation);
  return failures.size();
}

TEST(KthFailure, SeesLeaksAndWrongErrors) {
  // Seen by the world, so that the compiler may not elide the allocation.
  static std::atomic<int*> seen{nullptr};
  const auto allocate = [] {
    int* pointer = new int(1);
    seen.store(pointer);
    return pointer;
  };
  const auto clean = [&] {
    std::unique_ptr<int> owned(allocate());
    std::unique_ptr<int> other(allocate());
    return Status();
  };
  EXPECT_EQ(failures_of(clean), 0);

  std::vector<int*> lost;  // given back below
  lost.reserve(64);
  const auto leaks = [&] {
    lost.push_back(allocate());
    std::unique_ptr<int> other(allocate());
    delete lost.back();
    lost.pop_back();
    return Status();
  };
  EXPECT_GT(failures_of(leaks), 0);
  for (int* pointer : lost) delete pointer;

  const auto blames_the_file = [&] {
    try {
      std::unique_ptr<int> owned(allocate());
    } catch (const std::bad_alloc&) {
      return data_loss("");
    }
    return Status();
  };
  EXPECT_GT(failures_of(blames_the_file), 0);
}

TEST(LoaderFaults, Gguf) {
  const testing::TempDir dir;
  const auto path = dir.write("m.gguf", write_gguf(small_gguf()));
  EXPECT_GT(fail_each_allocation([&] { return open<weights::GgufFile>(path); }), 20u);
}

TEST(LoaderFaults, GgufSplit) {
  const testing::TempDir dir;
  for (uint16_t i = 0; i < 2; ++i) {
    GgufSpec spec;
    spec.keys = {{"split.no", encode(GgufType::kU16, i)},
                 {"split.count", encode<uint16_t>(GgufType::kU16, 2)},
                 {"split.tensors.count", encode(GgufType::kI32, 2)}};
    spec.tensors = {
        {std::string("tensor.with.a.long.name.") + char('a' + i), 0, {8}, std::string(32, 'x')}};
    dir.write("m-0000" + std::to_string(i + 1) + "-of-00002.gguf", write_gguf(spec));
  }
  const auto first = dir.path() / "m-00001-of-00002.gguf";
  EXPECT_GT(fail_each_allocation([&] { return open<weights::GgufFile>(first); }), 20u);
}

TEST(LoaderFaults, Safetensors) {
  const testing::TempDir dir;
  SafetensorsSpec spec = small_safetensors();
  spec.align = 1;  // with data that has to be moved
  spec.metadata = R"({"pad":"xy"})";
  const auto path = dir.write("model.safetensors", write_safetensors(spec));
  EXPECT_GT(fail_each_allocation([&] { return open<weights::SafetensorsSet>(path); }), 20u);
}

TEST(LoaderFaults, SafetensorsShards) {
  const testing::TempDir dir;
  dir.write("one.safetensors", write_safetensors({{{"a", "F32", {1}, "data"}}}));
  dir.write("two.safetensors", write_safetensors({{{"b", "F32", {1}, "data"}}}));
  dir.write("model.safetensors.index.json",
            R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  EXPECT_GT(fail_each_allocation([&] { return open<weights::SafetensorsSet>(dir.path()); }), 20u);
}

// Refusals too: the message is built on memory.
TEST(LoaderFaults, Refusal) {
  const testing::TempDir dir;
  GgufSpec spec = small_gguf();
  spec.tensors.back().name = spec.tensors.front().name;
  const auto path = dir.write("m.gguf", write_gguf(spec));
  fail_each_allocation([&] {
    const Status status = open<weights::GgufFile>(path);
    return status.code() == StatusCode::kDataLoss ? Status() : internal_error("accepted");
  });
}

TEST(LoaderFaults, RealGguf) {
  const auto path = testing::find_model("SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!path) GTEST_SKIP() << "no SmolLM2-135M-Instruct.Q4_1.gguf in PELTON_MODELS";
  fail_each_allocation(
      [&] {
        auto file = weights::GgufFile::open(*path);
        if (!file.ok()) return file.status();
        return models::config_from_gguf(**file).status();
      },
      {.budget = 200});
}

}  // namespace
}  // namespace pelton
