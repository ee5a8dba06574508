// How well a model predicts a text, alone or against another.
#pragma once

#include <functional>
#include <vector>

#include "diag/windows.h"
#include "engine/engine.h"

namespace pelton::diag {

// Called after each window with (done, of).
using Progress = std::function<void(int, int)>;

struct Perplexity {
  std::vector<double> window_losses;  // mean negative log-likelihood of each window, nat a token
  double loss = 0;                    // mean over windows
  double perplexity = 0;              // exp(loss)
  double top1_accuracy = 0;           // share of targets that were the most likely token
};
Result<Perplexity> perplexity(engine::Engine& engine, const std::vector<Window>& windows,
                              const Progress& progress);

struct Divergence {
  double mean_kl = 0;  // mean over positions of KL(base || model), nat
  double max_kl = 0;
  double p99_kl = 0;
  double top1_agreement = 0;      // share of positions with the same most likely token
  double max_relative_error = 0;  // max |model - base| / max |base|, over rows' logits
  Perplexity base;
  Perplexity model;
};
// Both engines must have one vocabulary.
Result<Divergence> divergence(engine::Engine& base, engine::Engine& model,
                              const std::vector<Window>& windows, const Progress& progress);

}  // namespace pelton::diag
