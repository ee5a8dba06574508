// Weights on a device (a fake one over the scalar references): quantized while they are loaded, or
// made there. What is taken is what was planned, and the model stays the same model.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "device/testing/fake_device.h"
#include "engine/engine.h"
#include "engine/engine_test_util.h"
#include "kernels/ref/device_kernels.h"
#include "tests/support/temp_dir.h"

namespace pelton::engine {
namespace {

using device::FakeCall;
using device::FakeDevice;
using kernels::WeightLayout;

EngineOptions small_options() {
  EngineOptions options;
  options.threads = 2;
  options.max_model_len = 64;
  options.max_num_seqs = 2;
  options.max_num_batched_tokens = 32;
  options.max_logit_rows = 32;
  options.block_size = 16;
  options.kv_cache_dtype = kernels::KvFormat::kBF16;
  return options;
}

struct Fake {
  FakeDevice* device = nullptr;  // the backend's
  EngineOptions options;
};

Fake fake_options(const kernels::DeviceKernels& kernels = kernels::ref::device_kernels()) {
  auto device = std::make_unique<FakeDevice>(size_t{512} << 20);
  Fake fake{device.get(), small_options()};
  fake.options.cuda = true;
  fake.options.backend = *runtime::Backend::create(std::move(device), kernels);
  return fake;
}

std::unique_ptr<Engine> shape_or_fail(const char* name, const EngineOptions& options) {
  auto files = ModelFiles::from_shape(name, 1);
  EXPECT_TRUE(files.ok()) << files.status().to_string();
  if (!files.ok()) return nullptr;
  auto engine = Engine::load(*std::move(files), options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return engine.ok() ? *std::move(engine) : nullptr;
}

const std::vector<int32_t> kPrompt = {1, 20, 300, 4000, 17, 88, 1024, 5, 6, 977, 3100, 12};

// Mean over rows of KL(a || b), nat.
double divergence(const std::vector<float>& a, const std::vector<float>& b, size_t rows) {
  EXPECT_EQ(a.size(), b.size());
  const size_t columns = a.size() / rows;
  double sum = 0;
  for (size_t r = 0; r < rows; ++r) {
    double total_a = 0;
    double total_b = 0;
    for (size_t i = r * columns; i < (r + 1) * columns; ++i) {
      total_a += std::exp(static_cast<double>(a[i]));
      total_b += std::exp(static_cast<double>(b[i]));
    }
    for (size_t i = r * columns; i < (r + 1) * columns; ++i) {
      const double log_a = static_cast<double>(a[i]) - std::log(total_a);
      sum += std::exp(log_a) * (log_a - static_cast<double>(b[i]) + std::log(total_b));
    }
  }
  return sum / static_cast<double>(rows);
}

TEST(DeviceWeights, QuantizedAtLoadTheyTakeWhatIsPlannedAndAnswerAlike) {
  Fake plain = fake_options();
  auto base = load_or_fail(small_model(), plain.options);
  ASSERT_NE(base, nullptr);
  const std::vector<float> want = logits_of(*base, kPrompt);
  struct Case {
    WeightLayout layout;
    double bits;  // of a weight, scales included
    double divergence;
  };
  for (const Case& c :
       {Case{WeightLayout::kFp8Channels, 8.3, 0.02}, Case{WeightLayout::kInt8Channels, 8.3, 0.01},
        Case{WeightLayout::kInt4Groups, 4.2, 0.5}}) {
    Fake fake = fake_options();
    fake.options.quantization = c.layout;
    auto engine = load_or_fail(small_model(), fake.options);
    ASSERT_NE(engine, nullptr);
    const runtime::MemoryPlan& plan = engine->plan();
    EXPECT_EQ(fake.device->live_bytes(), plan.device() - plan.graphs);
    EXPECT_EQ(plan.parameters, base->plan().parameters);
    const auto& config = engine->files().config();
    const double table = static_cast<double>(config.vocab_size) * config.hidden_size;
    const double layers = static_cast<double>(plan.parameters) - table;
    EXPECT_NEAR(static_cast<double>(plan.weights), 2 * table + layers * c.bits / 8,
                0.03 * layers + 8192);
    EXPECT_LT(plan.streamed_weights, base->plan().streamed_weights);
    const double divergence_here = divergence(want, logits_of(*engine, kPrompt), kPrompt.size());
    EXPECT_LT(divergence_here, c.divergence) << static_cast<int>(c.layout);
    EXPECT_GT(divergence_here, 1e-7) << "nothing was quantized";
    EXPECT_EQ(fake.device->misuse(), "");
  }
}

// A copy of the small model in which one weight is not finite.
TEST(DeviceWeights, WhatIsNotFiniteIsNamed) {
  namespace fs = std::filesystem;
  const pelton::testing::TempDir dir;
  const fs::path folder = dir.path() / "model";
  fs::copy(small_model(), folder);
  auto files = ModelFiles::open(folder);
  ASSERT_TRUE(files.ok());
  const char* kName = "model.layers.1.mlp.up_proj.weight";
  const weights::TensorInfo* info = (*files)->source().find(kName);
  ASSERT_NE(info, nullptr);
  const auto at = static_cast<std::streamoff>(info->data.data() - info->file->bytes().data());
  {
    fs::permissions(folder / "model.safetensors", fs::perms::owner_write, fs::perm_options::add);
    std::fstream file(folder / "model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at + 2 * 777);
    const uint16_t nan = 0x7FC0;
    file.write(reinterpret_cast<const char*>(&nan), sizeof(nan));
    ASSERT_TRUE(file.good());
  }
  for (const WeightLayout layout :
       {WeightLayout::kFp8Channels, WeightLayout::kInt8Channels, WeightLayout::kInt4Groups}) {
    Fake fake = fake_options();
    fake.options.quantization = layout;
    auto again = ModelFiles::open(folder);
    ASSERT_TRUE(again.ok());
    const auto engine = Engine::load(*std::move(again), fake.options);
    ASSERT_FALSE(engine.ok());
    EXPECT_EQ(engine.status().code(), StatusCode::kDataLoss);
    EXPECT_NE(engine.status().message().find(kName), std::string::npos)
        << engine.status().to_string();
  }
}

TEST(DeviceWeights, AShapeIsTheSameModelWhereverItsWeightsAreMade) {
  EngineOptions exact = small_options();
  exact.activations = kernels::ActivationPrecision::kF32;
  exact.kv_cache_dtype = kernels::KvFormat::kF32;
  auto cpu = shape_or_fail("smollm2-135m", exact);
  ASSERT_NE(cpu, nullptr);
  const std::vector<int32_t> prompt = {1, 20, 300};
  const std::vector<float> want = logits_of(*cpu, prompt);
  const auto relative = [&](const std::vector<float>& got) {
    double missed = 0;
    double all = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      missed += std::pow(static_cast<double>(got[i]) - static_cast<double>(want[i]), 2.0);
      all += std::pow(static_cast<double>(want[i]), 2.0);
    }
    return std::sqrt(missed / all);
  };
  struct Case {
    WeightLayout layout;
    double error;
  };
  for (const Case& c :
       {Case{WeightLayout::kSource, 0.02}, Case{WeightLayout::kFp8Channels, 0.08},
        Case{WeightLayout::kInt8Channels, 0.03}, Case{WeightLayout::kInt4Groups, 0.25}}) {
    Fake fake = fake_options();
    fake.options.quantization = c.layout;
    auto engine = shape_or_fail("smollm2-135m", fake.options);
    ASSERT_NE(engine, nullptr);
    EXPECT_LT(fake.device->calls(FakeCall::kCopyToDevice), 10) << "norms and rotations alone";
    EXPECT_EQ(fake.device->live_bytes(), engine->plan().device() - engine->plan().graphs);
    EXPECT_LT(relative(logits_of(*engine, prompt)), c.error) << static_cast<int>(c.layout);
    EXPECT_EQ(fake.device->misuse(), "");
  }
}

class PackedWeights : public ::testing::TestWithParam<WeightLayout> {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_ / "cache");
    std::filesystem::copy(small_model(), folder_ / "model");
  }

