#include "runtime/backend.h"

#include <utility>

namespace pelton::runtime {

Result<std::shared_ptr<Backend>> Backend::open_cuda(int index, const LibraryOptions& libraries) {
  auto device = device::open_cuda({.index = index});
  if (!device.ok()) return device.status();
  auto backend = create(std::move(device).value(), ops::cuda_kernels());
  if (!backend.ok() || !libraries.use) return backend;
  std::string why;
  (*backend)->cublaslt_ = ops::open_cublaslt(libraries.folders, &why);
  if (!why.empty()) {
    (*backend)->library_note_ =
        "cuBLASLt is not used: " + why + "; products run on kernels of this build alone";
  }
  return backend;
}

Result<std::shared_ptr<Backend>> Backend::create(std::unique_ptr<device::Device> device,
                                                 const kernels::DeviceKernels& kernels) {
  std::shared_ptr<Backend> backend(new Backend());
  auto stream = device->create_stream();
  if (!stream.ok()) return stream.status();
  const size_t zeroed_bytes = ops::zeroed_bytes(kernels);
  auto zeroed = memory::DeviceRegion::allocate(*device, zeroed_bytes);
  if (!zeroed.ok()) return zeroed.status();
  backend->zeroed_ = std::move(zeroed).value();
  if (zeroed_bytes > 0) {
    if (Status s = (*stream)->fill(backend->zeroed(), 0, zeroed_bytes); !s.ok()) return s;
  }
  backend->device_ = std::move(device);
  backend->stream_ = std::move(stream).value();
  backend->kernels_ = &kernels;
  return backend;
}

bool built_with_cuda() { return device::built_with_cuda(); }

PlanTarget::PlanTarget(const Backend* backend)
    : caps(backend == nullptr ? device::h200_caps() : backend->device().caps()),
      kernels(backend == nullptr ? ops::cuda_kernels() : backend->kernels()),
      has_cublaslt(backend == nullptr || backend->cublaslt() != nullptr) {}

}  // namespace pelton::runtime
