// Every op's case table on a device: the fake one, whose kernels are the references, proves the
// plumbing on any machine; a GPU proves the kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/ref/attention.h"
#include "kernels/ref/matmul.h"
#include "kernels/ref/rows.h"
#include "ops/attention.h"
#include "ops/attention_cases.h"
#include "ops/elementwise.h"
#include "ops/elementwise_cases.h"
#include "ops/matmul.h"
#include "ops/matmul_cases.h"
#include "ops/testing/attention_run.h"
#include "ops/testing/device_harness.h"

namespace pelton::ops {
namespace {

using kernels::KvFormat;
using kernels::SequenceSlice;
using kernels::WeightMatrix;

constexpr double kEps = std::numeric_limits<float>::epsilon();
constexpr WeightFormat kStored[] = {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBF16};

class DeviceOpsTest : public testing::TestWithParam<TestDevice> {
 protected:
  DeviceOpsTest() : harness_(GetParam()) {}
  void SetUp() override {
    if (!harness_.absent().empty()) GTEST_SKIP() << harness_.absent();
  }
  bool is_fake() const { return GetParam() == TestDevice::kFake; }

  DeviceHarness harness_;
};
INSTANTIATE_TEST_SUITE_P(Devices, DeviceOpsTest, testing::ValuesIn(kTestDevices),
                         [](const auto& info) { return test_device_name(info.param); });

void expect_near(std::span<const float> got, std::span<const float> want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const double w = want[i];
    ASSERT_NEAR(got[i], w, tolerance * (1.0 + std::fabs(w))) << "element " << i;
  }
}

void expect_same_bits(std::span<const float> a, std::span<const float> b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i]))
        << what << " element " << i;
  }
}

TEST_P(DeviceOpsTest, NormsMatchTheReference) {
  for (const RowCase& c : kRowCases) {
    harness_.reset();
    Matrix x = Matrix::normal(c.rows, c.columns, 1, 3.0f);
    Matrix weight = Matrix::normal(1, c.columns, 2);
    Matrix bias = Matrix::normal(1, c.columns, 3);
    Matrix before = Matrix::normal(c.rows, c.columns, 4);
    const Tensor in = harness_.put(x);
    const float* w = harness_.put(weight.values);
    const float* b = harness_.put(bias.values);
    const Tensor out = harness_.blank(c.rows, c.columns);
    const Tensor residual = harness_.put(before);
    const Tensor layer = harness_.blank(c.rows, c.columns);
    StepContext& context = harness_.context();
    ASSERT_TRUE(rms_norm(context, {.x = in, .weight = w, .eps = 1e-5f, .out = out}).ok());
    ASSERT_TRUE(
        rms_norm(context, {.x = in, .weight = w, .eps = 1e-5f, .residual = &residual}).ok());
    ASSERT_TRUE(layer_norm(context, {.x = in, .weight = w, .bias = b, .out = layer}).ok());
    Matrix got = harness_.get(out);
    Matrix added = harness_.get(residual);
    Matrix layered = harness_.get(layer);
    std::vector<float> want(static_cast<size_t>(c.columns));
    for (int64_t t = 0; t < c.rows; ++t) {
      kernels::ref::rms_norm(x.row(t), weight.row(0), 1e-5, want);
      expect_near(got.row(t), want, 8 * kEps);
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_EQ(added.row(t)[i], before.row(t)[i] + got.row(t)[i]);
      if (c.columns == 1) continue;
      kernels::ref::layer_norm(x.row(t), weight.row(0), bias.row(0), 1e-5, want);
      expect_near(layered.row(t), want, 64 * kEps);
    }
  }
}

TEST_P(DeviceOpsTest, RmsNormOfHeadsNormalizesEachHead) {
  Matrix x = Matrix::normal(5, 3 * 40, 4);
  Matrix weight = Matrix::normal(1, 40, 5);
  const Tensor heads = harness_.put(x).heads(3, 40);
  ASSERT_TRUE(
      rms_norm(harness_.context(),
               {.x = heads, .weight = harness_.put(weight.values), .eps = 1e-6f, .out = heads})
          .ok());
  Matrix got = harness_.get(heads);
  std::vector<float> want(40);
  for (int64_t t = 0; t < 5; ++t) {
    for (size_t h = 0; h < 3; ++h) {
      kernels::ref::rms_norm(x.row(t).subspan(h * 40, 40), weight.row(0), 1e-6, want);
      expect_near(got.row(t).subspan(h * 40, 40), want, 8 * kEps);
    }
  }
}

