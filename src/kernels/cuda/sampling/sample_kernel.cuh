// The kernel behind sample.h: adjust the logits, scan, decide.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/common/async.cuh"
#include "kernels/cuda/sampling/sample_row.cuh"

namespace pelton::kernels::cuda {

// Candidates that a row without top-k gathers: what the mass of most rows needs.
inline constexpr int kMassCandidates = 128;
// The largest top-k whose candidates a scan can be expected to hold.
inline constexpr int kMostCandidates = 256;

struct Touched {
  bool bad;     // a logit was NaN or +infinity
  bool finite;  // a logit was above -infinity
};

// Logit bias, suppressed ids and penalties, where they lie. Tells what the touched logits were.
__device__ inline Touched adjust_logits(float* logits, int vocab, const SampleRow& row) {
  const int tid = static_cast<int>(threadIdx.x);
  const bool penalised = row.repetition != 1.0f || row.presence != 0.0f || row.frequency != 0.0f;
  const int history = penalised ? row.history_size : 0;
  const int newest = penalised && row.newest != nullptr ? *row.newest : -1;
  if (row.num_biases == 0 && row.num_suppressed == 0 && !penalised) return {false, false};
  const auto inside = [&](int token) { return token >= 0 && token < vocab; };
  bool bad = false;
  bool finite = false;
  const auto look = [&](int token) {
    if (!inside(token)) return;
    const float logit = logits[token];
    bad |= !(logit < INFINITY);
    finite |= logit > -INFINITY;
  };
  for (int i = tid; i < row.num_biases; i += kSampleThreads) look(row.biases[i].token);
  for (int i = tid; i < row.num_suppressed; i += kSampleThreads) look(row.suppressed[i]);
  for (int i = tid; i < history; i += kSampleThreads) look(row.history[i].token);
  if (tid == 0) look(newest);
  __syncthreads();
  for (int i = tid; i < row.num_biases; i += kSampleThreads) {
    const TokenBias b = row.biases[i];
    if (inside(b.token)) logits[b.token] = __fadd_rn(logits[b.token], b.bias);
  }
  __syncthreads();
  for (int i = tid; i < row.num_suppressed; i += kSampleThreads) {
    if (inside(row.suppressed[i])) logits[row.suppressed[i]] = -INFINITY;
  }
  __syncthreads();
  const auto penalise = [&](int token, int outputs) {
    if (!inside(token)) return;
    float logit = logits[token];
    if (row.repetition != 1.0f) {
      logit = logit < 0.0f ? __fmul_rn(logit, row.repetition) : __fdiv_rn(logit, row.repetition);
      logit = logit > 3.402823466e+38f ? 3.402823466e+38f : logit;
    }
    if (outputs > 0) {
      const float lowered = __fmul_rn(row.frequency, static_cast<float>(outputs));
      logit = __fsub_rn(logit, __fadd_rn(row.presence, lowered));
    }
    logits[token] = logit;
  };
  bool counted = false;  // history holds the newest token
  for (int i = tid; i < history; i += kSampleThreads) {
    const TokenCount count = row.history[i];
    const bool is_newest = count.token == newest;
    counted |= is_newest;
    penalise(count.token, count.outputs + (is_newest ? 1 : 0));
  }
  const bool anywhere = __syncthreads_or(counted ? 1 : 0) != 0;
  if (tid == 0 && !anywhere) penalise(newest, 1);
  bad = __syncthreads_or(bad ? 1 : 0) != 0;
  finite = __syncthreads_or(finite ? 1 : 0) != 0;
  return {bad, finite};
}

// Candidates in shared memory. Tokens that are not among them have an order of at least `limit`.
struct Candidates {
  int count;  // in key and weight; 0 if the scan was not complete
  uint32_t limit;

  __device__ bool hold(uint64_t cut) const { return cut >> kIdBits < limit; }
};

// Keeps the tokens whose key is at most `cut` and gives them weights: s.found to s.key, s.weight.
__device__ inline int keep_candidates(SampleShared& s, const ScanResult& scan, uint64_t cut) {
  if (threadIdx.x == 0) s.count = 0;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < scan.candidates; i += kSampleThreads) {
    const uint64_t key = s.found[i];
    if (key > cut) continue;
    const float scaled = -__uint_as_float(static_cast<uint32_t>(key >> kIdBits));
    const int at = atomicAdd(&s.count, 1);
    s.key[at] = key;
    s.weight[at] = fixed_weight(scaled);
  }
  __syncthreads();
  return s.count;
}

__device__ inline uint64_t candidate_mass(SampleShared& s, const Candidates& c, uint64_t cut) {
  uint64_t sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < c.count; i += kSampleThreads) {
    sum += s.key[i] <= cut ? s.weight[i] : 0;
  }
  return block_total(s, sum);
}

// The mass of the row's tokens with keys up to `cut`, and s.chunk for locate().
struct RowMass {
  uint64_t cut;
  __device__ __forceinline__ uint64_t operator()(float scaled, int id) const {
    if (cut != kEveryKey && pack_key(Scale::order(scaled), id) > cut) return 0;
    return fixed_weight(scaled);
  }
};

