#include "device/cuda/cuda_stream.h"

#include <fmt/format.h>

#include <thread>

#include "device/cuda/cuda_status.h"

namespace pelton::device {

Status CudaContext::status(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) [[likely]] {
    return {};
  }
  // Clears an error that is not sticky, so that the next launch does not report it again.
  cudaGetLastError();
  Status result = cuda_status(error, what);
  if (!is_recoverable(error)) return device_.set_fault(std::move(result));
  return result;
}

Status CudaContext::hung(std::string_view what) {
  return device_.set_fault(internal_error(
      fmt::format("CUDA: {}: the device did not finish within {} ms", what, patience_.count())));
}

template <typename Query>
Status CudaContext::finish(const Query& query, std::string_view what) {
  using Clock = std::chrono::steady_clock;
  // A step takes a millisecond or so: polling answers soonest; what takes longer yields the core.
  constexpr auto kEager = std::chrono::milliseconds(20);
  const Clock::time_point start = Clock::now();
  for (;;) {
    const cudaError_t error = query();
    if (error != cudaErrorNotReady) return status(error, what);
    const auto waited = Clock::now() - start;
    if (waited > patience_) return hung(what);
    if (waited > kEager) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

namespace {

class CudaEvent final : public Event {
 public:
  CudaEvent(CudaContext& context, cudaEvent_t event) : context_(context), event_(event) {}
  ~CudaEvent() override { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  Status finish() override {
    return context_.finish([this] { return cudaEventQuery(event_); }, "waiting for an event");
  }
  Result<float> milliseconds_since(const Event& earlier) const override {
    float milliseconds = 0;
    const auto& other = static_cast<const CudaEvent&>(earlier);
    const cudaError_t error = cudaEventElapsedTime(&milliseconds, other.event_, event_);
    if (error != cudaSuccess) return context_.status(error, "time between events");
    return milliseconds;
  }
  cudaEvent_t native() const { return event_; }

 private:
  CudaContext& context_;
  cudaEvent_t event_;
};

class CudaGraph final : public Graph {
 public:
  explicit CudaGraph(cudaGraphExec_t graph) : graph_(graph) {}
  ~CudaGraph() override { cudaGraphExecDestroy(graph_); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  cudaGraphExec_t native() const { return graph_; }

 private:
  cudaGraphExec_t graph_;
};

class CudaStream final : public Stream {
 public:
  CudaStream(CudaContext& context, cudaStream_t stream) : context_(context), stream_(stream) {}
  ~CudaStream() override { cudaStreamDestroy(stream_); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  Status copy_to_device(void* target, const void* source, size_t bytes) override {
    return copy(target, source, bytes, cudaMemcpyHostToDevice, "copying to the device");
  }
  Status copy_to_host(void* target, const void* source, size_t bytes) override {
    return copy(target, source, bytes, cudaMemcpyDeviceToHost, "copying from the device");
  }
  Status copy_within(void* target, const void* source, size_t bytes) override {
    return copy(target, source, bytes, cudaMemcpyDeviceToDevice, "copying on the device");
  }
  Status fill(void* target, unsigned char value, size_t bytes) override {
    return context_.status(cudaMemsetAsync(target, value, bytes, stream_), "filling memory");
  }

  Status launched(const char* kernel) override {
    return context_.status(cudaGetLastError(), kernel);
  }
  void* native() override { return stream_; }
  Status call(std::function<void()> /*work*/) override {
    return unsupported("CUDA streams do not call the host");
  }

  Status record(Event& event) override {
    return context_.status(cudaEventRecord(static_cast<CudaEvent&>(event).native(), stream_),
                           "recording an event");
  }
  Status wait(const Event& event) override {
    return context_.status(
        cudaStreamWaitEvent(stream_, static_cast<const CudaEvent&>(event).native(), 0),
        "waiting for another stream");
  }

  Status begin_capture() override {
    return context_.status(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
                           "beginning a graph");
  }
  Result<std::unique_ptr<Graph>> end_capture() override {
    cudaGraph_t graph = nullptr;
    if (Status s = context_.status(cudaStreamEndCapture(stream_, &graph), "ending a graph");
        !s.ok()) {
      return s;
    }
    cudaGraphExec_t exec = nullptr;
    const cudaError_t error = cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphDestroy(graph);
    if (Status s = context_.status(error, "instantiating a graph"); !s.ok()) return s;
    return std::unique_ptr<Graph>(std::make_unique<CudaGraph>(exec));
  }
  Status launch(Graph& graph) override {
    return context_.status(cudaGraphLaunch(static_cast<CudaGraph&>(graph).native(), stream_),
                           "launching a graph");
  }

  Status finish() override {
    return context_.finish([this] { return cudaStreamQuery(stream_); }, "running a step");
  }

 private:
  Status copy(void* target, const void* source, size_t bytes, cudaMemcpyKind kind,
              const char* what) {
    if (bytes == 0) return {};
    return context_.status(cudaMemcpyAsync(target, source, bytes, kind, stream_), what);
  }

  CudaContext& context_;
  cudaStream_t stream_;
};

}  // namespace

Result<std::unique_ptr<Stream>> create_cuda_stream(CudaContext& context) {
  cudaStream_t stream = nullptr;
  if (Status s = context.status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                "creating a stream");
      !s.ok()) {
    return s;
  }
  return std::unique_ptr<Stream>(std::make_unique<CudaStream>(context, stream));
}

Result<std::unique_ptr<Event>> create_cuda_event(CudaContext& context) {
  cudaEvent_t event = nullptr;
  if (Status s = context.status(cudaEventCreate(&event), "creating an event"); !s.ok()) return s;
  return std::unique_ptr<Event>(std::make_unique<CudaEvent>(context, event));
}

}  // namespace pelton::device