TEST_P(DeviceOpsTest, RopeRotatesBothPairings) {
  const std::vector<int32_t> positions = {0, 1, 17, 4095, 131071};
  for (const RopeCase& c : kRopeCases) {
    for (const RopePairing pairing : {RopePairing::kHalves, RopePairing::kAdjacent}) {
      harness_.reset();
      std::vector<float> inv_freq(static_cast<size_t>(c.rotary_dim / 2));
      for (size_t i = 0; i < inv_freq.size(); ++i) {
        inv_freq[i] =
            std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(c.rotary_dim));
      }
      const auto where = harness_.input(positions);
      harness_.send();
      Matrix x = Matrix::normal(5, c.heads * c.head_dim, 9);
      const Tensor in = harness_.put(x);
      const std::span<const float> frequencies(harness_.put(inv_freq), inv_freq.size());
      auto angles = rope_angles(harness_.context(), where, frequencies, 1.25f);
      ASSERT_TRUE(angles.ok());
      ASSERT_TRUE(rope(harness_.context(), in.heads(c.heads, c.head_dim), *angles, pairing).ok());
      Matrix cosines = harness_.get(angles->cos);
      Matrix sines = harness_.get(angles->sin);
      Matrix got = harness_.get(in);
      for (int64_t t = 0; t < 5; ++t) {
        for (size_t i = 0; i < inv_freq.size(); ++i) {
          const float angle = static_cast<float>(positions[static_cast<size_t>(t)]) * inv_freq[i];
          ASSERT_NEAR(cosines.row(t)[i], 1.25 * std::cos(double{angle}), 2 * kEps);
          ASSERT_NEAR(sines.row(t)[i], 1.25 * std::sin(double{angle}), 2 * kEps);
        }
        for (int64_t h = 0; h < c.heads; ++h) {
          kernels::ref::rope(x.row(t).subspan(static_cast<size_t>(h * c.head_dim),
                                              static_cast<size_t>(c.head_dim)),
                             cosines.row(t), sines.row(t), pairing == RopePairing::kAdjacent);
        }
        expect_near(got.row(t), x.row(t), 4 * kEps);
      }
    }
  }
}

TEST_P(DeviceOpsTest, ActivationsMatchTheReference) {
  constexpr Activation kAll[] = {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh,
                                 Activation::kRelu};
  double (*const reference[])(double) = {kernels::ref::silu, kernels::ref::gelu,
                                         kernels::ref::gelu_tanh, kernels::ref::relu};
  Matrix gate(1, 200003);
  for (size_t i = 0; i < gate.values.size(); ++i)
    gate.values[i] = -100.0f + 0.001f * static_cast<float>(i);
  gate.values[0] = -1e30f;
  gate.values[1] = 1e30f;
  gate.values[2] = -0.0f;
  const Matrix up = Matrix::normal(1, gate.columns, 10);
  for (size_t a = 0; a < 4; ++a) {
    harness_.reset();
    const Tensor in = harness_.put(gate);
    const Tensor plain = harness_.put(gate);
    const Tensor out = harness_.blank(1, gate.columns);
    ASSERT_TRUE(activate(harness_.context(), kAll[a], plain).ok());
    ASSERT_TRUE(gated_activation(harness_.context(), kAll[a], in, harness_.put(up), out).ok());
    const Matrix got = harness_.get(plain);
    const Matrix gated = harness_.get(out);
    for (size_t i = 0; i < gate.values.size(); ++i) {
      const double want = reference[a](gate.values[i]);
      // As on the CPU: errors of the gelus are relative to |x|.
      const double scale = std::fabs(a == 1 || a == 2 ? gate.values[i] : want);
      ASSERT_NEAR(got.values[i], want, 8 * kEps * scale + 1e-35) << "at " << gate.values[i];
      ASSERT_EQ(gated.values[i], got.values[i] * up.values[i]);
    }
  }
}

