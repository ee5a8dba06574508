// The sampling kernel against the scalar reference: the case table, all cases of one vocabulary in
// one batch, and every row alone.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "harness.h"
#include "kernels/cuda/sampling/sample.h"
#include "kernels/ref/sampling.h"
#include "kernels/ref/sampling_cases.h"

namespace pelton::bench_cuda {

namespace {

using kernels::SampleParams;
using kernels::SampleRow;
using kernels::SampleState;
using kernels::ref::kSamplingCases;
using kernels::ref::SamplingCase;
using kernels::ref::SamplingData;

template <typename T>
Buffer upload_bytes(const T* data, size_t count) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(data);
  return upload(std::vector<uint8_t>(bytes, bytes + count * sizeof(T)));
}

// A row whose lists lie on the device, in `lists`.
SampleRow upload_row(const SamplingData& data, std::vector<Buffer>& lists) {
  SampleRow row = data.row;
  const auto move = [&]<typename T>(const std::vector<T>& values) {
    lists.push_back(upload_bytes(values.data(), values.size()));
    return lists.back().as<T>();
  };
  row.biases = move(data.biases);
  row.suppressed = move(data.suppressed);
  row.history = move(data.history);
  if (row.newest != nullptr) row.newest = move(std::vector<int32_t>{data.newest});
  return row;
}

struct Outcome {
  int32_t token = 0;
  SampleState state = SampleState::kSampled;
};

Outcome expected_of(SamplingData& data) {
  std::vector<float> logits = data.logits;
  Outcome outcome;
  SampleParams p;
  p.logits = logits.data();
  p.logits_stride = static_cast<int64_t>(logits.size());
  p.rows = 1;
  p.vocab_size = static_cast<int32_t>(logits.size());
  p.row = &data.row;
  p.tokens = &outcome.token;
  p.states = &outcome.state;
  kernels::ref::sample_rows(p);
  return outcome;
}

// Samples rows of one vocabulary together; they lie `stride` elements apart, poison between them.
void check_rows(Report& report, std::vector<SamplingData>& rows, int64_t stride,
                const std::string& what) {
  const size_t count = rows.size();
  const size_t vocab = rows[0].logits.size();
  std::vector<float> logits(count * static_cast<size_t>(stride) + 4, NAN);
  std::vector<Buffer> lists;
  std::vector<SampleRow> asked;
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(&logits[i * static_cast<size_t>(stride)], rows[i].logits.data(), vocab * 4);
    asked.push_back(upload_row(rows[i], lists));
  }
  const Buffer device_logits = upload(logits);
  const Buffer device_rows = upload_bytes(asked.data(), count);
  const Buffer tokens = upload(std::vector<int32_t>(count, -7));
  const Buffer states = upload(std::vector<int32_t>(count, -7));
  SampleParams p;
  p.logits = device_logits.as<float>();
  p.logits_stride = stride;
  p.rows = static_cast<int32_t>(count);
  p.vocab_size = static_cast<int32_t>(vocab);
  p.row = device_rows.as<SampleRow>();
  p.tokens = tokens.as<int32_t>();
  p.states = states.as<SampleState>();
  require(kernels::cuda::launch_sample(p, nullptr), what.c_str());
  require(cudaDeviceSynchronize(), what.c_str());
  const std::vector<int32_t> got = download<int32_t>(tokens, count);
  const std::vector<int32_t> got_states = download<int32_t>(states, count);
  for (size_t i = 0; i < count; ++i) {
    if (!rows[i].row.active) {
      check(report, got[i] == -7 && got_states[i] == -7, what + ": an inactive row is written");
      continue;
    }
    const Outcome expected = expected_of(rows[i]);
    check(report, got[i] == expected.token && got_states[i] == static_cast<int32_t>(expected.state),
          what + ", row " + std::to_string(i) + ": token " + std::to_string(got[i]) + ", state " +
              std::to_string(got_states[i]) + " instead of " + std::to_string(expected.token) +
              ", " + std::to_string(static_cast<int32_t>(expected.state)));
  }
}

void check_faults(Report& report) {
  std::vector<SamplingData> rows(8);
  for (size_t i = 0; i < rows.size(); ++i) {
    make_sampling_data({.name = "fault", .vocab = 5000, .top_k = i % 2 == 0 ? 20 : 0}, i, rows[i]);
  }
  rows[1].logits[4999] = NAN;
  rows[2].logits[17] = INFINITY;
  std::fill(rows[3].logits.begin(), rows[3].logits.end(), -INFINITY);
  rows[4].logits[3] = NAN;  // hidden by what suppresses it
  rows[4].suppressed = {3};
  rows[5].suppressed.resize(5000);
  for (int32_t i = 0; i < 5000; ++i) rows[5].suppressed[static_cast<size_t>(i)] = i;
  rows[6].row.active = false;
  rows[7].logits[0] = NAN;
  rows[7].row.temperature = 0;
  for (const size_t i : {size_t{4}, size_t{5}}) {
    rows[i].row.suppressed = rows[i].suppressed.data();
    rows[i].row.num_suppressed = static_cast<int32_t>(rows[i].suppressed.size());
  }
  check_rows(report, rows, 5001, "faults");
}

}  // namespace

void check_sampling(Report& report, bool quick) {
  check_faults(report);
  for (const SamplingCase& c : kSamplingCases) {
    if (quick && c.vocab > 40000) continue;
    for (const int64_t gap : {0, 1, 4}) {
      std::vector<SamplingData> rows(quick ? 3 : 8);
      for (size_t i = 0; i < rows.size(); ++i) {
        make_sampling_data(c, i + 10 * static_cast<uint64_t>(gap), rows[i]);
      }
      check_rows(report, rows, c.vocab + gap, std::string("sampling ") + c.name);
    }
  }
  // Rows that ask for different things, many to a batch.
  std::vector<SamplingData> rows(quick ? 8 : 300);
  for (size_t i = 0; i < rows.size(); ++i) {
    SamplingCase c = kSamplingCases[i % std::size(kSamplingCases)];
    c.vocab = quick ? 3000 : 20011;
    make_sampling_data(c, i, rows[i]);
  }
  check_rows(report, rows, rows[0].row.top_k + static_cast<int64_t>(rows[0].logits.size()),
             "sampling together");
}

}  // namespace pelton::bench_cuda