// From top-k to the draw.
__device__ inline int choose_token(SampleShared& s, const RowView& row, const SampleRow& p,
                                   const ScanResult& scan) {
  constexpr int kKeyBits = 31 + kIdBits;
  const Scale scale(scan.max, p.temperature);
  const auto draws_from = [&](float scaled) -> uint64_t {
    return Scale::order(scaled) < kOrderNever ? 1 : 0;
  };
  const auto weighs = [](float scaled) { return fixed_weight(scaled); };
  const bool has_top_k = p.top_k > 0 && p.top_k < row.vocab_size;
  Candidates candidates = {0, 0};
  uint64_t cut = kEveryKey;  // tokens up to this key are kept
  if (scan.complete) {
    candidates.limit = scan.candidates == row.vocab_size
                           ? kOrderNever
                           : Scale::order(scale.scaled(scan.threshold));
    for (int i = static_cast<int>(threadIdx.x); i < scan.candidates; i += kSampleThreads) {
      const uint64_t found = s.found[i];
      const float scaled = scale.scaled(__uint_as_float(static_cast<uint32_t>(found >> 32)));
      s.found[i] = pack_key(Scale::order(scaled), static_cast<int>(static_cast<uint32_t>(found)));
    }
    __syncthreads();
  }

  if (has_top_k) {
    SearchResult found = {false, 0};
    if (scan.complete) {
      found = search_count(s, scan.candidates, uint64_t{candidates.limit} << kIdBits,
                           static_cast<uint32_t>(p.top_k), [&](int i) { return s.found[i]; });
    }
    cut = found.found ? found.key
                      : row_boundary(s, row, scale, static_cast<uint64_t>(p.top_k), draws_from);
  }
  if (scan.complete) candidates.count = keep_candidates(s, scan, cut);

  uint64_t total = 0;  // of the tokens that are kept, where it is known
  bool is_total_known = false;
  bool are_chunks_known = false;
  const auto sum_kept = [&] {
    are_chunks_known = !candidates.hold(cut);
    total = are_chunks_known ? measure_chunks(s, row, scale,
                                              [measure = RowMass{cut}](float scaled, int id) {
                                                return measure(scaled, id);
                                              })
                             : candidate_mass(s, candidates, cut);
    is_total_known = true;
  };
  if (p.top_p < 1.0f) {
    sum_kept();
    const uint64_t target = mass_target(total, p.top_p);
    if (target != 0) {
      const SearchResult found = search(
          s, candidates.count, kKeyBits, target, [&](int i) { return s.key[i]; },
          [&](int i) { return s.weight[i]; });
      cut = min(cut, found.found && candidates.hold(found.key)
                         ? found.key
                         : row_boundary(s, row, scale, target, weighs));
      is_total_known = false;
    }
  }
  if (p.min_scaled > -INFINITY) {
    const uint64_t lowest = pack_key(Scale::order(p.min_scaled), (1 << kIdBits) - 1);
    is_total_known &= cut <= lowest;
    cut = min(cut, lowest);
  }
  if (!is_total_known) sum_kept();
  const uint64_t rest = draw_rest(total, uniform_draw(p.seed, p.sequence, p.position));
  if (are_chunks_known) return locate(s, row, scale, rest, RowMass{cut});
  const SearchResult drawn = search(
      s, candidates.count, kIdBits, rest + 1,
      [&](int i) { return s.key[i] & ((uint64_t{1} << kIdBits) - 1); },
      [&](int i) { return s.key[i] <= cut ? s.weight[i] : 0; });
  return static_cast<int>(drawn.key);
}

__global__ void __launch_bounds__(kSampleThreads, 2) sample_kernel(SampleParams p) {
  extern __shared__ __align__(16) std::byte sample_shared[];
  SampleShared& s = *reinterpret_cast<SampleShared*>(sample_shared);
  wait_prerequisites();
  launch_dependents();
  const int index = static_cast<int>(blockIdx.x);
  const SampleRow row = p.row[index];
  if (!row.active) return;
  float* const logits = p.logits + index * p.logits_stride;
  const Touched touched = adjust_logits(logits, p.vocab_size, row);
  const RowView view(logits, p.vocab_size);

  int token = 0;
  float max;
  if (row.temperature == 0.0f) {
    const Highest highest = scan_highest(s, view);
    max = highest.max;
    token = highest.id;
  } else {
    const bool has_top_k = row.top_k > 0 && row.top_k < p.vocab_size;
    const int want = !has_top_k ? kMassCandidates : row.top_k <= kMostCandidates ? row.top_k : 0;
    const int most = has_top_k ? kSampleFound : kSampleKept;
    const ScanResult scan = scan_candidates(s, view, want, most);
    max = scan.max;
    if (max > -INFINITY && max < INFINITY) token = choose_token(s, view, row, scan);
  }
  if (threadIdx.x != 0) return;
  SampleState state = SampleState::kSampled;
  if (touched.bad || !(max > -INFINITY && max < INFINITY)) {
    state = max == -INFINITY && touched.finite && !touched.bad ? SampleState::kNothingLeft
                                                               : SampleState::kBadLogits;
  }
  p.tokens[index] = state == SampleState::kSampled ? token : 0;
  if (p.states != nullptr) p.states[index] = state;
}

}  // namespace pelton::kernels::cuda