TEST_P(DeviceOpsTest, SoftCapAddGatherAndEmbedding) {
  Matrix x = Matrix::normal(7, 2003, 11, 60.0f);
  Matrix y = Matrix::normal(7, 2003, 12);
  const std::vector<int32_t> rows = {6, 0, 0, 3};
  const auto picked = harness_.input(rows);
  harness_.send();
  const Tensor a = harness_.put(x);
  const Tensor b = harness_.put(y);
  const Tensor few = harness_.blank(4, 2003);
  StepContext& context = harness_.context();
  ASSERT_TRUE(soft_cap(context, a, 30.0f).ok());
  ASSERT_TRUE(add(context, b, a).ok());
  ASSERT_TRUE(gather_rows(context, b, picked, few).ok());
  const Matrix capped = harness_.get(a);
  Matrix sum = harness_.get(b);
  Matrix got = harness_.get(few);
  for (size_t i = 0; i < x.values.size(); ++i) {
    const double want = 30.0 * std::tanh(x.values[i] / 30.0);
    ASSERT_NEAR(capped.values[i], want, 6 * kEps * std::fabs(want));
    ASSERT_EQ(sum.values[i], y.values[i] + capped.values[i]);
  }
  for (int64_t t = 0; t < 4; ++t)
    expect_same_bits(got.row(t), sum.row(rows[static_cast<size_t>(t)]), "gathered row");

  Random rng(5);
  for (const WeightFormat format : kStored) {
    const std::vector<std::byte> table = random_weight(format, 7, 77, 1.0f, rng);
    const WeightMatrix host = in_place(format, 7, 77, table);
    WeightMatrix there = host;
    there.data = harness_.put(std::span<const std::byte>(table));
    const Tensor out = harness_.blank(4, 77);
    ASSERT_TRUE(
        embedding(context, {.table = &there, .ids = picked, .scale = 1.5f, .out = out}).ok());
    Matrix embedded = harness_.get(out);
    std::vector<float> want(77);
    for (int64_t t = 0; t < 4; ++t) {
      dequantize_row(host, rows[static_cast<size_t>(t)], want.data());
      for (float& v : want) v *= 1.5f;
      expect_same_bits(embedded.row(t), want, weight_format_name(format));
    }
  }
  const std::vector<int32_t> outside = {7};
  WeightMatrix table{.rows = 7, .columns = 77};
  EXPECT_EQ(
      embedding(context,
                {.table = &table, .ids = outside, .scale = 1.0f, .out = harness_.blank(1, 77)})
          .code(),
      StatusCode::kInvalidArgument);
}

// One product problem on the device; `weights` stay in the file's layout.
struct DeviceProduct {
  std::vector<std::vector<std::byte>> sources;
  std::vector<WeightMatrix> host;
  std::vector<WeightMatrix> there;
  std::vector<float> bias;
  int64_t n = 0;
};

DeviceProduct make_product(DeviceHarness& harness, const MatmulCase& c, WeightFormat format,
                           Random& rng) {
  DeviceProduct p;
  for (const int64_t rows : c.segment_rows) {
    p.sources.push_back(random_weight(format, rows, c.columns, 0.05f, rng));
    p.host.push_back(in_place(format, rows, c.columns, p.sources.back()));
    p.there.push_back(p.host.back());
    p.there.back().data = harness.put(std::span<const std::byte>(p.sources.back()));
    p.n += rows;
  }
  if (c.bias) p.bias = Matrix::normal(1, p.n, 21).values;
  return p;
}