  Result<std::unique_ptr<Engine>> load(const std::filesystem::path& cache) {
    fake_ = fake_options();
    fake_.options.quantization = GetParam();
    fake_.options.packed_cache = cache.string();
    auto files = ModelFiles::open(folder_ / "model");
    if (!files.ok()) return files.status();
    return Engine::load(*std::move(files), fake_.options);
  }
  std::vector<std::filesystem::path> cached() const {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "cache"))
      paths.push_back(entry.path());
    return paths;
  }

  const pelton::testing::TempDir dir_;
  const std::filesystem::path folder_ = dir_.path();
  Fake fake_;
};
INSTANTIATE_TEST_SUITE_P(Layouts, PackedWeights,
                         ::testing::Values(WeightLayout::kSource, WeightLayout::kFp8Channels,
                                           WeightLayout::kInt4Groups));

TEST_P(PackedWeights, TheSecondStartReadsWhatTheFirstWrote) {
  auto first = load(folder_ / "cache");
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_TRUE((*first)->warnings().empty());
  const int64_t copies = fake_.device->calls(FakeCall::kCopyToDevice);
  const std::vector<float> want = logits_of(**first, kPrompt);
  ASSERT_EQ(cached().size(), 1u);
  auto second = load(folder_ / "cache");
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_LT(fake_.device->calls(FakeCall::kCopyToDevice), copies) << "matrices came in one piece";
  EXPECT_EQ(logits_of(**second, kPrompt), want);
  EXPECT_EQ(cached().size(), 1u);
  EXPECT_EQ(fake_.device->misuse(), "");
}

