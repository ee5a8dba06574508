// Any body for every route: a request, or a 400 that is valid JSON and names what is wrong.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "server/fields.h"

namespace {

using pelton::server::ApiRequest;

void read(std::string_view body, std::span<const pelton::server::Field> fields) {
  ApiRequest request;
  const auto error = pelton::server::read_fields(body, fields, &request);
  if (!error) {
    if (request.sampling.stop.size() > 16 || request.sampling.logit_bias.size() > 1024)
      std::abort();
    if (request.sampling.n < 1 || request.sampling.n > 16) std::abort();
    return;
  }
  if (error->status != 400 || error->message.empty()) std::abort();
  const std::string json = error->json();
  if (!pelton::is_valid_utf8(json)) std::abort();
  if (!pelton::JsonDocument::parse(json).ok()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (const pelton::server::Route& route : pelton::server::routes()) {
    if (!route.fields.empty()) read(body, route.fields);
  }
  return 0;
}
