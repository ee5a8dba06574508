// /openapi.json, from the tables.
#include <variant>

#include "server/fields.h"
#include "server/json_writer.h"

namespace pelton::server {
namespace {

void write_range(const Field& field, JsonWriter& out) {
  out.key(field.low_open ? "exclusiveMinimum" : "minimum").number(field.low);
  out.key("maximum").number(field.high);
}

// JSON schema of a plain field, without its braces.
struct SchemaOf {
  const Field& field;
  JsonWriter& out;

  void operator()(std::monostate) const {}
  void operator()(bool ApiRequest::*) const { out.field("type", "boolean"); }
  void operator()(bool SamplingParams::*) const { out.field("type", "boolean"); }
  void operator()(int32_t ApiRequest::*) const { integer(); }
  void operator()(int32_t SamplingParams::*) const { integer(); }
  void operator()(std::optional<int32_t> ApiRequest::*) const { integer(); }
  void operator()(float SamplingParams::*) const { number(); }
  void operator()(double ApiRequest::*) const { number(); }
  void operator()(std::string ApiRequest::*) const {
    out.field("type", "string");
    out.key("maxLength").number(field.high);
  }
  void integer() const {
    out.field("type", "integer");
    write_range(field, out);
  }
  void number() const {
    out.field("type", "number");
    write_range(field, out);
  }
};

void write_body(const Route& route, JsonWriter& out) {
  out.key("requestBody").begin_object().key("required").boolean(true);
  out.key("content").begin_object().key("application/json").begin_object();
  out.key("schema").begin_object().field("type", "object");
  out.key("additionalProperties").boolean(false);
  out.key("required").begin_array();
  for (const Field& field : route.fields) {
    if (field.required) out.string(field.name);
  }
  out.end_array().key("properties").begin_object();
  for (const Field& field : route.fields) {
    out.key(field.name).begin_object().field("description", field.help);
    if (field.read == nullptr) {
      std::visit(SchemaOf{field, out}, field.target);
    } else if (field.schema.size() > 2) {
      // The schema's own keys join the description's.
      out.key("allOf").begin_array().raw(field.schema).end_array();
    }
    out.end_object();
  }
  out.end_object().end_object().end_object().end_object().end_object();
}

void write_response(std::string_view status, std::string_view text, JsonWriter& out) {
  out.key(status).begin_object().field("description", text).end_object();
}

void write_responses(const Route& route, JsonWriter& out) {
  out.key("responses").begin_object();
  write_response("200", "The answer", out);
  write_response("401", "No valid key", out);
  write_response("403", "A foreign Host or Origin", out);
  if (!route.fields.empty()) {
    write_response("400", "A field is wrong; error.param names it", out);
    write_response("404", "The model is not served here", out);
    write_response("413", "The body is too large", out);
    write_response("429", "Too many requests; Retry-After says when to come again", out);
    write_response("408", "The body took too long", out);
  }
  write_response("503", "Not now; Retry-After says when to come again", out);
  out.end_object();
}

}  // namespace

std::string openapi_document(std::string_view version) {
  JsonWriter out;
  out.begin_object().field("openapi", "3.1.0");
  out.key("info").begin_object().field("title", "Pelton").field("version", version).end_object();
  out.key("paths").begin_object();
  for (const Route& route : routes()) {
    out.key(route.path).begin_object();
    out.key(route.method == "GET" ? "get" : "post").begin_object();
    out.field("summary", route.summary);
    if (!route.fields.empty()) write_body(route, out);
    write_responses(route, out);
    out.end_object().end_object();
  }
  out.end_object().end_object();
  return out.take();
}

}  // namespace pelton::server
