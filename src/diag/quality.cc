#include "diag/quality.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diag/logits.h"
#include "ops/reduce.h"

namespace pelton::diag {
namespace {

// Running sums of one model's windows.
class LossSum {
 public:
  void add(std::span<const float> row, int32_t target, double lse) {
    window_ += lse - static_cast<double>(row[static_cast<size_t>(target)]);
    hits_ += ops::argmax(row) == target ? 1 : 0;
    ++rows_;
  }
  void end_window(size_t length) {
    result_.window_losses.push_back(window_ / static_cast<double>(length));
    window_ = 0;
  }
  Perplexity result() {
    for (const double loss : result_.window_losses) result_.loss += loss;
    result_.loss /= static_cast<double>(result_.window_losses.size());
    result_.perplexity = std::exp(result_.loss);
    result_.top1_accuracy = static_cast<double>(hits_) / static_cast<double>(rows_);
    return result_;
  }

 private:
  Perplexity result_;
  double window_ = 0;
  int64_t hits_ = 0;
  int64_t rows_ = 0;
};

double kl(std::span<const float> base, double base_lse, std::span<const float> model,
          double model_lse) {
  double sum = 0;
  for (size_t i = 0; i < base.size(); ++i) {
    const double log_p = static_cast<double>(base[i]) - base_lse;
    sum += std::exp(log_p) * (log_p - (static_cast<double>(model[i]) - model_lse));
  }
  return std::max(sum, 0.0);
}

}  // namespace

Result<Perplexity> perplexity(engine::Engine& engine, const std::vector<Window>& windows,
                              const Progress& progress) {
  LossSum sum;
  for (size_t w = 0; w < windows.size(); ++w) {
    const Window& window = windows[w];
    const Status status =
        for_each_row(engine, window.inputs, [&](int32_t position, std::span<const float> row) {
          sum.add(row, window.targets[static_cast<size_t>(position)], ops::log_sum_exp(row));
        });
    if (!status.ok()) return status;
    sum.end_window(window.inputs.size());
    if (progress) progress(static_cast<int>(w + 1), static_cast<int>(windows.size()));
  }
  return sum.result();
}

Result<Divergence> divergence(engine::Engine& base, engine::Engine& model,
                              const std::vector<Window>& windows, const Progress& progress) {
  const auto vocab = static_cast<size_t>(base.config().vocab_size);
  if (base.config().vocab_size != model.config().vocab_size) {
    return invalid_argument(fmt::format("the models have different vocabularies: {} and {} ids",
                                        base.config().vocab_size, model.config().vocab_size));
  }
  Divergence result;
  LossSum base_sum;
  LossSum model_sum;
  std::vector<double> kls;
  int64_t agreements = 0;
  for (size_t w = 0; w < windows.size(); ++w) {
    const Window& window = windows[w];
    const auto reference = all_logits(base, window.inputs);
    if (!reference.ok()) return reference.status();
    const Status status =
        for_each_row(model, window.inputs, [&](int32_t position, std::span<const float> row) {
          const auto index = static_cast<size_t>(position);
          const std::span<const float> base_row(reference->data() + index * vocab, vocab);
          const double base_lse = ops::log_sum_exp(base_row);
          const double model_lse = ops::log_sum_exp(row);
          base_sum.add(base_row, window.targets[index], base_lse);
          model_sum.add(row, window.targets[index], model_lse);
          kls.push_back(kl(base_row, base_lse, row, model_lse));
          agreements += ops::argmax(base_row) == ops::argmax(row) ? 1 : 0;
          float largest = 0;
          float error = 0;
          for (size_t i = 0; i < vocab; ++i) {
            largest = std::max(largest, std::fabs(base_row[i]));
            error = std::max(error, std::fabs(base_row[i] - row[i]));
          }
          result.max_relative_error =
              std::max(result.max_relative_error, static_cast<double>(error / largest));
        });
    if (!status.ok()) return status;
    base_sum.end_window(window.inputs.size());
    model_sum.end_window(window.inputs.size());
    if (progress) progress(static_cast<int>(w + 1), static_cast<int>(windows.size()));
  }
  for (const double value : kls) result.mean_kl += value / static_cast<double>(kls.size());
  std::sort(kls.begin(), kls.end());
  result.max_kl = kls.back();
  result.p99_kl = kls[(kls.size() - 1) * 99 / 100];
  result.top1_agreement = static_cast<double>(agreements) / static_cast<double>(kls.size());
  result.base = base_sum.result();
  result.model = model_sum.result();
  return result;
}

}  // namespace pelton::diag
