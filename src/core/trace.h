// The one hook through which diagnosis sees intermediates. A forward names every intermediate,
// layer.<index>.<name>; without a sink the call is one predicted branch. Sinks (doctor, golden
// tests, calibration) only read.
#pragma once

#include <string_view>

#include "core/tensor.h"

namespace pelton {

class TraceSink {
 public:
  virtual ~TraceSink() = default;
  // Whether a tensor of this name is wanted; others need not be copied from a device.
  virtual bool wants(int /*layer*/, std::string_view /*name*/) const { return true; }
  // `layer` is -1 outside the layer stack ("embedding", "final_norm", "logits"). The tensor lives
  // during the call only.
  virtual void on_tensor(int layer, std::string_view name, const Tensor& tensor) = 0;
};

}  // namespace pelton