TEST_P(PackedWeights, WhatIsStaleOrDamagedIsRefusedAndLeftAlone) {
  const std::filesystem::path file = folder_ / "one";
  ASSERT_TRUE(load(file).ok());
  const auto bytes = std::filesystem::file_size(file);
  {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(static_cast<std::streamoff>(bytes / 2));
    stream.put('?').put('!');
  }
  auto damaged = load(file);
  ASSERT_FALSE(damaged.ok());
  EXPECT_NE(damaged.status().message().find("damaged"), std::string::npos)
      << damaged.status().to_string();
  std::filesystem::remove(file);
  ASSERT_TRUE(load(file).ok());
  const auto weights = folder_ / "model" / "model.safetensors";
  std::filesystem::last_write_time(
      weights, std::filesystem::last_write_time(weights) + std::chrono::seconds(3));
  auto stale = load(file);
  ASSERT_FALSE(stale.ok());
  EXPECT_EQ(stale.status().code(), StatusCode::kDataLoss);
  EXPECT_NE(stale.status().message().find("anew"), std::string::npos);
  EXPECT_EQ(std::filesystem::file_size(file), bytes);
}

TEST_P(PackedWeights, AFileThatCannotBeWrittenIsAWarning) {
  auto engine = load(folder_ / "no such folder" / "file");
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  ASSERT_EQ((*engine)->warnings().size(), 1u);
  EXPECT_NE((*engine)->warnings()[0].find("not written"), std::string::npos);
}

TEST(DeviceWeights, WhatLaunchesShareIsPlanned) {
  static kernels::DeviceKernels sharing = kernels::ref::device_kernels();
  sharing.zeroed_bytes = 12345;
  const Fake fake = fake_options(sharing);
  auto engine = load_or_fail(small_model(), fake.options);
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->plan().shared, 12345u);
  EXPECT_EQ(fake.device->live_bytes(), engine->plan().device() - engine->plan().graphs);
}

}  // namespace
}  // namespace pelton::engine