TEST_P(DeviceOpsTest, ProductsMatchTheReferenceAndRowsDoNotDependOnTheirCompany) {
  Random rng(31);
  for (const WeightFormat format : kStored) {
    std::vector<MatmulCase> cases = matmul_cases(32);
    cases.push_back({"odd_columns", {19, 3}, 77, true, false});
    for (const MatmulCase& c : cases) {
      harness_.reset();
      const DeviceProduct p = make_product(harness_, c, format, rng);
      const float* bias = p.bias.empty() ? nullptr : harness_.put(p.bias);
      std::optional<Matrix> one;
      for (const int64_t m : kMatmulRows) {
        Matrix x = Matrix::normal(m, c.columns, 22);
        Matrix before = Matrix::normal(m, p.n, 23);
        const Tensor out = c.accumulate ? harness_.put(before) : harness_.blank(m, p.n);
        ASSERT_TRUE(matmul(harness_.context(), {.x = harness_.put(x),
                                                .weights = p.there,
                                                .bias = bias,
                                                .out = out,
                                                .accumulate = c.accumulate})
                        .ok());
        Matrix got = harness_.get(out);
        for (int64_t t = 0; t < m; ++t) {
          size_t column = 0;
          for (const WeightMatrix& w : p.host) {
            std::vector<double> want(static_cast<size_t>(w.rows)), size(want.size());
            kernels::ref::product_row(w, x.row(t), want.data(), size.data());
            for (size_t i = 0; i < want.size(); ++i, ++column) {
              double value = want[i];
              if (!p.bias.empty()) value += static_cast<double>(p.bias[column]);
              if (c.accumulate) value += static_cast<double>(before.row(t)[column]);
              const double tolerance = (size[i] + std::fabs(value)) * 0x1.0p-24 *
                                       (8 + std::sqrt(static_cast<double>(c.columns)));
              ASSERT_NEAR(got.row(t)[column], value, tolerance)
                  << c.name << " " << weight_format_name(format) << " rows " << m << " row " << t
                  << " column " << column;
            }
          }
        }
        if (!one) one = got;
        // Matrix::normal gives longer matrices the same first row.
        expect_same_bits(got.row(0), one->row(0), c.name);
      }
    }
  }
}

void expect_attention_near(const AttentionCase& c, KvFormat format, AttentionRun& run, size_t i) {
  Matrix keys = run.keys[i];
  Matrix values = run.values[i];
  const auto d = static_cast<size_t>(c.head_dim);
  for (int64_t t = 0; t < keys.rows; ++t) {
    for (size_t h = 0; h < static_cast<size_t>(c.kv_heads); ++h) {
      kernels::ref::round_to_page(format, keys.row(t).subspan(h * d, d));
      kernels::ref::round_to_page(format, values.row(t).subspan(h * d, d));
    }
  }
  for (int64_t t = 0; t < keys.rows; t += t < 20 ? 1 : 7) {
    for (int32_t h = 0; h < c.heads; ++h) {
      const int64_t kv = h / (c.heads / c.kv_heads) * c.head_dim;
      const auto want = kernels::ref::attention(
          {.query = run.queries[i].row(t).subspan(static_cast<size_t>(h) * d, d),
           .keys = keys.values.data() + kv,
           .values = values.values.data() + kv,
           .stride = keys.columns,
           .position = static_cast<int32_t>(t),
           .head = h},
          run.host_variant);
      const double relative =
          kEps * (32 + (2 * std::sqrt(static_cast<double>(d)) + 4) * want.largest_product);
      for (size_t e = 0; e < d; ++e) {
        ASSERT_NEAR(run.outputs[i].row(t)[static_cast<size_t>(h) * d + e], want.out[e],
                    relative * want.magnitude[e] + 1e-30)
            << c.name << " " << kernels::kv_format_name(format) << " sequence " << i << " row " << t
            << " head " << h << " element " << e;
      }
    }
  }
}

