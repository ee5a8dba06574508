// A server over a device that fails: whoever waits is answered with an error, health is false, and
// the server ends with one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "device/testing/fake_device.h"
#include "engine/engine.h"
#include "kernels/ref/device_kernels.h"
#include "server/live_client.h"
#include "server/service.h"
#include "tests/support/source_root.h"

namespace pelton::server {
namespace {

using device::FakeDevice;
using device::FakeFault;

struct Served {
  FakeDevice* device = nullptr;
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<Service> service;
};

Served serve_fake() {
  auto device = std::make_unique<FakeDevice>(size_t{256} << 20);
  Served served;
  served.device = device.get();
  engine::EngineOptions options;
  options.threads = 1;
  options.max_model_len = 128;
  options.max_num_seqs = 4;
  options.max_num_batched_tokens = 32;
  options.cuda = true;
  options.activations = kernels::ActivationPrecision::kF32;
  options.kv_cache_dtype = kernels::KvFormat::kF32;
  options.backend = *runtime::Backend::create(std::move(device), kernels::ref::device_kernels());
  auto files = engine::ModelFiles::open(pelton::source_root() / "tests/data/runnel-2m");
  auto engine = engine::Engine::load(std::move(files).value(), options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  served.engine = std::move(engine).value();
  ServiceOptions service_options;
  service_options.http.port = 0;
  service_options.version = "test";
  service_options.log = [](const std::string&) {};
  auto service = Service::create(*served.engine, std::move(service_options));
  EXPECT_TRUE(service.ok()) << service.status().to_string();
  served.service = std::move(service).value();
  return served;
}

std::string completion(int tokens, bool stream) {
  return fmt::format(
      R"({{"prompt":"The river is","max_tokens":{},"temperature":0,"ignore_eos":true,"stream":{}}})",
      tokens, stream);
}

class ServedDeviceFault : public testing::TestWithParam<FakeFault> {};
INSTANTIATE_TEST_SUITE_P(Faults, ServedDeviceFault,
                         testing::Values(FakeFault::kError, FakeFault::kHang));

TEST_P(ServedDeviceFault, EveryoneIsAnsweredAndTheServerEndsWithAnError) {
  Served served = serve_fake();
  // Somewhere in the steps that all of the clients share.
  served.device->inject(served.device->calls() + 400, GetParam());
  Status outcome;
  std::thread server([&] { outcome = served.service->run(); });
  std::vector<std::string> answers(3);
  std::vector<std::thread> clients;
  for (size_t i = 0; i < answers.size(); ++i) {
    clients.emplace_back([&, i] {
      const Client client(served.service->port());
      client.send(request("/v1/completions", completion(100, i == 0)));
      answers[i] = client.read_all();
    });
  }
  for (std::thread& client : clients) client.join();
  server.join();
  EXPECT_EQ(outcome.code(), StatusCode::kInternal) << outcome.to_string();
  EXPECT_FALSE(served.engine->healthy());
  EXPECT_NE(answers[0].find("error"), std::string::npos) << "a stream ends with an error";
  for (size_t i = 1; i < answers.size(); ++i) {
    EXPECT_TRUE(says(answers[i], 500) || says(answers[i], 503)) << answers[i];
    EXPECT_EQ(answers[i].find("fake device"), std::string::npos) << "strangers learn no details";
  }
  const engine::EngineMetrics m = served.engine->metrics();
  EXPECT_EQ(m.requests, m.finished + m.cancelled + m.failed);
}

}  // namespace
}  // namespace pelton::server