TEST_P(DeviceOpsTest, AttentionMatchesTheReferenceAndRowsDoNotDependOnTheirCompany) {
  for (const AttentionCase& c : kAttentionCases) {
    for (const KvFormat format :
         {KvFormat::kF32, KvFormat::kF16, KvFormat::kBF16, KvFormat::kFp8, KvFormat::kInt8}) {
      const int32_t length = is_fake() ? 37 : 150;
      AttentionRun whole(harness_, c, format, {length, 21});
      whole.step({length, 21});
      for (size_t i = 0; i < 2; ++i) expect_attention_near(c, format, whole, i);
      AttentionRun chunks(harness_, c, format, {length, 21});
      chunks.step({17, 0});
      chunks.step({1, 20});
      chunks.step({length - 19, 1});
      chunks.step({1, 0});
      for (size_t i = 0; i < 2; ++i)
        expect_same_bits(chunks.outputs[i].values, whole.outputs[i].values, c.name);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(DeviceOpsTest, NothingIsMisused) {
  if (!is_fake()) GTEST_SKIP() << "only the fake device watches";
  EXPECT_EQ(static_cast<device::FakeDevice&>(harness_.device()).misuse(), "");
}

// An op reports what the device reports.
TEST(DeviceOpFaultTest, ALaunchThatFailsIsAStatus) {
  DeviceHarness harness(TestDevice::kFake);
  auto& fake = static_cast<device::FakeDevice&>(harness.device());
  const Tensor x = harness.put(Matrix::normal(2, 8, 1));
  fake.inject(fake.calls(), device::FakeFault::kError);
  EXPECT_EQ(activate(harness.context(), Activation::kSilu, x).code(), StatusCode::kInternal);
  EXPECT_EQ(fake.fault().code(), StatusCode::kInternal);
}

// A context that only plans, for a device with these kernels.
struct Planning {
  explicit Planning(const kernels::DeviceKernels& kernels, const device::Caps& of = {},
                    bool has_cublaslt = false)
      : caps(of), device{.caps = caps, .kernels = kernels, .has_cublaslt = has_cublaslt} {}
  Planning(const Planning&) = delete;

  device::Caps caps;
  DeviceStep device;
  memory::StepArena arena = memory::StepArena::counting();
  ThreadPool pool{1};
  StepContext context{
      .arena = arena, .pool = pool, .cpu = kernels::generic_kernels(), .device = &device};
};

// Scratch of a plan covers every number of rows below it, whichever kernel wins there.
TEST(DevicePlanTest, ScratchCoversFewerRowsThanPlanned) {
  const auto any = [](const device::Caps&, const kernels::MatmulProblem&) { return true; };
  const auto few = [](const device::Caps&, const kernels::MatmulProblem& p) { return p.m <= 3; };
  const auto one = [](const device::Caps&, const kernels::MatmulProblem&) { return 1.0; };
  const auto two = [](const device::Caps&, const kernels::MatmulProblem&) { return 2.0; };
  const auto none = [](const device::Caps&, const kernels::MatmulProblem&) { return size_t{0}; };
  const auto some = [](const device::Caps&, const kernels::MatmulProblem&) { return size_t{640}; };
  const auto launch = [](const kernels::MatmulParams&, device::Stream&) { return Status(); };
  const kernels::MatmulEntry entries[] = {{"any", any, two, none, launch},
                                          {"few", few, one, some, launch}};
  kernels::DeviceKernels list = kernels::ref::device_kernels();
  list.matmul = entries;
  Planning plan(list);
  const WeightMatrix weight{.rows = 4, .columns = 8, .format = WeightFormat::kBF16};
  const Tensor x = Tensor::rows(nullptr, DType::kF32, 100, 8);
  const Tensor out = Tensor::rows(nullptr, DType::kF32, 100, 4);
  ASSERT_TRUE(matmul(plan.context, {.x = x, .weights = {&weight, 1}, .out = out}).ok());
  EXPECT_EQ(plan.arena.peak(), 640u);
}

// Attention kernels that write down what they were given.
struct AttentionCall {
  std::string kernel;
  int64_t rows, first_row, sequences, context;
  bool operator==(const AttentionCall&) const = default;
};
void PrintTo(const AttentionCall& call, std::ostream* out) {
  *out << call.kernel << " rows " << call.rows << " from " << call.first_row << " sequences "
       << call.sequences << " context " << call.context;
}
std::vector<AttentionCall> attention_calls;
template <bool decodes>
Status note_attention(const kernels::AttentionParams& p, device::Stream&) {
  attention_calls.push_back({decodes ? "decode" : "prompt", p.problem.rows, p.first_row,
                             p.problem.num_sequences, p.sequences[0].context_len});
  return {};
}
template <bool decodes>
constexpr kernels::AttentionEntry noted_attention() {
  return {decodes ? "decode" : "prompt",
          [](const device::Caps&, const kernels::AttentionProblem& p) {
            return !decodes || p.max_rows == 1;
          },
          [](const device::Caps&, const kernels::AttentionProblem&) { return decodes ? 1.0 : 2.0; },
          [](const device::Caps&, const kernels::AttentionProblem& p) {
            return decodes ? static_cast<size_t>(p.rows) * 4096 : size_t{64};
          },
          note_attention<decodes>};
}
constexpr kernels::AttentionEntry kNotedAttention[] = {noted_attention<true>(),
                                                       noted_attention<false>()};

// The step's sequences that decode, which come first, have a launch of their own, whatever else the
// step holds; with --invariant all rows are of one kernel.
TEST(DeviceAttentionTest, DecodingSequencesOfAMixedStepGoToTheDecodeKernel) {
  struct Case {
    std::vector<int32_t> rows;
    bool invariant;
    std::vector<AttentionCall> calls;
  };
  const Case cases[] = {
      {{1, 1, 5}, false, {{"decode", 2, 0, 2, 40}, {"prompt", 5, 2, 1, 42}}},
      {{1, 5, 1, 3}, false, {{"decode", 1, 0, 1, 40}, {"prompt", 9, 1, 3, 41}}},
      {{1, 1, 1}, false, {{"decode", 3, 0, 3, 40}}},
      {{4, 1}, false, {{"prompt", 5, 0, 2, 40}}},
      {{1, 1, 5}, true, {{"prompt", 7, 0, 3, 40}}},
  };
  DeviceHarness harness(TestDevice::kFake);
  kernels::DeviceKernels list = kernels::ref::device_kernels();
  for (const Case& c : cases) {
    harness.reset();
    attention_calls.clear();
    list.attention = c.invariant ? std::span(kNotedAttention).subspan(1) : kNotedAttention;
    const DeviceStep before = *harness.context().device;
    const DeviceStep step{.caps = before.caps,
                          .kernels = list,
                          .stream = before.stream,
                          .inputs = before.inputs,
                          .zeroed = before.zeroed,
                          .invariant = c.invariant};
    std::vector<kernels::SequenceSlice> slices;
    int32_t row = 0;
    const auto table = harness.input(std::vector<int32_t>(4, 0));
    for (const int32_t rows : c.rows) {
      slices.push_back({row, rows, 40 + static_cast<int32_t>(slices.size()), table.data()});
      row += rows;
    }
    const auto sequences = harness.input(std::span<const kernels::SequenceSlice>(slices));
    harness.send();
    harness.finish();
    StepContext context = harness.context();
    context.device = &step;
    const Tensor queries = harness.blank(row, 32).heads(2, 16);
    ASSERT_TRUE(
        attention(context, {.queries = queries,
                            .cache = {.block_tokens = 16, .num_kv_heads = 1, .head_dim = 16},
                            .sequences = sequences,
                            .variant = {},
                            .out = harness.blank(row, 32)})
            .ok());
    EXPECT_EQ(attention_calls, c.calls);
  }
}

// A prompt step may hold as many decoding sequences as a step has sequences.
TEST(DevicePlanTest, AStepOfPromptsHasScratchForItsDecodingSequences) {
  kernels::DeviceKernels list = kernels::ref::device_kernels();
  list.attention = kNotedAttention;
  Planning plan(list);
  std::vector<kernels::SequenceSlice> slices;
  for (int32_t i = 0; i < 7; ++i) slices.push_back({i * 10, 10, 100, nullptr});
  ASSERT_TRUE(
      attention(plan.context, {.queries = Tensor::rows(nullptr, DType::kF32, 70, 32).heads(2, 16),
                               .cache = {.block_tokens = 16, .num_kv_heads = 1, .head_dim = 16},
                               .sequences = slices,
                               .variant = {},
                               .out = Tensor::rows(nullptr, DType::kF32, 70, 32)})
          .ok());
  EXPECT_GE(plan.arena.peak(), size_t{7} * 4096);
}

// A plan has room for cuBLASLt's workspace where products of many rows may be the library's, and
// where nothing is known of the library.
TEST(DevicePlanTest, TheLibrarysWorkspaceIsPlanned) {
  const WeightMatrix weight{.rows = 256, .columns = 256, .format = WeightFormat::kBF16};
  const Tensor x = Tensor::rows(nullptr, DType::kBF16, 300, 256);
  const Tensor out = Tensor::rows(nullptr, DType::kBF16, 300, 256);
  for (const bool has_cublaslt : {false, true}) {
    Planning plan(cuda_kernels(), device::h200_caps(), has_cublaslt);
    ASSERT_TRUE(matmul(plan.context, {.x = x, .weights = {&weight, 1}, .out = out}).ok());
    constexpr size_t kLibrary = size_t{32} << 20;  // our own kernels take less
    if (has_cublaslt) {
      EXPECT_GE(plan.arena.peak(), kLibrary);
      EXPECT_LE(plan.arena.peak(), kLibrary + (size_t{1} << 20));
    } else {
      EXPECT_LT(plan.arena.peak(), kLibrary);
    }
  }
}

}  // namespace
}  // namespace pelton::ops
